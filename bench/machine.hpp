// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the benchmark needs from a kind of machine beyond the library's Runtime: setting it up, and timing. Each kind's
// own source enters itself when the program starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "mscclpp/host/stream.hpp"
#include "timer.hpp"

namespace mscclpp::bench {

class Machine {
 public:
  virtual ~Machine() = default;
  virtual DeviceKind kind() const = 0;
  // Before devices are counted or used: this process is about to use, or to see as peers, devices up to this number.
  virtual void prepare(int devices) = 0;
  virtual int defaultRanks() const = 0;
  // Largest grid that the library's own choice may take.
  virtual std::uint32_t maxBlocks(Device device) const = 0;
  // The calling thread works with this device from now on.
  virtual void use(Device device) = 0;
  virtual std::unique_ptr<Timer> makeTimer(Stream const& stream) const = 0;
  // Longest that one wait of a kernel may take.
  virtual std::chrono::seconds kernelLimit() const = 0;
  // What a reader must know about the times; may be empty.
  virtual std::string note() const = 0;
};

// Null where this program was built without that kind.
Machine* machine(DeviceKind kind);
bool registerMachine(std::unique_ptr<Machine> machine);

}  // namespace mscclpp::bench

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the benchmark needs from a kind of machine beyond the library's Runtime: setting it up, and timing. Each kind's
// own source enters itself when the program starts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "machine/port_probe.hpp"
#include "machine/timer.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp::bench {

class Machine {
 public:
  virtual ~Machine() = default;
  virtual DeviceKind kind() const = 0;
  // Before devices are counted or used: this process is about to use, or to see as peers, devices up to this number.
  virtual void prepare(int devices) = 0;
  virtual int defaultRanks() const = 0;
  // The calling thread works with this device from now on.
  virtual void use(Device device) = 0;
  // Of what runs in the stream; with as many leading operations in each graph, where it makes graphs.
  virtual std::unique_ptr<Timer> makeTimer(Stream const& stream, int leads = leadOperations) const = 0;
  // Whether those time graphs.
  virtual bool makesGraphs() const { return false; }
  // Repetitions that do not count, where timers are the processor's.
  virtual int warmUps() const = 0;
  // Puts an empty kernel of this shape into the stream, by nothing but the machine's own call; empty where there is no
  // such thing. Of use as long as the stream.
  virtual std::function<void()> bareLaunch(Stream const&, LaunchShape const&) const { return {}; }
  virtual void start(Stream const& stream, PortProbe const& probe) const = 0;
  // Longest that one wait of a kernel may take.
  virtual std::chrono::seconds kernelLimit() const = 0;
  // What a reader must know about the times; may be empty.
  virtual std::string note() const = 0;
};

// Before anything of CUDA is used, where ranks as threads may share GPUs: host/ranks.hpp says why. What the user has
// set stays.
void shareDevices();

// Null where this program was built without that kind.
Machine* machine(DeviceKind kind);
bool registerMachine(std::unique_ptr<Machine> machine);

}  // namespace mscclpp::bench

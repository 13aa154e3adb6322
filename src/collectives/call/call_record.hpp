// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is kept of calls for those who look on (call_counts.hpp): counters, and ranges for profilers that read NVTX.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

// Of a collective by an algorithm; lives as long as the process.
struct CallRecord {
  Collective collective{};
  std::string algorithm;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> bytes{0};
};
CallRecord& recordOf(Collective collective, std::string_view algorithm);

// A call, while it starts. Without a record it is a step of another call, and not told of.
class RecordedCall {
 public:
  RecordedCall(CallRecord* record, std::uint64_t bytes) noexcept {
    if (on() && record != nullptr) begin(*record, bytes);
  }
  ~RecordedCall() {
    if (inRange_) end();
  }
  RecordedCall(RecordedCall const&) = delete;
  RecordedCall& operator=(RecordedCall const&) = delete;

  // Who looks on, as bits.
  static constexpr unsigned counts = 1;
  static constexpr unsigned profiler = 2;
  static void look(unsigned who, bool on) noexcept;
  static bool on() noexcept { return lookers_.load(std::memory_order_relaxed) != 0; }

 private:
  void begin(CallRecord& record, std::uint64_t bytes) noexcept;
  static void end() noexcept;

  static std::atomic<unsigned> lookers_;
  bool inRange_ = false;
};

// Of a call's larger buffer.
inline std::uint64_t recordedBytes(CollectiveCall const& call) noexcept {
  return call.inBytes > call.outBytes ? call.inBytes : call.outBytes;
}

}  // namespace mscclpp::collectives_impl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/call_record.hpp"

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // a build without CUDA's toolkit, which no profiler of NVIDIA's looks at
using nvtxDomainHandle_t = void*;
#endif

#include "base/format.hpp"
#include "base/process_file.hpp"
#include "mscclpp/collectives/call_counts.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp {
namespace collectives_impl {
namespace {

struct Records {
  std::mutex mutex;
  std::map<std::pair<Collective, std::string>, CallRecord> all;

  static Records& instance() {
    static auto* const records = new Records;  // calls may still come while static objects are destroyed
    return *records;
  }
};

// Null where no profiler reads them.
nvtxDomainHandle_t ranges() {
#ifdef NVTX_VERSION
  static auto* const domain = nvtxDomainCreateA("mscclpp");
  return domain;
#else
  return nullptr;
#endif
}

void push([[maybe_unused]] char const* name) {
#ifdef NVTX_VERSION
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(ranges(), &range);
#endif
}

void pop() {
#ifdef NVTX_VERSION
  nvtxDomainRangePop(ranges());
#endif
}

// Looked at when the program starts.
bool const byEnvironment = [] {
  if (ranges() != nullptr) RecordedCall::look(RecordedCall::profiler, true);
  static auto const file = ofThisProcess(processVariable("MSCCLPP_COUNTS").value_or(""));
  if (file.empty()) return false;
  CallCounts::start();
  std::atexit([] {
    try {
      CallCounts::write(file);
    } catch (std::exception const& error) {
      writeLog(LogLevel::error, error.what());
    }
  });
  return true;
}();

}  // namespace

constinit std::atomic<unsigned> RecordedCall::lookers_{0};

CallRecord& recordOf(Collective collective, std::string_view algorithm) {
  (void)byEnvironment;
  auto& records = Records::instance();
  std::lock_guard const lock(records.mutex);
  auto const [entry, isNew] = records.all.try_emplace(std::pair(collective, std::string(algorithm)));
  if (isNew) {
    entry->second.collective = collective;
    entry->second.algorithm = algorithm;
  }
  return entry->second;
}

void RecordedCall::look(unsigned who, bool on) noexcept {
  if (on) {
    lookers_.fetch_or(who, std::memory_order_relaxed);
  } else {
    lookers_.fetch_and(~who, std::memory_order_relaxed);
  }
}

void RecordedCall::begin(CallRecord& record, std::uint64_t bytes) noexcept {
  auto const who = lookers_.load(std::memory_order_relaxed);
  if ((who & counts) != 0) {
    record.calls.fetch_add(1, std::memory_order_relaxed);
    record.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  if ((who & profiler) != 0) {
    push(fmt::format("{} {} {} B", nameOf(record.collective), record.algorithm, bytes).c_str());
    inRange_ = true;
  }
}

void RecordedCall::end() noexcept { pop(); }

}  // namespace collectives_impl

using collectives_impl::RecordedCall;
using collectives_impl::Records;

void CallCounts::start() {
  auto& records = Records::instance();
  std::lock_guard const lock(records.mutex);
  for (auto& [key, record] : records.all) record.calls = record.bytes = 0;
  RecordedCall::look(RecordedCall::counts, true);
}

void CallCounts::stop() { RecordedCall::look(RecordedCall::counts, false); }

std::vector<CallCount> CallCounts::all() {
  auto& records = Records::instance();
  std::lock_guard const lock(records.mutex);
  std::vector<CallCount> result;
  for (auto const& [key, record] : records.all) {
    auto const calls = record.calls.load(std::memory_order_relaxed);
    if (calls != 0) {
      result.push_back({record.collective, record.algorithm, calls, record.bytes.load(std::memory_order_relaxed)});
    }
  }
  return result;
}

void CallCounts::write(std::string const& file) {
  errno = 0;
  std::ofstream out(file);
  out << fmt::format("{:<14} {:<24} {:>12} {:>18}\n", "collective", "algorithm", "calls", "bytes");
  for (auto const& count : all()) {
    out << fmt::format("{:<14} {:<24} {:>12} {:>18}\n", nameOf(count.collective), count.algorithm, count.calls,
                       count.bytes);
  }
  out.close();
  if (!out) throwSystemError(fmt::format("cannot write the counts of calls to \"{}\"", file), errno);
}

}  // namespace mscclpp

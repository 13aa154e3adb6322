// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/trace.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <cxxabi.h>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/process_file.hpp"
#include "base/virtual_trace.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

struct Event {
  int rank;
  int track;
  std::string name;
  std::uint64_t begin;
  std::uint64_t end;  // as `begin`: an instant
  Trace::Arguments arguments;
};

struct Launched {
  int device;
  std::string name;
  std::uint64_t begin;
};

struct Recorder {
  std::mutex mutex;
  std::vector<Event> events;
  std::map<void*, std::vector<Launched>> launched;     // by stream
  std::map<std::pair<int, int>, std::string> names{};  // of tracks, by rank; else as trackName() says
  std::uint64_t origin = 0;
  std::string file;  // of MSCCLPP_TRACE

  static Recorder& instance() {
    static auto* const recorder = new Recorder;  // events may still come while static objects are destroyed
    return *recorder;
  }

  void add(Event event) {
    std::lock_guard const lock(mutex);
    events.push_back(std::move(event));
  }
};

// Of a timed run: its clock, and what Trace::now() was when that began.
std::atomic<std::uint64_t (*)()> runClock{nullptr};
std::atomic<std::uint64_t> runBegin{0};

std::string trackName(int track) {
  if (track == Trace::hostTrack) return "host";
  if (track == Trace::kernelTrack) return "kernels";
  if (track == virtual_trace::copyTrack) return "copies";
  return fmt::format("proxy {}", track);
}

nlohmann::json toJson(Event const& event, std::uint64_t origin) {
  auto const microseconds = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  bool const isInstant = event.begin == event.end;
  nlohmann::json json{{"name", event.name},
                      {"ph", isInstant ? "i" : "X"},
                      {"pid", event.rank},
                      {"tid", event.track},
                      {"ts", microseconds(event.begin - std::min(origin, event.begin))}};
  if (isInstant) {
    json["s"] = "t";
  } else {
    json["dur"] = microseconds(event.end - event.begin);
  }
  for (auto const& [name, value] : event.arguments) json["args"][name] = value;
  return json;
}

// The environment's wish, looked at when the program starts.
bool const byEnvironment = [] {
  auto const file = processVariable("MSCCLPP_TRACE");
  if (!file || file->empty()) return false;
  auto& recorder = Recorder::instance();
  recorder.file = ofThisProcess(*file);
  Trace::start();
  std::atexit([] {
    try {
      if (Trace::on()) Trace::stopAndWrite(Recorder::instance().file);
    } catch (std::exception const& error) {
      writeLog(LogLevel::error, error.what());
    }
  });
  return true;
}();

}  // namespace

constinit std::atomic<bool> Trace::on_{false};

std::uint64_t Trace::now() noexcept {
  if (auto* const clock = runClock.load(std::memory_order_acquire)) return runBegin + clock();
  auto const time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

void Trace::start() {
  (void)byEnvironment;
  auto& recorder = Recorder::instance();
  std::lock_guard const lock(recorder.mutex);
  recorder.events.clear();
  recorder.launched.clear();
  recorder.origin = now();
  on_.store(true, std::memory_order_relaxed);
}

void Trace::stopAndWrite(std::string const& file) {
  on_.store(false, std::memory_order_relaxed);
  auto& recorder = Recorder::instance();
  std::lock_guard const lock(recorder.mutex);
  auto events = nlohmann::json::array();
  std::set<std::pair<int, int>> tracks;
  for (auto const& event : recorder.events) {
    events.push_back(toJson(event, recorder.origin));
    tracks.insert({event.rank, event.track});
  }
  for (auto const& [rank, track] : tracks) {
    auto const named = recorder.names.find({rank, track});
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", track},
                      {"args", {{"name", named == recorder.names.end() ? trackName(track) : named->second}}}});
  }
  errno = 0;
  std::ofstream out(file);
  out << nlohmann::json{{"traceEvents", std::move(events)}}.dump() << '\n';
  out.close();
  if (!out) throwSystemError(fmt::format("cannot write the trace to \"{}\"", file), errno);
  recorder.events.clear();
}

void Trace::instant(int rank, int track, std::string name, Arguments arguments) {
  auto const time = now();
  Recorder::instance().add({rank, track, std::move(name), time, time, std::move(arguments)});
}

void Trace::span(int rank, int track, std::string name, std::uint64_t begin, Arguments arguments) {
  // Of no length it would be an instant.
  Recorder::instance().add({rank, track, std::move(name), begin, std::max(now(), begin + 1), std::move(arguments)});
}

void Trace::kernel(void* stream, int device, std::string name) {
  if (runClock.load(std::memory_order_relaxed) != nullptr) return;
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> const text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  if (text != nullptr) name = text.get();
  auto& recorder = Recorder::instance();
  std::lock_guard const lock(recorder.mutex);
  recorder.launched[stream].push_back({device, std::move(name), now()});
}

void Trace::streamIdle(void* stream) {
  auto& recorder = Recorder::instance();
  std::lock_guard const lock(recorder.mutex);
  auto const found = recorder.launched.find(stream);
  if (found == recorder.launched.end()) return;
  auto const end = now();
  for (auto& launched : found->second) {
    recorder.events.push_back({launched.device,
                               kernelTrack,
                               std::move(launched.name),
                               launched.begin,
                               std::max(end, launched.begin + 1),
                               {}});
  }
  recorder.launched.erase(found);
}

namespace virtual_trace {

void keepTime(std::uint64_t (*clock)()) {
  runClock.store(nullptr, std::memory_order_release);
  runBegin = Trace::now();
  runClock.store(clock, std::memory_order_release);
}

void span(int rank, int track, std::string name, std::uint64_t begin, std::uint64_t end) {
  Recorder::instance().add({rank, track, std::move(name), runBegin + begin, runBegin + std::max(end, begin + 1), {}});
}

void nameTrack(int rank, int track, std::string name) {
  auto& recorder = Recorder::instance();
  std::lock_guard const lock(recorder.mutex);
  recorder.names[{rank, track}] = std::move(name);
}

}  // namespace virtual_trace
}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/arms.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "host/cuda/cuda_timer.hpp"
#include "host/shared/arms_profile.hpp"
#include "host/shared/members.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

constexpr std::string_view making = "Choice of arms";

std::vector<std::byte> asBytes(std::string_view text) {
  auto const bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}
std::string_view asText(std::vector<std::byte> const& bytes) {
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

double timeOf(Stream const& stream, std::function<void()> const& work) {
  if (stream.device().kind == DeviceKind::cuda) return timeOnCuda(stream, work);
  using Clock = std::chrono::steady_clock;
  stream.synchronize();
  auto const begin = Clock::now();
  work();
  stream.synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double medianOf(std::vector<double> seconds) {
  auto const middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

// What `call` throws, with the code, behind where that was.
template <class Call>
void within(std::string const& where, Call&& call) {
  try {
    call();
  } catch (Error const& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  } catch (std::exception const& error) {
    fail(ErrorCode::invalidUsage, "{}: {}", where, error.what());
  }
}

// Empty where there is none.
std::string textOfProfile(std::string const& path) {
  if (path.empty() || !std::filesystem::exists(path)) return {};
  auto const what = fmt::format("profile of arms {}", path);
  if (std::filesystem::is_directory(path)) fail(ErrorCode::invalidUsage, "{}: it is a folder; name a file", what);
  return readFile(path, what);
}

// How far apart shapes are: 1 for each factor of 2 in a number.
double distance(ArmKey const& one, ArmKey const& other) {
  double sum = 0;
  auto const size = [](std::int64_t number) { return std::log2(1 + static_cast<double>(number)); };
  for (std::size_t i = 0; i < one.numbers().size(); ++i) {
    sum += std::abs(size(one.numbers()[i]) - size(other.numbers()[i]));
  }
  return sum;
}

}  // namespace

ArmKey::ArmKey(std::span<std::int64_t const> numbers) : size_(numbers.size()) {
  bool const negative = std::any_of(numbers.begin(), numbers.end(), [](std::int64_t number) { return number < 0; });
  if (numbers.empty() || numbers.size() > mostNumbers || negative) {
    fail(ErrorCode::invalidUsage, "a key of arms is [{}]; allowed are 1 to {} numbers, none below 0",
         fmt::join(numbers, ", "), mostNumbers);
  }
  std::copy(numbers.begin(), numbers.end(), numbers_.begin());
}

// ---- made by all ranks alike ----------------------------------------------------------------------------------------

ArmChoice::ArmChoice(Communicator const& communicator, std::string operation, std::vector<std::string> names,
                     ArmsOptions options)
    : communicator_(communicator),
      operation_(std::move(operation)),
      names_(std::move(names)),
      options_(std::move(options)) {
  join();
}

void ArmChoice::checkNames() const {
  if (names_.empty()) fail(ErrorCode::invalidUsage, "there are none; give at least one");
  auto texts = names_;
  texts.push_back(operation_);
  for (auto const& text : texts) {
    if (text.empty() || text.find_first_of(std::string_view(",=\0", 3)) != std::string::npos) {
      fail(ErrorCode::invalidUsage, "\"{}\" is no name; use one that is not empty, without , and =", text);
    }
  }
  if (std::set<std::string>(names_.begin(), names_.end()).size() != names_.size()) {
    fail(ErrorCode::invalidUsage, "two have one name in {}", fmt::join(names_, ", "));
  }
  if (options_.samples < 1 || options_.operations < 1 || !(options_.margin >= 0 && options_.margin < 1)) {
    fail(ErrorCode::invalidUsage,
         "{} samples of {} operations, margin {}; ask for at least 1 of each, and a margin from 0 to below 1",
         options_.samples, options_.operations, options_.margin);
  }
}

void ArmChoice::readForced() {
  auto const given = processVariable("MSCCLPP_ARMS").value_or("");
  std::istringstream parts(given);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty()) continue;
    auto const equals = part.find('=');
    if (equals == std::string::npos) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_ARMS=\"{}\": \"{}\" names no arm; use operation=arm, or *=arm", given,
           part);
    }
    auto const who = part.substr(0, equals);
    if (forced_ || (who != operation_ && who != "*")) continue;
    auto const found = std::find(names_.begin(), names_.end(), part.substr(equals + 1));
    if (found != names_.end()) {
      forced_ = static_cast<std::size_t>(found - names_.begin());
    } else if (who != "*") {
      fail(ErrorCode::invalidUsage, "MSCCLPP_ARMS=\"{}\": {} has no arm \"{}\", but {}", given, operation_,
           part.substr(equals + 1), fmt::join(names_, ", "));
    }
  }
}

void ArmChoice::join() {
  auto const& shared = *CommunicatorImpl::of(communicator_);
  int const self = communicator_.rank();
  Members const members(std::string(making), shared, {});
  // Each rank's: what must be the same; its device and links; rank 0's profile.
  constexpr char end = '\0';
  auto const all = members.together([&] {
    std::string said;
    within(fmt::format("rank {}: arms of \"{}\"", self, operation_), [&] {
      checkNames();
      readForced();
      said = fmt::format("\"{}\" of {}, {} samples of {} operations, margin {}, MSCCLPP_ARMS for {}", operation_,
                         fmt::join(names_, ", "), options_.samples, options_.operations, options_.margin,
                         forced_ ? names_[*forced_] : "none");
      said +=
          end + communicator_.device().properties().name + end + (communicator_.linesArriveWhole() ? "1" : "0") + end;
      if (self == 0) said += textOfProfile(options_.profile);
    });
    return asBytes(said);
  });
  std::vector<std::string> devices;
  std::string profile, first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::array<std::string, 4> parts;
    auto text = asText(all[rank]);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto const length = i + 1 < parts.size() ? text.find(end) : text.size();
      if (length == std::string_view::npos) {
        fail(ErrorCode::invalidUsage,
             "rank {}: rank {} is not making arms of \"{}\"; all ranks make what they share in "
             "the same order",
             self, rank, operation_);
      }
      parts[i] = text.substr(0, length);
      text.remove_prefix(std::min(length + 1, text.size()));
    }
    if (rank == 0) {
      first = parts[0];
      profile = parts[3];
    } else if (parts[0] != first) {
      fail(ErrorCode::invalidUsage,
           "rank {}: arms differ: rank 0 makes {}; rank {} makes {}; all ranks must make the same", self, first, rank,
           parts[0]);
    }
    if (std::find(devices.begin(), devices.end(), parts[1]) == devices.end()) devices.push_back(parts[1]);
    wholeLines_ = wholeLines_ && parts[2] == "1";
  }
  device_ = fmt::format("{}", fmt::join(devices, ", "));
  if (profile.empty()) return;
  auto operations = ArmsProfile::parse(profile, options_.profile)
                        .operations[{device_, communicator_.size(), communicator_.ranksPerDevice(), wholeLines_}];
  for (auto const& [key, seconds] : operations[operation_]) {
    ArmTimes times;
    for (auto const& name : names_) {
      if (auto const found = seconds.find(name); found != seconds.end()) times.seconds.push_back(found->second);
    }
    bool const runs = std::any_of(times.seconds.begin(), times.seconds.end(), [](auto const& one) { return !!one; });
    if (seconds.size() != names_.size() || times.seconds.size() != names_.size() || !runs) continue;
    times.best = fastest(times.seconds);
    known_[key] = std::move(times);
  }
}

// ---- calls ----------------------------------------------------------------------------------------------------------

std::string ArmChoice::title(ArmKey const& key) const {
  return fmt::format("{} [{}]", operation_, fmt::join(key.numbers(), ", "));
}

std::size_t ArmChoice::fastest(std::vector<std::optional<double>> const& seconds) const {
  std::optional<double> least;
  for (auto const& one : seconds) {
    if (one) least = std::min(*one, least.value_or(*one));
  }
  auto const close = std::find_if(seconds.begin(), seconds.end(),
                                  [&](auto const& one) { return one && *one <= *least * (1 + options_.margin); });
  return static_cast<std::size_t>(close - seconds.begin());
}

void ArmChoice::call(ArmKey const& key, Stream const& stream, Run const& run, Preserve const& preserve) {
  auto arm = forced_;
  if (!arm) {
    auto found = known_.find(key);
    if (found == known_.end()) {
      if (stream.capturing()) return runUnmeasured(key, run);
      auto const times = measure(key, stream, run, preserve);
      found = known_.emplace(key, times).first;
      keep(key, times);
    }
    arm = found->second.best;
  }
  if (run(*arm)) return;
  fail(ErrorCode::invalidUsage, "rank {}: {}: arm {} refuses; {}", communicator_.rank(), title(key), names_[*arm],
       forced_ ? "MSCCLPP_ARMS forces it" : "it took this key when it was measured, so it goes by more than the key");
}

void ArmChoice::runUnmeasured(ArmKey const& key, Run const& run) const {
  std::vector<std::size_t> order;
  double least = 0;
  for (auto const& [other, times] : known_) {
    if (other.numbers().size() != key.numbers().size()) continue;
    auto const away = distance(key, other);
    if (!order.empty() && away >= least) continue;
    least = away;
    order = {times.best};
  }
  for (std::size_t arm = 0; arm < names_.size(); ++arm) order.push_back(arm);
  for (auto const arm : order) {
    if (!run(arm)) continue;
    log(LogLevel::info, "{}: captured with arm {}, without having been measured; call it once before it is captured",
        title(key), names_[arm]);
    return;
  }
  fail(ErrorCode::invalidUsage, "rank {}: {}: all arms refuse: {}", communicator_.rank(), title(key),
       fmt::join(names_, ", "));
}

ArmTimes ArmChoice::measure(ArmKey const& key, Stream const& stream, Run const& run, Preserve const& preserve) const {
  int const self = communicator_.rank();
  auto const what = title(key);
  Members const members(std::string(making), *CommunicatorImpl::of(communicator_), {});
  std::function<void()> restore;
  auto const giveBack = [&] {
    if (restore) restore();
    communicator_.synchronize(stream);
  };

  auto const keys = members.together([&] {
    within(what, [&] {
      if (preserve) restore = preserve();
      communicator_.synchronize(stream);
    });
    return asBytes(what);
  });
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    if (asText(keys[rank]) == what) continue;
    fail(ErrorCode::invalidUsage,
         "rank {}: arms differ: this rank calls {}, rank {} calls {}; all ranks call the same keys in the same order",
         self, what, rank, asText(keys[rank]));
  }

  std::vector<std::size_t> taken;
  std::vector<std::string> refusals;
  for (std::size_t arm = 0; arm < names_.size(); ++arm) {
    auto const where = fmt::format("{}, arm {}", what, names_[arm]);
    std::string refusal;
    auto const attempt = [&] {
      try {
        if (!run(arm)) refusal = "it does not take this shape";
      } catch (std::exception const& error) {
        refusal = error.what();
      }
      within(where + ", first call", giveBack);
      return asBytes(refusal);
    };
    std::vector<std::vector<std::byte>> outcomes;
    try {
      outcomes = members.together(attempt);
    } catch (Error const& error) {
      if (refusal.empty()) throw;
      fail(error.code(), "{}; this rank refused the arm: {}; an arm refuses on all ranks or none", error.what(),
           refusal);
    }
    auto const refused = std::find_if(outcomes.begin(), outcomes.end(), [](auto const& one) { return !one.empty(); });
    if (refused == outcomes.end()) {
      taken.push_back(arm);
    } else {
      refusals.push_back(fmt::format("{} on rank {}: {}", names_[arm], refused - outcomes.begin(), asText(*refused)));
    }
  }
  if (taken.empty()) {
    fail(ErrorCode::invalidUsage, "rank {}: {}: all arms refuse: {}; add one that takes any shape", self, what,
         fmt::join(refusals, "; "));
  }
  for (auto const& refusal : refusals) log(LogLevel::info, "{}: left out: arm {}", what, refusal);

  std::vector<std::vector<double>> samples(names_.size());
  auto const once = [&](std::size_t arm) {
    if (!run(arm)) fail(ErrorCode::invalidUsage, "it refuses, which it has not done at its first call");
  };
  auto const sample = [&](std::size_t arm) {
    once(arm);
    auto const seconds = (options_.time ? options_.time : ArmTimer(timeOf))(stream, [&] {
      for (int i = 0; i < options_.operations; ++i) once(arm);
    });
    if (!(seconds >= 0 && std::isfinite(seconds))) {
      fail(ErrorCode::invalidUsage, "ArmsOptions::time returned {} seconds", seconds);
    }
    samples[arm].push_back(seconds / options_.operations);
  };
  for (std::size_t turn = 0; turn < static_cast<std::size_t>(options_.samples); ++turn) {
    for (std::size_t i = 0; i < taken.size(); ++i) {
      auto const arm = taken[(turn + i) % taken.size()];
      members.together([&] {
        within(fmt::format("{}, arm {}, while it was measured", what, names_[arm]), [&] {
          sample(arm);
          giveBack();
        });
        return std::vector<std::byte>();
      });
    }
  }

  std::vector<double> own;
  own.reserve(taken.size());
  for (auto const arm : taken) own.push_back(medianOf(samples[arm]));
  auto const bytes = std::as_bytes(std::span(own));
  ArmTimes times;
  times.seconds.resize(names_.size());
  for (auto const& theirs : members.gather({bytes.begin(), bytes.end()})) {
    for (std::size_t i = 0; i < taken.size(); ++i) {
      double seconds = 0;
      std::memcpy(&seconds, theirs.data() + i * sizeof seconds, sizeof seconds);
      auto& most = times.seconds[taken[i]];
      most = std::max(most.value_or(seconds), seconds);
    }
  }
  times.best = fastest(times.seconds);
  return times;
}

// A file that cannot be kept costs measuring again, so it ends no call, which the other ranks are in.
void ArmChoice::keep(ArmKey const& key, ArmTimes const& times) const noexcept try {
  if (options_.profile.empty() || communicator_.rank() != 0) return;
  static std::mutex mutex;  // communicators of one process, each with its rank 0
  std::lock_guard const lock(mutex);
  ArmsProfile profile;
  if (auto const text = textOfProfile(options_.profile); !text.empty()) {
    profile = ArmsProfile::parse(text, options_.profile);
  }
  auto& operations = profile.operations[{device_, communicator_.size(), communicator_.ranksPerDevice(), wholeLines_}];
  auto& seconds = operations[operation_][key];
  seconds.clear();
  for (std::size_t arm = 0; arm < names_.size(); ++arm) seconds[names_[arm]] = times.seconds[arm];
  profile.save(options_.profile);
} catch (std::exception const& error) {
  if (logEnabled(LogLevel::warn)) writeLog(LogLevel::warn, error.what());
}

// ---- what is known --------------------------------------------------------------------------------------------------

ArmTimes const* ArmChoice::find(ArmKey const& key) const {
  auto const found = known_.find(key);
  return found == known_.end() ? nullptr : &found->second;
}

std::string_view ArmChoice::chosen(ArmKey const& key) const {
  if (forced_) return names_[*forced_];
  auto const* const times = find(key);
  return times == nullptr ? std::string_view() : names_[times->best];
}

std::string ArmChoice::describe() const {
  auto text = fmt::format("{} on {} ranks of {}{}\n", operation_, communicator_.size(), device_,
                          forced_ ? fmt::format(", forced: {}", names_[*forced_]) : "");
  for (auto const& [key, times] : known_) {
    std::vector<std::string> arms;
    for (std::size_t arm = 0; arm < names_.size(); ++arm) {
      auto const& seconds = times.seconds[arm];
      arms.push_back(seconds ? fmt::format("{} {:.2f} us", names_[arm], *seconds * 1e6)
                             : fmt::format("{} refuses", names_[arm]));
    }
    text +=
        fmt::format("  [{}]: {}, of {}\n", fmt::join(key.numbers(), ", "), names_[times.best], fmt::join(arms, ", "));
  }
  return text;
}

}  // namespace mscclpp

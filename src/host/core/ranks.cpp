// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "mscclpp/host/ranks.hpp"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

namespace {

// What follows from another rank's failure, rather than being one.
bool isConsequence(std::exception_ptr const& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (Error const& error) {
    return error.code() == ErrorCode::aborted || error.code() == ErrorCode::remoteError;
  } catch (...) {
    return false;
  }
}

// While ranks share devices, memory that one of them releases goes when all have ended: a GPU gives memory back when
// its kernels have ended, of which one may wait for the rank that releases.
class ReleasesHeld {
 public:
  explicit ReleasesHeld(std::span<Device const> devices) {
    std::set<int> once;  // all ranks' devices are of one kind
    for (auto const& device : devices) once.insert(device.ordinal);
    if (once.size() == devices.size()) return;
    machine_ = &devices.front().runtime();
    machine_->holdReleases();
  }
  ~ReleasesHeld() {
    if (machine_ != nullptr) machine_->resumeReleases();
  }
  ReleasesHeld(ReleasesHeld const&) = delete;
  ReleasesHeld& operator=(ReleasesHeld const&) = delete;

 private:
  Runtime* machine_ = nullptr;
};

}  // namespace

std::vector<Device> devicesInTurn(DeviceKind kind, int ranks) {
  int const count = Device::count(kind);
  if (ranks < 1 || count < 1) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("devices for {} ranks: there are {} {} devices; both must be 1 or more", ranks, count,
                            nameOf(kind)));
  }
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) devices.push_back({kind, rank % count});
  return devices;
}

void runRanks(DeviceKind kind, int ranks, std::function<void(Communicator&)> const& rankMain) {
  int const devices = Device::count(kind);
  if (ranks < 1 || ranks > devices) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("runRanks: {} ranks on {} {} devices; each rank needs a device of its own, or name the "
                            "devices that they share",
                            ranks, devices, nameOf(kind)));
  }
  runRanks(devicesInTurn(kind, ranks), rankMain);
}

void runRanks(std::span<Device const> devices, std::function<void(Communicator&)> const& rankMain) {
  if (devices.empty()) throw Error(ErrorCode::invalidUsage, "runRanks: no devices; name one for each rank");
  int const ranks = static_cast<int>(devices.size());
  for (int rank = 0; rank < ranks; ++rank) {
    auto const& device = devices[static_cast<std::size_t>(rank)];
    if (int const count = Device::count(device.kind); device.ordinal < 0 || device.ordinal >= count) {
      throw Error(ErrorCode::invalidUsage, fmt::format("runRanks: rank {} on {} device {}; there are {}", rank,
                                                       nameOf(device.kind), device.ordinal, count));
    }
  }
  ReleasesHeld const held(devices);
  auto bootstraps = LocalBootstrap::create(ranks);
  std::mutex mutex;
  std::vector<Communicator*> communicators(static_cast<std::size_t>(ranks), nullptr);
  std::vector<std::exception_ptr> failures;

  auto const runRank = [&](int rank) {
    auto const index = static_cast<std::size_t>(rank);
    // The bootstrap is dropped with this scope, which tells peers that this rank has left.
    auto bootstrap = std::move(bootstraps[index]);
    std::optional<Communicator> communicator;
    try {
      communicator.emplace(std::move(bootstrap), devices[index]);
      {
        std::lock_guard lock(mutex);
        communicators[index] = &*communicator;
        if (!failures.empty()) communicator->abort();
      }
      rankMain(*communicator);
      std::lock_guard lock(mutex);
      communicators[index] = nullptr;
    } catch (...) {
      std::lock_guard lock(mutex);
      communicators[index] = nullptr;
      failures.push_back(std::current_exception());
      for (auto* other : communicators) {
        if (other != nullptr) other->abort();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(runRank, rank);
  }
  for (auto const& failure : failures) {
    if (!isConsequence(failure)) std::rethrow_exception(failure);
  }
  if (!failures.empty()) std::rethrow_exception(failures.front());
}

}  // namespace mscclpp

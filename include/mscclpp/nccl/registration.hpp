// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithms and plans of this program, chosen by NCCL's functions, where libmscclpp_nccl.so is loaded beside it:
//
//   registerWithNccl(std::make_shared<NativeAlgorithm>("ring", Collective::allGather, functions));
//   registerWithNccl(dsl::ExecutionPlan::load("allreduce.json"));
//
// They are asked ahead of the library's own in the order of registration, as by AlgorithmCollection::prefer(), for
// communicators that are made from then on. All ranks register the same. Both return false, and do nothing, where the
// library is not there; they throw invalidUsage for what it refuses, such as a name that is taken.
//
// A plan is read and run by that library. An algorithm is run by this program's: with a communicator of its own over
// the same ranks, made at the first call of each of NCCL's, and with a queue for each of its streams' queues.
#pragma once

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/nccl/numbers.hpp"
#include "mscclpp/nccl/registration_abi.hpp"

namespace mscclpp {
namespace detail {

// What a communicator of NCCL's has here.
class NcclPeers {
 public:
  explicit NcclPeers(MscclppNcclCall const& call) : communicator_(join(call), deviceOf(call)) {
    communicator_.setTimeLimit(std::chrono::nanoseconds(call.kernelLimitNs));
  }

  Communicator const& communicator() const { return communicator_; }
  Stream streamOf(MscclppNcclCall const& call) {
    auto const found = queues_.try_emplace(call.queue, 0);
    if (found.second) found.first->second = Stream::queueId();
    return Stream::borrow(communicator_.device(), call.stream, found.first->second, call.isCaptured != 0);
  }

  static Device deviceOf(MscclppNcclCall const& call) {
    return {call.isSimulated != 0 ? DeviceKind::sim : DeviceKind::cuda, call.device};
  }

 private:
  static std::shared_ptr<Bootstrap> join(MscclppNcclCall const& call) {
    std::vector<std::array<std::byte, uniqueIdBytes>> ids(static_cast<std::size_t>(call.ranks));
    if (call.rank == 0) ids[0] = TcpBootstrap::createUniqueId().toBytes();
    if (call.allGather(call.exchange, ids.data(), sizeof ids[0]) != 0) {
      throw Error(ErrorCode::remoteError, "the ranks of NCCL's communicator could not exchange an id");
    }
    auto bootstrap = std::make_shared<TcpBootstrap>(call.rank, call.ranks);
    bootstrap->initialize(UniqueId::fromBytes(ids[0]), std::chrono::nanoseconds(call.hostLimitNs));
    return bootstrap;
  }

  Communicator communicator_;
  std::map<std::uint64_t, std::uint64_t> queues_;  // by the library's numbers
};

// An algorithm, as the library has it.
class NcclAdapter {
 public:
  explicit NcclAdapter(std::shared_ptr<Algorithm const> algorithm) : algorithm_(std::move(algorithm)) {}

  MscclppNcclAlgorithm description() {
    MscclppNcclAlgorithm result{};
    result.size = sizeof result;
    result.version = mscclppNcclVersion;
    result.collective = nameOf(algorithm_->collective()).data();
    result.name = algorithm_->name().c_str();
    result.state = this;
    result.refuse = [](void* state, MscclppNcclCall const* call, char* why, std::size_t room) {
      return guarded(why, room, [&] {
        auto const reason = of(state).algorithm_->refusal(worldOf(*call), callOf(*call));
        return reason.empty() ? 0 : say(reason, why, room, 1);
      });
    };
    result.run = [](void* state, MscclppNcclCall const* call, char* why, std::size_t room) {
      return guarded(why, room, [&] {
        auto const peers = of(state).peersFor(*call);
        of(state).algorithm_->execute(peers->communicator(), peers->streamOf(*call), callOf(*call));
        return 0;
      });
    };
    result.fault = [](void* state, std::uint64_t communicator, char* why, std::size_t room) {
      return guarded(why, room, [&] {
        auto const peers = of(state).find(communicator);
        if (peers == nullptr) return 0;
        if (auto const fault = peers->communicator().fault()) return say(fault->what(), why, room, remoteError);
        return 0;
      });
    };
    result.abort = [](void* state, std::uint64_t communicator) {
      if (auto const peers = of(state).find(communicator)) peers->communicator().abort();
    };
    result.forget = [](void* state, std::uint64_t communicator) {
      std::unique_lock lock(of(state).mutex_);
      auto const gone = of(state).peers_.extract(communicator);
      lock.unlock();  // of what goes here
    };
    result.release = [](void* state) { delete &of(state); };
    return result;
  }

 private:
  static constexpr int internalError = 3, invalidUsage = 5, remoteError = 6;  // NCCL's

  static NcclAdapter& of(void* state) { return *static_cast<NcclAdapter*>(state); }

  static int say(std::string const& text, char* why, std::size_t room, int code) {
    if (room != 0) why[text.copy(why, room - 1)] = 0;
    return code;
  }
  template <class F>
  static int guarded(char* why, std::size_t room, F&& body) noexcept {
    try {
      return static_cast<F&&>(body)();
    } catch (Error const& error) {
      auto const code = error.code();
      return say(error.what(), why, room,
                 code == ErrorCode::invalidUsage || code == ErrorCode::unsupported ? invalidUsage
                 : code == ErrorCode::remoteError || code == ErrorCode::timeout || code == ErrorCode::aborted
                     ? remoteError
                     : internalError);
    } catch (std::exception const& error) {
      return say(error.what(), why, room, internalError);
    }
  }

  static World worldOf(MscclppNcclCall const& call) {
    World world;
    world.machine = NcclPeers::deviceOf(call).kind;
    world.rank = call.rank;
    world.ranks = call.ranks;
    world.device = call.deviceName;
    world.wholeLines = call.wholeLines != 0;
    world.maxBlocks = call.maxBlocks;
    world.ranksPerDevice = call.ranksPerDevice;
    world.noMulticast = call.noMulticast;
    world.planned = call.isPlanned != 0;
    return world;
  }
  static CollectiveCall callOf(MscclppNcclCall const& call) {
    CollectiveCall result;
    result.in = call.in;
    result.out = call.out;
    result.inBytes = call.inBytes;
    result.outBytes = call.outBytes;
    result.type = ncclTypes.at(static_cast<std::size_t>(call.type));
    if (call.operation >= 0) result.op = ncclOperations.at(static_cast<std::size_t>(call.operation));
    result.root = call.root;
    result.symmetric = call.isSymmetric != 0;
    return result;
  }

  std::shared_ptr<NcclPeers> find(std::uint64_t communicator) {
    std::lock_guard const lock(mutex_);
    auto const found = peers_.find(communicator);
    return found == peers_.end() ? nullptr : found->second;
  }
  std::shared_ptr<NcclPeers> peersFor(MscclppNcclCall const& call) {
    if (auto known = find(call.communicator)) return known;
    auto made = std::make_shared<NcclPeers>(call);
    std::lock_guard const lock(mutex_);
    return peers_.emplace(call.communicator, std::move(made)).first->second;
  }

  std::shared_ptr<Algorithm const> algorithm_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<NcclPeers>> peers_;
};

// False where the library is not there.
inline bool registerWithNccl(MscclppNcclAlgorithm const& algorithm) {
  auto* const function = reinterpret_cast<MscclppNcclRegister*>(::dlsym(RTLD_DEFAULT, ncclRegisterName));
  if (function == nullptr) return false;
  std::array<char, 2048> why{};
  if (function(&algorithm, why.data(), why.size()) != 0) throw Error(ErrorCode::invalidUsage, why.data());
  return true;
}

}  // namespace detail

inline bool registerWithNccl(std::shared_ptr<Algorithm const> algorithm) {
  if (algorithm == nullptr) throw Error(ErrorCode::invalidUsage, "registerWithNccl: there is no algorithm");
  auto adapter = std::make_unique<detail::NcclAdapter>(std::move(algorithm));
  if (!detail::registerWithNccl(adapter->description())) return false;
  (void)adapter.release();  // the library's
  return true;
}

inline bool registerWithNccl(dsl::ExecutionPlan const& plan) {
  auto const text = dsl::toJson(plan.program());
  auto const collective = dsl::collectiveName(plan.program());
  auto const name = plan.program().name.str();
  MscclppNcclAlgorithm description{};
  description.size = sizeof description;
  description.version = mscclppNcclVersion;
  description.collective = collective.c_str();
  description.name = name.c_str();
  description.plan = text.c_str();
  return detail::registerWithNccl(description);
}

// For communicators that are made from then on. False where none of that name was registered.
inline bool unregisterFromNccl(Collective collective, std::string const& name) {
  auto* const function = reinterpret_cast<MscclppNcclUnregister*>(::dlsym(RTLD_DEFAULT, ncclUnregisterName));
  return function != nullptr && function(nameOf(collective).data(), name.c_str()) == 0;
}

}  // namespace mscclpp

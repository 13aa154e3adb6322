// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/registry.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/format.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "nccl/machine.hpp"
#include "nccl/operation.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

using Words = std::array<char, 2048>;

// By which whoever has registered something knows a communicator.
struct Number {
  explicit Number(Communicator const&) {
    static std::atomic<std::uint64_t> last{0};
    number = ++last;
  }
  std::uint64_t number;
};

MscclppNcclCall describe(World const& world, CollectiveCall const& call) {
  MscclppNcclCall result{};
  result.size = sizeof result;
  result.isSimulated = world.machine == DeviceKind::sim ? 1 : 0;
  result.rank = world.rank;
  result.ranks = world.ranks;
  result.deviceName = world.device.c_str();
  result.noMulticast = world.noMulticast.c_str();
  result.wholeLines = world.wholeLines ? 1 : 0;
  result.maxBlocks = world.maxBlocks;
  result.ranksPerDevice = world.ranksPerDevice;
  result.isPlanned = world.planned ? 1 : 0;
  result.in = call.in;
  result.out = call.out;
  result.inBytes = call.inBytes;
  result.outBytes = call.outBytes;
  result.type = numberOf(call.type);
  result.operation = call.op == ReduceOp::none ? -1 : numberOf(call.op);
  result.root = call.root;
  result.isSymmetric = call.symmetric ? 1 : 0;
  return result;
}

ErrorCode errorOf(int code) {
  switch (code) {
    case ncclUnhandledCudaError:
      return ErrorCode::deviceError;
    case ncclSystemError:
      return ErrorCode::systemError;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return ErrorCode::invalidUsage;
    case ncclRemoteError:
      return ErrorCode::remoteError;
    default:
      return ErrorCode::internalError;
  }
}

struct Held {
  std::mutex mutex;
  Registry registry;

  // Never destroyed: communicators may end when the process does.
  static Held& instance() {
    static auto* const held = new Held;
    return *held;
  }
};

bool isNamed(Registered const& one, Collective collective, std::string_view name) {
  return one.algorithm->collective() == collective && one.algorithm->name() == name;
}

}  // namespace

RegisteredAlgorithm::RegisteredAlgorithm(MscclppNcclAlgorithm const& described, Collective collective)
    : name_(described.name), collective_(collective), described_(described) {}

RegisteredAlgorithm::~RegisteredAlgorithm() {
  if (described_.release != nullptr) described_.release(described_.state);
}

std::string RegisteredAlgorithm::refusal(World const& world, CollectiveCall const& call) const {
  // What calls of NCCL's interface do not have, and it could not be told.
  if (call.blocks != 0 || call.threads != 0 || call.rankOrder || !call.extras.empty()) {
    return "it takes no launch shape, order or extra arguments";
  }
  if (world.nodes != 1) return "it is told of ranks that all reach each other's memory, and these lie on several nodes";
  auto const asked = describe(world, call);
  Words why{};
  return described_.refuse(described_.state, &asked, why.data(), why.size()) == 0 ? std::string()
                                                                                  : std::string(why.data());
}

void RegisteredAlgorithm::execute(Communicator const& communicator, Stream const& stream,
                                  CollectiveCall const& call) const {
  auto run = describe(World::of(communicator), call);
  run.communicator = communicator.attached<Number>().number;
  run.device = communicator.device().ordinal;
  run.hostLimitNs = static_cast<std::uint64_t>(communicator.setup()->timeout().count());
  run.kernelLimitNs = communicator.watch()->limitNs;
  run.stream = stream.native();
  run.queue = stream.id();
  run.isCaptured = stream.capturing() ? 1 : 0;
  run.allGather = [](void* exchange, void* all, std::size_t bytes) -> int {
    return guarded("an algorithm's exchange", [&] {
      static_cast<Communicator const*>(exchange)->setup()->allGather(all, bytes);
      return ncclSuccess;
    });
  };
  run.exchange = const_cast<Communicator*>(&communicator);
  Words why{};
  if (auto const code = described_.run(described_.state, &run, why.data(), why.size()); code != 0) {
    fail(errorOf(code), "rank {}: {} by {}, which this program has registered: {}", communicator.rank(),
         nameOf(collective_), name_, why.data());
  }
}

std::string RegisteredAlgorithm::fault(Communicator const& communicator) const {
  if (described_.fault == nullptr) return {};
  Words why{};
  auto const number = communicator.attached<Number>().number;
  if (described_.fault(described_.state, number, why.data(), why.size()) == 0) return {};
  return fmt::format("{} by {}, which this program has registered: {}", nameOf(collective_), name_, why.data());
}

void RegisteredAlgorithm::abort(Communicator const& communicator) const noexcept {
  if (described_.abort != nullptr) described_.abort(described_.state, communicator.attached<Number>().number);
}

void RegisteredAlgorithm::forget(Communicator const& communicator) const noexcept {
  if (described_.forget != nullptr) described_.forget(described_.state, communicator.attached<Number>().number);
}

Registry registry() {
  auto& held = Held::instance();
  std::lock_guard const lock(held.mutex);
  return held.registry;
}

void addRegistered(MscclppNcclAlgorithm const& described) {
  if (described.version != mscclppNcclVersion || described.size < sizeof described) {
    refuse(ncclInvalidUsage,
           "an algorithm as version {} of the interface describes it, in {} bytes; this library has version {} and {} "
           "bytes: take the program and libmscclpp_nccl.so from one release",
           described.version, described.size, mscclppNcclVersion, sizeof described);
  }
  if (described.name == nullptr || *described.name == 0 || described.collective == nullptr) {
    refuse(ncclInvalidArgument, "an algorithm needs a name and a collective");
  }
  auto const collective = collectiveByName(described.collective);
  if (!collective || *collective == Collective::sendRecv || *collective == Collective::barrier) {
    refuse(ncclInvalidArgument, "algorithm {}: there is no collective \"{}\" of NCCL's", described.name,
           described.collective);
  }
  Registered added;
  if (described.plan != nullptr) {
    added.plan = described.plan;
    dsl::ExecutionPlan const plan(dsl::programFromJson(added.plan, described.name));
    added.algorithm = planAlgorithm(plan);
    if (!isNamed(added, *collective, described.name)) {
      refuse(ncclInvalidArgument, "plan {} of {} says that it is {} of {}", described.name, described.collective,
             added.algorithm->name(), nameOf(added.algorithm->collective()));
    }
  } else if (described.refuse == nullptr || described.run == nullptr) {
    refuse(ncclInvalidArgument, "algorithm {} of {}: give a plan, or the functions `refuse` and `run`", described.name,
           described.collective);
  }
  auto& held = Held::instance();
  std::lock_guard const lock(held.mutex);
  for (auto const& other : held.registry.all) {
    if (!isNamed(other, *collective, described.name)) continue;
    if (!added.plan.empty() && other.plan == added.plan) return;
    refuse(ncclInvalidUsage,
           "there is a registered {} \"{}\" already; give it another name, or unregister the other one",
           described.collective, described.name);
  }
  // Only now: whoever is refused keeps what it has.
  if (added.algorithm == nullptr) added.algorithm = std::make_shared<RegisteredAlgorithm>(described, *collective);
  log(LogLevel::info, "{} {} of {} is registered, for communicators that are made from now on",
      added.plan.empty() ? "algorithm" : "plan", described.name, described.collective);
  held.registry.all.push_back(std::move(added));
  ++held.registry.changes;
}

bool removeRegistered(std::string const& collective, std::string const& name) {
  auto const wanted = collectiveByName(collective);
  auto& held = Held::instance();
  std::lock_guard const lock(held.mutex);
  auto const gone =
      std::erase_if(held.registry.all, [&](Registered const& one) { return wanted && isNamed(one, *wanted, name); });
  held.registry.changes += gone;
  return gone != 0;
}

}  // namespace mscclpp::nccl

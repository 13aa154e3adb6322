// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fused.hpp"

#include <memory>
#include <string>
#include <utility>

#include "base/format.hpp"
#include "detailed_call.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::torch {
namespace {

constexpr char const* kernelText = R"(
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/rows/row_access.hpp"

using namespace mscclpp;

template <class Schedule, class Tr, class Op, class T, class Out, class Residual>
struct Fused {
  static constexpr unsigned maxThreads = 512;
  // Elements of any type at the places of a payload, which begins at a whole number of granules of T.
  template <class X>
  using Access = impl::RowAccess<X, Tr::words * 4 / sizeof(T), Tr::granule / sizeof(T)>;

  MSCCLPP_DEVICE void operator()(T const* in, T* sum, Out* out, Residual const* residual, std::size_t count,
                                 double scale, DeviceTeam const& team) const {
    using Acc = DefaultAccumulator<T>;
    allowNextKernel();
    auto const by = static_cast<Acc>(scale);
    AllReduce<Schedule, Tr, Op> const allReduce{team};
    allReduce(thisGrid(), View{in, count}, View{sum, count}, [&](auto const& total, std::uint64_t at, unsigned stored) {
      auto values = convert<Acc>(convert<T>(total)) * by;
      if (residual != nullptr) {
        values = values + convert<Acc>(Access<Residual>::read(View{residual + at, stored}, 0, stored));
      }
      if constexpr (std::is_same_v<T, Out>) {
        return values;
      } else {
        Access<Out>::write(View{out + at, stored}, 0, convert<Out>(values), stored);
        return total;
      }
    });
    waitForPreviousKernel();
  }
};
)";

// One exchange while that is little beside its latency.
struct Way {
  char const* algorithm;  // of the same name in the library, whose launches it has
  char const* collective;
  std::size_t bytes;  // the most that it is for
};
constexpr std::size_t fewBytes = 32 << 10, manyBytes = 16 << 20;
Way wayOf(std::size_t bytes, int ranks) {
  auto const peers = static_cast<std::size_t>(ranks > 1 ? ranks - 1 : 1);
  auto const mostToAll = (std::size_t{1} << 20) / peers;
  if (bytes <= fewBytes) return {"oneshot_ll16", "OneShot, PacketTransport<LL16>", fewBytes};
  if (bytes <= mostToAll) return {"oneshot_ll128", "OneShot, PacketTransport<LL128>", mostToAll};
  return {"twoshot_ll128", "TwoShot, PacketTransport<LL128>", manyBytes};
}
// Where links may tear lines.
constexpr Way withoutLines{"twoshot_memory", "TwoShot, MemoryTransport<4>", manyBytes};

std::string kernelName(CollectiveCall const& call, FusedCall const& fused, Way const& way) {
  auto const typeAndOp = jit::instanceName("", call.type, call.op);
  auto const op = typeAndOp.substr(typeAndOp.find(", ") + 2);
  return fmt::format("Fused<{}, {}, {}, {}, {}>", way.collective, op.substr(0, op.size() - 1), elementName(call.type),
                     elementName(fused.outType), elementName(fused.residualType));
}

struct Context {
  jit::Kernel<void(void const*, void*, void*, void const*, std::size_t, double, layout::TeamHandle)> kernel;
  Kernel const* like;
  LaunchShape shape;
  Team team;
};

using Called = DetailedCall<FusedCall>;

std::shared_ptr<void> makeContext(Communicator const& communicator, CollectiveCall const& call) {
  static auto const library = AlgorithmCollection::defaults();
  static jit::Source const source{kernelText, "fused_all_reduce.cpp"};
  auto way = wayOf(call.inBytes, communicator.size());
  CollectiveCall most;
  most.type = call.type;
  most.op = call.op;
  most.inBytes = most.outBytes = way.bytes / bytesOf(call.type) * bytesOf(call.type);
  auto const& world = World::of(communicator);
  if (!library.at(Collective::allReduce, way.algorithm)->refusal(world, most).empty()) way = withoutLines;
  auto const launch = library.at(Collective::allReduce, way.algorithm)->launchFor(world, most);
  if (!launch) {
    fail(ErrorCode::unsupported, "rank {}: a fused all-reduce of {}: this build has no {} for it", communicator.rank(),
         nameOf(call.type), way.algorithm);
  }
  return std::make_shared<Context>(Context{{communicator.device(), source, kernelName(call, Called::of(call), way)},
                                           launch->kernel,
                                           launch->shape,
                                           Team(communicator, launch->requirement)});
}

NativeAlgorithm const& algorithm() {
  NativeFunctions functions;
  functions.contextKey = [](Communicator const& communicator, CollectiveCall const& call) {
    auto const& fused = Called::of(call);
    auto tag = static_cast<std::uint64_t>(call.op);
    for (auto const type : {call.type, fused.outType, fused.residualType}) {
      tag = tag << 8 | static_cast<std::uint64_t>(type);
    }
    return ContextKey{.inBytes = wayOf(call.inBytes, communicator.size()).bytes, .tag = tag};
  };
  functions.makeContext = &makeContext;
  functions.run = [](std::shared_ptr<void> const& held, CollectiveCall const& call, Stream const& stream) {
    auto const& context = *static_cast<Context const*>(held.get());
    auto const& fused = Called::of(call);
    auto shape = context.shape;
    // Fewer elements than the most of this way need fewer blocks.
    auto const ranks = static_cast<std::uint32_t>(context.team.size());
    if (context.like->shape != nullptr) {
      auto const own = context.like->shape(ranks, call.inBytes, shape.blocks);
      if (own.blocks <= shape.blocks && own.threads == shape.threads) shape.blocks = own.blocks;
    }
    context.kernel.launch(stream, shape, fused.in, fused.sum, fused.out, fused.residual, fused.count, fused.scale,
                          context.team.deviceHandle());
  };
  static NativeAlgorithm const made("fused_all_reduce", Collective::allReduce, std::move(functions));
  return made;
}

}  // namespace

void startFused(Engine& engine, FusedCall const& fused, void* stream) {
  Called call{{}, fused};
  call.in = fused.in;
  call.out = fused.sum;
  call.inBytes = call.outBytes = fused.count * bytesOf(fused.type);
  call.type = fused.type;
  call.op = fused.op;
  engine.run(algorithm(), call, stream);
}

}  // namespace mscclpp::torch

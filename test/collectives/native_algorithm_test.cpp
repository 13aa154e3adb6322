// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's own algorithm: order of its functions, contexts by key, its place in a collection.
#include "mscclpp/collectives/native_algorithm.hpp"

#include <atomic>
#include <memory>

#include "collectives/allreduce.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/core.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp_test;

namespace {

struct Context {
  Team team;
  std::vector<RegisteredMemory> inputs;
};

// Reads the peers' input and adds, and an offset of the caller's.
struct PullAndAdd {
  MSCCLPP_DEVICE void operator()(layout::TeamHandle const& inputs, float* out, std::size_t count, float bias,
                                 DeviceTeam const& team) const {
    auto const grid = thisGrid();
    teamBarrier(team, grid);
    for (std::size_t i = grid.rank(); i < count; i += grid.size()) {
      float total = bias;
      for (int r = 0; r < inputs.size; ++r) total += reinterpret_cast<float const*>(inputs.workspaces[r])[i];
      out[i] = total;
    }
    teamBarrier(team, grid);
  }
};

struct Calls {
  std::atomic<int> initialized{0};
  std::atomic<int> made{0};
};

std::shared_ptr<NativeAlgorithm> makePull(std::shared_ptr<Calls> const& calls) {
  return std::make_shared<NativeAlgorithm>(
      "user_pull", Collective::allReduce,
      NativeFunctions{
          .initialize = [=](Communicator const&) { ++calls->initialized; },
          .contextKey = [](Communicator const&,
                           CollectiveCall const& call) { return ContextKey{.in = call.in, .inBytes = call.inBytes}; },
          .makeContext = [=](Communicator const& communicator, CollectiveCall const& call) -> std::shared_ptr<void> {
            ++calls->made;
            return std::make_shared<Context>(Context{
                Team(communicator, {.blocks = 8}),
                communicator.exchangeMemory(communicator.registerMemory(const_cast<void*>(call.in), call.inBytes))});
          },
          .run =
              [](std::shared_ptr<void> const& kept, CollectiveCall const& call, Stream const& stream) {
                auto const& context = *static_cast<Context const*>(kept.get());
                layout::TeamHandle inputs = context.team.deviceHandle();
                for (int r = 0; r < inputs.size; ++r)
                  inputs.workspaces[r] = context.inputs[static_cast<std::size_t>(r)].data();
                auto const bias = call.extras.find("bias");
                launch(stream, {.blocks = call.blocks != 0 ? static_cast<unsigned>(call.blocks) : 2, .threads = 32},
                       PullAndAdd{}, inputs, static_cast<float*>(call.out), call.inBytes / sizeof(float),
                       bias == call.extras.end() ? 0.0f : static_cast<float>(bias->second),
                       DeviceTeam(context.team.deviceHandle()));
              },
          .refusal =
              [](World const&, CollectiveCall const& call) {
                return call.type == DataType::float32 ? std::string() : std::string("it adds float32 only");
              }});
}

}  // namespace

TEST_CASE("a native algorithm keeps its contexts by key, and takes extra arguments") {
  forEachRankOn(DeviceKind::sim, 3, [](Communicator& communicator) {
    auto const calls = std::make_shared<Calls>();
    auto const algorithm = makePull(calls);
    Stream stream(communicator.device());
    GpuBuffer<float> a(communicator.device(), 100);
    GpuBuffer<float> b(communicator.device(), 100);
    GpuBuffer<float> out(communicator.device(), 100);
    std::vector<float> const ones(100, 1.0f);
    copyToDevice(a, std::span<float const>(ones));
    copyToDevice(b, std::span<float const>(ones));
    auto const run = [&](GpuBuffer<float> const& in, Extras const& extras = {}) {
      algorithm->execute(communicator, in.data(), out.data(), in.bytes(), out.bytes(), DataType::float32, ReduceOp::sum,
                         stream, 0, 0, false, 0, extras);
      communicator.synchronize(stream);
      communicator.bootstrap()->barrier();
      return copyToHost(out)[99];
    };
    CHECK(run(a) == 3.0f);
    CHECK(run(a, {{"bias", 4}}) == 7.0f);
    CHECK(calls->made == 1);
    CHECK(run(b) == 3.0f);
    CHECK(calls->made == 2);
    CHECK(calls->initialized == 1);
    CHECK(contextCounts(communicator).native == 2);
    // Another object of the same functions has contexts of its own.
    makePull(calls)->execute(
        communicator, stream,
        {.in = a.data(), .out = out.data(), .inBytes = 400, .outBytes = 400, .type = DataType::float32});
    communicator.synchronize(stream);
    CHECK(calls->made == 3);
    CHECK(calls->initialized == 2);
    communicator.bootstrap()->barrier();
    setContextLimits(communicator, {.native = 1});
    CHECK(run(b) == 3.0f);
    CHECK(calls->made == 3);
    releaseContexts(communicator);
    CHECK(run(b) == 3.0f);
    CHECK(run(a) == 3.0f);
    CHECK(calls->made == 5);
    CHECK(contextCounts(communicator).native == 1);
  });
}

TEST_CASE("it stands in a collection beside the library's, or in place of one") {
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    auto algorithms = AlgorithmCollection::defaults();
    auto const before = algorithms.algorithms().size();
    algorithms.add(makePull(std::make_shared<Calls>()));
    algorithms.add(makePull(std::make_shared<Calls>()));
    CHECK(algorithms.algorithms().size() == before + 1);
    algorithms.addAlias(Collective::allReduce, "mine", "user_pull");
    CHECK_THROWS_AS(algorithms.addAlias(Collective::allReduce, "mine", "user_push"), Error);
    algorithms.setSelector([](SelectionRequest const& request) -> std::optional<Selection> {
      if (request.type == DataType::float32) return Selection{"mine"};
      return std::nullopt;
    });
    Stream stream(communicator.device());
    Sums<float, Sum> sums(communicator, 50, 4);
    algorithms.execute(Collective::allReduce, communicator, stream, sums.call());
    Sums<std::int32_t, Sum> whole(communicator, 50, 5);
    algorithms.execute(Collective::allReduce, communicator, stream, whole.call());
    communicator.synchronize(stream);
    CHECK(sums.wrong() == 0);
    CHECK(whole.wrong() == 0);
    checkContains(
        errorOf([&] { algorithms.at(Collective::allReduce, "mine")->execute(communicator, stream, whole.call()); },
                ErrorCode::invalidUsage),
        "it adds float32 only");
    communicator.bootstrap()->barrier();
  });
  CHECK_THROWS_AS(NativeAlgorithm("", Collective::allReduce, {}), Error);
  CHECK_THROWS_AS(NativeAlgorithm("x", Collective::allReduce, {}), Error);
}

namespace {

struct StreamOfCuda;  // what cudaStream_t points to

// The way to write it that MSCCL++'s guide shows.
class PullBuilder : public AlgorithmBuilder {
 public:
  explicit PullBuilder(std::shared_ptr<Calls> calls, CommResult result = CommResult::CommSuccess)
      : calls_(std::move(calls)), result_(result) {}

  std::shared_ptr<Algorithm> build() override {
    auto self = std::make_shared<PullBuilder>(*this);
    return std::make_shared<NativeAlgorithm>(
        "pull", "allreduce", [self](std::shared_ptr<Communicator> comm) { self->initialize(comm); },
        [self](std::shared_ptr<void> const context, void const*, void* output, std::size_t inputSize, std::size_t,
               DataType, ReduceOp, StreamOfCuda* stream, int blocks, int,
               std::unordered_map<std::string, std::uintptr_t> const& extras) {
          return self->run(context, output, inputSize, stream, blocks, extras);
        },
        [self](std::shared_ptr<Communicator> comm, void const* input, void*, std::size_t inputSize, std::size_t,
               DataType) { return self->makeContext(*comm, input, inputSize); },
        [](void const* input, void* output, std::size_t inputSize, std::size_t outputSize, DataType, bool) {
          return AlgorithmCtxKey{const_cast<void*>(input), output, inputSize, outputSize, 0};
        });
  }

 private:
  void initialize(std::shared_ptr<Communicator> const& comm) {
    device_ = comm->device();
    ++calls_->initialized;
  }
  std::shared_ptr<void> makeContext(Communicator& comm, void const* input, std::size_t bytes) {
    ++calls_->made;
    return std::make_shared<Context>(
        Context{Team(comm, {.blocks = 8}), comm.exchangeMemory(comm.registerMemory(const_cast<void*>(input), bytes))});
  }
  CommResult run(std::shared_ptr<void> const& kept, void* output, std::size_t bytes, StreamOfCuda* stream, int blocks,
                 Extras const& extras) const {
    auto const& context = *static_cast<Context const*>(kept.get());
    layout::TeamHandle inputs = context.team.deviceHandle();
    for (int r = 0; r < inputs.size; ++r) inputs.workspaces[r] = context.inputs[static_cast<std::size_t>(r)].data();
    launch(Stream::borrow(device_, stream), {.blocks = static_cast<unsigned>(blocks), .threads = 32}, PullAndAdd{},
           inputs, static_cast<float*>(output), bytes / sizeof(float), static_cast<float>(extras.at("bias")),
           DeviceTeam(context.team.deviceHandle()));
    return result_;
  }

  std::shared_ptr<Calls> calls_;
  CommResult result_;
  Device device_{};
};

}  // namespace

TEST_CASE("an algorithm in MSCCL++'s form runs as one of its own") {
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    constexpr std::size_t count = 100;
    auto const calls = std::make_shared<Calls>();
    auto const algorithm = PullBuilder(calls).build();
    CHECK(algorithm->name() == "pull");
    CHECK(algorithm->collective() == Collective::allReduce);
    Stream const stream(communicator.device());
    GpuBuffer<float> in(communicator.device(), count), out(communicator.device(), count);
    copyToDevice(in, std::span<float const>(std::vector<float>(count, static_cast<float>(communicator.rank() + 1))));
    for (int call = 0; call < 3; ++call) {
      algorithm->execute(communicator, in.data(), out.data(), in.bytes(), out.bytes(), DataType::float32, ReduceOp::sum,
                         stream, 2, 0, false, 0, {{"bias", 4}});
      communicator.synchronize(stream);
      CHECK(copyToHost(out) == std::vector<float>(count, 7));
    }
    CHECK(calls->initialized == 1);
    CHECK(calls->made == 1);
    // What it returns is not lost.
    auto const failing = PullBuilder(calls, CommResult::CommInvalidArgument).build();
    auto const text = errorOf(
        [&] {
          failing->execute(communicator, in.data(), out.data(), in.bytes(), out.bytes(), DataType::float32,
                           ReduceOp::sum, stream, 2, 0, false, 0, {{"bias", 4}});
        },
        ErrorCode::invalidUsage);
    CHECK(text.find("CommResult 4") != std::string::npos);
    communicator.synchronize(stream);
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("a collective that there is not is named, with those that there are") {
  auto const nothing = [](auto&&...) { return CommResult::CommSuccess; };
  auto const text = errorOf(
      [&] {
        NativeAlgorithm const wrong(
            "mine", "allgatherv", nothing, nothing, [](auto&&...) { return std::shared_ptr<void>(); },
            [](auto&&...) { return AlgorithmCtxKey{}; });
      },
      ErrorCode::invalidUsage);
  CHECK(text.find("there is no collective \"allgatherv\"; there are allreduce") != std::string::npos);
}

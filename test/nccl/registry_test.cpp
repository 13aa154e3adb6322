// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithms and plans of the program, chosen by NCCL's functions.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <memory>
#include <thread>

#include "dsl/programs.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/nccl/registration.hpp"
#include "nccl/algorithms.hpp"
#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

struct AddKernel {
  MSCCLPP_DEVICE void operator()(float* data, std::size_t elements, float value) const {
    for (std::size_t i = thisGrid().rank(); i < elements; i += thisGrid().size()) data[i] += value;
  }
};

// Sums as the library does, of float32 alone, and adds 1000, by which it is known.
std::shared_ptr<Algorithm const> marked(std::string name, std::shared_ptr<std::atomic<int>> contexts) {
  struct Context {
    Communicator const& communicator;
    std::shared_ptr<std::atomic<int>> count;
    AlgorithmCollection algorithms = AlgorithmCollection::defaults();
    ~Context() { --*count; }
  };
  NativeFunctions functions;
  functions.makeContext = [contexts](Communicator const& communicator, CollectiveCall const&) {
    ++*contexts;
    return std::shared_ptr<void>(new Context{communicator, contexts}, [](Context* gone) { delete gone; });
  };
  functions.run = [](std::shared_ptr<void> const& held, CollectiveCall const& call, Stream const& stream) {
    auto const& context = *static_cast<Context const*>(held.get());
    context.algorithms.execute(Collective::allReduce, context.communicator, stream, call);
    launch(stream, {.blocks = 1, .threads = 32}, AddKernel{}, static_cast<float*>(call.out),
           call.outBytes / sizeof(float), 1000.0f);
  };
  functions.refusal = [](World const& world, CollectiveCall const& call) -> std::string {
    if (world.machine != DeviceKind::sim || world.ranks != 2) return "it is for 2 simulated ranks";
    return call.type == DataType::float32 && call.op == ReduceOp::sum ? "" : "it sums float32";
  };
  return std::make_shared<NativeAlgorithm>(std::move(name), Collective::allReduce, std::move(functions));
}

float reduced(NcclRank const& rank, ncclComm_t comm, Stream const& stream, int op = ncclSum) {
  Data<float> data(rank.device, count, static_cast<float>(rank.rank + 1));
  CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, op, comm, stream.native()));
  stream.synchronize();
  return data.values().back();
}

std::string chosen(std::size_t bytes) {
  World world;
  world.ranks = 2;
  world.machine = DeviceKind::sim;
  alignas(16) static std::byte buffer[2]{};
  return nccl::algorithms()
      ->collection
      .resolve(Collective::allReduce, world,
               {.in = buffer,
                .out = buffer,
                .inBytes = bytes,
                .outBytes = bytes,
                .type = DataType::float32,
                .op = ReduceOp::sum})
      .algorithm->name();
}

void checkRefused(MscclppNcclAlgorithm const& described, char const* words) {
  auto* const function = reinterpret_cast<MscclppNcclRegister*>(::dlsym(RTLD_DEFAULT, ncclRegisterName));
  REQUIRE((function != nullptr));
  char why[1024]{};
  CHECK(function(&described, why, sizeof why) != 0);
  CHECK_MESSAGE(std::string(why).find(words) != std::string::npos, why);
  char little[8]{};
  CHECK(function(&described, little, sizeof little) != 0);
  CHECK(std::string(little).size() == 7);
}

MscclppNcclAlgorithm described(char const* name, char const* plan) {
  MscclppNcclAlgorithm result{};
  result.size = sizeof result;
  result.version = mscclppNcclVersion;
  result.collective = "allreduce";
  result.name = name;
  result.plan = plan;
  return result;
}

}  // namespace

TEST_CASE("an algorithm of the program makes the calls that it does not refuse") {
  auto const contexts = std::make_shared<std::atomic<int>>(0);
  forEachNcclRank(2, [&](NcclRank& before) {
    static std::atomic<int> ready{0};
    if (before.rank == 0) CHECK(registerWithNccl(marked("marked", contexts)));
    ++ready;
    while (ready != 2) std::this_thread::yield();
    CHECK(reduced(before, before.comm, before.stream) == 3);  // it was made before
  });
  std::weak_ptr<std::atomic<int>> const held = contexts;
  forEachNcclRank(2, [&](NcclRank& rank) {
    CHECK(reduced(rank, rank.comm, rank.stream) == 1003);
    CHECK(reduced(rank, rank.comm, rank.stream, ncclMax) == 2);
    // Streams need not correspond for it either.
    Stream const second(rank.device);
    for (int call = 0; call < 4; ++call) {
      CHECK(reduced(rank, rank.comm, (call + rank.rank) % 2 == 0 ? second : rank.stream) == 1003);
    }
    ncclComm_t half = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &half, nullptr));
    CHECK(reduced(rank, half, rank.stream) == 1003);
    CHECK_NCCL(ncclCommDestroy(half));
  });
  forEachNcclRank(3, [&](NcclRank& rank) { CHECK(reduced(rank, rank.comm, rank.stream) == 6); });
  CHECK(unregisterFromNccl(Collective::allReduce, "marked"));
  CHECK_FALSE(unregisterFromNccl(Collective::allReduce, "marked"));
  forEachNcclRank(2, [&](NcclRank& rank) { CHECK(reduced(rank, rank.comm, rank.stream) == 3); });
  // What it kept for communicators has gone with them, which ends beside the program.
  for (int waited = 0; *contexts != 0 && waited < 3000; ++waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(*contexts == 0);
}

TEST_CASE("a communicator has the fewest CTAs that one of its ranks has asked for") {
  static std::atomic<std::uint32_t> seen;
  NativeFunctions functions;
  functions.run = [](std::shared_ptr<void> const&, CollectiveCall const&, Stream const&) {};
  functions.refusal = [](World const& world, CollectiveCall const&) -> std::string {
    seen = world.maxBlocks;
    return "it only looks";
  };
  REQUIRE(registerWithNccl(std::make_shared<NativeAlgorithm>("looks", Collective::allReduce, std::move(functions))));
  // What ranks give; 0: nothing.
  auto const limitOf = [](std::vector<int> const& given, bool split = false) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    onThreads(2, [&](int rank) {
      ncclConfig_t config{sizeof(ncclConfig_t), 0xcafebeef, 22809, INT_MIN, INT_MIN, INT_MIN, INT_MIN};
      auto const blocks = given[static_cast<std::size_t>(rank)];
      if (blocks != 0) config.maxCTAs = blocks;
      ncclComm_t comm = nullptr, half = nullptr;
      CHECK_NCCL(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
      if (split) CHECK_NCCL(ncclCommSplit(comm, 0, rank, &half, nullptr));
      Stream const stream(simDevice(rank));
      Data<float> data(simDevice(rank), count, static_cast<float>(rank + 1));
      CHECK_NCCL(
          ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, split ? half : comm, stream.native()));
      stream.synchronize();
      CHECK(data.are(3));
      if (split) CHECK_NCCL(ncclCommDestroy(half));
      CHECK_NCCL(ncclCommDestroy(comm));
    });
    return seen.load();
  };
  auto const all = limitOf({0, 0});
  CHECK(all > 1);
  CHECK(limitOf({1, 1}) == 1);
  CHECK(limitOf({0, 1}) == 1);
  CHECK(limitOf({1000, 1000}) == all);
  CHECK(limitOf({1, 1}, true) == 1);  // what it is made of has said so
  ::setenv("NCCL_MAX_CTAS", "1", 1);
  CHECK(limitOf({1000, 1000}) == 1);
  ::setenv("NCCL_MAX_CTAS", "some", 1);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0) == ncclInvalidArgument);
  CHECK_MESSAGE(lastError().find("NCCL_MAX_CTAS=some") != std::string::npos, lastError());
  ::unsetenv("NCCL_MAX_CTAS");
  CHECK(unregisterFromNccl(Collective::allReduce, "looks"));
}

TEST_CASE("abort ends what an algorithm of the program has begun") {
  auto const contexts = std::make_shared<std::atomic<int>>(0);
  CHECK(registerWithNccl(marked("aborted", contexts)));
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    CHECK(reduced(rank, other, rank.stream) == 1003);
    if (rank.rank == 0) {
      Data<float> data(rank.device, count, 1);
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, other, rank.native()));
      CHECK_NCCL(ncclCommAbort(other));
      rank.stream.synchronize(std::chrono::seconds(5));
    } else {
      CHECK_NCCL(ncclCommAbort(other));
    }
    CHECK(reduced(rank, rank.comm, rank.stream) == 1003);
  });
  CHECK(unregisterFromNccl(Collective::allReduce, "aborted"));
}

TEST_CASE("what an algorithm of the program throws is the call's error") {
  NativeFunctions functions;
  functions.run = [](std::shared_ptr<void> const&, CollectiveCall const&, Stream const&) {
    throw Error(ErrorCode::invalidUsage, "not today");
  };
  CHECK(registerWithNccl(std::make_shared<NativeAlgorithm>("thrower", Collective::allGather, std::move(functions))));
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> in(rank.device, count, 1), out(rank.device, 2 * count, 1);
    CHECK(ncclAllGather(in.data(), out.data(), count, ncclFloat32, rank.comm, rank.native()) == ncclInvalidUsage);
    CHECK(lastError().find("allgather by thrower, which this program has registered: ") != std::string::npos);
    CHECK(lastError().find("not today") != std::string::npos);
  });
  CHECK(unregisterFromNccl(Collective::allGather, "thrower"));
}

TEST_CASE("a plan of the program makes the calls that it is for, and goes before others of its name") {
  auto program = dsl::build<dsl_test::TwoShotPackets<2>>();
  program.maxBytes = 64 << 10;
  dsl::ExecutionPlan const plan(program);
  CHECK(registerWithNccl(plan));
  CHECK(registerWithNccl(plan));  // the same again is none
  CHECK(chosen(4 * count) == "twoshot_packets");
  CHECK(chosen(128 << 10) != "twoshot_packets");
  forEachNcclRank(2, [](NcclRank& rank) { CHECK(reduced(rank, rank.comm, rank.stream) == 3); });

  program.maxBytes = 32 << 10;
  CHECK_THROWS_WITH_AS(registerWithNccl(dsl::ExecutionPlan(program)),
                       doctest::Contains("there is a registered allreduce \"twoshot_packets\" already"), Error);
  CHECK_THROWS_WITH_AS(registerWithNccl(marked("twoshot_packets", std::make_shared<std::atomic<int>>(0))),
                       doctest::Contains("already; give it another name"), Error);
  // For other ranks it is passed over.
  CHECK(registerWithNccl(dsl::ExecutionPlan(dsl::build<dsl_test::OneShotPackets<4>>())));
  forEachNcclRank(2, [](NcclRank& rank) { CHECK(reduced(rank, rank.comm, rank.stream) == 3); });
  CHECK(unregisterFromNccl(Collective::allReduce, "twoshot_packets"));
  CHECK(unregisterFromNccl(Collective::allReduce, "oneshot_packets"));
  CHECK(chosen(4 * count) != "twoshot_packets");
}

TEST_CASE("what cannot be registered is refused, in words") {
  auto const plan = dsl::toJson<dsl_test::TwoShotPackets<2>>();
  auto wrong = described("twoshot_packets", plan.c_str());
  wrong.version = 2;
  checkRefused(wrong, "an algorithm as version 2 of the interface describes it");
  wrong.version = mscclppNcclVersion;
  wrong.size -= 8;
  checkRefused(wrong, "from one release");
  checkRefused(described("", plan.c_str()), "an algorithm needs a name and a collective");
  checkRefused(described("other", plan.c_str()),
               "plan other of allreduce says that it is twoshot_packets of allreduce");
  checkRefused(described("broken", "{"), "broken");
  checkRefused(described("nothing", nullptr), "give a plan, or the functions `refuse` and `run`");
  wrong = described("twoshot_packets", plan.c_str());
  wrong.collective = "sendrecv";
  checkRefused(wrong, "there is no collective \"sendrecv\" of NCCL's");
  CHECK_THROWS_AS(registerWithNccl(std::shared_ptr<Algorithm const>()), Error);
}

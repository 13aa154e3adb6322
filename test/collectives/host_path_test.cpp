// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a call costs that was made before: no allocation, and no lock that two communicators share. Counted in this
// program by its own operator new and mutexes, with kernels that start nothing.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

namespace {

struct Counted {
  bool on = false;
  std::size_t allocations = 0;
  std::size_t locks = 0;
  void const* locked[64]{};  // by address, the first of them
};
thread_local Counted counted;

void countLock(void const* mutex) {
  if (!counted.on) return;
  if (counted.locks < std::size(counted.locked)) counted.locked[counted.locks] = mutex;
  ++counted.locks;
}

template <class Function>
Function* next(char const* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// Not inline, or the compiler takes them for malloc and free that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (counted.on) ++counted.allocations;
  if (auto* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  countLock(mutex);
  return real(mutex);
}
extern "C" int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  countLock(lock);
  return real(lock);
}
extern "C" int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  countLock(lock);
  return real(lock);
}

namespace {

using namespace mscclpp_test;

std::size_t started = 0;
LaunchShape lastShape;
std::size_t lastCount = 0;

void startNothing(KernelCall const& call) {
  ++started;
  lastShape = call.shape;
  lastCount = call.count;
}

std::mutex plantedMutex;

void startPlanted(KernelCall const& call) {
  startNothing(call);
  std::lock_guard const lock(plantedMutex);
  std::string const text(100, 'x');
  lastCount += text.size() == 100 ? 0 : 1;
}

void addKernel(Collective collective, char const* name, void (*start)(KernelCall const&), bool windows = false) {
  KernelTable::instance().add(
      {DeviceKind::sim, collective, name, reduces(collective) ? DataType::float32 : DataType::uint8,
       reduces(collective) ? ReduceOp::sum : ReduceOp::none},
      {.start = start,
       .requirement = [](std::uint32_t, std::uint32_t blocks,
                         std::uint32_t) { return layout::WorkspaceRequirement{.blocks = blocks}; },
       .shape =
           [](std::uint32_t, std::uint64_t bytes, std::uint32_t maxBlocks) {
             return LaunchShape{.blocks = std::min(maxBlocks, bytes < 4096 ? 1u : 2u), .threads = 32};
           },
       .inputWindow = windows,
       .outputWindow = windows});
}

Counted during(auto&& work) {
  counted = {.on = true};
  work();
  counted.on = false;
  return std::exchange(counted, {});
}

std::set<void const*> mutexesOf(Counted const& what) {
  REQUIRE(what.locks <= std::size(what.locked));
  return std::set<void const*>(what.locked, what.locked + what.locks);
}

std::vector<void const*> shared(Counted const& one, Counted const& other) {
  auto const a = mutexesOf(one);
  auto const b = mutexesOf(other);
  std::vector<void const*> result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

AlgorithmCollection choosing(char const* name) {
  auto algorithms = AlgorithmCollection::defaults();
  algorithms.setSelector([name](SelectionRequest const&) { return Selection{name}; });
  return algorithms;
}

struct Buffers {
  explicit Buffers(Communicator const& communicator)
      : in(communicator.device(), 4096), out(communicator.device(), 4096) {}
  CollectiveCall call(Collective collective, std::size_t count = 1024) const {
    bool const sums = reduces(collective);
    return {.in = in.data(),
            .out = out.data(),
            .inBytes = 4 * count,
            .outBytes = 4 * count,
            .type = DataType::float32,
            .op = sums ? ReduceOp::sum : ReduceOp::none};
  }
  GpuBuffer<float> in;
  GpuBuffer<float> out;
};

}  // namespace

TEST_CASE("a call that was made before allocates nothing and takes no lock that another communicator takes") {
  for (auto collective : {Collective::allReduce, Collective::allToAll}) {
    addKernel(collective, "test_nothing", &startNothing);
    addKernel(collective, "test_windows", &startNothing, true);
  }
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    Communicator second(communicator.bootstrap(), communicator.device());
    Stream stream(communicator.device());
    Stream other(communicator.device());
    Buffers const buffers(communicator);
    auto const algorithms = choosing("test_nothing");
    auto const named = algorithms.at(Collective::allReduce, "test_nothing");
    for (auto collective : {Collective::allReduce, Collective::allToAll}) {
      auto const call = buffers.call(collective);
      auto inPlace = call;
      inPlace.in = call.out;
      auto const all = [&](Communicator& on, Stream const& in) {
        algorithms.execute(collective, on, in, call);
        if (collective == Collective::allReduce) {
          algorithms.execute(collective, on, in, inPlace);
          named->execute(on, in, call);
        }
        algorithms.execute(Collective::allReduce, on, in, buffers.call(Collective::allReduce, 0));  // nothing to do
      };
      all(communicator, stream);
      all(second, other);
      auto const before = started;
      auto const first = during([&] { all(communicator, stream); });
      auto const repeated = during([&] { all(second, other); });
      CHECK(started - before == (collective == Collective::allReduce ? 6 : 2));
      CHECK(first.allocations == 0);
      CHECK(repeated.allocations == 0);
      CHECK(shared(first, repeated).empty());
      CHECK(first.locks > 0);  // its own, so locks are counted
    }
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("what is planted is counted") {
  addKernel(Collective::allReduce, "test_planted", &startPlanted);
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    Communicator second(communicator.bootstrap(), communicator.device());
    Stream stream(communicator.device());
    Buffers const buffers(communicator);
    auto const algorithms = choosing("test_planted");
    auto const run = [&](Communicator& on) {
      algorithms.execute(Collective::allReduce, on, stream, buffers.call(Collective::allReduce));
    };
    run(communicator);
    run(second);
    auto const first = during([&] { run(communicator); });
    auto const repeated = during([&] { run(second); });
    CHECK(first.allocations == 1);
    CHECK(shared(first, repeated) == std::vector<void const*>{&plantedMutex});
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("what a user can change drops what was remembered") {
  for (char const* name : {"test_nothing", "test_other"}) addKernel(Collective::allReduce, name, &startNothing);
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    Stream stream(communicator.device());
    Buffers const buffers(communicator);
    auto algorithms = AlgorithmCollection::defaults();
    int asked = 0;
    auto const selecting = [&asked](int blocks) {
      return [&asked, blocks](SelectionRequest const&) {
        ++asked;
        return Selection{"test_nothing", blocks, 0};
      };
    };
    auto const run = [&](std::size_t count = 1024, int threads = 0) {
      auto call = buffers.call(Collective::allReduce, count);
      call.threads = threads;
      algorithms.execute(Collective::allReduce, communicator, stream, call);
      return lastShape;
    };
    algorithms.setSelector(selecting(3));
    for (int i = 0; i < 3; ++i) CHECK(run().blocks == 3);
    CHECK(asked == 1);
    CHECK(run(512).blocks == 3);  // another size is another question
    CHECK(lastCount == 512);
    CHECK(run(512, 64).threads == 64);
    CHECK(asked == 3);
    algorithms.setSelector(selecting(5));
    CHECK(run().blocks == 5);
    auto copy = algorithms;
    copy.execute(Collective::allReduce, communicator, stream, buffers.call(Collective::allReduce));
    CHECK(asked == 4);  // a copy remembers
    copy.setSelector(selecting(6));
    CHECK(run().blocks == 5);  // and changes alone

    // The profile likewise.
    auto profile = std::make_shared<TunedProfile>();
    profile->set({communicator.device().properties().name, 2, true}, Collective::allReduce, 4096,
                 {"test_nothing", 2, 96, 1.0});
    algorithms.setSelector({});
    algorithms.setProfile(profile);
    CHECK(run().threads == 96);

    // An algorithm that takes a name over, and kernels that do.
    algorithms.setProfile(nullptr);
    algorithms.setSelector(selecting(4));
    CHECK(run().blocks == 4);
    int ran = 0;
    algorithms.add(std::make_shared<NativeAlgorithm>(
        "test_nothing", Collective::allReduce,
        NativeFunctions{.run = [&](auto const&, CollectiveCall const& call, Stream const&) { ran += call.blocks; }}));
    for (int i = 0; i < 2; ++i) run();
    CHECK(ran == 8);
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("wrong buffers are refused also where a call of their kind was right before") {
  addKernel(Collective::allReduce, "test_nothing", &startNothing);
  addKernel(Collective::allReduce, "test_windows", &startNothing, true);
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    Stream stream(communicator.device());
    Buffers const buffers(communicator);
    auto const algorithms = choosing("test_nothing");
    auto const good = buffers.call(Collective::allReduce);
    auto const run = [&](CollectiveCall const& call) {
      auto const before = started;
      auto text = errorOf([&] { algorithms.execute(Collective::allReduce, communicator, stream, call); },
                          ErrorCode::invalidUsage);
      CHECK((started == before) == !text.empty());
      return text;
    };
    CHECK(run(good).empty());
    auto const with = [&](auto&& change) {
      auto call = good;
      change(call);
      return run(call);
    };
    checkContains(with([](auto& c) { c.in = nullptr; }), "the input is a null pointer");
    checkContains(with([](auto& c) { c.out = nullptr; }), "the output is a null pointer");
    checkContains(with([](auto& c) { c.out = static_cast<std::byte*>(c.out) + 2; }), "2 bytes past a multiple of 4");
    checkContains(with([](auto& c) { c.out = static_cast<std::byte*>(const_cast<void*>(c.in)) + 8; }), "overlap by");
    checkContains(with([](auto& c) { c.extras["bias"] = 1; }), "no extra arguments");
    Stream elsewhere(Device{DeviceKind::sim, (communicator.rank() + 1) % 2});
    checkContains(errorOf([&] { algorithms.execute(Collective::allReduce, communicator, elsewhere, good); },
                          ErrorCode::invalidUsage),
                  "the stream belongs to");
    CHECK(with([](auto& c) { c.in = c.out; }).empty());  // in place
    // A window: memory beyond the end of an allocation, and new memory at an old address.
    auto const direct = choosing("test_windows");
    auto symmetric = good;
    symmetric.symmetric = true;
    for (int round = 0; round < 3; ++round) {
      Buffers const fresh(communicator);
      symmetric.in = fresh.in.data();
      symmetric.out = fresh.out.data();
      for (int i = 0; i < 2; ++i) direct.execute(Collective::allReduce, communicator, stream, symmetric);
      auto beyond = symmetric;
      beyond.out = fresh.out.data() + 3500;
      checkContains(errorOf([&] { direct.execute(Collective::allReduce, communicator, stream, beyond); },
                            ErrorCode::invalidUsage),
                    "behind its allocation");
      communicator.bootstrap()->barrier();
    }
    CHECK(contextCounts(communicator).windows <= 4);
  });
}

TEST_CASE("a team that went is made anew, and what was remembered of it is not used") {
  addKernel(Collective::allReduce, "test_nothing", &startNothing);
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    setContextLimits(communicator, {.teams = 2});
    std::vector<Stream> streams;
    for (int i = 0; i < 4; ++i) streams.emplace_back(communicator.device());
    Buffers const buffers(communicator);
    auto const algorithms = choosing("test_nothing");
    auto const before = started;
    for (int i : {0, 1, 0, 2, 0, 1, 3, 2, 1, 0, 0}) {
      algorithms.execute(Collective::allReduce, communicator, streams[static_cast<std::size_t>(i)],
                         buffers.call(Collective::allReduce));
      CHECK(contextCounts(communicator).teams <= 2);
    }
    releaseContexts(communicator);
    algorithms.execute(Collective::allReduce, communicator, streams[0], buffers.call(Collective::allReduce));
    CHECK(started - before >= 12);
    CHECK(contextCounts(communicator).teams == 1);
    communicator.bootstrap()->barrier();
  });
}

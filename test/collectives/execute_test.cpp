// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithm::execute on simulated GPUs: results, choice, and what is refused before anything is launched.
#include "mscclpp/collectives/algorithm.hpp"

#include <limits>

#include "collectives/allreduce.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

using namespace mscclpp_test;

TEST_CASE("every all-reduce gives the right bits") {
  checkAllReduces<float, Sum>(DeviceKind::sim, 4, {1, 7, 1000});
  checkAllReduces<BFloat16, Max>(DeviceKind::sim, 3, {501});
  checkAllReduces<std::int64_t, Sum>(DeviceKind::sim, 2, {129});
  checkAllReduces<float, Avg>(DeviceKind::sim, 1, {33});
}

TEST_CASE("launch shapes are the caller's, the profile's or the library's") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    for (auto [blocks, threads] : {std::pair{0, 0}, {1, 32}, {7, 96}, {2, 0}, {0, 512}}) {
      Sums<float, Sum> sums(communicator, 3000, 5);
      auto call = sums.call();
      call.blocks = blocks;
      call.threads = threads;
      algorithms.at(Collective::allReduce, "twoshot_ll128")->execute(communicator, stream, call);
      communicator.synchronize(stream);
      CHECK_MESSAGE(sums.wrong() == 0, blocks, " x ", threads);
      communicator.bootstrap()->barrier();
    }
  });
}

TEST_CASE("the flat form and a borrowed stream do the same") {
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    auto const algorithm = algorithms.at(Collective::allReduce, "default_allreduce_packet");
    CHECK(algorithm->name() == "twoshot_ll16");
    Stream stream(communicator.device());
    for (int form = 0; form < 2; ++form) {
      Sums<float, Sum> sums(communicator, 100, 3);
      auto const c = sums.call();
      if (form == 0) {
        algorithm->execute(communicator, c.in, c.out, c.inBytes, c.outBytes, c.type, c.op, stream);
      } else {
        algorithm->execute(communicator, c.in, c.out, c.inBytes, c.outBytes, c.type, c.op, stream.native(), 2, 64);
      }
      communicator.synchronize(stream);
      CHECK(sums.wrong() == 0);
      communicator.bootstrap()->barrier();
    }
    CHECK(contextCounts(communicator).teams == 1);
  });
}

TEST_CASE("a call that cannot be right is refused with its numbers") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    auto const algorithm = algorithms.at(Collective::allReduce, "oneshot_ll16");
    Stream stream(communicator.device());
    Sums<float, Sum> sums(communicator, 64, 1);
    auto const good = sums.call();
    auto const refusal = [&](auto&& change, ErrorCode code = ErrorCode::invalidUsage) {
      auto call = good;
      change(call);
      return errorOf([&] { algorithm->execute(communicator, stream, call); }, code);
    };
    auto text = refusal([](auto& c) { c.outBytes = 252; });
    checkContains(text, "rank " + std::to_string(communicator.rank()) + ": allreduce of 256 bytes of float32");
    checkContains(text, "252");
    checkContains(refusal([](auto& c) { c.inBytes = c.outBytes = 255; }), "no whole number of");
    checkContains(refusal([](auto& c) { c.in = nullptr; }), "the input is a null pointer");
    checkContains(refusal([](auto& c) { c.out = nullptr; }), "the output is a null pointer");
    checkContains(refusal([](auto& c) { c.out = static_cast<std::byte*>(c.out) + 2; }), "2 bytes past a multiple of 4");
    checkContains(refusal([](auto& c) { c.out = static_cast<std::byte*>(const_cast<void*>(c.in)) + 8; }),
                  "overlap by 248 bytes");
    checkContains(refusal([](auto& c) { c.op = ReduceOp::none; }), "choose ReduceOp::sum");
    checkContains(refusal([](auto& c) { c.op = static_cast<ReduceOp>(77); }), "no operation");
    checkContains(refusal([](auto& c) { c.type = static_cast<DataType>(77); }), "no such type");
    checkContains(refusal([](auto& c) { c.root = 1; }), "has no root");
    checkContains(refusal([](auto& c) { c.blocks = -1; }), "-1 blocks");
    checkContains(refusal([](auto& c) { c.blocks = 70000; }), "70000 blocks; at most 65535");
    checkContains(refusal([](auto& c) { c.threads = 513; }), "513 threads; its blocks have 1 to 512");
    checkContains(refusal([](auto& c) { c.extras["bias"] = 1; }), "no extra arguments, but got \"bias\"");
    text = refusal([](auto& c) { c.type = DataType::int32, c.op = ReduceOp::prod; }, ErrorCode::unsupported);
    CHECK(text.empty());  // is built
    auto product = good;
    product.op = ReduceOp::prod;
    text =
        errorOf([&] { algorithms.at(Collective::allReduce, "oneshot_ll128")->execute(communicator, stream, product); },
                ErrorCode::unsupported);
    checkContains(text, "no kernel for prod of float32 on 4 ranks");
    checkContains(text, "those that have: ");
    checkContains(text, "oneshot_ll16");
    communicator.synchronize(stream);

    auto const narrow = algorithms.at(Collective::allReduce, "oneshot_ll8");
    auto wide = good;
    wide.type = DataType::float64;
    checkContains(errorOf([&] { narrow->execute(communicator, stream, wide); }, ErrorCode::unsupported),
                  "those that have: oneshot_ll16");
    checkContains(errorOf([&] { (void)algorithms.at(Collective::allReduce, "ring"); }, ErrorCode::invalidUsage),
                  "choose one of oneshot_ll8");
    checkContains(errorOf([&] { (void)algorithms.at(Collective::barrier, "ring"); }, ErrorCode::invalidUsage),
                  "choose one of signals");
    Stream elsewhere(Device{DeviceKind::sim, (communicator.rank() + 1) % 4});
    checkContains(errorOf([&] { algorithm->execute(communicator, elsewhere, good); }, ErrorCode::invalidUsage),
                  "the stream belongs to");

    // Nothing to do, and no contexts are made for it.
    releaseContexts(communicator);
    auto nothing = good;
    nothing.inBytes = nothing.outBytes = 0;
    nothing.in = nothing.out = nullptr;
    algorithm->execute(communicator, stream, nothing);
    algorithms.execute(Collective::allReduce, communicator, stream, nothing);
    CHECK(contextCounts(communicator).teams == 0);
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("each collective asks for the sizes and buffers that it has") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    GpuBuffer<float> small(communicator.device(), 64);
    GpuBuffer<float> large(communicator.device(), 256);
    // choose() checks the call; a collective without kernels then says so.
    auto const refusal = [&](Collective collective, CollectiveCall call) {
      try {
        (void)algorithms.choose(collective, communicator, call);
      } catch (Error const& error) {
        return error.code() == ErrorCode::unsupported ? std::string() : std::string(error.what());
      }
      return std::string();
    };
    CollectiveCall const grow{
        .in = small.data(), .out = large.data(), .inBytes = 256, .outBytes = 1024, .type = DataType::float32};
    CollectiveCall const shrink{
        .in = large.data(), .out = small.data(), .inBytes = 1024, .outBytes = 256, .type = DataType::float32};
    auto const with = [](CollectiveCall call, auto&& change) {
      change(call);
      return call;
    };
    auto const sum = [&](CollectiveCall const& call) { return with(call, [](auto& c) { c.op = ReduceOp::sum; }); };
    CHECK(refusal(Collective::allGather, grow).empty());
    checkContains(refusal(Collective::allGather, shrink),
                  "the output has 256 bytes, but with an input of 1024 bytes on 4 ranks it must have 4096");
    checkContains(refusal(Collective::allGather, sum(grow)), "moves data unchanged");
    CHECK(refusal(Collective::reduceScatter, sum(shrink)).empty());
    checkContains(refusal(Collective::reduceScatter, sum(grow)), "it must have 64");
    checkContains(refusal(Collective::reduceScatter, sum(with(shrink, [](auto& c) { c.inBytes = 1028; }))),
                  "no whole number of 4 parts of 4-byte elements");
    checkContains(refusal(Collective::allToAll, grow), "must have 256");
    CHECK(refusal(Collective::gather, with(grow,
                                           [&](auto& c) {
                                             c.root = 2;
                                             if (communicator.rank() != 2) c.out = nullptr, c.outBytes = 0;
                                           }))
              .empty());
    auto const text = refusal(Collective::gather, with(grow, [&](auto& c) { c.out = nullptr; }));
    CHECK(text.empty() == (communicator.rank() != 0));
    checkContains(refusal(Collective::broadcast, with(grow, [](auto& c) { c.root = 4; })),
                  "root 4, but ranks are 0 to 3");
    checkContains(refusal(Collective::reduce, sum(with(grow, [](auto& c) { c.root = -1; }))), "root -1");
    CHECK(refusal(Collective::barrier, {}).empty());
    checkContains(refusal(Collective::barrier, grow), "it has no data");
    // This rank's part of the larger buffer is the in-place form; any other part overlaps.
    auto const part = [&](int of) { return large.data() + 64 * of; };
    CHECK(refusal(Collective::allGather, with(grow, [&](auto& c) { c.in = part(communicator.rank()); })).empty());
    checkContains(
        refusal(Collective::allGather, with(grow, [&](auto& c) { c.in = part((communicator.rank() + 1) % 4); })),
        "overlap by 256 bytes");
    checkContains(refusal(Collective::allGather,
                          with(grow, [](auto& c) { c.inBytes = std::numeric_limits<std::size_t>::max() / 8 * 4; })),
                  "more than memory can be");
  });
}

TEST_CASE("algorithms of whole lines are refused and not chosen where lines may tear") {
  sim::install({.devices = 4, .linesArriveWhole = false});
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    for (std::size_t count : {std::size_t{1000}, std::size_t{20000}}) {
      Sums<float, Sum> sums(communicator, count, 1);
      auto const lines = algorithms.at(Collective::allReduce, "oneshot_ll128");
      checkContains(errorOf([&] { lines->execute(communicator, stream, sums.call()); }, ErrorCode::unsupported),
                    "128-byte lines whole");
      CHECK(!contains(algorithms.choose(Collective::allReduce, communicator, sums.call()).algorithm, "ll128"));
      algorithms.execute(Collective::allReduce, communicator, stream, sums.call());
      communicator.synchronize(stream);
      CHECK(sums.wrong() == 0);
      communicator.bootstrap()->barrier();
    }
  });
  sim::install({});
}

TEST_CASE("a call for the bits of rank order is refused and not chosen where sums go from rank to rank") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    auto const chain = algorithms.at(Collective::reduce, "chain");
    GpuBuffer<float> const memory(communicator.device(), 128);
    CollectiveCall call{.in = memory.data(),
                        .out = memory.data() + 64,
                        .inBytes = 256,
                        .outBytes = 256,
                        .type = DataType::float32,
                        .op = ReduceOp::sum};
    CHECK(chain->refusal(communicator, call).empty());
    auto profile = std::make_shared<TunedProfile>();
    profile->set({communicator.device().properties().name, 4, true}, Collective::reduce, 256, {"chain", 0, 0, 1.0});
    algorithms.setProfile(profile);
    CHECK(algorithms.choose(Collective::reduce, communicator, call).algorithm == "chain");
    call.rankOrder = true;
    checkContains(errorOf([&] { chain->execute(communicator, stream, call); }, ErrorCode::invalidUsage),
                  "float32 in an order of its own");
    CHECK(algorithms.choose(Collective::reduce, communicator, call).algorithm != "chain");
    // Integers have the same bits in any order, but not their averages, which are rounded.
    call.type = DataType::int32;
    CHECK(chain->refusal(communicator, call).empty());
    call.op = ReduceOp::avg;
    CHECK(!chain->refusal(communicator, call).empty());
    call.op = ReduceOp::sum;
    call.type = DataType::float32;
    for (auto const& name : algorithms.names(Collective::reduce)) {
      CHECK((algorithms.at(Collective::reduce, name)->refusal(communicator, call).find("rank order") !=
             std::string::npos) == (name == "chain"));
    }
  });
}

TEST_CASE("the choice asks selector, profile and rule in turn") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    Sums<float, Sum> sums(communicator, 2048, 9);
    auto const call = sums.call();
    auto const chosen = [&] { return algorithms.choose(Collective::allReduce, communicator, call); };
    algorithms.setProfile(nullptr);
    CHECK(chosen().algorithm == "oneshot_ll128");

    auto profile = std::make_shared<TunedProfile>();
    TunedProfile::Subject const here{communicator.device().properties().name, 4, true};
    profile->set(here, Collective::allReduce, 8192, {"twoshot_memory", 2, 96, 1.0});
    algorithms.setProfile(profile);
    CHECK(chosen() == Selection{"twoshot_memory", 2, 96});
    // What the profile names is not here, or cannot do it: the rule decides.
    auto other = std::make_shared<TunedProfile>();
    other->set(here, Collective::allReduce, 8192, {"not_here", 2, 96, 1.0});
    algorithms.setProfile(other);
    CHECK(chosen().algorithm == "oneshot_ll128");
    algorithms.setProfile(profile);

    // What is preferred goes before, where it does not refuse.
    auto preferring = algorithms;
    preferring.prefer(preferring.at(Collective::reduce, "chain"));
    preferring.prefer(preferring.at(Collective::allReduce, "oneshot_ll8"));
    CHECK(preferring.choose(Collective::allReduce, communicator, call).algorithm == "oneshot_ll8");
    auto refused = call;
    refused.type = DataType::float64;
    CHECK(!preferring.at(Collective::allReduce, "oneshot_ll8")->refusal(communicator, refused).empty());
    CHECK(preferring.choose(Collective::allReduce, communicator, refused).algorithm != "oneshot_ll8");
    preferring.add(preferring.at(Collective::allReduce, "oneshot_ll8"));  // again, and no longer preferred
    CHECK(preferring.choose(Collective::allReduce, communicator, call) == Selection{"twoshot_memory", 2, 96});
    CHECK(chosen() == Selection{"twoshot_memory", 2, 96});

    SelectionRequest seen;
    algorithms.setSelector([&](SelectionRequest const& request) -> std::optional<Selection> {
      seen = request;
      if (request.bytes < 4096) return std::nullopt;
      return Selection{"oneshot_memory", 3, 0};
    });
    CHECK(chosen() == Selection{"oneshot_memory", 3, 0});
    CHECK(seen.bytes == 8192);
    CHECK(seen.ranks == 4);
    CHECK(seen.device == "simulated GPU");
    algorithms.execute(Collective::allReduce, communicator, stream, call);
    communicator.synchronize(stream);
    CHECK(sums.wrong() == 0);
    communicator.bootstrap()->barrier();

    algorithms.setSelector([](SelectionRequest const&) { return Selection{"nonsense"}; });
    checkContains(errorOf([&] { algorithms.execute(Collective::allReduce, communicator, stream, call); },
                          ErrorCode::invalidUsage),
                  "there is no allreduce \"nonsense\"");
    CHECK_THROWS_AS(algorithms.add(nullptr), Error);
    communicator.bootstrap()->barrier();
  });
}

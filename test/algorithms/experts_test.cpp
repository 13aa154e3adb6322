// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts and back: every element of what arrives, where, and of the sums, beside the same on the host.
#include "mscclpp/algorithms/experts/dispatch.hpp"

#include "support/experts.hpp"

using namespace mscclpp_test;

TEST_CASE_TEMPLATE("tokens of other types", T, float, Half, BFloat16) {
  checkExperts<T>({.ranks = 3, .limits = {.experts = 7, .topK = 3, .tokens = 9, .hidden = 37, .elementBytes = 4}});
  checkExperts<T>({.ranks = 2, .limits = {.experts = 8, .topK = 2, .tokens = 40, .hidden = 136, .elementBytes = 4}});
}

TEST_CASE("rows travel quantised") {
  ExpertsCase test{.ranks = 3, .limits = {.experts = 6, .topK = 3, .tokens = 5, .hidden = 300, .elementBytes = 4}};
  checkExperts<float, Float8E4M3>(test);
  checkExperts<BFloat16, Float8E5M2>(test);
  checkExperts<Half, std::int8_t>(test);
  test.limits.hidden = 3001;  // three pieces
  checkExperts<float, Float8E4M3>(test);
  test.limits.hidden = 1160;  // rows are whole payloads; the last group of columns is not full
  checkExperts<BFloat16, Float8E4M3>(test);
  checkExperts<Half, std::int8_t>(test);
}

TEST_CASE("rows of many lines: whole steps, one word more, one less, two lines of head") {
  ExpertsCase test{.ranks = 2};
  test.layers = 1;
  for (std::uint32_t const hidden : {480u, 488u, 472u, 224u, 896u, 904u, 2048u}) {
    CAPTURE(hidden);
    test.limits = {.experts = 20, .topK = 16, .tokens = 5, .hidden = hidden, .elementBytes = 2, .blocks = 3};
    checkExperts<BFloat16>(test);
    checkExperts<Half, Float8E4M3>(test);
  }
  test.limits = {.experts = 20, .topK = 14, .tokens = 7, .hidden = 1030, .elementBytes = 4, .partOfEach = true};
  checkExperts<float>(test);
}

namespace {

// A row's head of the largest numbers that there can be, there and back as packets.
struct HeadKernel {
  MSCCLPP_DEVICE void operator()(std::byte* lines, std::uint32_t topK, std::uint32_t* wrong) const {
    auto const lane = thisWarp().rank();
    impl::LaneHead head;
    head.token = 4095;
    head.part = 15;
    if (lane < topK) {
      head.entry.expert = lane % 3 == 1 ? -1 : 511 - static_cast<std::int32_t>(lane);
      head.entry.position = lane % 3 == 1 ? 0 : 65535 - lane;
      head.entry.weight = static_cast<float>(lane) / 3;
    }
    constexpr auto flag = impl::LineFlag{7, 9};
    auto const count = topK <= layout::ExpertsLayout::entriesOfLine ? 1u : 2u;
    head.store(lines, count, flag);
    Words4 slots[1];
    impl::awaitLines<1>(
        nullptr, [&](unsigned) { return impl::LineSlots::place(lines, 0); }, {lane < count * 8}, flag, slots,
        [](unsigned) -> WaitFor {
          return {layout::WaitKind::packet, 0, 0, 0};
        });
    auto const found = impl::LaneHead::of(slots[0], topK);
    bool const same = found.token == head.token && found.part == head.part && found.row == layout::noExpertRow &&
                      found.entry.expert == head.entry.expert && found.entry.position == head.entry.position &&
                      found.entry.weight == head.entry.weight && found.entry.row == layout::noExpertRow;
    if (!same) wrong[lane] = 1;
  }
};

}  // namespace

TEST_CASE("a head's lines keep the largest numbers of a token's experts") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<std::byte> const lines(rank.device, 256);
    GpuBuffer<std::uint32_t> const wrong(rank.device, 32);
    for (std::uint32_t const topK : {1u, 13u, 14u, 15u, 16u}) {
      lines.fill(0);
      launch(rank.stream, {.blocks = 1, .threads = 32}, HeadKernel{}, lines.data(), topK, wrong.data());
      rank.stream.synchronize();
      CAPTURE(topK);
      CHECK(copyToHost(wrong) == std::vector<std::uint32_t>(32, 0));
    }
  });
}

TEST_CASE("one rank to many, one expert to many, all of a token's experts on one rank") {
  for (int ranks : {1, 2, 5, 8, 16}) {
    for (std::uint32_t experts : {1u, 3u, 16u, 20u}) {
      CAPTURE(ranks);
      CAPTURE(experts);
      ExpertsCase test{.ranks = ranks};
      test.limits = {.experts = experts, .topK = 4, .tokens = 7, .hidden = 24, .elementBytes = 4, .blocks = 3};
      test.seed = static_cast<unsigned>(ranks) + experts;
      test.layers = 1;
      checkExperts<float>(test);
    }
  }
}

TEST_CASE("a hot expert, skewed routings, nobody at all") {
  for (auto const crowd : {Crowd::skewed, Crowd::oneExpert, Crowd::nobody}) {
    ExpertsCase test{.ranks = 4, .crowd = crowd};
    test.limits = {.experts = 12, .topK = 4, .tokens = 12, .hidden = 20, .elementBytes = 4, .blocks = 5};
    test.layers = 3;
    checkExperts<float>(test);
  }
}

TEST_CASE("a part home from each expert") {
  ExpertsCase test{.ranks = 3};
  test.limits = {.experts = 9, .topK = 4, .tokens = 10, .hidden = 50, .elementBytes = 4, .partOfEach = true};
  checkExperts<float>(test);
  checkExperts<BFloat16>(test);
}

TEST_CASE("a row for each token, and sums without weights") {
  ExpertsCase test{.ranks = 3};
  test.limits = {.experts = 9, .topK = 4, .tokens = 10, .hidden = 50, .elementBytes = 4};
  for (bool const each : {false, true}) {
    test.limits.partOfEach = each;
    test.weights = ExpertWeights::none;
    checkExperts<float>(test);
    test.byToken = true;
    checkExperts<float>(test);
    checkExperts<float, Float8E4M3>(test);
    test.room = 11;
    checkExperts<float>(test);
    test.room = 0;
    test.byToken = false;
  }
}

TEST_CASE("more tokens than a block takes at a time, more of them than tiles") {
  ExpertsCase test{.ranks = 2};
  test.limits = {.experts = 40, .topK = 5, .tokens = 600, .hidden = 8, .elementBytes = 4, .blocks = 2};
  test.layers = 1;
  checkExperts<float>(test);
}

TEST_CASE("experts' rows from multiples on, padded, and dropped where there is no room") {
  ExpertsCase test{.ranks = 3, .alignment = 16};
  test.limits = {.experts = 6, .topK = 3, .tokens = 10, .hidden = 12, .elementBytes = 4};
  checkExperts<float>(test);
  test.rowsOfExpert = 4;
  checkExperts<float>(test);
  test.rowsOfExpert = 0;
  test.alignment = 1;
  test.room = 7;
  checkExperts<float>(test);
}

TEST_CASE("without a rank that has failed") {
  for (int ranks : {2, 3, 8, 16}) {
    for (bool const between : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(between);
      ExpertsCase test{.ranks = ranks, .layers = 3};
      test.limits = {.experts = 17, .topK = 4, .tokens = 9, .hidden = 60, .elementBytes = 4};
      test.failed = ranks / 2;
      test.failedLayer = ranks == 3 ? 0 : 1;
      test.failsBetween = between;
      checkExperts<float>(test);
      if (ranks == 16) continue;
      test.limits.partOfEach = true;
      checkExperts<float, Float8E4M3>(test);
      test.byToken = true;
      checkExperts<BFloat16>(test);
    }
  }
  ExpertsCase test{.ranks = 4, .alignment = 4, .movers = 2, .layers = 2, .failed = 0};
  test.limits = {.experts = 6, .topK = 3, .tokens = 10, .hidden = 12, .elementBytes = 4};
  checkExperts<float>(test);
}

TEST_CASE("ranks can be left out by packets only") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    std::int32_t const failed = 0;
    for (auto const transport : {layout::ExpertTransport::memory, layout::ExpertTransport::packets}) {
      Experts const experts(rank.communicator,
                            {.experts = 2, .topK = 2, .tokens = 2, .hidden = 8, .transport = transport});
      std::string text;
      try {
        auto const handle = experts.deviceHandle(&failed);
        CHECK(handle.failed == &failed);
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        text = error.what();
      }
      CHECK(text.starts_with("rank 0: Experts without ranks that have failed, and rows go by memory") ==
            (transport == layout::ExpertTransport::memory));
    }
  });
}

TEST_CASE("dispatch in the kernel that multiplies") {
  ExpertsCase test{.ranks = 3, .alignment = 4, .movers = 2};
  test.limits = {.experts = 6, .topK = 3, .tokens = 10, .hidden = 12, .elementBytes = 4};
  checkExperts<float>(test);
  test.limits.hidden = 2100;  // three pieces
  checkExperts<float, Float8E4M3>(test);
}

namespace {

struct Wrong {
  std::int64_t expert = 0;
  std::uint32_t tokens = 2;
  std::uint32_t topK = 2;
  std::uint32_t hidden = 8;
  std::uint32_t rows = 8;
  std::uint32_t rowsOfExpert = 0;
  unsigned threads = 64;
};

struct WrongKernel {
  MSCCLPP_DEVICE void operator()(float* x, std::int64_t const* indices, Wrong const& wrong,
                                 DeviceExperts const& experts) const {
    Dispatch<float, float> const dispatch(experts, thisGrid());
    dispatch.send(thisGrid(), MatrixView<float const>{x, wrong.tokens, wrong.hidden},
                  Routing{indices, nullptr, wrong.tokens, wrong.topK});
    auto const& laidOut = wrong.rowsOfExpert != 0 ? dispatch.layOut(PaddedByExpert{wrong.rowsOfExpert})
                                                  : dispatch.layOut(PackedByExpert{});
    dispatch.place(thisGrid(), laidOut, PlacedRows<float>{{x + 64, wrong.rows, wrong.hidden}});
    dispatch.end();
  }
};

void checkRefused(Wrong const& wrong, std::string const& part) {
  if (!canRun(1)) return;
  std::string text;
  forEachRank(1, [&](Rank& rank) {
    Experts const experts(rank.communicator,
                          {.experts = 2, .topK = 2, .tokens = 2, .hidden = 8, .elementBytes = 4, .blocks = 2});
    GpuBuffer<float> const x(rank.device, 128);
    GpuBuffer<std::int64_t> const indices(rank.device, 16);
    std::vector<std::int64_t> const all(16, wrong.expert);
    copyToDevice(indices, std::span<std::int64_t const>(all));
    launch(rank.stream, {.blocks = 2, .threads = wrong.threads}, WrongKernel{}, x.data(), indices.data(), wrong,
           experts.deviceHandle());
    try {
      rank.synchronize();
    } catch (Error const& error) {
      text = error.what();
    }
  });
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  CHECK(part.empty() == text.empty());
}

std::string failureOf(std::function<layout::ExpertLimits(int)> const& limitsOf, int ranks = 1) {
  std::string text;
  forEachRank(ranks, [&](Rank& rank) {
    try {
      Experts const experts(rank.communicator, limitsOf(rank.rank));
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      if (rank.rank == 0) text = error.what();
    }
  });
  return text;
}

}  // namespace

TEST_CASE("routings, rows and room that do not fit are refused in words") {
  checkRefused({}, "");
  checkRefused({.expert = 2}, "a token for expert 2: there are experts 0 to 1");
  checkRefused({.expert = std::int64_t{1} << 32}, "a token for expert 4294967296: there are experts 0 to 1");
  checkRefused({.tokens = 3}, "a routing or rows of 3: the Experts were made for 2");
  checkRefused({.tokens = 1, .topK = 3}, "a routing or rows of 3: the Experts were made for 2");
  checkRefused({.hidden = 9}, "a routing or rows of 9: the Experts were made for 8");
  checkRefused({.hidden = 7}, "a routing or rows of 7: the Experts were made for 8");
  checkRefused({.threads = 48}, "48");
  checkRefused({.rows = 3}, "row 3 of tokens for this rank's experts: there is room for 3");
  checkRefused({.rowsOfExpert = 3}, "row 3 of tokens for this rank's experts: there is room for 3");
}

namespace {

// Rank 1 tells of a row that it does not send.
struct ForgetfulKernel {
  MSCCLPP_DEVICE void operator()(float const* x, std::int64_t const* indices, PlacedRows<float> const& placed,
                                 DeviceExperts const& experts) const {
    Dispatch<float, float> const dispatch(experts, thisGrid());
    if (experts.rank() == 0) {
      dispatch.send(thisGrid(), MatrixView{x, 0, 8}, Routing{indices, nullptr, 0, 1});
    } else if (thisBlock().rank() == 0) {
      dispatch.round().ready(0);
      for (unsigned i = 0; i < 2; ++i) {
        LL8::store(experts.count(0, 1, i), {{1}}, packetFlag(dispatch.round().number()), true);
      }
    }
    if (experts.rank() == 0) dispatch.place(thisGrid(), dispatch.layOut(PackedByExpert{}), placed);
    dispatch.end();
  }
};

}  // namespace

#if !defined(__CUDACC__)
TEST_CASE("an expert's rank, whatever the number of experts of a rank") {
  layout::ExpertsHandle handle{};
  for (std::uint32_t perRank = 1; perRank <= layout::ExpertLimits::mostExperts; ++perRank) {
    handle.layout.perRank = perRank;
    DeviceExperts const experts(handle);
    std::uint32_t wrong = 0;
    for (std::uint32_t e = 0; e < layout::ExpertLimits::mostExperts; ++e) {
      wrong += experts.rankOf(e) == static_cast<int>(e / perRank) ? 0 : 1;
    }
    CAPTURE(perRank);
    CHECK(wrong == 0);
  }
}

// The simulated machine ends such a run at once.
TEST_CASE("who waits for a row says of which rank") {
  for (auto const transport : {layout::ExpertTransport::memory, layout::ExpertTransport::packets}) {
    std::string text;
    try {
      forEachRank(2, [&](Rank& rank) {
        Experts const experts(rank.communicator, {.experts = 2,
                                                  .topK = 1,
                                                  .tokens = 1,
                                                  .hidden = 8,
                                                  .elementBytes = 4,
                                                  .blocks = 1,
                                                  .transport = transport});
        GpuBuffer<float> const x(rank.device, 8), rows(rank.device, 8);
        GpuBuffer<std::int64_t> const indices(rank.device, 1);
        launch(rank.stream, {.blocks = 1, .threads = 32}, ForgetfulKernel{}, x.data(), indices.data(),
               PlacedRows<float>{{rows.data(), 1, 8}}, experts.deviceHandle());
        rank.synchronize();
      });
    } catch (Error const& error) {
      text = error.what();
    }
    INFO(text);
    bool const packets = transport == layout::ExpertTransport::packets;
    CHECK(text.find(packets ? "waits for a packet of rank 1 in slot 0, flag expected 1, seen 0"
                            : "waits for arrivals of rank 1 at tile") != std::string::npos);
  }
}

TEST_CASE("packets go over links that deliver lines whole, of few tokens") {
  layout::ExpertLimits const few{.experts = 4, .topK = 2, .tokens = layout::ExpertsLayout::fewTokens, .hidden = 8};
  auto limits = few;
  CHECK(layout::ExpertsLayout::make(2, limits).packets == 1);
  CHECK(layout::ExpertsLayout::make(2, limits, false).packets == 0);
  ++limits.tokens;
  CHECK(layout::ExpertsLayout::make(2, limits).packets == 0);
  limits.transport = layout::ExpertTransport::packets;
  CHECK(layout::ExpertsLayout::make(2, limits).packets == 1);

  sim::install({.devices = 2, .linesArriveWhole = false});
  ExpertsCase test{.ranks = 2};
  CHECK_NOTHROW(forEachRank(2, [&](Rank& rank) {
    auto const here = few;
    CHECK(Experts(rank.communicator, here).deviceHandle().layout.packets == 0);
    runExperts<float>(rank, test);
  }));
  auto const text = failureOf(
      [&](int) {
        auto asked = few;
        asked.transport = layout::ExpertTransport::packets;
        return asked;
      },
      2);
  sim::install({});
  CHECK(
      text ==
      "rank 0: Experts by packets: not every link between the ranks delivers 128-byte lines whole; leave the transport "
      "to the library, or take memory");
}
#endif

TEST_CASE("limits that cannot be, or differ between ranks, are refused") {
  layout::ExpertLimits const good{.experts = 4, .topK = 2, .tokens = 2, .hidden = 8};
  auto const of = [&](auto const& change) {
    return failureOf([&](int) {
      auto limits = good;
      change(limits);
      return limits;
    });
  };
  CHECK(of([](auto&) {}).empty());
  CHECK(of([](auto& l) { l.experts = 513; }) == "rank 0: Experts with experts = 513; it can be 1 to 512");
  CHECK(of([](auto& l) { l.topK = 0; }) == "rank 0: Experts with topK = 0; it can be 1 to 16");
  CHECK(of([](auto& l) { l.topK = 17; }) == "rank 0: Experts with topK = 17; it can be 1 to 16");
  CHECK(of([](auto& l) { l.tokens = 0; }) == "rank 0: Experts with tokens = 0; it can be 1 to 16777216");
  CHECK(of([](auto& l) { l.hidden = 0; }) == "rank 0: Experts with hidden = 0; it can be 1 to 16777216");
  CHECK(of([](auto& l) { l.elementBytes = 9; }) == "rank 0: Experts with elementBytes = 9; it can be 1 to 8");
  CHECK(of([](auto& l) { l.blocks = 0; }) == "rank 0: Experts with blocks = 0; it can be 1 to 16777216");
  CHECK(of([](auto& l) {
          l.tokens = 4097;
          l.transport = layout::ExpertTransport::packets;
        }) ==
        "rank 0: Experts for 4097 tokens as packets, which there are for 4096 at most; leave the transport to the "
        "library, "
        "or take memory");
  if (canRun(9)) {
    auto const many = failureOf([](int) { return layout::ExpertLimits{4, 16, 1 << 24, 1}; }, 9);
    CHECK(many ==
          "rank 0: Experts for 16777216 tokens of each of 9 ranks with 16 experts each: a rank could get 2415919104 "
          "rows, at most 2147483648 can be");
  }
  if (!canRun(2)) return;
  auto const text = failureOf(
      [&](int rank) {
        auto limits = good;
        limits.tokens += static_cast<unsigned>(rank);
        return limits;
      },
      2);
  CHECK(text ==
        "Experts: rank 0 asks for 4 experts, topK 2, 2 tokens of 8 elements of 2 bytes, 132 blocks, 0 gates, rank 1 "
        "for 4 experts, topK 2, 3 tokens of 8 elements of 2 bytes, 132 blocks, 0 gates; all members must ask for "
        "the same");
}

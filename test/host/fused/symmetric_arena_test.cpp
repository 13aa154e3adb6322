// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts of an arena: where they lie, that kernels reach them and nothing beside them, what is made in them, and what is
// refused.
#include "mscclpp/host/fused/symmetric_arena.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/mscclpp.hpp"
#include "support/experts.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

constexpr unsigned count = 37;
constexpr int filler = 0x5a;

MSCCLPP_DEVICE std::uint32_t valueOf(int from, int to, unsigned i) {
  return 1000u * static_cast<unsigned>(from) + 100u * static_cast<unsigned>(to) + i;
}

// Every rank writes a row of its own into the tiles of all, and reads those that came.
struct Exchange {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, DeviceTileFlags const& flags,
                                 unsigned* wrong) const {
    SymmetricView<std::uint32_t> const rows(window, 0, count * static_cast<unsigned>(window.size));
    rows.check(flags.watch, flags.size);
    auto const round = flags.begin(thisGrid());
    auto const group = thisBlock();
    for (int to = 0; to < window.size; ++to) {
      if (group.rank() == 0) round.ready(to);
      group.sync();
      auto* const row = rows.at(to) + count * static_cast<unsigned>(window.rank);
      for (auto i = group.rank(); i < count; i += group.size()) row[i] = valueOf(window.rank, to, i);
      group.sync();
      if (group.rank() == 0) round.arrive(to, static_cast<unsigned>(window.rank));
    }
    for (int from = 0; from < window.size; ++from) {
      if (group.rank() == 0) round.await(static_cast<unsigned>(from), 1);
      syncWhole(group);
      auto const* const row = rows.at(window.rank) + count * static_cast<unsigned>(from);
      for (auto i = group.rank(); i < count; i += group.size()) {
        if (row[i] != valueOf(from, window.rank, i)) *wrong = 1;
      }
    }
    round.end();
  }
};

struct AddUp {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::size_t n, DeviceTeam const& team) const {
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{x, n}, View{y, n});
  }
};

// A view of `elements` from the begin of the part.
struct Overrun {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, std::size_t elements,
                                 DeviceTeam const& team) const {
    SymmetricView<std::uint32_t>(window, 0, elements).check(team.watch, team.size);
  }
};

// `first` bytes behind a multiple of 1,024, not where an allocation begins, with somebody else's bytes ahead and
// behind.
struct Tensor {
  GpuBuffer<std::byte> memory;
  std::size_t before, bytes;

  Tensor(Device device, std::size_t first, std::size_t size)
      : memory(device, 1024 + first + size + 64),
        before(first + (1024 - reinterpret_cast<std::uintptr_t>(memory.data()) % 1024) % 1024),
        bytes(size) {
    memory.fill(filler);
  }
  void* data() const { return memory.data() + before; }
};

template <class F>
std::string textOf(F&& make) {
  try {
    make();
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing";
}

bool holds(std::string const& text, std::string const& part) {
  bool const found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

// What rank 0 and rank 1 are told.
template <class F>
std::vector<std::string> textsOf(F const& make, std::size_t bytes = 4096) {
  std::vector<std::string> texts(2);
  forEachRank(2, [&](Rank& rank) {
    SymmetricArena arena(rank.communicator, bytes);
    texts[static_cast<std::size_t>(rank.rank)] = textOf([&] { make(rank, arena); });
    // Nothing is taken, and the ranks go on together.
    CHECK(arena.used() == 0);
    CHECK(arena.take("afterwards", 64).size() == 64);
    rank.synchronize();
  });
  return texts;
}

struct InArena {
  InArena(Communicator const& communicator, layout::ExpertLimits const& limits, ExpertsCase const& test)
      : test_(test), arena_(communicator, Experts::room(communicator.size(), limits)), experts_(arena_, limits) {
    CHECK(arena_.used() <= arena_.size());
    CHECK(arena_.used() + SymmetricArena::line > arena_.size());
  }
  void dispatch(Stream const& stream, LaunchShape const& shape, float const* x, Routing<std::int64_t> const& routing,
                PlacedRows<float> const& placed, std::int32_t const* failed) const {
    launch(stream, shape, DispatchTokens<float, float>{PackedByExpert{test_.alignment}}, x, routing, placed,
           deviceHandle(failed));
  }
  void combine(Stream const& stream, LaunchShape const& shape, float const* results,
               Routing<std::int64_t> const& routing, float* y, std::int32_t const* failed) const {
    launch(stream, shape, CombineTokens<float>{}, results, test_.rows(), routing, y, test_.weights,
           deviceHandle(failed));
  }
  layout::ExpertsHandle deviceHandle(std::int32_t const* failed) const { return experts_.deviceHandle(failed); }

 private:
  ExpertsCase const& test_;
  SymmetricArena arena_;
  Experts experts_;
};

}  // namespace

TEST_CASE("parts lie side by side, aligned, zero and at the same place on all ranks") {
  if (!canRun(3)) return;
  forEachRank(3, [](Rank& rank) {
    Tensor const tensor(rank.device, 1024, 8192);
    SymmetricArena arena(rank.communicator, tensor.data(), tensor.bytes);
    auto const* const base = static_cast<std::byte*>(tensor.data());
    CHECK(arena.window().data() == base);
    auto const bytes = arena.take("bytes", 5);
    auto const words = arena.take<std::uint32_t>("words", 7);
    auto const wide = arena.take("wide", 100, 1024);
    auto const last = arena.take("last", 8192 - 1124 - 28);
    CHECK(bytes.data() == base);
    CHECK(words.data() == base + 128);
    CHECK(words.size() == 28);
    CHECK(wide.data() == base + 1024);
    CHECK(last.data() == base + 1152);
    CHECK(arena.used() == 8192);
    for (auto const* part : {&bytes, &words, &wide, &last}) {
      auto const& handle = part->deviceHandle();
      CHECK(handle.rank == rank.rank);
      CHECK(handle.size == 3);
      CHECK(handle.bytes == part->size());
      for (int peer = 0; peer < 3; ++peer) {
        auto const* const whole = arena.window().deviceHandle().bases[peer];
        CHECK(handle.bases[peer] - whole == part->data() - base);
      }
      CHECK(handle.bases[3] == nullptr);
      CHECK(part->contains(part->data(), part->size()));
      CHECK_FALSE(part->contains(part->data(), part->size() + 1));
      CHECK(part->id() != arena.window().id());
    }
    auto const content = copyToHost(tensor.memory);
    auto const at = [&](std::size_t offset) { return content[tensor.before + offset]; };
    CHECK(at(0) == std::byte{0});
    CHECK(at(4) == std::byte{0});
    CHECK(at(5) == std::byte{filler});
    CHECK(at(155) == std::byte{0});
    CHECK(at(156) == std::byte{filler});
    CHECK(at(8191) == std::byte{0});
    CHECK(content[tensor.before - 1] == std::byte{filler});
    CHECK(content[tensor.before + 8192] == std::byte{filler});
    rank.synchronize();
  });
}

TEST_CASE(
    "a team, tiles and their flags in one arena, of memory of its own and of a tensor, by some ranks and by all") {
  for (bool const foreign : {false, true}) {
    for (auto const& members : {std::vector<int>{}, {2, 0}}) {
      if (!canRun(3)) continue;
      forEachRank(3, [&](Rank& rank) {
        if (!members.empty() && rank.rank == 1) return rank.communicator.bootstrap()->barrier();
        auto const size = members.empty() ? 3u : 2u;
        using Algorithm = AllReduce<OneShot, PacketTransport<LL16>, Sum>;
        auto const need = Algorithm::requirement(size, 1, 64);
        layout::TileFlagsSize const flagsSize{.tiles = size, .blocks = 1};
        auto const tiles = std::size_t{count} * size;
        auto const bytes =
            SymmetricArena::room({layout::WorkspaceLayout::make(size, need).total, tiles * sizeof(std::uint32_t),
                                  layout::TileFlagsLayout::make(size, flagsSize).total});
        Tensor const tensor(rank.device, 256, foreign ? bytes : 1);
        std::optional<Team> team;
        std::optional<MemoryWindow> window;
        std::optional<TileFlags> flags;
        {
          // The parts outlive the arena.
          auto arena = foreign ? SymmetricArena(rank.communicator, tensor.data(), bytes, members)
                               : SymmetricArena(rank.communicator, bytes, members);
          team.emplace(arena, need);
          window = arena.take<std::uint32_t>("tiles", tiles);
          flags.emplace(arena, flagsSize);
          CHECK(arena.used() <= bytes);
          CHECK(arena.used() + SymmetricArena::line > bytes);
        }
        int const place = members.empty() || rank.rank == 0 ? (members.empty() ? rank.rank : 1) : 0;
        CHECK(team->rank() == place);
        CHECK(flags->rank() == place);
        CHECK(flags->size() == static_cast<int>(size));
        GpuBuffer<unsigned> const wrong(rank.device, 1);
        GpuBuffer<float> const x(rank.device, count), y(rank.device, count);
        copyToDevice(x, std::vector<float>(count, static_cast<float>(1 << place)));
        if (members.empty()) rank.meet();
        for (int round = 0; round < 3; ++round) {
          launch(rank.stream, {.blocks = 1, .threads = 64}, Exchange{}, window->deviceHandle(), flags->deviceHandle(),
                 wrong.data());
          rank.pace();
          launch(rank.stream, {.blocks = 1, .threads = 64}, AddUp{}, x.data(), y.data(), std::size_t{count},
                 team->deviceHandle());
          rank.pace();
        }
        rank.synchronize();
        CHECK(copyToHost(wrong)[0] == 0);
        CHECK(copyToHost(y) == std::vector<float>(count, static_cast<float>((1 << size) - 1)));
      });
    }
  }
}

TEST_CASE("experts in an arena") {
  for (int const ranks : {1, 3}) {
    if (!canRun(ranks)) continue;
    ExpertsCase test{.ranks = ranks};
    test.limits = {.experts = 5, .topK = 3, .tokens = 6, .hidden = 20, .elementBytes = 4, .blocks = 2};
    checkExperts<float, float, InArena>(test);
  }
}

TEST_CASE("kernels reach no byte behind a part") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    SymmetricArena arena(rank.communicator, 65536);
    Team const team(arena, {.blocks = 1});
    auto const part = arena.take<std::uint32_t>("part", 8);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Overrun{}, part.deviceHandle(), std::size_t{8},
           team.deviceHandle());
    rank.communicator.synchronize(rank.stream);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Overrun{}, part.deviceHandle(), std::size_t{9},
           team.deviceHandle());
    CHECK(holds(textOf([&] { rank.communicator.synchronize(rank.stream); }), "36"));
  });
}

TEST_CASE("parts of windows") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    GpuBuffer<std::byte> const memory(rank.device, 512);
    MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
    auto const half = window.part(256, 256);
    auto const quarter = half.part(128, 128);
    CHECK(quarter.data() == memory.data() + 384);
    CHECK(window.memories().size() == 1);
    CHECK(holds(textOf([&] { (void)half.memories(); }), "a part of 256 bytes has no memories"));
    CHECK(holds(textOf([&] { (void)half.part(0, 257); }), "a part of 257 bytes at offset 0 of a window of 256 bytes"));
    CHECK(holds(textOf([&] { (void)half.part(256, 1); }), "a part of 1 bytes at offset 256"));
    CHECK(holds(textOf([&] { (void)half.part(257, ~std::size_t{0} - 200); }), "at offset 257"));
    CHECK(holds(textOf([&] { (void)half.part(8, 0); }), "a part of 0 bytes"));
  });
}

TEST_CASE("members that do not take the same are told, with both's") {
  if (!canRun(2)) return;
  auto const differ = [](std::string const& name, std::size_t bytes, std::size_t alignment) {
    return textsOf([=](Rank const& rank, SymmetricArena& arena) {
      rank.rank == 0 ? arena.take("tiles", 512) : arena.take(name, bytes, alignment);
    });
  };
  auto const sizes = differ("tiles", 513, 128);
  CHECK(
      holds(sizes[0],
            "rank 0 takes 'tiles' of 512 bytes at offset 0, aligned to 128, rank 1 'tiles' of 513 bytes at offset 0"));
  CHECK(holds(sizes[1], "rank 1 takes 'tiles' of 513 bytes at offset 0, aligned to 128, rank 0 'tiles' of 512 bytes"));
  CHECK(holds(differ("slots", 512, 128)[0], "rank 1 'slots' of 512 bytes"));
  CHECK(holds(differ("tiles", 512, 64)[0], "rank 1 'tiles' of 512 bytes at offset 0, aligned to 64"));

  auto const kinds = textsOf([](Rank const& rank, SymmetricArena& arena) {
    if (rank.rank == 0) {
      (void)arena.take("tiles", 512);
    } else {
      TileFlags const flags(rank.communicator, {.tiles = 1, .blocks = 1});
    }
  });
  CHECK(holds(kinds[0], "rank 0: rank 1 is not making the same part 'tiles' of an arena"));
  CHECK(holds(kinds[1], "rank 0 is not making the same set of tile flags"));
  auto const arenas = textsOf([](Rank const& rank, SymmetricArena& arena) {
    SymmetricArena other(rank.communicator, 4096);
    (void)(rank.rank == 0 ? arena : other).take("tiles", 512);
  });
  CHECK(holds(arenas[0], "rank 0 takes part 'tiles' of another arena than rank 1, which takes 'tiles'"));
  CHECK(holds(arenas[1], "rank 1 takes part 'tiles' of another arena than rank 0"));
}

TEST_CASE("what does not fit is refused on every member, with what is wanted and free") {
  if (!canRun(2)) return;
  auto const full = textsOf([](Rank const&, SymmetricArena& arena) { (void)arena.take("slots", 4097); });
  CHECK(holds(full[0],
              "rank 0: part 'slots' wants 4097 bytes, aligned to 128; of the arena's 4096 bytes 0 are taken, 4096 are "
              "free, and 4096 of these so aligned"));
  CHECK(holds(full[1], "rank 1: part 'slots' wants 4097"));
  auto const most = textsOf(
      [](Rank const&, SymmetricArena& arena) { (void)arena.take<std::uint64_t>("slots", ~std::size_t{0} / 4); });
  CHECK(holds(most[0], "part 'slots' wants 18446744073709551615 bytes"));
  // Flags and teams say so too.
  CHECK(holds(textsOf([](Rank const&, SymmetricArena& arena) {
                TileFlags const flags(arena, {.tiles = 4096, .blocks = 1});
              })[0],
              "part 'tile flags' wants"));
  CHECK(holds(textsOf([](Rank const&, SymmetricArena& arena) {
                Team const team(arena, {.blocks = 1, .stageBytes = 1 << 16});
              })[1],
              "part 'workspace of a team' wants"));
  CHECK(holds(textsOf([](Rank const&, SymmetricArena& arena) {
                Experts const experts(arena, {.experts = 2, .topK = 1, .tokens = 64, .hidden = 64});
              })[0],
              "part 'experts' wants"));
  // One rank's mistake is told to the other.
  auto const one =
      textsOf([](Rank const& rank, SymmetricArena& arena) { (void)arena.take("slots", rank.rank == 0 ? 64 : 8192); });
  CHECK(holds(one[0],
              "rank 0: rank 1 failed while the part 'slots' of an arena was made: rank 1: part 'slots' wants 8192"));

  forEachRank(2, [](Rank& rank) {
    SymmetricArena arena(rank.communicator, 1000);
    (void)arena.take("first", 700);
    auto const text = textOf([&] { (void)arena.take("second", 200, 512); });
    CHECK(holds(text, "1000 bytes 700 are taken, 300 are free, and 0 of these so aligned"));
    CHECK(arena.used() == 700);
    CHECK(arena.take("third", 232).data() == arena.window().data() + 768);
    rank.synchronize();
  });
}

TEST_CASE("bad names, sizes, alignments and memory are refused") {
  if (!canRun(2)) return;
  auto const taking = [](std::string const& name, std::size_t bytes, std::size_t alignment) {
    return textsOf([=](Rank const&, SymmetricArena& arena) { (void)arena.take(name, bytes, alignment); })[1];
  };
  CHECK(holds(taking("", 64, 128), "a name of 0 characters"));
  CHECK(holds(taking(std::string(48, 'x'), 64, 128), "a name of 48 characters"));
  CHECK(holds(taking("tiles", 0, 128), "rank 1: part 'tiles' of 0 bytes"));
  CHECK(holds(taking("tiles", 64, 0), "part 'tiles' aligned to 0; that must be a power of two"));
  CHECK(holds(taking("tiles", 64, 96), "part 'tiles' aligned to 96; that must be a power of two"));

  CHECK(holds(textOf([] { (void)Experts::room(2, {.experts = 4, .topK = 17, .tokens = 1, .hidden = 1}); }),
              "Experts::room: Experts with topK = 17; it can be 1 to 16"));
  CHECK(holds(textOf([] { (void)Experts::room(0, {.experts = 4, .topK = 1, .tokens = 1, .hidden = 1}); }),
              "Experts::room: Experts with ranks = 0; it can be 1 to 72"));

  forEachRank(2, [](Rank& rank) {
    CHECK(SymmetricArena(rank.communicator, 64).take(std::string(47, 'x'), 64).size() == 64);
    CHECK(holds(textOf([&] { SymmetricArena(rank.communicator, 0); }), "an arena of 0 bytes"));
    CHECK(holds(textOf([&] { SymmetricArena(rank.communicator, nullptr, 64); }), "MemoryWindow of 64 bytes at"));
    CHECK(holds(textOf([&] { SymmetricArena(rank.communicator, 64, {}, WindowUse::proxies); }), "for proxies"));
    CHECK(holds(textOf([&] { SymmetricArena(rank.communicator, 64 + static_cast<unsigned>(rank.rank)); }),
                "all members must give memory of the same size"));
    // One rank's tensor begins elsewhere.
    Tensor const tensor(rank.device, rank.rank == 0 ? 256 : 272, 4096);
    SymmetricArena arena(rank.communicator, tensor.data(), tensor.bytes);
    auto const text = textOf([&] { (void)arena.take("tiles", 64); });
    CHECK(holds(text, "rank 1: part 'tiles' aligned to 128 in an arena at"));
    CHECK(arena.take("words", 64, 16).size() == 64);
    CHECK(holds(textOf([&] { Team(arena, {.blocks = 1, .multicast = 1}); }), "WindowUse::multicast"));
    rank.synchronize();
  });
}

#if !defined(__CUDACC__)
TEST_CASE("parts of an arena with multicast have the multicast address of their place") {
  forEachRank(2, [](Rank& rank) {
    SymmetricArena arena(rank.communicator, 65536, {}, WindowUse::multicast);
    (void)arena.take("first", 64);
    Team const team(arena, {.blocks = 1, .multicast = 1});
    Team const other(arena, {.blocks = 1});
    auto const part = arena.take("last", 64);
    auto const& whole = arena.window().deviceHandle();
    REQUIRE(whole.multicast != nullptr);
    CHECK(team.deviceHandle().multicast == whole.multicast + 128);
    CHECK(other.deviceHandle().multicast == nullptr);
    CHECK(part.deviceHandle().multicast - whole.multicast == part.data() - arena.window().data());
    rank.synchronize();
  });
}
#endif

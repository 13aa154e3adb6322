// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs for the tests of mscclpp-check. cli.py finds the lines by their marks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/check_program.hpp"

using namespace mscclpp;

namespace {

enum class Fault { none, race, copyRace, wideAtomic, wildWrite, wildCopy, deepStack, abort, deadLock };

[[gnu::noinline]] unsigned digDown(unsigned depth) {  // <- deepEntry
  volatile char room[512];
  room[depth % 512] = 1;
  return depth == 0 ? room[0] : digDown(depth - 1) + room[1];  // <- deepStack
}

struct Square {
  MSCCLPP_DEVICE void operator()(std::uint32_t* values, std::uint32_t count, Fault fault) const {
    auto const grid = thisGrid();
    for (auto i = static_cast<std::uint32_t>(grid.rank()); i < count; i += static_cast<std::uint32_t>(grid.size())) {
      values[i] = i * i;  // <- firstWrite
    }
    if (grid.rank() == 7 && fault == Fault::race) values[5] = 25;  // <- secondWrite
    if (grid.rank() % 32 == 0 && fault == Fault::copyRace) {
      std::uint32_t const row[] = {0, 1, 4, 9, 16};
      std::memcpy(values, row, sizeof row);  // <- copyRace
    }
    if (grid.rank() != 5) return;
    if (fault == Fault::wideAtomic) {
      __extension__ using Wide = unsigned __int128;
      __atomic_store_n(reinterpret_cast<Wide*>(values), Wide{1} << 32, __ATOMIC_RELAXED);
    }
    if (fault == Fault::wildWrite) *reinterpret_cast<std::uint32_t*>(4096) = 1;               // <- wildWrite
    if (fault == Fault::wildCopy) std::memcpy(values, reinterpret_cast<void*>(4096), count);  // <- wildCopy
    if (fault == Fault::deepStack) values[0] = digDown(1000);
    if (fault == Fault::abort) std::abort();  // <- abort
    if (fault == Fault::deadLock) {
      poll(nullptr, {layout::WaitKind::semaphore, 1, 7, 1}, [&](std::uint64_t& seen) {
        seen = load<Order::acquire, Scope::system>(values + 5);
        return seen == 1;
      });
    }
  }
};

void square(sim::RankContext& rank, Fault fault) {
  constexpr std::uint32_t count = 100;
  Device const device{DeviceKind::sim, rank.device()};
  GpuBuffer<std::uint32_t> values(device, count);
  Stream stream(device);
  launch(stream, {.blocks = 2, .threads = 32}, Square{}, values.data(), count, fault);
  stream.synchronize();
  auto const result = copyToHost(values);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (result[i] != i * i) throw std::runtime_error("a square is wrong");
  }
}

auto squares(Fault fault) {
  return [fault](sim::RankContext& rank) { square(rank, fault); };
}

sim::CheckProgram const correct{"correct", squares(Fault::none), {.ranks = 3}, {.schedules = 10}};
sim::CheckProgram const wildWrite{"wildWrite", squares(Fault::wildWrite)};
sim::CheckProgram const race{"race", squares(Fault::race)};
sim::CheckProgram const copyRace{"copyRace", squares(Fault::copyRace)};
sim::CheckProgram const wideAtomic{"wideAtomic", squares(Fault::wideAtomic)};
sim::CheckProgram const touchesNothing{"touchesNothing", [](sim::RankContext&) {}};
sim::CheckProgram const wildCopy{"wildCopy", squares(Fault::wildCopy)};
sim::CheckProgram const deepStack{"deepStack", squares(Fault::deepStack)};
sim::CheckProgram const aborts{"abort", squares(Fault::abort)};
sim::CheckProgram const deadLock{"deadLock", squares(Fault::deadLock)};
sim::CheckProgram const hostWildWrite{"hostWildWrite", [](sim::RankContext& rank) {
                                        auto* nowhere = reinterpret_cast<int volatile*>(4096);
                                        if (rank.rank() == 1) *nowhere = 1;  // <- hostWildWrite
                                      }};
sim::CheckProgram const wrongResult{"wrongResult", [](sim::RankContext& rank) {
                                      if (rank.rank() == 1) throw std::runtime_error("rank 1 is wrong on purpose");
                                    }};
// Passes an error of its launch over.
sim::CheckProgram const oversight{"oversight", [](sim::RankContext& rank) {
                                    Device const device{DeviceKind::sim, rank.device()};
                                    GpuBuffer<std::uint32_t> const values(device, 8);
                                    Stream const stream(device);
                                    try {
                                      launch(stream, {.blocks = 1, .threads = 32}, Square{}, values.data(), 8u,
                                             Fault::none);
                                    } catch (Error const&) {
                                    }
                                    stream.synchronize();
                                    if (copyToHost(values)[7] != 49) throw std::runtime_error("nobody has squared");
                                  }};
sim::CheckProgram const oneOfThree{"threeRanksOnly", [](sim::RankContext& rank) {
                                     if (rank.ranks() != 3) throw std::runtime_error("not three ranks");
                                     square(rank, Fault::none);
                                   }};

}  // namespace

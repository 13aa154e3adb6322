// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one collective with a prologue on every rank, and compares with the collective of what the prologue makes.
#pragma once

#include <vector>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/device/memory.hpp"
#include "support/collective.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

// Twice the element, and a number that tells rank and index apart. Counts indices that lie past the end.
struct Prepare {
  int rank;
  std::size_t count;
  std::uint32_t* pastEnd;

  template <class V>
  MSCCLPP_DEVICE V operator()(V values, std::uint64_t index) const {
    if (index >= count) fetchAdd<Order::relaxed, Scope::device>(pastEnd, 1u);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < V::size; ++i) values[i] = prepared(values[i], rank, index + i);
    return values;
  }
  template <class Acc>
  MSCCLPP_HOST_DEVICE static Acc prepared(Acc value, int rank, std::uint64_t index) {
    return static_cast<Acc>(value * 2 + static_cast<Acc>(index % 5 + static_cast<unsigned>(rank)));
  }
};

// Calls a collective with such an input in place of that of the operands.
template <class Collective, class In, class T>
struct PreparedKernel {
  MSCCLPP_DEVICE void operator()(In const* in, std::size_t inCount, std::uint32_t* pastEnd, T* out, std::size_t count,
                                 int root, DeviceTeam const& team, layout::WindowHandle const& outWindow) const {
    impl::Operands<Collective, T> const with{nullptr, out, count, static_cast<std::size_t>(team.size)};
    WithPrologue<In const, Prepare> const prepared{View{in, inCount}, Prepare{team.rank, inCount, pastEnd}};
    impl::callOnGrid<Collective>(team, prepared, with.output(outWindow), root);
  }
};

template <class Collective, class In, class T>
void checkPrologueRank(Rank& rank, CollectiveCase const& test) {
  using M = Meaning<Collective>;
  auto const ranks = static_cast<std::size_t>(test.ranks);
  Team const team(rank.communicator, collectiveWorkspace<Collective>(test));
  GpuBuffer<std::uint32_t> const pastEnd(rank.device, 1);
  pastEnd.fill(0);
  std::uint64_t number = 0;
  for (auto const count : test.counts) {
    ++number;
    auto const inCount = M::wholeIn ? count * ranks : count;
    auto const outCount = M::wholeOut ? count * ranks : count;
    GpuBuffer<In> const in(rank.device, inCount + test.offset + 8);
    GpuBuffer<T> const out(rank.device, outCount + test.offset + 8);
    out.fill(0x5a);
    Buffers<T> prepared;
    for (int r = 0; r < test.ranks; ++r) {
      auto const input = randomInput<In>(test.seed + 100 * number, r, inCount);
      if (r == rank.rank) copyToDevice(in, std::span<In const>(input), test.offset);
      auto& result = prepared.emplace_back();
      for (std::size_t i = 0; i < inCount; ++i) {
        auto const value = convertNumber<DefaultAccumulator<In>>(input[i]);
        result.push_back(convertNumber<T>(Prepare::prepared(value, r, i)));
      }
    }
    auto expected = copyToHost(out);
    auto const result = M::template result<T>(prepared, rank.rank, test.root);
    std::copy(result.begin(), result.end(), expected.begin() + static_cast<std::ptrdiff_t>(test.offset));
    T* target = out.data() + test.offset;
    if (test.inPlace) {
      if constexpr (sizeof(In) == sizeof(T)) target = reinterpret_cast<T*>(in.data() + test.offset);
    }
    MemoryWindow const window(rank.communicator, out.data(), out.bytes());
    rank.meet();
    launch(rank.stream, {.blocks = test.blocks, .threads = test.threads, .overlapPrevious = test.overlap},
           PreparedKernel<Collective, In, T>{}, in.data() + test.offset, inCount, pastEnd.data(), target, count,
           test.root, team.deviceHandle(), window.deviceHandle());
    rank.synchronize();
    if (test.inPlace) rank.stream.copy(out.data() + test.offset, target, outCount * sizeof(T));
    rank.synchronize();
    auto const different = countDifferent(copyToHost(out), expected);
    CHECK_MESSAGE(different == 0, "rank ", rank.rank, ", count ", count);
  }
  CHECK(copyToHost(pastEnd)[0] == 0);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs all collectives by a plain implementation on the host, and by ones with a fault each: a run must tell them
// apart.
#include "session/session.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <string>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/layout/point_to_point_handle.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

constexpr int ranks = 3;

enum class Fault { none, staleAfterFirst, lastSlotMissing, pastTheEnd, inputWritten, othersOutputWritten };

// What the ranks call at the same time.
struct Buffers {
  void const* in;
  void* out;
};
struct Meeting {
  std::array<Buffers, ranks> calls{};
  std::array<std::vector<std::byte>, ranks> firstInputs;
  std::barrier<> barrier{ranks};
};

Meeting& meeting() {
  static Meeting instance;
  return instance;
}

Runtime& machine() { return runtime(DeviceKind::sim); }

std::vector<std::byte> read(void const* from, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  machine().copy(data.data(), from, bytes);
  return data;
}

// Added in rank order, as the kernels do.
std::vector<std::byte> sumOf(std::vector<std::vector<std::byte>> const& inputs) {
  std::vector<float> total(inputs[0].size() / sizeof(float));
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    auto const* const values = reinterpret_cast<float const*>(inputs[rank].data());
    for (std::size_t i = 0; i < total.size(); ++i) total[i] = rank == 0 ? values[i] : total[i] + values[i];
  }
  auto const* const bytes = reinterpret_cast<std::byte const*>(total.data());
  return {bytes, bytes + inputs[0].size()};
}

template <Collective C, Fault F>
void onHost(KernelCall const& call) {
  using enum Collective;
  auto& shared = meeting();
  machine().synchronize(call.stream.native(), std::chrono::seconds(60));
  int const own = C == sendRecv ? call.links->rank : call.team.rank;
  auto const self = static_cast<std::size_t>(own);
  auto part = call.count * (reduces(C) ? sizeof(float) : 1);
  shared.calls[self] = {call.in, call.out};
  if constexpr (C == sendRecv) {
    shared.calls[self] = {call.messages->send[nextRank(own, ranks)].data,
                          call.messages->recv[previousRank(own, ranks)].data};
    part = call.messages->send[nextRank(own, ranks)].bytes;
  }
  auto* const out = static_cast<std::byte*>(shared.calls[self].out);
  shared.barrier.arrive_and_wait();
  bool const wholeIn = C == reduceScatter || C == allToAll || C == scatter;
  bool const wholeOut = C == allGather || C == allToAll || C == gather;
  // What each rank gives: nobody writes before all have read.
  std::vector<std::vector<std::byte>> inputs;
  for (auto const& other : shared.calls) inputs.push_back(read(other.in, wholeIn ? part * ranks : part));
  if (F == Fault::staleAfterFirst) {
    auto& first = shared.firstInputs[self];
    if (first.empty()) first = inputs[self];
    shared.barrier.arrive_and_wait();
    for (std::size_t rank = 0; rank < ranks; ++rank) inputs[rank] = shared.firstInputs[rank];
  }
  shared.barrier.arrive_and_wait();
  auto const slot = [&](std::vector<std::byte> const& from, std::size_t index) {
    auto const begin = from.begin() + static_cast<std::ptrdiff_t>(index * part);
    return std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(part));
  };
  auto const root = static_cast<std::size_t>(call.root);
  bool const gets = (C != reduce && C != gather) || self == root || F == Fault::othersOutputWritten;
  std::vector<std::byte> result;
  if constexpr (C == allReduce || C == reduce) result = sumOf(inputs);
  if constexpr (C == broadcast) result = inputs[root];
  if constexpr (C == scatter) result = slot(inputs[root], self);
  if constexpr (C == sendRecv) result = inputs[(self + ranks - 1) % ranks];
  if constexpr (C == reduceScatter) {
    std::vector<std::vector<std::byte>> addends;
    for (auto const& input : inputs) addends.push_back(slot(input, self));
    result = sumOf(addends);
  }
  if constexpr (wholeOut) {
    for (auto const& input : inputs) {
      auto const piece = C == allToAll ? slot(input, self) : input;
      result.insert(result.end(), piece.begin(), piece.end());
    }
  }
  if (F == Fault::lastSlotMissing && self == ranks - 1)
    result.resize(result.size() - (wholeOut ? part : sizeof(float)));
  if (gets) machine().copy(out, result.data(), result.size());
  if (F == Fault::pastTheEnd && self == 1) {
    std::byte const stray{};
    machine().copy(out + result.size(), &stray, 1);
  }
  if (F == Fault::inputWritten && self == 1) {
    std::byte const changed = inputs[1].back() ^ std::byte{0x40};
    machine().copy(const_cast<std::byte*>(static_cast<std::byte const*>(shared.calls[1].in)) + inputs[1].size() - 1,
                   &changed, 1);
  }
  shared.barrier.arrive_and_wait();
}

template <Collective C, Fault F>
void enter(std::string const& name) {
  KernelTable::instance().add(
      {DeviceKind::sim, C, name, reduces(C) ? DataType::float32 : DataType::uint8,
       reduces(C) ? ReduceOp::sum : ReduceOp::none},
      {.start = &onHost<C, F>,
       .requirement = [](std::uint32_t, std::uint32_t blocks, std::uint32_t) -> layout::WorkspaceRequirement {
         return {.blocks = blocks};
       },
       .shape = [](std::uint32_t, std::uint64_t, std::uint32_t) -> LaunchShape { return {.blocks = 1, .threads = 32}; },
       .outputWindow = true});
}

template <Fault F>
void enterAll(std::string const& name) {
  using enum Collective;
  enter<allReduce, F>(name);
  enter<allGather, F>(name);
  enter<reduceScatter, F>(name);
  enter<allToAll, F>(name);
  enter<broadcast, F>(name);
  enter<reduce, F>(name);
  enter<gather, F>(name);
  enter<scatter, F>(name);
  // Messages look for their kernel by its format.
  enter<sendRecv, F>("ll128");
}

// Wrong elements of all sizes together, by collective; one of the sizes has parts at odd places.
std::vector<std::pair<Collective, std::uint64_t>> wrongOf(std::string const& algorithm,
                                                          std::vector<std::string> const& more = {}) {
  std::vector<std::string> arguments{
      "--device=sim",     "--ranks=3",   "--collective=all", "--dtype=float32",   "--min-bytes=124",
      "--max-bytes=2000", "--factor=16", "--replays=2",      "--ops-per-graph=5", "--algorithm=messages," + algorithm};
  arguments.insert(arguments.end(), more.begin(), more.end());
  auto const options = parseCommandLine(arguments).options;
  Session session(options, 0);
  auto const cases = session.plan(options).cases;
  session.prepare(cases);
  std::vector<std::pair<Collective, std::uint64_t>> result;
  for (auto const& item : cases) {
    for (auto& first : meeting().firstInputs) first.clear();
    auto const wrong = session.run(item).wrong;
    REQUIRE(wrong);
    if (result.empty() || result.back().first != item.collective) result.emplace_back(item.collective, 0);
    result.back().second += *wrong;
  }
  return result;
}

}  // namespace

TEST_CASE("a right implementation of every collective is found right") {
  enterAll<Fault::none>("host_right");
  auto const outOfPlace = wrongOf("host_right");
  CHECK(outOfPlace.size() == timedCollectives.size());
  for (auto const& [collective, wrong] : outOfPlace) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    CHECK(wrong == 0);
  }
  auto const inPlace = wrongOf("host_right", {"--in-place"});
  CHECK(inPlace.size() == timedCollectives.size() - 2);  // all-to-all and send/recv have no such form
  for (auto const& [collective, wrong] : inPlace) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    CHECK(wrong == 0);
  }
}

TEST_CASE("the same by the library's own calls") {
  for (auto launch : {"--launch=eager", "--launch=host"}) {
    enterAll<Fault::none>("host_right");
    for (auto const& [collective, wrong] : wrongOf("host_right", {launch})) {
      auto const name = nameOf(collective);
      CAPTURE(name);
      CHECK(wrong == 0);
    }
    enterAll<Fault::lastSlotMissing>("host_missing");
    std::uint64_t found = 0;
    for (auto const& [collective, wrong] : wrongOf("host_missing", {launch})) found += wrong > 0 ? 1 : 0;
    CHECK(found >= timedCollectives.size() - 2);  // but where only the root has an output
  }
}

TEST_CASE("an operation of a chain that goes on with old data is found, though the first one is right") {
  enterAll<Fault::staleAfterFirst>("host_stale");
  for (auto const& [collective, wrong] : wrongOf("host_stale")) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    // Of reductions only the first operation is checked.
    CHECK((wrong > 0) == !reduces(collective));
  }
}

TEST_CASE("what is missing, too much or elsewhere is found in every collective") {
  enterAll<Fault::lastSlotMissing>("host_missing");
  for (auto const& [collective, wrong] : wrongOf("host_missing")) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    // Only the root has an output, and the last rank is not always the root.
    if (collective != Collective::reduce && collective != Collective::gather) CHECK(wrong > 0);
  }
  enterAll<Fault::pastTheEnd>("host_past");
  for (auto const& [collective, wrong] : wrongOf("host_past")) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    CHECK(wrong > 0);
  }
  enterAll<Fault::inputWritten>("host_input");
  for (auto const& [collective, wrong] : wrongOf("host_input")) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    CHECK(wrong > 0);
  }
  enterAll<Fault::othersOutputWritten>("host_others");
  for (auto const& [collective, wrong] : wrongOf("host_others")) {
    auto const name = nameOf(collective);
    CAPTURE(name);
    CHECK((wrong > 0) == (collective == Collective::reduce || collective == Collective::gather));
  }
}

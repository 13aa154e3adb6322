// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/exchange.hpp"

namespace mscclpp::bench {
namespace {

std::size_t indexOf(int rank, int buffer) { return static_cast<std::size_t>(rank * 2 + buffer); }

}  // namespace

Step stepOf(Collective collective, bool inPlace, int rank, int ranks, int index) {
  using enum Collective;
  int const slots = slotsOf(collective, ranks);
  int const root = hasRoot(collective) ? index % ranks : 0;
  int const next = nextRank(rank, ranks);
  int const from = inPlace ? 0 : index % 2;
  int const to = inPlace ? 0 : 1 - from;
  Step step{root, {from, 0, slots}, {to, 0, slots}};
  switch (collective) {
    case allGather:
      // What the next rank contributed to the operation before. In place only the own part will do.
      step.in = {from, inPlace ? rank : next, 1};
      break;
    case reduceScatter:
      // The next operation gives this to the next rank.
      step.out = {to, inPlace ? rank : next, 1};
      break;
    case gather:
      step.in = {from, inPlace && rank == root ? rank : next, 1};
      break;
    case scatter:
      // The same on all ranks, so that the root knows where its peers want it. The next root gives it to the one after
      // it, which is the root then; in place the root's own part fixes the slot, and the next root gives it back.
      step.out = {to, inPlace ? root : (root + 2) % ranks, 1};
      break;
    default:
      break;
  }
  return step;
}

ExchangeModel::ExchangeModel(Collective collective, bool inPlace, int ranks)
    : collective_(collective), inPlace_(inPlace), ranks_(ranks), contents_(static_cast<std::size_t>(ranks) * 2) {
  for (int rank = 0; rank < ranks; ++rank) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      for (int slot = 0; slot < slotsOf(collective, ranks); ++slot) {
        at(rank, buffer).push_back({Content::Kind::input, rank, slot});
      }
    }
  }
}

std::vector<Content>& ExchangeModel::at(int rank, int buffer) { return contents_.at(indexOf(rank, buffer)); }

std::vector<Content> const& ExchangeModel::contents(int rank, int buffer) const {
  return contents_.at(indexOf(rank, buffer));
}

void ExchangeModel::poison(int buffer) {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (auto& content : at(rank, buffer)) content = {Content::Kind::poison, 0, 0};
  }
}

// What the ranks' inputs of operation `index` reduce to, at slot `offset` of them.
Content ExchangeModel::reduced(std::vector<std::vector<Content>> const& before, int index, int offset) const {
  int slot = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    auto const in = stepOf(collective_, inPlace_, rank, ranks_, index).in;
    auto const& content = before.at(indexOf(rank, in.buffer)).at(static_cast<std::size_t>(in.slot + offset));
    if (rank == 0) slot = content.slot;
    if (content != Content{Content::Kind::input, rank, slot}) return {Content::Kind::unknown, 0, 0};
  }
  return {Content::Kind::reduced, 0, slot};
}

void ExchangeModel::run(int index) {
  using enum Collective;
  auto const before = contents_;
  auto const readBy = [&](int rank, int offset) {
    auto const in = stepOf(collective_, inPlace_, rank, ranks_, index).in;
    return before.at(indexOf(rank, in.buffer)).at(static_cast<std::size_t>(in.slot + offset));
  };
  for (int rank = 0; rank < ranks_; ++rank) {
    auto const step = stepOf(collective_, inPlace_, rank, ranks_, index);
    for (int i = 0; i < step.out.slots; ++i) {
      auto& written = at(rank, step.out.buffer).at(static_cast<std::size_t>(step.out.slot + i));
      switch (collective_) {
        case allReduce:
          written = reduced(before, index, 0);
          break;
        case allGather:
          written = readBy(i, 0);
          break;
        case reduceScatter:
          written = reduced(before, index, rank);
          break;
        case allToAll:
          written = readBy(i, rank);
          break;
        case broadcast:
          written = readBy(step.root, 0);
          break;
        case reduce:
          if (rank == step.root) written = reduced(before, index, 0);
          break;
        case gather:
          if (rank == step.root) written = readBy(i, 0);
          break;
        case scatter:
          written = readBy(step.root, rank);
          break;
        case sendRecv:  // to the next rank
          written = readBy(previousRank(rank, ranks_), 0);
          break;
        case barrier:
          break;
      }
    }
  }
}

}  // namespace mscclpp::bench

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan_steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "dsl/plan_names.hpp"
#include "mscclpp/dsl/core/describe.hpp"

namespace mscclpp::tools {
namespace {

using dsl::StepKind;

dsl::RankProgram const& rankOf(dsl::Program const& program, int rank) {
  return program.ranks[static_cast<std::size_t>(rank)];
}

// f(place, step) for every step, in the order of ranks and blocks.
template <class F>
void forEachStep(dsl::Program const& program, F&& f) {
  for (int rank = 0; rank < program.size(); ++rank) {
    auto const& blocks = rankOf(program, rank).blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      for (std::size_t step = 0; step < blocks[block].steps.size(); ++step) {
        f(StepPlace{rank, static_cast<int>(block), static_cast<int>(step)}, blocks[block].steps[step]);
      }
    }
  }
}

std::string operands(std::vector<dsl::Chunks> const& all, std::string_view between) {
  std::vector<std::string> words;
  for (auto const& chunks : all) words.push_back(dsl::describe(chunks).str());
  return fmt::format("{}", fmt::join(words, between));
}

std::string channelName(dsl::Program const& program, int rank, int id) {
  auto const& channel = rankOf(program, rank).channels[static_cast<std::size_t>(id)];
  auto const kind = dsl::wordFor(dsl::channelWords, channel.kind);
  if (channel.kind == dsl::ChannelKind::switched) {
    return fmt::format("{} channel {} of ranks {}", kind, id, fmt::join(channel.ranks, ", "));
  }
  return fmt::format("{} channel {} to rank {}", kind, id, channel.peer);
}

// The i-th giver serves the i-th taker behind the first `ahead`.
using Places = std::vector<StepPlace>;
void match(Places const& givers, Places const& takers, std::size_t ahead, ArrowKind kind, std::vector<Arrow>& arrows) {
  for (std::size_t i = 0; i < givers.size() && i + ahead < takers.size(); ++i) {
    arrows.push_back({givers[i], takers[i + ahead], kind});
  }
}

}  // namespace

dsl::Step const& stepAt(dsl::Program const& program, StepPlace const& place) {
  return rankOf(program, place.rank)
      .blocks[static_cast<std::size_t>(place.block)]
      .steps[static_cast<std::size_t>(place.step)];
}

std::string nameOfStep(dsl::Step const& step, int rank) {
  std::string name(dsl::nameOf(step, rank));
  if (step.kind == StepKind::move && step.sources.size() > 1 && step.reduce != dsl::ReduceKind::asCalled) {
    name += fmt::format(" by {}", dsl::nameOf(step.reduce));
  }
  return name;
}

std::string detailOfStep(dsl::Program const& program, StepPlace const& place) {
  auto const& step = stepAt(program, place);
  std::vector<std::string> channels;
  switch (step.kind) {
    case StepKind::move: {
      bool const switched = step.link == dsl::ChannelKind::switched;
      auto text = fmt::format("{} -> {}", operands(step.sources, " + "), operands(step.targets, ", "));
      if (step.parts != 1) text += fmt::format(", part {} of {}", step.part + 1, step.parts);
      if ((switched || step.link == dsl::ChannelKind::port) && !step.objects.empty()) {
        text += fmt::format(", over {}", channelName(program, place.rank, step.objects[0]));
      }
      return text;
    }
    case StepKind::signal:
    case StepKind::wait:
    case StepKind::flush:
      for (int const id : step.objects) channels.push_back(channelName(program, place.rank, id));
      return fmt::format("{}", fmt::join(channels, ", "));
    case StepKind::acquire:
    case StepKind::release:
      return fmt::format("semaphore {}", fmt::join(step.objects, ", "));
    case StepKind::barrier:
      return fmt::format("number {} of {} blocks", fmt::join(step.objects, ", "), step.blocks);
    case StepKind::loopBegin:
      return fmt::format("turns of {} bytes, of {} chunks together", step.unitBytes, step.loopChunks);
    case StepKind::sync:
    case StepKind::loopEnd:
      break;
  }
  return {};
}

std::vector<Arrow> arrowsOf(dsl::Program const& program) {
  using Object = std::pair<int, int>;                   // rank, number
  using Packets = std::tuple<int, int, int, int, int>;  // rank, buffer, chunk, part, parts
  std::map<Object, Places> signals, waits, releases, acquires;
  std::map<Packets, Places> written, read;
  forEachStep(program, [&](StepPlace const& place, dsl::Step const& step) {
    auto const note = [&](std::map<Object, Places>& into) {
      for (int const id : step.objects) into[{place.rank, id}].push_back(place);
    };
    if (step.kind == StepKind::signal) note(signals);
    if (step.kind == StepKind::wait) note(waits);
    if (step.kind == StepKind::release) note(releases);
    if (step.kind == StepKind::acquire) note(acquires);
    if (step.kind != StepKind::move) return;
    for (auto const& [operands, into] : {std::pair{&step.targets, &written}, std::pair{&step.sources, &read}}) {
      for (auto const& chunks : *operands) {
        for (int i = 0; chunks.packets && i < chunks.count; ++i) {
          (*into)[{chunks.rank, static_cast<int>(chunks.buffer), chunks.index + i, step.part, step.parts}].push_back(
              place);
        }
      }
    }
  });
  std::vector<Arrow> arrows;
  auto const pairs = dsl::pairChannels(program);
  for (auto const& [object, places] : signals) {
    auto const number = static_cast<std::size_t>(object.second);
    auto const& channel = rankOf(program, object.first).channels[number];
    if (channel.kind == dsl::ChannelKind::switched) continue;
    int const pair = pairs[static_cast<std::size_t>(object.first)][number];
    match(places, waits[{channel.peer, pair}], 0, ArrowKind::signal, arrows);
  }
  for (auto const& [object, places] : releases) {
    auto const& initial = rankOf(program, object.first).semaphores;
    auto const id = static_cast<std::size_t>(object.second);
    match(places, acquires[object], id < initial.size() ? static_cast<std::size_t>(initial[id]) : 0,
          ArrowKind::semaphore, arrows);
  }
  for (auto const& [packets, places] : written) match(places, read[packets], 0, ArrowKind::packets, arrows);
  // Packets of several chunks go together.
  auto const order = [](Arrow const& arrow) { return std::tie(arrow.from, arrow.to); };
  std::sort(arrows.begin(), arrows.end(), [&](Arrow const& a, Arrow const& b) { return order(a) < order(b); });
  auto const same = [&](Arrow const& a, Arrow const& b) { return order(a) == order(b); };
  arrows.erase(std::unique(arrows.begin(), arrows.end(), same), arrows.end());
  return arrows;
}

std::string summaryOf(dsl::Program const& program) {
  std::size_t blocks = 0, steps = 0;
  std::array<int, 3> channels{};
  for (auto const& rank : program.ranks) {
    blocks = std::max(blocks, rank.blocks.size());
    for (auto const& channel : rank.channels) ++channels[static_cast<std::size_t>(channel.kind)];
  }
  forEachStep(program, [&](StepPlace const&, dsl::Step const&) { ++steps; });
  auto text = fmt::format("{} of {} ranks{}, protocol {}, up to {} blocks of {} threads, {} steps",
                          dsl::wordFor(dsl::collectiveWords, program.collective.kind), program.size(),
                          program.inPlace ? " in place" : "", dsl::wordFor(dsl::protocolWords, program.protocol),
                          blocks, program.threads, steps);
  for (auto const& [kind, word] : dsl::channelWords) {
    if (auto const count = channels[static_cast<std::size_t>(kind)]; count != 0) {
      text += fmt::format(", {} {} channels", count, word);
    }
  }
  return text;
}

std::string listingOf(dsl::Program const& program) {
  std::map<StepPlace, std::vector<StepPlace>> waitsFor;
  for (auto const& arrow : arrowsOf(program)) waitsFor[arrow.to].push_back(arrow.from);
  std::string text;
  int rank = -1, block = -1, depth = 0;
  forEachStep(program, [&](StepPlace const& place, dsl::Step const& step) {
    if (place.rank != rank) {
      auto const& mine = rankOf(program, place.rank);
      text += fmt::format("rank {}: input {} chunks, output {}, scratch {}\n", place.rank,
                          program.chunks(place.rank, dsl::BufferKind::input),
                          program.chunks(place.rank, dsl::BufferKind::output), mine.scratchChunks);
    }
    if (place.rank != rank || place.block != block) text += fmt::format("  block {}\n", place.block);
    rank = place.rank;
    block = place.block;
    depth -= step.kind == StepKind::loopEnd;
    auto line = fmt::format("    {:>3}  {:{}}{:<16}  {}", place.step, "", 2 * depth, nameOfStep(step, rank),
                            detailOfStep(program, place));
    for (auto const& from : waitsFor[place]) {
      line += fmt::format("; after rank {} block {} step {}", from.rank, from.block, from.step);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    depth += step.kind == StepKind::loopBegin;
  });
  return text;
}

}  // namespace mscclpp::tools

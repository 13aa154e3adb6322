// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/mscclpp_passes.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "dsl/plan_rank.hpp"

namespace mscclpp::dsl {
namespace {

using Op = MscclppOp;

bool isSync(Op const& op) { return op.step.kind == StepKind::sync; }
template <class... Names>
bool isOneOf(std::string_view name, Names const&... names) {
  return (... || (name == names));
}
bool sameShare(Step const& a, Step const& b) {
  return a.part == b.part && a.parts == b.parts && a.grouped == b.grouped;
}

template <class T>
void append(std::vector<T>& to, std::vector<T> const& more, std::size_t from = 0) {
  to.insert(to.end(), more.begin() + static_cast<std::ptrdiff_t>(from), more.end());
}

// Where the block meets itself at the edges of a loop. A sync that is the last of it counts as one ahead, as there.
unsigned edgesOf(Op const& loop) {
  unsigned found = 0;
  auto const look = [&](Op const& op, unsigned side) {
    if (isMeeting(op)) found |= syncAhead;
    if (isOrder(op)) found |= op.syncs & side;
  };
  if (!loop.inner.empty()) look(loop.inner.front(), syncAhead), look(loop.inner.back(), syncBehind);
  return found;
}

// Signals with signals, and so on; a channel is named once.
bool mergesOrder(Step& into, Step const& next) {
  if (into.kind != next.kind || into.link != next.link || into.relaxed != next.relaxed) return false;
  bool const repeats = std::find_first_of(into.objects.begin(), into.objects.end(), next.objects.begin(),
                                          next.objects.end()) != into.objects.end();
  if (repeats && (into.kind == StepKind::signal || into.kind == StepKind::wait)) return false;
  append(into.objects, next.objects);
  return true;
}

// Neighbours of which one at least is no move. What both sides would sync is synced once.
bool mergesSyncs(Op& into, Op& next) {
  bool const begins =
      isMeeting(next) || (isLoop(next) && edgesOf(next) & syncAhead) || (isOrder(next) && next.syncs & syncAhead);
  if (isOrder(into)) {
    if (isOrder(next) && mergesOrder(into.step, next.step)) {
      into.syncs |= next.syncs;
      return true;
    }
    if (begins) into.syncs &= ~syncBehind;
    return false;
  }
  if (!isMeeting(into) && !(isLoop(into) && edgesOf(into) & syncBehind)) return false;
  if (isOrder(next)) next.syncs &= ~syncAhead;
  if (isSync(next)) return true;
  if (!isSync(into) || isOrder(next) || !begins) return false;
  into = std::move(next);
  return true;
}

// Puts and gets of one size; packets that are passed on to several.
bool mergesCopies(Op& into, Op const& next) {
  if (into.name != next.name || into.step.link != next.step.link) return false;
  bool const passesOn = into.name == "rppkt" && into.step.sources == next.step.sources;
  bool const pairsUp = isOneOf(into.name, "get", "put", "ppkt", "pws", "pwsf") &&
                       into.step.sources[0].count == next.step.sources[0].count;
  if (!passesOn && !pairsUp) return false;
  if (pairsUp) append(into.step.sources, next.step.sources);
  append(into.step.targets, next.step.targets);
  append(into.step.objects, next.step.objects);
  return true;
}

// More sources of a sum; its result stored as packets, or sent.
bool mergesReduction(Op& into, Op const& next, int rank) {
  auto& step = into.step;
  if (isOneOf(into.name, "re", "rre", "repkt") && into.name == next.name) {
    if (step.sources[0] != next.step.sources[0] || step.targets != next.step.targets ||
        step.reduce != next.step.reduce) {
      return false;
    }
    append(step.sources, next.step.sources, 1);
    append(step.objects, next.step.objects);
    return true;
  }
  bool const memory = next.step.link == ChannelKind::memory;
  bool const asPut = next.name == "put" && memory && isOneOf(into.name, "re", "res", "rre", "rres");
  bool const asPackets = next.name == "ppkt" && memory && isOneOf(into.name, "repkt", "respkt", "recpkt", "recspkt");
  bool const asOwnPackets = next.name == "cpkt" && into.name == "repkt";
  bool const ofOwnPackets = next.name == "rppkt" && memory && isOneOf(into.name, "recpkt", "recspkt");
  if (!asPut && !asPackets && !asOwnPackets && !ofOwnPackets) return false;
  if (next.step.sources[0] != step.targets[ofOwnPackets ? 1 : 0]) return false;
  append(step.targets, next.step.targets);
  append(step.objects, next.step.objects);
  into.name = reductionName(step, rank);
  return true;
}

// The switch combines and stores at once.
bool mergesSwitch(Op& into, Op const& next) {
  auto& from = into.step;
  auto const& to = next.step;
  if (into.name != "glre" || next.name != "gstore" || from.objects != to.objects || from.targets != to.sources) {
    return false;
  }
  from.targets = to.targets;
  into.name = "glres";
  return true;
}

bool merges(Op& into, Op& next, int rank) {
  if (into.step.kind != StepKind::move) return mergesSyncs(into, next);
  if (next.step.kind != StepKind::move || !sameShare(into.step, next.step)) return false;
  return mergesCopies(into, next) || mergesReduction(into, next, rank) || mergesSwitch(into, next);
}

struct Access {
  Chunks chunks;
  bool writes;
};

// Of the rank's own memory, as far as operations are kept apart for it: packets keep themselves apart. Of a reduction
// of packets it is the first source that does not count, there; what a switch touches does not either.
std::vector<Access> accessesOf(Op const& op, int rank) {
  std::vector<Access> all;
  for (auto const& each : op.inner) append(all, accessesOf(each, rank));
  if (op.step.kind != StepKind::move || op.step.link == ChannelKind::switched) return all;
  bool const ofPackets = op.name.starts_with("re") && op.name.ends_with("pkt");
  bool const awaits = op.name == "upkt" || op.name == "rppkt";
  auto const& sources = op.step.sources;
  for (std::size_t i = ofPackets ? 1 : 0; i < sources.size(); ++i) {
    if (sources[i].rank == rank && !awaits) all.push_back({sources[i], false});
  }
  for (auto const& target : op.step.targets) {
    if (target.rank == rank && !target.packets) all.push_back({target, true});
  }
  return all;
}

}  // namespace

MscclppOps fused(MscclppOps ops, int rank) {
  MscclppOps made;
  for (auto& op : ops) {
    if (!made.empty() && merges(made.back(), op, rank)) continue;
    if (isLoop(op)) op.inner = fused(std::move(op.inner), rank);
    made.push_back(std::move(op));
  }
  return made;
}

MscclppOps withSyncsWritten(MscclppOps ops) {
  MscclppOps made;
  for (auto& op : ops) {
    unsigned const syncs = op.syncs;
    if (isLoop(op)) op.inner = withSyncsWritten(std::move(op.inner));
    if (syncs & syncAhead) made.push_back(syncOp());
    made.push_back(std::move(op));
    if (syncs & syncBehind) made.push_back(syncOp());
  }
  return made;
}

MscclppOps withDependencies(MscclppOps ops, int rank) {
  struct Touch {
    std::size_t op;
    bool writes;
  };
  std::map<std::pair<BufferKind, int>, Touch> touched;
  MscclppOps made;
  for (std::size_t number = 0; number < ops.size(); ++number) {
    auto& op = ops[number];
    if (isMeeting(op)) touched.clear();
    if (isLoop(op)) op.inner = withDependencies(std::move(op.inner), rank);
    bool synced = false;
    for (auto const& [chunks, writes] : accessesOf(op, rank)) {
      for (int i = chunks.index; i < chunks.index + chunks.count; ++i) {
        auto const earlier = touched.find({chunks.buffer, i});
        if (earlier == touched.end() || earlier->second.op == number || !(writes || earlier->second.writes)) continue;
        touched.clear();
        if (!std::exchange(synced, true)) made.push_back(syncOp());
        break;
      }
      for (int i = chunks.index; i < chunks.index + chunks.count; ++i) touched[{chunks.buffer, i}] = {number, writes};
    }
    made.push_back(std::move(op));
  }
  return made;
}

}  // namespace mscclpp::dsl

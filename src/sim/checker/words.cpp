// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/checker/words.hpp"

#include <algorithm>

namespace mscclpp::sim {

std::size_t Word::oldestFor(Agent const& agent) const {
  auto const isKnown = [&](ThreadId thread, Epoch epoch) {
    return thread == agent.id || agent.known.knows(thread, epoch);
  };
  for (std::size_t i = messages.size(); i-- > 1;) {
    auto const& message = messages[i];
    if (isKnown(message.thread, message.epoch)) return i;
    for (auto const& reader : message.readers) {
      if (isKnown(reader.thread, reader.epoch)) return i;
    }
  }
  return 0;
}

void Word::noteReader(std::size_t index, Agent const& agent, bool strong) {
  auto& readers = messages[index].readers;
  // The first read counts: whoever knows of it knows of the value.
  for (auto& reader : readers) {
    if (reader.thread != agent.id) continue;
    reader.strong = reader.strong || strong;
    return;
  }
  readers.push_back({agent.id, agent.epoch, strong});
}

bool Word::seenBy(std::size_t index, Agent const& agent) const {
  for (;; ++index) {
    bool handedOn = false;
    for (auto const& reader : messages[index].readers) {
      if (!reader.strong) continue;
      if (reader.thread == agent.id || agent.known.knows(reader.thread, reader.epoch)) return true;
      handedOn = handedOn || (index + 1 < messages.size() && messages[index + 1].update &&
                              messages[index + 1].thread == reader.thread);
    }
    if (!handedOn) return false;
  }
}

std::uint32_t Words::add() {
  if (free_.empty()) {
    lists_.emplace_back();
    return static_cast<std::uint32_t>(lists_.size() - 1);
  }
  auto const number = free_.back();
  free_.pop_back();
  return number;
}

void Words::free(std::uint32_t number) {
  lists_[number].clear();
  free_.push_back(number);
}

void Words::clear() {
  lists_.resize(1);
  free_.clear();
}

Word* findWord(Words::List& list, unsigned offset, unsigned bytes) {
  auto const it = std::ranges::find_if(list, [&](Word const& w) { return w.offset == offset && w.bytes == bytes; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace mscclpp::sim

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values that ordered accesses have stored into each word, in the order in which memory takes them, and what each
// carries: the memory model of PTX as a machine.
//
// A load may return any value that is not older than one its thread must know of. A relaxed store may be placed behind
// newer ones in the same way. A value carries the clocks of the releases that wrote it; an update hands on those of the
// value that it replaces. Memory itself holds the newest value, which is what plain accesses see: they need no more,
// since a plain access that is not ordered with a store is a race. Not shown: a load that takes effect after a later
// store of its own thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <boost/container/small_vector.hpp>

#include "mscclpp/base/order.hpp"
#include "sim/checker/agent.hpp"
#include "sim/memory/clock.hpp"

namespace mscclpp::sim {

// What one release put into a value.
struct Release {
  Scope scope;          // as far as it reaches
  int device;           // of the releasing thread
  std::uint32_t block;  // of it; 0: several blocks of the device
  Clock clock;
  bool own = false;  // of the value's writer at this word: its later stores there carry it too
};

// Who has seen a value.
struct Reader {
  ThreadId thread;
  Epoch epoch;  // of its first look
  bool strong;  // the scopes of store and load reach each other's thread
};

// One value of a word.
struct Message {
  std::uint64_t value = 0;
  std::uint64_t stamp = 0;  // number of the store operation; the words of a line share it
  ThreadId thread = 0;
  Epoch epoch = 0;  // 0: there before anybody stored
  int device = -1;
  std::uint32_t block = 0;
  Scope scope = Scope::system;
  bool update = false;     // nothing may come between it and the value before it
  bool signal = false;     // somebody ought to look at it
  std::uint64_t site = 0;  // code address and calls of the store
  boost::container::small_vector<Release, 1> releases;
  boost::container::small_vector<Reader, 2> readers;
};

// One word that ordered accesses use: where in its granule it lies, and its values, oldest first.
struct Word {
  std::uint8_t offset = 0;
  std::uint8_t bytes = 0;
  bool exchanged = false;  // a lock or the like; its last value need not be looked at
  std::vector<Message> messages;

  // The oldest value that the agent may still be shown: what is older is known to have been replaced.
  std::size_t oldestFor(Agent const& agent) const;
  void noteReader(std::size_t index, Agent const& agent, bool strong);
  // Whether the agent, or somebody whose look it knows of, has seen the value, or one that updates made of it.
  bool seenBy(std::size_t index, Agent const& agent) const;
};

// The words of all cells, by the number that a cell holds.
class Words {
 public:
  static constexpr std::size_t depth = 8;  // values that a word remembers

  using List = std::vector<Word>;
  List& at(std::uint32_t number) { return lists_[number]; }
  std::uint32_t add();
  void free(std::uint32_t number);
  void clear();

 private:
  std::vector<List> lists_{1};
  std::vector<std::uint32_t> free_;
};

// The word at `offset` of that size; null where there is none.
Word* findWord(Words::List& list, unsigned offset, unsigned bytes);

}  // namespace mscclpp::sim

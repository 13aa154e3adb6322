// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A map that knows which of its entries was used longest ago. Entries are few, stay where they are, have a member
// `std::uint64_t lastUse`, and the search for the oldest is rare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace mscclpp::collectives_impl {

template <class Key, class Value>
class LruMap {
 public:
  // Null where there is none. Counts as a use.
  Value* find(Key const& key) {
    auto const found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    use(found->second);
    return &found->second;
  }
  // Counts a use of an entry that is still here.
  void use(Value& value) { value.lastUse = ++clock_; }

  // The key is new.
  Value& insert(Key const& key, Value value) {
    auto& entry = entries_.emplace(key, std::move(value)).first->second;
    use(entry);
    return entry;
  }

  // The least recently used entry for which mayGo(value) holds; null where there is none.
  template <class Predicate>
  Key const* oldest(Predicate&& mayGo) const {
    Key const* result = nullptr;
    std::uint64_t lastUse = 0;
    for (auto const& [key, entry] : entries_) {
      if (!mayGo(entry) || (result != nullptr && entry.lastUse > lastUse)) continue;
      result = &key;
      lastUse = entry.lastUse;
    }
    return result;
  }

  void erase(Key key) { entries_.erase(key); }
  void clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }

  template <class F>
  void forEach(F&& f) {
    for (auto& [key, entry] : entries_) f(key, entry);
  }
  template <class F>
  void forEach(F&& f) const {
    for (auto const& [key, entry] : entries_) f(key, entry);
  }

 private:
  std::map<Key, Value> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace mscclpp::collectives_impl

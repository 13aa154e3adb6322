// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/checker/shadow.hpp"

#include <algorithm>
#include <utility>

namespace mscclpp::sim {

// The allocator's and the containers' own calls of memset and memcpy come here too, through the hooks, and may ask for
// a page that shares the entry: it is written last, and as a whole.
void Shadow::look(std::uintptr_t page) {
  auto* const found = cellsOf(page);
  cache_[page % cache_.size()] = {page, found};
}

Cell* Shadow::cellsOf(std::uintptr_t page) {
  auto it = pages_.find(page);
  if (it == pages_.end()) {
    if (!tracked_(page)) return nullptr;
    if (pages_.size() >= maxPages_) evictOne();
    std::unique_ptr<Page> fresh;
    if (free_.empty()) {
      fresh = std::make_unique<Page>();
    } else {
      fresh = std::move(free_.back());
      free_.pop_back();
    }
    it = pages_.emplace(page, std::move(fresh)).first;
    age_.push_back(page);
  }
  return it->second->data();
}

// Ordered accesses carry what later ones have to know, so a page that has seen some stays.
void Shadow::evictOne() {
  for (std::size_t tries = std::min<std::size_t>(age_.size(), 64); tries > 0; --tries) {
    auto const page = age_.front();
    age_.pop_front();
    auto const it = pages_.find(page);
    if (it == pages_.end()) continue;
    if (std::ranges::any_of(*it->second, [](Cell const& cell) { return cell.words != 0; })) {
      age_.push_back(page);
      continue;
    }
    for (auto const& cell : *it->second) forgotten_ += cell.count;
    recycle(std::move(it->second));
    pages_.erase(it);
    invalidate();
    return;
  }
}

void Shadow::recycle(std::unique_ptr<Page> page) {
  for (auto& cell : *page) {
    if (cell.overflow != 0) {
      overflow_[cell.overflow].clear();
      freeOverflow_.push_back(cell.overflow);
    }
    if (cell.count != 0 || cell.words != 0 || cell.overflow != 0) cell = Cell{};
  }
  free_.push_back(std::move(page));
}

std::vector<Crowd>& Shadow::overflow(Cell& cell) {
  if (cell.overflow == 0) {
    if (freeOverflow_.empty()) {
      cell.overflow = static_cast<std::uint32_t>(overflow_.size());
      overflow_.emplace_back();
    } else {
      cell.overflow = freeOverflow_.back();
      freeOverflow_.pop_back();
    }
  }
  return overflow_[cell.overflow];
}

void Shadow::forEach(std::uintptr_t address, std::size_t bytes, std::function<void(std::uintptr_t, Cell&)> const& act) {
  auto const end = address + bytes;
  for (auto page = address / pageBytes; page * pageBytes < end; ++page) {
    auto const it = pages_.find(page);
    if (it == pages_.end()) continue;
    for (std::size_t i = 0; i < cells; ++i) {
      auto const at = page * pageBytes + i * granule;
      if (at + granule > address && at < end) act(at, (*it->second)[i]);
    }
  }
}

void Shadow::forEach(std::function<void(std::uintptr_t, Cell&)> const& act) {
  std::vector<std::uintptr_t> order;
  order.reserve(pages_.size());
  for (auto const& [page, unused] : pages_) order.push_back(page);
  std::ranges::sort(order);
  for (auto const page : order) forEach(page * pageBytes, pageBytes, act);
}

void Shadow::forget(std::uintptr_t address, std::size_t bytes) {
  for (auto page = address / pageBytes; page * pageBytes < address + bytes; ++page) {
    auto const it = pages_.find(page);
    if (it == pages_.end()) continue;
    recycle(std::move(it->second));
    pages_.erase(it);
  }
  invalidate();
}

void Shadow::clear() {
  for (auto& [page, content] : pages_) recycle(std::move(content));
  pages_.clear();
  age_.clear();
  forgotten_ = 0;
  invalidate();
}

}  // namespace mscclpp::sim

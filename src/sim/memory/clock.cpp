// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/memory/clock.hpp"

#include <algorithm>
#include <limits>

namespace mscclpp::sim {
namespace {

constexpr std::size_t noChunk = std::numeric_limits<std::size_t>::max();

}  // namespace

Clock::Chunk* Clock::newChunk() { return new Chunk; }

void Clock::release(Chunk* chunk) {
  if (chunk != nullptr && --chunk->references == 0) delete chunk;
}

void Clock::destroy(Data* data) {
  for (auto* chunk : data->chunks) release(chunk);
  delete data;
}

Clock::Data* Clock::clone(Data const* data) {
  auto* copy = new Data;
  if (data == nullptr) return copy;
  copy->chunks = data->chunks;
  for (auto* chunk : copy->chunks) {
    if (chunk != nullptr) ++chunk->references;
  }
  return copy;
}

void Clock::join(Clock const& other) {
  if (other.data_ == nullptr || other.data_ == data_) return;
  if (data_ == nullptr) {
    *this = other;
    return;
  }
  auto const& theirs = other.data_->chunks;
  Data* result = nullptr;  // made when the first chunk changes
  auto const put = [&](std::size_t i, Chunk* chunk) {
    if (result == nullptr) {
      result = clone(data_);
      if (result->chunks.size() < theirs.size()) result->chunks.resize(theirs.size());
    }
    release(result->chunks[i]);
    result->chunks[i] = chunk;
  };
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    auto* const b = theirs[i];
    auto* const a = i < data_->chunks.size() ? data_->chunks[i] : nullptr;
    if (b == nullptr || a == b) continue;
    if (a == nullptr) {
      ++b->references;
      put(i, b);
      continue;
    }
    bool more = false;
    bool less = false;
    for (unsigned k = 0; k < threadsPerChunk; ++k) {
      more |= b->epochs[k] > a->epochs[k];
      less |= b->epochs[k] < a->epochs[k];
    }
    if (!more) continue;
    if (!less) {
      ++b->references;
      put(i, b);
      continue;
    }
    auto* const merged = newChunk();
    for (unsigned k = 0; k < threadsPerChunk; ++k) merged->epochs[k] = std::max(a->epochs[k], b->epochs[k]);
    put(i, merged);
  }
  if (result == nullptr) return;
  if (--data_->references == 0) destroy(data_);
  data_ = result;
}

Clock::Editor::Editor(Clock& clock) : clock_(clock), ownChunk_(noChunk) {
  auto* const copy = clone(clock.data_);
  if (clock.data_ != nullptr && --clock.data_->references == 0) destroy(clock.data_);
  clock.data_ = copy;
}

void Clock::Editor::set(ThreadId thread, Epoch epoch) {
  std::size_t const i = thread / threadsPerChunk;
  auto& chunks = clock_.data_->chunks;
  if (i != ownChunk_) {
    if (i >= chunks.size()) chunks.resize(i + 1);
    auto* const own = newChunk();
    if (chunks[i] != nullptr) {
      own->epochs = chunks[i]->epochs;
      release(chunks[i]);
    }
    chunks[i] = own;
    ownChunk_ = i;
  }
  chunks[i]->epochs[thread % threadsPerChunk] = epoch;
}

}  // namespace mscclpp::sim

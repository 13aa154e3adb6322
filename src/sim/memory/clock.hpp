// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vector clocks: for each thread, up to which of its epochs everything is known to have happened before.
//
// A clock is an immutable value that many threads share: after a barrier all threads of a block hold the same one.
// Entries are kept in chunks of 64 threads, shared between clocks too, so a join costs a pointer comparison for every
// chunk in which the two agree. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace mscclpp::sim {

using ThreadId = std::uint32_t;
using Epoch = std::uint32_t;

inline constexpr unsigned threadsPerChunk = 64;

class Clock {
 public:
  Clock() = default;
  Clock(Clock const& other) noexcept : data_(other.data_) {
    if (data_ != nullptr) ++data_->references;
  }
  Clock(Clock&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Clock& operator=(Clock other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Clock() {
    if (data_ != nullptr && --data_->references == 0) destroy(data_);
  }

  bool knows(ThreadId thread, Epoch epoch) const {
    if (data_ == nullptr) return false;
    auto const chunk = thread / threadsPerChunk;
    if (chunk >= data_->chunks.size()) return false;
    auto const* entries = data_->chunks[chunk];
    return entries != nullptr && entries->epochs[thread % threadsPerChunk] >= epoch;
  }
  // The same for all threads of a chunk: bit i tells of the i-th.
  std::uint64_t known(std::uint32_t chunk, Epoch epoch) const {
    if (data_ == nullptr || chunk >= data_->chunks.size() || data_->chunks[chunk] == nullptr) return 0;
    auto const& epochs = data_->chunks[chunk]->epochs;
    std::uint64_t result = 0;
    for (unsigned i = 0; i < threadsPerChunk; ++i) result |= std::uint64_t{epochs[i] >= epoch} << i;
    return result;
  }
  bool empty() const { return data_ == nullptr; }
  // Whether both are the same object: cheap, and true after a barrier.
  bool same(Clock const& other) const { return data_ == other.data_; }

  // Adds what `other` knows.
  void join(Clock const& other);

  // Changes entries of a clock that nobody else has seen yet: Editor(clock).set(thread, epoch).
  class Editor;

 private:
  struct Chunk {
    std::uint32_t references = 1;
    std::array<Epoch, threadsPerChunk> epochs{};
  };
  struct Data {
    std::uint32_t references = 1;
    std::vector<Chunk*> chunks;  // null: nothing known
  };

  static Chunk* newChunk();
  static void release(Chunk* chunk);
  static void destroy(Data* data);
  static Data* clone(Data const* data);

  Data* data_ = nullptr;
};

class Clock::Editor {
 public:
  // `clock` is replaced by a copy of its own.
  explicit Editor(Clock& clock);
  void set(ThreadId thread, Epoch epoch);

 private:
  Clock& clock_;
  std::size_t ownChunk_;  // the one that was copied last; no chunk: the maximum
};

}  // namespace mscclpp::sim

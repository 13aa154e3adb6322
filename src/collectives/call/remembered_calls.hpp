// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls that a communicator has made before, and what each came to, so that it is determined once.
//
// find() neither allocates nor locks; whoever uses it holds the communicator's ContextCache::lock().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "collectives/call/call_record.hpp"
#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

// All of a call that decides how it is done. Where its buffers lie does not, but for how they lie to each other and
// whether a switch can reach them.
struct CallKey {
  std::uint64_t chooser = 0;  // AlgorithmCollection or algorithm, in the state in which it chose
  std::uint64_t stream = 0;   // its id
  std::size_t inBytes = 0;
  std::size_t outBytes = 0;
  std::int32_t blocks = 0;
  std::int32_t threads = 0;
  std::int32_t root = 0;
  Collective collective{};
  DataType type{};
  ReduceOp op{};
  bool symmetric : 1 = false;
  bool rankOrder : 1 = false;
  bool inPlace : 1 = false;
  bool bindsIn : 1 = false;  // to multicast memory
  bool bindsOut : 1 = false;

  friend bool operator==(CallKey const&, CallKey const&) = default;
};

// A number for CallKey::chooser that none has had before.
std::uint64_t nextChooser();

struct HashCallKey {
  std::size_t operator()(CallKey const& key) const noexcept {
    auto const flags = unsigned{key.symmetric} | unsigned{key.rankOrder} << 1 | unsigned{key.inPlace} << 2 |
                       unsigned{key.bindsIn} << 3 | unsigned{key.bindsOut} << 4;
    std::uint64_t hash = 0;
    for (std::uint64_t const part : {key.chooser, key.stream, std::uint64_t{key.inBytes}, std::uint64_t{key.outBytes},
                                     std::uint64_t(key.blocks) << 32 ^ std::uint64_t(key.threads),
                                     std::uint64_t(key.root) << 32 | std::uint64_t(key.collective) << 24 |
                                         std::uint64_t(key.type) << 16 | std::uint64_t(key.op) << 8 | flags}) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// What a kernel reads and writes of this rank's buffers; 0 bytes of one that it leaves alone.
struct BufferUse {
  std::size_t inBytes = 0;
  std::size_t outBytes = 0;
  std::size_t element = 1;
};

struct StreamContext;

struct RememberedCall {
  std::shared_ptr<Algorithm const> algorithm{};  // of the user; null for the library's
  int blocks = 0;                                // for it
  int threads = 0;
  KernelLaunch launch{};  // without a kernel: there is nothing to do
  BufferUse buffers{};
  StreamContext* context = nullptr;
  CallRecord* record = nullptr;  // of the library's
  std::uint64_t contexts = 0;    // ContextCache's generation when `context` was found
  std::uint64_t kernels = 0;     // KernelTable's when the kernel was
};

class RememberedCalls {
 public:
  RememberedCall const* find(CallKey const& key) {
    auto& recent = recent_[placeOf(key)];
    if (recent != nullptr && recent->first == key) return &recent->second;
    auto const found = calls_.find(key);
    if (found == calls_.end()) return nullptr;
    recent = &*found;
    return &found->second;
  }
  void remember(CallKey const& key, RememberedCall call) {
    // Whoever makes ever new calls, of every length, say, forgets all of them now and then.
    if (calls_.size() >= most) clear();
    calls_.insert_or_assign(key, std::move(call));
  }
  void clear() {
    recent_ = {};
    calls_.clear();
  }

 private:
  using Calls = std::unordered_map<CallKey, RememberedCall, HashCallKey>;
  static constexpr std::size_t most = 4096;
  static constexpr unsigned placeBits = 6;

  // Of the few calls that a program repeats; a whole hash takes longer than to look.
  static std::size_t placeOf(CallKey const& key) {
    auto const mixed =
        (key.inBytes + key.outBytes * 3 + key.chooser * 7 + std::uint64_t(key.collective) * 11 + key.stream * 13) *
        0x9e3779b97f4a7c15u;
    return mixed >> (64 - placeBits);
  }

  Calls calls_;
  std::array<Calls::value_type const*, std::size_t{1} << placeBits> recent_{};  // entries do not move
};

}  // namespace mscclpp::collectives_impl

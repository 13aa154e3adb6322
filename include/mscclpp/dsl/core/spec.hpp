// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a program says of itself before its steps: `static constexpr dsl::Spec spec{...}`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// How a program's chunks are dealt out to its instances. `interleaved`: neighbouring parts of a chunk to neighbouring
// instances; `grouped`: each instance has one run of chunks, and keeps steps that move several chunks whole.
enum class Replication : std::uint8_t { interleaved, grouped };

struct Spec {
  std::string_view name;
  Collective collective;
  bool inPlace = false;
  Protocol protocol = Protocol::simple;
  int instances = 1;
  Replication replication = Replication::interleaved;
  bool autoSync = true;  // puts in the syncs that steps of one block need among each other
  bool fuse = true;      // merges steps that one pass over the data can do
  bool strict = false;   // a relaxed signal or wait that must hand over data is refused, not made an ordered one
  bool doubleScratch = false;
  bool reuseResources = false;  // written for MSCCL++; here contexts serve any buffers and streams in turn
  int threads = 1024;           // per block
  std::uint64_t alignment = 16;
  std::uint64_t minBytes = 0, maxBytes = ~std::uint64_t{0};  // of the message
  bool compiled = true;  // false: proved when its context is made and interpreted, as a plan: for programs that
                         // compilers take too long to evaluate
};

// Where a block meets itself around a step. `automatic`: where the steps need it (Spec::autoSync), else both.
enum class DataSync : std::uint8_t { automatic, none, before, after, both };
inline constexpr auto none = DataSync::none;
inline constexpr auto before = DataSync::before;
inline constexpr auto after = DataSync::after;
inline constexpr auto both = DataSync::both;

// Blocks that share each step given to them, a part each in their order: `count` neighbours, or any list.
struct ThreadBlockGroup {
  int first = 0;
  int count = 0;
  std::vector<int> blocks = {};

  // The block that has each of size() parts.
  constexpr int size() const { return blocks.empty() ? count : static_cast<int>(blocks.size()); }
  constexpr int at(int part) const { return blocks.empty() ? first + part : blocks[static_cast<std::size_t>(part)]; }
};

// Who does a step, and how: `{.tb = 0, .relaxed = true, .dataSync = dsl::after}`.
struct At {
  int tb = 0;
  bool relaxed = false;
  DataSync dataSync = DataSync::automatic;
  ReduceKind reduce = ReduceKind::asCalled;
  ThreadBlockGroup group = {};  // instead of tb
};

}  // namespace mscclpp::dsl

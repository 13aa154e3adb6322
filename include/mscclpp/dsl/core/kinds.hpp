// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kinds of things that programs are made of, as programs, plans and kernels have them.
#pragma once

#include <cstdint>
#include <string_view>

namespace mscclpp::dsl {

// ChannelKind: `memory` by threads, `port` by a proxy, `switched` by the switch. Only programs of Protocol::lowLatency
// may have packets.
enum class BufferKind : std::uint8_t { input, output, scratch };
enum class ChannelKind : std::uint8_t { memory, port, switched };
enum class Protocol : std::uint8_t { simple, lowLatency };
// `asCalled`: the operation that the caller of the collective names.
enum class ReduceKind : std::uint8_t { asCalled, sum, prod, min, max };
enum class CollectiveKind : std::uint8_t { allGather, allReduce, reduceScatter, allToAll, sendReceive, custom };
enum class StepKind : std::uint8_t { move, signal, wait, flush, sync, barrier, acquire, release, loopBegin, loopEnd };

// In the words of diagnostics.
constexpr std::string_view nameOf(BufferKind kind) {
  return kind == BufferKind::input ? "input" : kind == BufferKind::output ? "output" : "scratch";
}
constexpr std::string_view nameOf(ReduceKind kind) {
  constexpr std::string_view names[] = {"as called", "sum", "prod", "min", "max"};
  return names[static_cast<int>(kind)];
}

}  // namespace mscclpp::dsl

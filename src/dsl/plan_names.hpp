// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The words of the plan format.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

template <class T, std::size_t N>
using Words = std::array<std::pair<T, std::string_view>, N>;

inline constexpr Words<CollectiveKind, 6> collectiveWords{{{CollectiveKind::allGather, "allgather"},
                                                           {CollectiveKind::allReduce, "allreduce"},
                                                           {CollectiveKind::reduceScatter, "reducescatter"},
                                                           {CollectiveKind::allToAll, "alltoall"},
                                                           {CollectiveKind::sendReceive, "sendrecv"},
                                                           {CollectiveKind::custom, "test"}}};
inline constexpr Words<ChannelKind, 3> channelWords{
    {{ChannelKind::memory, "memory"}, {ChannelKind::port, "port"}, {ChannelKind::switched, "switch"}}};
inline constexpr Words<BufferKind, 3> bufferWords{
    {{BufferKind::input, "i"}, {BufferKind::output, "o"}, {BufferKind::scratch, "s"}}};
inline constexpr Words<ReduceKind, 4> reduceWords{
    {{ReduceKind::sum, "sum"}, {ReduceKind::prod, "prod"}, {ReduceKind::min, "min"}, {ReduceKind::max, "max"}}};
inline constexpr Words<Protocol, 2> protocolWords{{{Protocol::simple, "Simple"}, {Protocol::lowLatency, "LL"}}};

template <class T, std::size_t N>
constexpr std::string_view wordFor(Words<T, N> const& words, T value) {
  for (auto const& [each, word] : words) {
    if (each == value) return word;
  }
  return {};
}

}  // namespace mscclpp::dsl

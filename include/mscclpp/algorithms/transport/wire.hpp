// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packets of quantised values: Group consecutive elements travel as Group numbers of 8 bits, Q, and the power of two by
// which they were divided, in the packets that they are in: no pass for the scales and no message of their own.
//
//   AllReduce<TwoShot, Wire<Float8E4M3, 64>, Sum>{team}(thisGrid(), View{x, n}, View{y, n});
//
// A thread has a group. In LL128's lines seven threads have their groups, 16 values of each in a line, and the eighth
// sends the seven scales beside the flag: 112 values are 128 bytes on the link, where lines of bf16 hold 60. In LL8 and
// LL16 the scale has a slot behind those of the values. A thread holds its group as floats in registers: sums of bf16
// by groups of 32 take 96 of them on sm_90 (nvcc 13.0), of 64 take 168, so blocks have at most 384 threads; 128 spill.
//
// Result and exact sum differ by no more than errorBound() says. With u = 1/16 for Float8E4M3, 1/8 for Float8E5M2 and
// 1/127 for int8, and S the sum over the ranks of the largest magnitude in the element's group, that is (2u + u*u) S:
// u S as contributions are rounded, u (1 + u) S as the sum is; and next to nothing for the floats in between. An
// element that is small beside others of its group may be lost. What arrives is rounded to the element type: exact for
// float and bf16 but below 2^-126, for Half where it is neither below 2^-14 nor above 65504.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <class Q, unsigned Group, PacketFormat P = LL128>
struct Wire {
  static_assert(largestOf<Q> != 0, "Wire: values travel as Float8E4M3, Float8E5M2 or int8");
  static_assert(Group != 0 && Group % 16 == 0 && Group <= 128, "Wire: groups are of 16, 32, 48 ... 128 values");

  using Quantised = Q;
  static constexpr unsigned group = Group;
  static constexpr unsigned granule = 16;  // user data is accessed in pieces of this many bytes
  static constexpr bool inLines = P::wholeWarp;
  static constexpr unsigned valueSlots = Group / (P::words * 4);
  static constexpr unsigned slots = valueSlots + (inLines ? 0 : 1);  // of a thread
  using Packets = PacketTransport<P, slots>;

  // That of its packets, with `slots` for each thread.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t threads,
                                                            std::uint32_t rows) {
    return Packets::requirement(blocks, threads, rows);
  }

  // Of a sum over `ranks` ranks, for an element in whose group the largest magnitudes of all add up to `magnitudes`.
  // Of an average: that by the number of ranks. What rounding to the element type adds is not in it.
  static constexpr double errorBound(double magnitudes, int ranks) {
    constexpr double u = largestChange<Q>;
    return (u * (2 + u) + ranks * 0x1p-23) * magnitudes + ranks * 0x1p-126;
  }

  // Threads that stay together, and how many groups they have.
  static constexpr unsigned bundle = inLines ? 8 : 1;
  static constexpr unsigned groupsOfBundle = inLines ? 7 : 1;
  MSCCLPP_DEVICE static bool hasGroup(unsigned thread) { return thread % bundle < groupsOfBundle; }
  MSCCLPP_DEVICE static unsigned groupOf(unsigned thread) { return thread / bundle * groupsOfBundle + thread % bundle; }

  using Values = Vector<float, Group>;
  // A thread's group as it travels; in lines, every eighth thread's has the scales of the other seven.
  struct Packed {
    Payload<P::words> payload[slots];
  };

  // What this thread sends. By whole warps, where it goes in lines: `inWarp` is false in an incomplete one.
  MSCCLPP_DEVICE static Packed pack(Values const& values, unsigned thread, bool inWarp) {
    std::uint32_t largest = 0;
    MSCCLPP_UNROLL
    for (unsigned k = 0; k < Group; ++k) {
      auto const magnitude = magnitudeBits(values[k]);
      largest = magnitude > largest ? magnitude : largest;
    }
    auto const scale = PowerScale::of<Q>(largest);
    Packed packed{};
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < valueSlots; ++i) {
      ElementsOf<Q, P::words> narrow{};
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < narrow.size; ++k) narrow[k] = scale.template quantise<Q>(values[i * narrow.size + k]);
      packed.payload[i] = mscclpp::pack(narrow);
    }
    if constexpr (inLines) {
      auto scales = hasGroup(thread) ? std::uint64_t{scale.bits} << (8 * (thread % bundle)) : 0;
      if (inWarp) {
        MSCCLPP_UNROLL
        for (unsigned distance = 1; distance < bundle; distance *= 2) scales |= arch::shuffleXor(scales, distance);
      }
      if (!hasGroup(thread)) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < slots; ++i) {  // each line says them, so that all lines are alike
          packed.payload[i] = {{static_cast<std::uint32_t>(scales), static_cast<std::uint32_t>(scales >> 32)}};
        }
      }
    } else {
      packed.payload[valueSlots].word[0] = scale.bits;
    }
    return packed;
  }

  // What they say of this thread's group, by the same threads as above.
  MSCCLPP_DEVICE static Values unpack(Packed const& packed, unsigned thread, bool inWarp) {
    PowerScale scale{};
    if constexpr (inLines) {
      auto scales = std::uint64_t{packed.payload[0].word[1]} << 32 | packed.payload[0].word[0];
      if (inWarp) scales = arch::shuffle(scales, thread % 32 | (bundle - 1));
      scale.bits = static_cast<std::uint8_t>(scales >> (8 * (thread % bundle)));
    } else {
      scale.bits = static_cast<std::uint8_t>(packed.payload[valueSlots].word[0]);
    }
    Values values;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < valueSlots; ++i) {
      auto const narrow = mscclpp::unpack<Q>(packed.payload[i]);
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < narrow.size; ++k) values[i * narrow.size + k] = scale.restore(narrow[k]);
    }
    return values;
  }
};

template <class T>
inline constexpr bool isWire = false;
template <class Q, unsigned Group, class P>
inline constexpr bool isWire<Wire<Q, Group, P>> = true;
// Wire itself: TwoShotQuantised knows how threads and groups go together.
template <class T>
concept WireTransport = isWire<T>;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

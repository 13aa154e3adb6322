// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/call_check.hpp"

#include <limits>

#include "base/format.hpp"

namespace mscclpp::collectives_impl {

std::string titleOf(int rank, Collective collective, CollectiveCall const& call) {
  auto const bytes = traitsOf(collective).outIsLarger() ? call.outBytes : call.inBytes;
  return fmt::format("rank {}: {} of {} bytes of {}", rank, nameOf(collective), bytes, nameOf(call.type));
}

std::size_t partBytesOf(Collective collective, int ranks, CollectiveCall const& call) {
  auto const& traits = traitsOf(collective);
  auto const parts = (traits.sizedByInput() ? traits.in : traits.out).partsOf(static_cast<std::size_t>(ranks));
  return parts == 0 ? 0 : (traits.sizedByInput() ? call.inBytes : call.outBytes) / parts;
}

std::size_t wholeBytes(Collective collective, int ranks, CollectiveCall const& call) {
  return traitsOf(collective).wholeBytes(call.inBytes, call.outBytes, static_cast<std::size_t>(ranks));
}

BufferUse buffersOf(World const& world, Collective collective, CollectiveCall const& call) {
  auto const& traits = traitsOf(collective);
  return {.inBytes = traits.in.isUsed(world.rank == call.root) ? call.inBytes : 0,
          .outBytes = traits.out.isUsed(world.rank == call.root) ? call.outBytes : 0,
          .element = bytesOf(call.type)};
}

void checkCall(World const& world, Collective collective, CollectiveCall const& call) {
  int const ranks = world.ranks;
  int const rank = world.rank;
  auto const refuse = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    fail(ErrorCode::invalidUsage, "{}: {}", titleOf(rank, collective, call),
         fmt::format(text, std::forward<Args>(args)...));
  };
  if (static_cast<std::size_t>(collective) >= collectives.size()) refuse("no such collective");
  if (static_cast<std::size_t>(call.type) >= dataTypes.size()) refuse("no such type");
  if (hasRoot(collective) && (call.root < 0 || call.root >= ranks)) {
    refuse("root {}, but ranks are 0 to {}", call.root, ranks - 1);
  }
  if (!hasRoot(collective) && call.root != 0)
    refuse("root {}, but this collective has no root; leave it out", call.root);
  if (reduces(collective) && (call.op == ReduceOp::none || static_cast<std::size_t>(call.op) > reduceOps.size())) {
    refuse("no operation; choose ReduceOp::sum, prod, min, max or avg");
  }
  if (!reduces(collective) && call.op != ReduceOp::none) {
    refuse("operation {}, but this collective moves data unchanged; use ReduceOp::none", nameOf(call.op));
  }
  if (call.blocks < 0 || call.threads < 0) {
    refuse("{} blocks of {} threads; give at least 1, or 0 for the library's choice", call.blocks, call.threads);
  }

  auto const& traits = traitsOf(collective);
  bool const usesIn = traits.in.isUsed(rank == call.root);
  bool const usesOut = traits.out.isUsed(rank == call.root);
  auto const inParts = traits.in.partsOf(static_cast<std::size_t>(ranks));
  auto const outParts = traits.out.partsOf(static_cast<std::size_t>(ranks));
  auto const element = bytesOf(call.type);
  if (inParts == 0) {
    if (call.inBytes != 0 || call.outBytes != 0)
      refuse("it has no data, but {} and {} bytes were given", call.inBytes, call.outBytes);
    return;
  }
  bool const byInput = traits.sizedByInput();
  auto const given = byInput ? call.inBytes : call.outBytes;
  auto const parts = byInput ? inParts : outParts;
  if (given % (parts * element) != 0) {
    refuse("the {} of {} bytes is no whole number of {} parts of {}-byte elements", byInput ? "input" : "output", given,
           parts, element);
  }
  auto const part = given / parts;
  auto const most = std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(ranks);
  if (part > most) refuse("{} bytes for each of {} ranks are more than memory can be", part, ranks);
  auto const inBytes = part * inParts;
  auto const outBytes = part * outParts;
  if (usesIn && call.inBytes != inBytes) {
    refuse("the input has {} bytes, but with an output of {} bytes on {} ranks it must have {}", call.inBytes,
           call.outBytes, ranks, inBytes);
  }
  if (usesOut && call.outBytes != outBytes) {
    refuse("the output has {} bytes, but with an input of {} bytes on {} ranks it must have {}", call.outBytes,
           call.inBytes, ranks, outBytes);
  }
  if (part == 0) return;

  struct Buffer {
    char const* name;
    void const* data;
    bool used;
  };
  for (auto const& buffer : {Buffer{"input", call.in, usesIn}, Buffer{"output", call.out, usesOut}}) {
    if (!buffer.used) continue;
    if (buffer.data == nullptr) refuse("the {} is a null pointer", buffer.name);
    auto const astray = reinterpret_cast<std::uintptr_t>(buffer.data) % element;
    if (astray != 0) {
      refuse("the {} at {} is {} bytes past a multiple of {}, the element's size", buffer.name, fmt::ptr(buffer.data),
             astray, element);
    }
  }
  if (usesIn && usesOut && !isInPlace(rank, collective, call)) {
    auto const in = reinterpret_cast<std::uintptr_t>(call.in);
    auto const out = reinterpret_cast<std::uintptr_t>(call.out);
    if (in < out + outBytes && out < in + inBytes) {
      refuse(
          "input {} and output {} overlap by {} bytes; give buffers that lie apart, or the in-place form (input and "
          "output {})",
          fmt::ptr(call.in), fmt::ptr(call.out), std::min(in + inBytes, out + outBytes) - std::max(in, out),
          inParts == outParts ? "the same" : "such that the smaller one is this rank's part of the larger one");
    }
  }
}

bool isInPlace(int rank, Collective collective, CollectiveCall const& call) {
  auto const in = reinterpret_cast<std::uintptr_t>(call.in);
  auto const out = reinterpret_cast<std::uintptr_t>(call.out);
  auto const& traits = traitsOf(collective);
  bool const outIsLarger = traits.outIsLarger();
  auto const offset = traits.inPlaceOffset(static_cast<std::size_t>(rank), outIsLarger ? call.inBytes : call.outBytes);
  return outIsLarger ? in == out + offset : out == in + offset;
}

}  // namespace mscclpp::collectives_impl

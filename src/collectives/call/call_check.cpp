// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/call_check.hpp"

#include <array>
#include <limits>

#include "base/format.hpp"

namespace mscclpp::collectives_impl {
namespace {

// What a rank's buffers hold, in parts; a part is what one rank has of it.
struct Extent {
  std::size_t inParts;
  std::size_t outParts;
  bool usesIn;
  bool usesOut;
};

Extent extentOf(Collective collective, std::size_t ranks, bool atRoot) {
  switch (collective) {
    case Collective::allGather:
      return {1, ranks, true, true};
    case Collective::reduceScatter:
      return {ranks, 1, true, true};
    case Collective::allToAll:
      return {ranks, ranks, true, true};
    case Collective::broadcast:
      return {1, 1, atRoot, true};
    case Collective::reduce:
      return {1, 1, true, atRoot};
    case Collective::gather:
      return {1, ranks, true, atRoot};
    case Collective::scatter:
      return {ranks, 1, atRoot, true};
    case Collective::barrier:
      return {0, 0, false, false};
    case Collective::allReduce:
    case Collective::sendRecv:
      break;
  }
  return {1, 1, true, true};
}

// Where the smaller buffer lies in the larger one when both are the same memory; the part of this rank, if any.
std::size_t inPlaceOffset(Collective collective, int rank, std::size_t partBytes) {
  switch (collective) {
    case Collective::allGather:
    case Collective::reduceScatter:
    case Collective::gather:
    case Collective::scatter:
      return static_cast<std::size_t>(rank) * partBytes;
    default:
      return 0;
  }
}

}  // namespace

std::string titleOf(Communicator const& communicator, Collective collective, CollectiveCall const& call) {
  auto const bytes =
      collective == Collective::allGather || collective == Collective::gather ? call.outBytes : call.inBytes;
  return fmt::format("rank {}: {} of {} bytes of {}", communicator.rank(), nameOf(collective), bytes,
                     nameOf(call.type));
}

std::size_t wholeBytes(Collective collective, int ranks, CollectiveCall const& call) {
  auto const parts = static_cast<std::size_t>(ranks);
  switch (collective) {
    case Collective::allGather:
    case Collective::gather:
      return call.inBytes * parts;
    case Collective::scatter:
      return call.outBytes * parts;
    case Collective::broadcast:
      return call.outBytes;
    default:
      return call.inBytes;
  }
}

std::size_t checkCall(Communicator const& communicator, Collective collective, CollectiveCall const& call) {
  auto const refuse = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    fail(ErrorCode::invalidUsage, "{}: {}", titleOf(communicator, collective, call),
         fmt::format(text, std::forward<Args>(args)...));
  };
  int const ranks = communicator.size();
  int const rank = communicator.rank();
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

  auto const extent = extentOf(collective, static_cast<std::size_t>(ranks), rank == call.root);
  auto const element = bytesOf(call.type);
  // By the buffer that every rank has.
  std::size_t part = 0;
  if (extent.inParts == 0) {
    if (call.inBytes != 0 || call.outBytes != 0)
      refuse("it has no data, but {} and {} bytes were given", call.inBytes, call.outBytes);
    return 0;
  }
  bool const byInput = collective != Collective::broadcast && collective != Collective::scatter;
  auto const given = byInput ? call.inBytes : call.outBytes;
  auto const parts = byInput ? extent.inParts : extent.outParts;
  if (given % (parts * element) != 0) {
    refuse("the {} of {} bytes is no whole number of {} parts of {}-byte elements", byInput ? "input" : "output", given,
           parts, element);
  }
  part = given / parts;
  auto const most = std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(ranks);
  if (part > most) refuse("{} bytes for each of {} ranks are more than memory can be", part, ranks);
  auto const inBytes = part * extent.inParts;
  auto const outBytes = part * extent.outParts;
  if (extent.usesIn && call.inBytes != inBytes) {
    refuse("the input has {} bytes, but with an output of {} bytes on {} ranks it must have {}", call.inBytes,
           call.outBytes, ranks, inBytes);
  }
  if (extent.usesOut && call.outBytes != outBytes) {
    refuse("the output has {} bytes, but with an input of {} bytes on {} ranks it must have {}", call.outBytes,
           call.inBytes, ranks, outBytes);
  }
  if (part == 0) return 0;

  struct Buffer {
    char const* name;
    void const* data;
    bool used;
  };
  for (auto const& buffer : {Buffer{"input", call.in, extent.usesIn}, Buffer{"output", call.out, extent.usesOut}}) {
    if (!buffer.used) continue;
    if (buffer.data == nullptr) refuse("the {} is a null pointer", buffer.name);
    auto const astray = reinterpret_cast<std::uintptr_t>(buffer.data) % element;
    if (astray != 0) {
      refuse("the {} at {} is {} bytes past a multiple of {}, the element's size", buffer.name, fmt::ptr(buffer.data),
             astray, element);
    }
  }
  if (extent.usesIn && extent.usesOut && !isInPlace(communicator, collective, call)) {
    auto const in = reinterpret_cast<std::uintptr_t>(call.in);
    auto const out = reinterpret_cast<std::uintptr_t>(call.out);
    if (in < out + outBytes && out < in + inBytes) {
      refuse(
          "input {} and output {} overlap by {} bytes; give buffers that lie apart, or the in-place form (input and "
          "output {})",
          fmt::ptr(call.in), fmt::ptr(call.out), std::min(in + inBytes, out + outBytes) - std::max(in, out),
          extent.inParts == extent.outParts ? "the same"
                                            : "such that the smaller one is this rank's part of the larger one");
    }
  }
  return part;
}

bool isInPlace(Communicator const& communicator, Collective collective, CollectiveCall const& call) {
  auto const in = reinterpret_cast<std::uintptr_t>(call.in);
  auto const out = reinterpret_cast<std::uintptr_t>(call.out);
  bool const outIsLarger = collective == Collective::allGather || collective == Collective::gather;
  auto const offset = inPlaceOffset(collective, communicator.rank(), outIsLarger ? call.inBytes : call.outBytes);
  return outIsLarger ? in == out + offset : out == in + offset;
}

}  // namespace mscclpp::collectives_impl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/library_algorithm.hpp"

#include "base/format.hpp"
#include "collectives/call/call_check.hpp"
#include "collectives/call/context_cache.hpp"

namespace mscclpp::collectives_impl {
namespace {

// Kernels that only move data are entered as bytes.
DataType kernelType(Collective collective, DataType type) { return reduces(collective) ? type : DataType::uint8; }

}  // namespace

Kernel const* LibraryAlgorithm::kernelFor(Communicator const& communicator, CollectiveCall const& call) const {
  return KernelTable::instance().find({communicator.device().kind, collective_, name_,
                                       kernelType(collective_, call.type), call.op, communicator.size()});
}

std::string LibraryAlgorithm::refusal(Communicator const& communicator, CollectiveCall const& call) const {
  return refusal(communicator, call, kernelFor(communicator, call));
}

std::string LibraryAlgorithm::refusal(Communicator const& communicator, CollectiveCall const& call,
                                      Kernel const* kernel) const {
  if (kernel == nullptr) {
    auto const& table = KernelTable::instance();
    auto const machine = communicator.device().kind;
    if (!table.has(machine)) {
      return fmt::format("this build of the library has no kernels for {} devices; {}", nameOf(machine),
                         machine == DeviceKind::cuda ? "configure it where nvcc is found, with MSCCLPP_USE_CUDA=ON"
                                                     : "configure it where Boost.Context is found");
    }
    auto const others = table.algorithms(machine, collective_, kernelType(collective_, call.type), call.op);
    if (!reduces(collective_)) return "it has no kernel for this machine";
    return fmt::format("it has no kernel for {} of {} on {} ranks; {}", nameOf(call.op), nameOf(call.type),
                       communicator.size(),
                       others.empty() ? std::string("nor has any other: sum is built for every type, the other "
                                                    "operations for float32, bfloat16 and int32")
                                      : fmt::format("those that have: {}", fmt::join(others, ", ")));
  }
  auto& cache = ContextCache::of(communicator);
  if (kernel->needsWholeLines && !cache.facts().wholeLines) {
    return "its packets need links that deliver 128-byte lines whole, which these devices do not have; choose an "
           "algorithm with ll8, ll16 or memory";
  }
  if (kernel->multicast && !cache.facts().noMulticast.empty()) {
    return fmt::format("it goes through the switch between the devices: {}", cache.facts().noMulticast);
  }
  if ((kernel->inputWindow || kernel->outputWindow) && !call.symmetric) {
    return fmt::format("it uses the peers' {}; set `symmetric` where all ranks' buffers lie alike in their allocations",
                       kernel->inputWindow ? kernel->outputWindow ? "buffers" : "input" : "output");
  }
  if (call.rankOrder && !kernel->rankOrder) {
    return fmt::format(
        "it combines {} in an order of its own, or rounds in between; `rankOrder` of the call asks for "
        "the bits of rank order",
        nameOf(call.type));
  }
  // So that a choice by size passes it over; what was named says what is wrong.
  auto const& runtime = communicator.device().runtime();
  bool const bindsIn =
      !kernel->multicast || !kernel->inputWindow || call.in == nullptr || runtime.multicastBinds(call.in);
  bool const bindsOut =
      !kernel->multicast || !kernel->outputWindow || call.out == nullptr || runtime.multicastBinds(call.out);
  if (!bindsIn || !bindsOut) {
    return fmt::format("its {} cannot be bound to the switch; allocate it as MemoryKind::shareable, or by cuMemCreate",
                       bindsIn ? "output" : "input");
  }
  // Where only the root has both buffers, only the root can tell.
  if (!kernel->inPlace && call.inBytes != 0 && call.in != nullptr &&
      (!hasRoot(collective_) || call.root == communicator.rank()) && isInPlace(communicator, collective_, call)) {
    return "it does not work in place; give an output of its own";
  }
  auto const threads = static_cast<unsigned>(call.threads);
  if (threads != 0 && (threads < kernel->minThreads || threads > kernel->maxThreads)) {
    return fmt::format("{} threads; its blocks have {} to {}, or 0 for the library's choice", threads,
                       kernel->minThreads, kernel->maxThreads);
  }
  if (call.blocks != 0 && static_cast<unsigned>(call.blocks) < kernel->minBlocks) {
    return fmt::format("{} blocks; its grids have {} or more, or 0 for the library's choice", call.blocks,
                       kernel->minBlocks);
  }
  if (call.blocks > 65535) return fmt::format("{} blocks; at most 65535", call.blocks);
  if (!call.extras.empty()) {
    return fmt::format("it takes no extra arguments, but got \"{}\"", call.extras.begin()->first);
  }
  return {};
}

void LibraryAlgorithm::execute(Communicator const& communicator, Stream const& stream,
                               CollectiveCall const& call) const {
  auto const partBytes = checkCall(communicator, collective_, call);
  if (stream.device() != communicator.device()) {
    fail(ErrorCode::invalidUsage, "{}: the stream belongs to {} device {}, the communicator to {} device {}",
         titleOf(communicator, collective_, call), nameOf(stream.device().kind), stream.device().ordinal,
         nameOf(communicator.device().kind), communicator.device().ordinal);
  }
  auto const* const kernel = kernelFor(communicator, call);
  if (auto const why = refusal(communicator, call, kernel); !why.empty()) {
    fail(kernel == nullptr || kernel->needsWholeLines || kernel->multicast ? ErrorCode::unsupported
                                                                           : ErrorCode::invalidUsage,
         "{} by {}: {}", titleOf(communicator, collective_, call), name_, why);
  }
  if (partBytes == 0 && collective_ != Collective::barrier) return;
  bool const inputMissing = kernel->inputWindow && call.in == nullptr;
  if (inputMissing || (kernel->outputWindow && call.out == nullptr)) {
    fail(ErrorCode::invalidUsage,
         "{} by {}: the {} is a null pointer; it uses the peers', so every rank gives one, also where this rank's is "
         "not read or written",
         titleOf(communicator, collective_, call), name_, inputMissing ? "input" : "output");
  }

  auto& cache = ContextCache::of(communicator);
  auto const lock = cache.lock();
  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  auto shape = kernel->shape(ranks, partBytes,
                             call.blocks != 0 ? static_cast<std::uint32_t>(call.blocks) : cache.facts().maxBlocks);
  if (call.blocks != 0) shape.blocks = static_cast<unsigned>(call.blocks);
  if (call.threads != 0) shape.threads = static_cast<unsigned>(call.threads);
  shape.overlapPrevious = kernel->overlaps;
  auto const& team = cache.team(stream, kernel->requirement(ranks, shape.blocks, shape.threads));
  WindowPlace in;
  WindowPlace out;
  if (kernel->inputWindow) in = cache.window(stream, call.in, call.inBytes, kernel->multicast);
  if (kernel->outputWindow) out = cache.window(stream, call.out, call.outBytes, kernel->multicast);
  kernel->start({.stream = stream,
                 .team = team.deviceHandle(),
                 .in = call.in,
                 .out = call.out,
                 .count = partBytes / bytesOf(kernelType(collective_, call.type)),
                 .root = call.root,
                 .inWindow = in.window,
                 .outWindow = out.window,
                 .inOffset = in.offset,
                 .outOffset = out.offset,
                 .shape = shape,
                 .sideStreams = cache.sideStreams(stream, kernel->sideStreams)});
}

}  // namespace mscclpp::collectives_impl

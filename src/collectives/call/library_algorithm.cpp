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

LibraryAlgorithm::LibraryAlgorithm(Collective collective, std::string name)
    : name_(std::move(name)), collective_(collective), id_(nextChooser()) {}

Kernel const* LibraryAlgorithm::kernelFor(World const& world, CollectiveCall const& call) const {
  return KernelTable::instance().find(
      {world.machine, collective_, name_, kernelType(collective_, call.type), call.op, world.ranks});
}

std::string LibraryAlgorithm::refusal(World const& world, CollectiveCall const& call) const {
  if (world.nodes != 1) return "its ranks use each other's memory, and these lie on several nodes; choose two_level";
  auto const* const kernel = kernelFor(world, call);
  if (kernel == nullptr) {
    auto const& table = KernelTable::instance();
    auto const machine = world.machine;
    if (!table.has(machine)) {
      return fmt::format("this build of the library has no kernels for {} devices; {}", nameOf(machine),
                         machine == DeviceKind::cuda ? "configure it where nvcc is found, with MSCCLPP_USE_CUDA=ON"
                                                     : "configure it where Boost.Context is found");
    }
    auto const others =
        table.algorithms(machine, collective_, kernelType(collective_, call.type), call.op, world.ranks);
    if (!reduces(collective_)) return fmt::format("it has no kernel for {} ranks of this machine", world.ranks);
    return fmt::format("it has no kernel for {} of {} on {} ranks; {}", nameOf(call.op), nameOf(call.type), world.ranks,
                       others.empty() ? std::string("nor has any other")
                                      : fmt::format("those that have: {}", fmt::join(others, ", ")));
  }
  if (kernel->needsWholeLines && !world.wholeLines) {
    return "its packets need links that deliver 128-byte lines whole, which these devices do not have; choose an "
           "algorithm with ll8, ll16 or memory";
  }
  if (kernel->multicast && !world.noMulticast.empty()) {
    return fmt::format("it goes through the switch between the devices: {}", world.noMulticast);
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
  auto const binds = [&](bool window, void const* buffer) {
    return !kernel->multicast || !window || buffer == nullptr || world.planned ||
           runtime(world.machine).multicastBinds(buffer);
  };
  bool const bindsIn = binds(kernel->inputWindow, call.in);
  bool const bindsOut = binds(kernel->outputWindow, call.out);
  if (!bindsIn || !bindsOut) {
    return fmt::format("its {} cannot be bound to the switch; allocate it as MemoryKind::shareable, or by cuMemCreate",
                       bindsIn ? "output" : "input");
  }
  // Where only the root has both buffers, only the root can tell.
  if (!kernel->inPlace && call.inBytes != 0 && call.in != nullptr &&
      (!hasRoot(collective_) || call.root == world.rank) && isInPlace(world.rank, collective_, call)) {
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

std::optional<KernelLaunch> LibraryAlgorithm::launchFor(World const& world, CollectiveCall const& call) const {
  auto const* const kernel = kernelFor(world, call);
  if (kernel == nullptr) return {};
  auto const ranks = static_cast<std::uint32_t>(world.ranks);
  auto const partBytes = partBytesOf(collective_, world.ranks, call);
  auto shape =
      kernel->shape(ranks, partBytes, call.blocks != 0 ? static_cast<std::uint32_t>(call.blocks) : world.maxBlocks);
  if (call.blocks != 0) shape.blocks = static_cast<unsigned>(call.blocks);
  if (call.threads != 0) shape.threads = static_cast<unsigned>(call.threads);
  // Each kernel lets the next begin, and that one the one behind it: waiting for their turn, those of one rank would
  // fill a device until the kernel that another rank waits for has no room.
  shape.overlapPrevious = kernel->overlaps && world.ranksPerDevice == 1;
  return KernelLaunch{.kernel = kernel,
                      .shape = shape,
                      .count = partBytes / bytesOf(kernelType(collective_, call.type)),
                      .requirement = kernel->requirement(ranks, shape.blocks, shape.threads)};
}

void LibraryAlgorithm::execute(Communicator const& communicator, Stream const& stream,
                               CollectiveCall const& call) const {
  auto& cache = ContextCache::of(communicator);
  auto const key = cache.keyOf(id_, collective_, stream, call);
  if (cache.startAgain(key, stream, call)) return;
  cache.begin(key, stream, call);
  checkCall(cache.world(), collective_, call);
  startFirst(*this, launchFor(cache.world(), call), key, communicator, stream, call);
}

void startFirst(Algorithm const& algorithm, std::optional<KernelLaunch> const& launch, CallKey const& key,
                Communicator const& communicator, Stream const& stream, CollectiveCall const& call) {
  auto& cache = ContextCache::of(communicator);
  auto const refuse = [&](ErrorCode code, std::string const& why) {
    fail(code, "{} by {}: {}", titleOf(cache.world().rank, key.collective, call), algorithm.name(), why);
  };
  if (auto const why = algorithm.refusal(cache.world(), call); !why.empty()) {
    bool const lacking = !launch || launch->kernel->needsWholeLines || launch->kernel->multicast;
    refuse(lacking ? ErrorCode::unsupported : ErrorCode::invalidUsage, why);
  }
  if (stream.device() != communicator.device()) {
    refuse(ErrorCode::invalidUsage, fmt::format("the stream belongs to {} device {}, the communicator to {} device {}",
                                                nameOf(stream.device().kind), stream.device().ordinal,
                                                nameOf(communicator.device().kind), communicator.device().ordinal));
  }
  auto const& kernel = *launch->kernel;
  bool const inputMissing = kernel.inputWindow && call.in == nullptr;
  if (launch->count != 0 && (inputMissing || (kernel.outputWindow && call.out == nullptr))) {
    refuse(ErrorCode::invalidUsage,
           fmt::format("the {} is a null pointer; it uses the peers', so every rank gives one, also where this rank's "
                       "is not read or written",
                       inputMissing ? "input" : "output"));
  }
  cache.start(key, algorithm, *launch, stream, call);
}

}  // namespace mscclpp::collectives_impl

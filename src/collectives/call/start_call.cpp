// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of ContextCache that starts calls: from what a call was found to come to, at the first time and again.
#include <atomic>
#include <cstdint>

#include "collectives/call/call_check.hpp"
#include "collectives/call/context_cache.hpp"
#include "collectives/call/message_ring.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::collectives_impl {
namespace {

// Whether buffers that were checked once at other addresses are right at these. What is wrong with them, checkCall()
// says.
bool buffersFit(BufferUse const& use, bool inPlace, CollectiveCall const& call) {
  auto const in = reinterpret_cast<std::uintptr_t>(call.in);
  auto const out = reinterpret_cast<std::uintptr_t>(call.out);
  bool const hasIn = use.inBytes != 0;
  bool const hasOut = use.outBytes != 0;
  if (hasIn && (in == 0 || in % use.element != 0)) return false;
  if (hasOut && (out == 0 || out % use.element != 0)) return false;
  return !hasIn || !hasOut || inPlace || in >= out + use.outBytes || out >= in + use.inBytes;
}

}  // namespace

std::uint64_t nextChooser() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

CallKey ContextCache::keyOf(std::uint64_t chooser, Collective collective, Stream const& stream,
                            CollectiveCall const& call) const {
  // Only where a switch might be used does it matter what it can reach.
  bool const binds = call.symmetric && world_.noMulticast.empty();
  return {.chooser = chooser,
          .stream = stream.id(),
          .inBytes = call.inBytes,
          .outBytes = call.outBytes,
          .blocks = call.blocks,
          .threads = call.threads,
          .root = call.root,
          .collective = collective,
          .type = call.type,
          .op = call.op,
          .symmetric = call.symmetric,
          .rankOrder = call.rankOrder,
          .inPlace = collective <= collectives.back() && isInPlace(world_.rank, collective, call),
          .bindsIn = binds && call.in != nullptr && machine_.multicastBinds(call.in),
          .bindsOut = binds && call.out != nullptr && machine_.multicastBinds(call.out)};
}

RememberedCall const* ContextCache::remembered(CallKey const& key, Stream const& stream, CollectiveCall const& call) {
  if (stream.device() != communicator_.device() || !call.extras.empty()) return nullptr;
  if (hasFailed() || (comparesCalls_ && !isWithinCall())) return nullptr;
  auto const* const known = calls_.find(key);
  if (known == nullptr || known->kernels != KernelTable::instance().generation()) return nullptr;
  if (known->contexts != generation_ || known->context->calls < known->context->resume) return nullptr;
  return known;
}

bool ContextCache::startsAtOnce(CallKey const& key, Stream const& stream, CollectiveCall const& call) {
  auto const held = lock();
  auto const* const known = remembered(key, stream, call);
  if (known == nullptr || known->algorithm != nullptr) return false;
  auto const* const kernel = known->launch.kernel;
  return kernel == nullptr || (!kernel->inputWindow && !kernel->outputWindow);
}

bool ContextCache::startAgain(CallKey const& key, Stream const& stream, CollectiveCall const& call) {
  auto held = lock();
  bool const within = isWithinCall();
  auto const* const known = remembered(key, stream, call);
  if (known == nullptr) return false;
  auto& context = *known->context;
  std::uint64_t const counted = within ? 0 : 1;
  if (known->algorithm != nullptr) {
    context.calls += counted;
    // Users' code runs without the lock.
    auto const algorithm = known->algorithm;
    auto shaped = call;
    shaped.blocks = known->blocks;
    shaped.threads = known->threads;
    held.unlock();
    RecordedCall const recorded(recordOf(*algorithm), recordedBytes(call));
    WithinCall const scope(*this);
    algorithm->execute(communicator_, stream, shaped);
    return true;
  }
  if (known->launch.kernel != nullptr && !buffersFit(known->buffers, key.inPlace, call)) return false;
  context.calls += counted;
  RecordedCall const recorded(within ? nullptr : known->record, recordedBytes(call));
  if (known->launch.kernel == nullptr) return true;
  streams_.use(context);
  context.inGraph = context.inGraph || stream.capturing();
  try {
    launch(*known, stream, call);
  } catch (Error const& error) {
    noteNotStarted(error);
    throw;
  }
  return true;
}

CallRecord* ContextCache::recordOf(Algorithm const& algorithm) {
  if (!RecordedCall::on() || &algorithm == messageRing().get()) return nullptr;
  auto const held = lock();
  if (isWithinCall()) return nullptr;
  return &collectives_impl::recordOf(algorithm.collective(), algorithm.name());
}

void ContextCache::start(CallKey const& key, Algorithm const& algorithm, KernelLaunch const& launched,
                         Stream const& stream, CollectiveCall const& call) {
  auto const held = lock();
  RememberedCall known{.launch = launched,
                       .buffers = buffersOf(world_, key.collective, call),
                       .record = &collectives_impl::recordOf(key.collective, algorithm.name()),
                       .contexts = generation_,
                       .kernels = KernelTable::instance().generation()};
  RecordedCall const recorded(isWithinCall() ? nullptr : known.record, recordedBytes(call));
  if (launched.count == 0 && key.collective != Collective::barrier) {
    known.launch.kernel = nullptr;
    known.context = &contextOf(stream);
  } else {
    try {
      known.context = &team(stream, launched.requirement);
      launch(known, stream, call);
    } catch (Error const& error) {
      noteNotStarted(error);
      throw;
    }
  }
  // Only now, since windows may have made room.
  known.contexts = generation_;
  if (call.extras.empty()) calls_.remember(key, std::move(known));
}

void ContextCache::start(CallKey const& key, Resolution const& resolution, Stream const& stream,
                         CollectiveCall const& call) {
  {
    // Users' code runs without the lock.
    RecordedCall const recorded(recordOf(*resolution.algorithm), recordedBytes(call));
    WithinCall const within(*this);
    resolution.algorithm->execute(communicator_, stream, call);
  }
  auto const held = lock();
  auto& context = contextOf(stream);
  calls_.remember(key, {.algorithm = resolution.algorithm,
                        .blocks = resolution.blocks,
                        .threads = resolution.threads,
                        .context = &context,
                        .contexts = generation_,
                        .kernels = KernelTable::instance().generation()});
}

void ContextCache::launch(RememberedCall const& known, Stream const& stream, CollectiveCall const& call) {
  auto const& kernel = *known.launch.kernel;
  WindowPlace in;
  WindowPlace out;
  if (kernel.inputWindow) in = window(stream, call.in, call.inBytes, kernel.multicast);
  if (kernel.outputWindow) out = window(stream, call.out, call.outBytes, kernel.multicast);
  auto& sides = known.context->sides;
  while (sides.size() < kernel.sideStreams) sides.emplace_back(communicator_.device());
  kernel.start({.stream = stream,
                .team = known.context->team->deviceHandle(),
                .in = call.in,
                .out = call.out,
                .count = known.launch.count,
                .root = call.root,
                .op = call.op,
                .inWindow = in.window,
                .outWindow = out.window,
                .inOffset = in.offset,
                .outOffset = out.offset,
                .shape = known.launch.shape,
                .sideStreams = sides.data()});
}

}  // namespace mscclpp::collectives_impl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carries out the steps of a lowered program, one block's, on either machine. Steps that are known when the kernel is
// compiled fold into straight-line code; the same function interprets the steps of a loaded plan.
//
// `step` is a layout::PlanStep, or the same as a type (known_step.hpp).
//
// A moving step is done by all threads of the block (plain_moves.hpp, packet_moves.hpp, port_moves.hpp). Signals,
// waits, flushes, acquires and releases are done by lanes of the first warp, in order. Relaxed signals are sent as full
// ones: between devices nothing less orders the reads before them.
#pragma once

#include <cstdint>

#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/dsl/detail/run/packet_moves.hpp"
#include "mscclpp/dsl/detail/run/plain_moves.hpp"
#include "mscclpp/dsl/detail/run/port_moves.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// What a moving step comes to. Known when a program is compiled in, so that its code holds no more.
enum class MoveShape : std::uint8_t { copy, plain, packets, port };

template <Number T, class Op, PacketFormat P, class Shape = LoadedShape>
class PlanRunner {
 public:
  MSCCLPP_DEVICE PlanRunner(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op = {})
      : context_{PlanPlaces<T, Shape>(plan, in, out, call, loadEpoch(thisBlock(), plan.calls, arch::blockIndex())),
                 StepReduction<T, Op>(op)} {}

  // Where data lie now; whoever runs steps one by one moves it on with the turns of loops.
  MSCCLPP_DEVICE PlanPlaces<T, Shape>& places() { return context_.places; }

  MSCCLPP_DEVICE void finish() {
    context_.places.requireUsable();
    if (!committed_) syncAndCommit();
  }

  // The first `count` steps. `Steps` answers step(i), forEachSource(step, f), forSources(step, first,
  // count, f) of those that there are, forEachTarget(step, f), forEachOperand(step, f) and forEachObject(...), and
  // whether one of them may take a switch.
  template <class Steps>
  MSCCLPP_DEVICE void run(Steps const& steps, int count) {
    for (int s = 0; s < count; ++s) s = next(steps, s, steps.step(s));
  }

  // One step that is no loop, of a kind that is only known here.
  template <class Steps>
  MSCCLPP_DEVICE void step(Steps const& steps, auto const& step) {
    if (static_cast<dsl::StepKind>(step.kind) != dsl::StepKind::move) return order(steps, step);
    if (isPort(step)) return move<MoveShape::port>(steps, step);
    bool packets = false;
    steps.forEachOperand(step, [&](int, auto const& operand) { packets = packets || operand.packets; });
    if (packets) return move<MoveShape::packets>(steps, step);
    if (step.sources == 1 && step.targets == 1) return move<MoveShape::copy>(steps, step);
    move<MoveShape::plain>(steps, step);
  }

  template <MoveShape M, class Steps>
  MSCCLPP_DEVICE void move(Steps const& steps, auto const& step) const {
    if constexpr (M == MoveShape::port) {
      moveByPort<P>(context_, steps, step);
    } else if constexpr (M == MoveShape::packets) {
      movePackets<P>(context_, steps, step);
    } else if constexpr (M == MoveShape::copy) {
      movePlain<true>(context_, steps, step);
    } else {
      movePlain<false>(context_, steps, step);
    }
  }
  // Steps of one source and as many chunks each, see StepGroup, slot by slot: all read before the first is written.
  template <class Group>
  MSCCLPP_DEVICE void moveTogether(Group const& group) const {
    movePacketsTogether<P>(context_, group);
  }

  // A step that moves no data.
  template <class Steps>
  MSCCLPP_DEVICE void order(Steps const& steps, auto const& step) {
    using Semaphore = MemoryDevice2DeviceSemaphoreDeviceHandle;
    using Port = BasePortChannelDeviceHandle;
    context_.places.requireUsable();
    switch (static_cast<dsl::StepKind>(step.kind)) {
      case dsl::StepKind::signal:
        if (isPort(step)) return forEachObject(steps, step, [&](int id) { Port(plan().ports[id]).signal(); });
        forEachObject(steps, step, [&](int id) { Semaphore(plan().channels[id]).signal(); });
        break;
      case dsl::StepKind::wait:
        if (isPort(step)) return forEachObject(steps, step, [&](int id) { Port(plan().ports[id]).wait(); });
        forEachObject(steps, step, [&](int id) { Semaphore(plan().channels[id]).wait(); });
        break;
      case dsl::StepKind::flush:
        forEachObject(steps, step, [&](int id) { Port(plan().ports[id]).flush(); });
        break;
      case dsl::StepKind::release:
        forEachObject(steps, step, [&](int id) { Semaphore(plan().semaphores[id]).signal(); });
        break;
      case dsl::StepKind::acquire:
        forEachObject(steps, step, [&](int id) { Semaphore(plan().semaphores[id]).wait(); });
        break;
      case dsl::StepKind::sync:
        committed_ ? syncWhole(thisBlock()) : syncAndCommit();
        break;
      case dsl::StepKind::barrier:
        reinterpret_cast<DeviceSyncer*>(plan().barriers)[barrierOf(steps, step)].meet(
            thisBlock(), static_cast<unsigned>(step.blocks), plan().watch);
        break;
      default:
        break;
    }
  }

 private:
  MSCCLPP_DEVICE layout::PlanHandle const& plan() const { return context_.places.plan(); }

  // Once every thread has read the epoch, the next call may find the next one: at the first barrier of the block, while
  // data are on their way, else at the end.
  MSCCLPP_DEVICE void syncAndCommit() {
    syncWhole(thisBlock());
    if (arch::threadIndex() == 0) storeRounds(plan().calls + arch::blockIndex(), context_.places.epoch());
    committed_ = true;
  }

  template <class Steps>
  MSCCLPP_DEVICE int next(Steps const& steps, int s, layout::PlanStep const& now) {
    if (static_cast<dsl::StepKind>(now.kind) != dsl::StepKind::loopBegin) {
      step(steps, now);
      return s;
    }
    auto const all = context_.places.turns(now);
    for (std::uint64_t turn = 0; turn < all; ++turn) {
      context_.places.enterTurn(now, turn);
      for (int inner = s + 1; inner < now.loopEnd; ++inner) step(steps, steps.step(inner));
    }
    context_.places.leaveLoop();
    return now.loopEnd;
  }

  MSCCLPP_DEVICE static bool isPort(auto const& step) {
    return static_cast<dsl::ChannelKind>(step.link) == dsl::ChannelKind::port;
  }

  // f(id) by lanes of the first warp, one for each object.
  template <class Steps, class F>
  MSCCLPP_DEVICE void forEachObject(Steps const& steps, auto const& step, F&& f) const {
    auto const thread = arch::threadIndex();
    if (thread >= arch::warpSize) return;
    steps.forEachObject(step.firstObject, step.objects, [&](int i, auto const& object) {
      if (static_cast<unsigned>(i) % arch::warpSize == thread) f(context_.places.numberOf(object));
    });
    thisWarp().sync();
  }
  template <class Steps>
  MSCCLPP_DEVICE int barrierOf(Steps const& steps, auto const& step) const {
    int id = 0;
    steps.forEachObject(step.firstObject, 1, [&](int, auto const& object) { id = context_.places.numberOf(object); });
    return id;
  }

  StepContext<T, Op, Shape> context_;
  bool committed_ = false;
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Carries out the steps of a lowered program, one block's, on either machine. Steps that are known when the kernel is
// compiled fold into straight-line code; the same function interprets the steps of a loaded plan.
//
// A moving step is done by all threads of the block (dsl/detail/run/moves.hpp). Signals, waits, flushes, acquires and
// releases are done by lanes of the first warp, in order. Relaxed signals are sent as full ones: between devices
// nothing less orders the reads before them.
#pragma once

#include <cstdint>

#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/dsl/detail/run/moves.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <Number T, class Op, PacketFormat P, class Shape = LoadedShape>
class PlanRunner : public PlanMoves<T, Op, P, Shape> {
 public:
  MSCCLPP_DEVICE PlanRunner(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op = {})
      : PlanRunner(plan, in, out, call, op, beginCall(plan)) {}

  MSCCLPP_DEVICE void finish() {
    if (!committed_) syncAndCommit();
  }

  // The first `count` steps. `Steps` answers step(i), forEachSource(step, f), forSources(step, first,
  // count, f) of those that there are, forEachTarget(step, f), forEachOperand(step, f) and forEachObject(...).
  template <class Steps>
  MSCCLPP_DEVICE void run(Steps const& steps, int count) {
    for (int s = 0; s < count; ++s) s = next(steps, s, steps.step(s));
  }

  // One step that is no loop, of a kind that is only known here.
  template <class Steps>
  MSCCLPP_DEVICE void step(Steps const& steps, layout::PlanStep const& step) {
    if (static_cast<dsl::StepKind>(step.kind) != dsl::StepKind::move) return order(steps, step);
    if (isPort(step)) return this->template move<MoveShape::port>(steps, step);
    bool packets = false;
    steps.forEachOperand(step, [&](int, layout::PlanOperand const& operand) { packets = packets || operand.packets; });
    if (packets) return this->template move<MoveShape::packets>(steps, step);
    if (step.sources == 1 && step.targets == 1) return this->template move<MoveShape::copy>(steps, step);
    this->template move<MoveShape::plain>(steps, step);
  }

  // A step that moves no data.
  template <class Steps>
  MSCCLPP_DEVICE void order(Steps const& steps, layout::PlanStep const& step) {
    using Semaphore = MemoryDevice2DeviceSemaphoreDeviceHandle;
    using Port = BasePortChannelDeviceHandle;
    switch (static_cast<dsl::StepKind>(step.kind)) {
      case dsl::StepKind::signal:
        if (isPort(step)) return forEachObject(steps, step, [&](int id) { Port(plan_.ports[id]).signal(); });
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.channels[id]).signal(); });
        break;
      case dsl::StepKind::wait:
        if (isPort(step)) return forEachObject(steps, step, [&](int id) { Port(plan_.ports[id]).wait(); });
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.channels[id]).wait(); });
        break;
      case dsl::StepKind::flush:
        forEachObject(steps, step, [&](int id) { Port(plan_.ports[id]).flush(); });
        break;
      case dsl::StepKind::release:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.semaphores[id]).signal(); });
        break;
      case dsl::StepKind::acquire:
        forEachObject(steps, step, [&](int id) { Semaphore(plan_.semaphores[id]).wait(); });
        break;
      case dsl::StepKind::sync:
        committed_ ? thisBlock().sync() : syncAndCommit();
        break;
      case dsl::StepKind::barrier:
        reinterpret_cast<DeviceSyncer*>(plan_.barriers)[barrierOf(steps, step)].meet(
            thisBlock(), static_cast<unsigned>(step.blocks), plan_.watch);
        break;
      default:
        break;
    }
  }

 private:
  using PlanMoves<T, Op, P, Shape>::plan_;

  // Once every thread has read the epoch, the next call may find the next one: at the first meeting of the block, while
  // data are on their way, else at the end.
  MSCCLPP_DEVICE void syncAndCommit() {
    thisBlock().sync();
    if (arch::threadIndex() == 0)
      store<Order::relaxed, Scope::device>(plan_.epochs + arch::blockIndex(), this->epoch());
    committed_ = true;
  }

  MSCCLPP_DEVICE PlanRunner(layout::PlanHandle const& plan, layout::WindowHandle const& in,
                            layout::WindowHandle const& out, PlanCall<T> const& call, Op const& op, std::uint64_t done)
      : PlanMoves<T, Op, P, Shape>(plan, in, out, call, op, done) {}

  MSCCLPP_DEVICE static std::uint64_t beginCall(layout::PlanHandle const& plan) {
    return loadEpoch(thisBlock(), plan.epochs, arch::blockIndex());
  }

  template <class Steps>
  MSCCLPP_DEVICE int next(Steps const& steps, int s, layout::PlanStep const& now) {
    if (static_cast<dsl::StepKind>(now.kind) != dsl::StepKind::loopBegin) {
      step(steps, now);
      return s;
    }
    auto const all = this->turns(now);
    for (std::uint64_t turn = 0; turn < all; ++turn) {
      this->enterTurn(now, turn);
      for (int inner = s + 1; inner < now.loopEnd; ++inner) step(steps, steps.step(inner));
    }
    this->leaveLoop();
    return now.loopEnd;
  }

  MSCCLPP_DEVICE static bool isPort(layout::PlanStep const& step) {
    return static_cast<dsl::ChannelKind>(step.link) == dsl::ChannelKind::port;
  }

  // f(id) by lanes of the first warp, one for each object.
  template <class Steps, class F>
  MSCCLPP_DEVICE void forEachObject(Steps const& steps, layout::PlanStep const& step, F&& f) const {
    auto const thread = arch::threadIndex();
    if (thread >= arch::warpSize) return;
    steps.forEachObject(step.firstObject, step.objects, [&](int i, layout::RankNumber const& object) {
      if (static_cast<unsigned>(i) % arch::warpSize == thread) f(this->numberOf(object));
    });
    thisWarp().sync();
  }
  template <class Steps>
  MSCCLPP_DEVICE int barrierOf(Steps const& steps, layout::PlanStep const& step) const {
    int id = 0;
    steps.forEachObject(step.firstObject, 1,
                        [&](int, layout::RankNumber const& object) { id = this->numberOf(object); });
    return id;
  }

  bool committed_ = false;
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

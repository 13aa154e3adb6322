// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a program needs on every rank to run: scratch memory, signal counters, its table of steps, and, where it has
// port channels, a proxy that serves them. Sized for messages of up to `maxBytes`.
//
// Making one is collective over the communicator's ranks, with the same program and size. It belongs to one stream:
// calls that overlap each other need a context each. Destroy it when all ranks' kernels that use it have ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/dsl/build.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/multicast.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp::dsl {

class PlanPorts;

// How kernels have a program's steps: as a table, or as code.
enum class StepForm { table, code };
template <ProgramType P>
inline constexpr StepForm stepFormOf = stepsAreCode<P> ? StepForm::code : StepForm::table;

// Why ranks on these hosts cannot run the program, as a sentence; empty where they can. `hosts`: of each rank, as
// hostsOf() has them (host/hierarchy.hpp); empty: all are on one.
std::string hostsRefusal(Program const& program, std::vector<int> const& hosts);

class PlanContext {
 public:
  // Throws invalidUsage, with the diagnostic, for a program that is not right; unsupported, on all ranks, where
  // hostsRefusal() has a reason.
  PlanContext(Communicator const& communicator, Program const& program, std::uint64_t maxBytes,
              StepForm form = StepForm::table);
  // The same with the verdict of this very program, which then is not found again.
  PlanContext(Communicator const& communicator, Program const& program, Verdict const& verdict, std::uint64_t maxBytes,
              StepForm form = StepForm::table);

  // For kernels of the program. Its memory is the context's, which must outlive them.
  layout::PlanHandle const& deviceHandle() const noexcept { return handle_; }
  // For a program whose ports touch input or output, in calls with these windows; null where there is none. The proxy
  // keeps what it has been told of: a service has room for 512 memories, so take the same windows again.
  layout::PlanHandle deviceHandle(MemoryWindow const* in, MemoryWindow const* out) const;
  // For messages of any size. Blocks of fewer threads work too, if they are whole warps.
  LaunchShape const& launchShape() const noexcept { return shape_; }
  // With as many threads as serve a message of so many bytes best: a small one is faster with few.
  LaunchShape launchShape(std::uint64_t bytes) const noexcept { return launchShape(bytes, form_); }
  // The same for kernels of the other form.
  LaunchShape launchShape(std::uint64_t bytes, StepForm form) const noexcept;
  std::uint64_t maxBytes() const noexcept { return maxBytes_; }
  // Returns when the proxy has done all that this rank's kernels, which have ended, asked for, and ends it. What a
  // program puts into a peer's scratch and lets nobody wait for may come after the peer's kernels have ended: then all
  // ranks stop their ports, and meet, before one destroys its context.
  void stopPorts() const noexcept;

 private:
  void share(Communicator const& communicator, Program const& program);
  void makeCounters(Communicator const& communicator, Program const& program);
  void makeTable(Communicator const& communicator, Program const& program);

  std::uint64_t maxBytes_;
  LaunchShape shape_;
  StepForm form_;
  unsigned widestStep_, widestSteps_;  // chunks of one step, and of the steps between two barriers, at most
  DeviceMemory shared_;                // signals that arrive, the mark of a failure, then scratch
  DeviceMemory private_;               // counters of this rank alone
  DeviceMemory table_;
  std::vector<RegisteredMemory> mapped_;
  std::shared_ptr<void> guard_;               // of the counters
  std::optional<MulticastWindow> multicast_;  // of shared_, where a switch reads or writes scratch
  std::shared_ptr<PlanPorts> ports_;          // empty where the program has none
  layout::PlanHandle handle_{};
};

// The context of a program that is compiled in.
template <ProgramType P>
PlanContext makeContext(Communicator const& communicator, std::uint64_t maxBytes) {
  return {communicator, build<P>(), maxBytes, stepFormOf<P>};
}

}  // namespace mscclpp::dsl

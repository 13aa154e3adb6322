// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread of the host that acts for kernels: it takes triggers from a FIFO and hands them to a handler.
//
//   Proxy proxy(communicator, [&](layout::Trigger const& trigger, std::uint64_t position) {
//     ...;
//     return ProxyAction::goOn;
//   });
//   proxy.start();
//   launch(..., proxy.fifo().deviceHandle());      // FifoDeviceHandle::push in the kernel
//   proxy.stop();
//
// On the simulated machine's deterministic runs the proxy is a task of its scheduler; its waits and accesses are
// checked like those of kernels. What a handler throws ends the proxy: it becomes an error of the communicator, whose
// kernels leave their waits and whose checkReports() throws it. Handlers do not block, or other kernels wait for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/fifo.hpp"

namespace mscclpp {

enum class ProxyAction : std::uint8_t { goOn, stop };

// Of one proxy. A batch of more than half the FIFO is cut to that.
struct ProxyOptions {
  std::uint32_t fifoSize = Fifo::defaultSize;
  std::uint32_t batch =
      32;                // triggers that are taken before kernels are told that there is room; at most half the size
  std::uint32_t id = 0;  // shown in reports
};

class Proxy {
 public:
  using Handler = std::function<ProxyAction(layout::Trigger const& trigger, std::uint64_t position)>;

  // What a proxy does beside its triggers.
  struct Background {
    std::function<bool()> step = {};    // one step that does not block; whether it did anything
    std::function<bool()> busy = {};    // whether there is something left to do
    std::function<bool()> rest = {};    // where it only waits: sleeps a moment at most; whether it slept
    std::function<void()> failed = {};  // once, when the proxy has failed
  };

  Proxy(Communicator const& communicator, Handler handler, ProxyOptions const& options = {});
  Proxy(Communicator const& communicator, Handler handler, ProxyOptions const& options, Background background);
  ~Proxy();  // stops
  Proxy(Proxy const&) = delete;
  Proxy& operator=(Proxy const&) = delete;

  Fifo& fifo() noexcept;

  // Throws invalidUsage while it runs. One that has been stopped may be started again.
  void start();
  // What kernels have pushed until now is handled, and the background brought to its end, within the communicator's
  // limit; then the thread ends. Harmless where it does not run.
  void stop() noexcept;
  // The same without waiting for it, so that several end at once; stop() waits.
  void requestStop() noexcept;
  bool running() const noexcept;

  // One step that does not block: at most a batch of triggers, and one of the background. Whether it did anything. For
  // a thread of the caller's own, in place of start().
  bool progress();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace mscclpp

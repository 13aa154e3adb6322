// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a spinning thread does between two looks at its condition, on an NVIDIA GPU. Twin of arch/sim/spin.hpp.
//
// The abort flag and the time limit live in host memory, so they are looked at once every `spinsPerLook` spins only;
// a wait that is soon satisfied never touches them.
#pragma once

#include <cstdint>

#include "mscclpp/device/arch/cuda/memory.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE void letPass(unsigned clocks) {
  auto const begin = static_cast<unsigned>(clock());
  while (static_cast<unsigned>(clock()) - begin < clocks) {
  }
}

// A wait without a watch has nobody to report to: after this long it traps.
inline constexpr std::uint64_t unwatchedLimitNs = 20'000'000'000;

class Spin {
 public:
  MSCCLPP_DEVICE explicit Spin(layout::Watch* watch) : watch_(watch) {}

  // Called after the condition was found false; false once the wait has to be given up. What is missing is for the
  // simulated machine, which shows it while the wait lasts.
  template <class Missing>
  MSCCLPP_DEVICE bool again(Missing const&) {
    if (++spins_ % spinsPerLook != 0) [[likely]]
      return true;
    auto const now = nanoseconds();
    if (start_ == 0) start_ = now;
    if (watch_ == nullptr) {
      if (now - start_ > unwatchedLimitNs) trap("a wait without a watch passed its limit");
      return true;
    }
    if (load<Order::relaxed, Scope::system>(&watch_->abort) != 0) return false;
    auto const limit = load<Order::relaxed, Scope::system>(&watch_->limitNs);
    return limit == 0 || now - start_ <= limit;
  }

  // Called once the condition was found true. Of use to the simulated machine only.
  template <class Missing>
  MSCCLPP_DEVICE void end(Missing const&) {}

  MSCCLPP_DEVICE std::uint64_t waitedNs() const { return start_ == 0 ? 0 : nanoseconds() - start_; }

 private:
  static constexpr unsigned spinsPerLook = 1024;
  layout::Watch* watch_;
  std::uint64_t start_ = 0;
  unsigned spins_ = 0;
};

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

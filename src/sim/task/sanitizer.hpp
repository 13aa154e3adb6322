// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells AddressSanitizer and ThreadSanitizer about fiber switches; nothing at all in other builds.
//
// A switch is `leave(to)` on the old stack, then `arrive()` on the new one.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define MSCCLPP_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MSCCLPP_SIM_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MSCCLPP_SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSCCLPP_SIM_TSAN 1
#endif
#endif

#if defined(MSCCLPP_SIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(MSCCLPP_SIM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace mscclpp::sim {

// Instrumented frames are larger.
#if defined(MSCCLPP_SIM_ASAN) || defined(MSCCLPP_SIM_TSAN)
inline constexpr std::size_t stackFactor = 4;
#else
inline constexpr std::size_t stackFactor = 1;
#endif

// One stack as the sanitizers know it: a fiber's own, or that of the host thread which drives it.
struct SanitizedStack {
  void const* bottom = nullptr;
  std::size_t bytes = 0;
  void* fakeStack = nullptr;
  void* tsanFiber = nullptr;

  void create() {
#if defined(MSCCLPP_SIM_TSAN)
    tsanFiber = __tsan_create_fiber(0);
#endif
  }
  void destroy() {
#if defined(MSCCLPP_SIM_TSAN)
    if (tsanFiber != nullptr) __tsan_destroy_fiber(tsanFiber);
    tsanFiber = nullptr;
#endif
  }
  void adoptCurrent() {
#if defined(MSCCLPP_SIM_TSAN)
    tsanFiber = __tsan_get_current_fiber();
#endif
  }
};

// `last`: the stack that is left will not be entered again.
inline void leave([[maybe_unused]] SanitizedStack& from, [[maybe_unused]] SanitizedStack const& to,
                  [[maybe_unused]] bool last = false) {
#if defined(MSCCLPP_SIM_ASAN)
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fakeStack, to.bottom, to.bytes);
#endif
#if defined(MSCCLPP_SIM_TSAN)
  __tsan_switch_to_fiber(to.tsanFiber, 0);
#endif
}

// `from` learns its bounds, which only the sanitizer knows for a host thread's stack.
inline void arrive([[maybe_unused]] SanitizedStack const& on, [[maybe_unused]] SanitizedStack& from) {
#if defined(MSCCLPP_SIM_ASAN)
  void const* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(on.fakeStack, &bottom, &bytes);
  from.bottom = bottom;
  from.bytes = bytes;
#endif
}

// The memory is about to hold another fiber's frames.
inline void forgetStack([[maybe_unused]] void* bottom, [[maybe_unused]] std::size_t bytes) {
#if defined(MSCCLPP_SIM_ASAN)
  __asan_unpoison_memory_region(bottom, bytes);
#endif
}

}  // namespace mscclpp::sim

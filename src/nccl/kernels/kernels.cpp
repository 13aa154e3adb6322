// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/kernels/kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::nccl {
namespace {

template <class T>
struct ScaleKernel {
  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::size_t count, T const* factor, T value) const {
    auto const by = factor == nullptr ? value : *factor;
    for (std::size_t i = thisGrid().rank(); i < count; i += thisGrid().size()) {
      if constexpr (std::is_arithmetic_v<T>) {
        out[i] = static_cast<T>(in[i] * by);
      } else {
        out[i] = T(static_cast<float>(in[i]) * static_cast<float>(by));
      }
    }
  }
};

template <class T>
struct DivideKernel {
  MSCCLPP_DEVICE void operator()(T* data, std::size_t count, int by) const {
    for (std::size_t i = thisGrid().rank(); i < count; i += thisGrid().size()) data[i] = static_cast<T>(data[i] / by);
  }
};

struct SignalKernel {
  MSCCLPP_DEVICE void operator()(std::uint64_t* arrived) const {
    if (thisGrid().rank() != 0 || arrived == nullptr) return;
    reduceAdd<Order::release, Scope::system>(arrived, std::uint64_t{1});
  }
};

struct WaitKernel {
  MSCCLPP_DEVICE void operator()(SignalWait const& wait) const {
    if (thisGrid().rank() != 0 || wait.arrived == nullptr) return;
    auto const next = *wait.awaited + wait.count;
    *wait.awaited = next;
    poll(wait.watch, {layout::WaitKind::semaphore, wait.peer, wait.id, next}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(wait.arrived);
      return seen >= next;
    });
  }
};

constexpr LaunchShape oneWarp{.blocks = 1, .threads = 32};

LaunchShape shapeOf(std::size_t count) {
  constexpr unsigned threads = 256;
  return {.blocks = static_cast<unsigned>(std::clamp<std::size_t>((count + threads - 1) / threads, 1, 512)),
          .threads = threads};
}

void startScale(Stream const& stream, Factor const& factor, void const* in, void* out, std::size_t count) {
  withDataType(factor.type, [&]<class T>(std::type_identity<T>) {
    T value{};
    std::memcpy(&value, factor.value.data(), sizeof value);
    launch(stream, shapeOf(count), ScaleKernel<T>{}, static_cast<T const*>(in), static_cast<T*>(out), count,
           static_cast<T const*>(factor.device), value);
  });
}

void startDivide(Stream const& stream, DataType type, void* data, std::size_t count, int by) {
  withDataType(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      launch(stream, shapeOf(count), DivideKernel<T>{}, static_cast<T*>(data), count, by);
    }
  });
}

void startSignal(Stream const& stream, std::uint64_t* arrived) { launch(stream, oneWarp, SignalKernel{}, arrived); }

void startWait(Stream const& stream, SignalWait const& wait) { launch(stream, oneWarp, WaitKernel{}, wait); }

[[maybe_unused]] bool const here = haveKernels(
    kernelDevice, {.scale = &startScale, .divide = &startDivide, .signal = &startSignal, .wait = &startWait});

}  // namespace
}  // namespace mscclpp::nccl

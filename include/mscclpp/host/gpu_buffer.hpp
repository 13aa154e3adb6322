// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device memory with an owner, and copies between it and the host. New memory is zero. Copies return when done; they do
// not wait for streams, so synchronise first with kernels that use the memory.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/host/device.hpp"

namespace mscclpp {

// Untyped. Freed with the object; kernels and peers that use it must have ended.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device device, std::size_t bytes, MemoryKind kind = MemoryKind::standard);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  // For kernels and for copies; null where there are no bytes(). On GPUs the host must not read there.
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }

 private:
  Device device_{};
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

namespace detail {
// Throws invalidUsage naming both where `bytes` are more than `room`.
void checkCopy(char const* operation, std::size_t offsetBytes, std::size_t bytes, std::size_t room);
std::size_t bytesFor(std::size_t count, std::size_t size);
}  // namespace detail

template <class T>
class GpuBuffer {
  static_assert(std::is_trivially_copyable_v<T>,
                "GpuBuffer<T>: T is copied as bytes, so it must be trivially copyable");

 public:
  GpuBuffer() = default;
  GpuBuffer(Device device, std::size_t count, MemoryKind kind = MemoryKind::standard)
      : memory_(device, detail::bytesFor(count, sizeof(T)), kind), count_(count) {}

  // size() counts elements.
  T* data() const noexcept { return static_cast<T*>(memory_.data()); }
  std::size_t size() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }
  Device device() const noexcept { return memory_.device(); }

  // Sets each of the bytes() to `byte`, and returns when that is done.
  void fill(int byte) const {
    if (count_ != 0) device().runtime().fill(memory_.data(), byte, bytes());
  }

 private:
  DeviceMemory memory_;
  std::size_t count_ = 0;
};

// All of `src`, into a buffer from element `offset` on; throws invalidUsage where it does not fit.
template <class T>
void copyToDevice(Device device, T* dst, std::span<std::type_identity_t<T> const> src) {
  if (!src.empty()) device.runtime().copy(dst, src.data(), src.size_bytes());
}
template <class T>
void copyToDevice(GpuBuffer<T> const& dst, std::span<std::type_identity_t<T> const> src, std::size_t offset = 0) {
  detail::checkCopy("copyToDevice", offset * sizeof(T), src.size_bytes(), dst.bytes());
  copyToDevice(dst.device(), dst.data() + offset, src);
}

// As many elements as `dst` has, of a buffer from element `offset` on, which throws invalidUsage where it has fewer;
// without `dst` all of them.
template <class T>
void copyToHost(Device device, std::span<std::type_identity_t<T>> dst, T const* src) {
  if (!dst.empty()) device.runtime().copy(dst.data(), src, dst.size_bytes());
}
template <class T>
void copyToHost(std::span<std::type_identity_t<T>> dst, GpuBuffer<T> const& src, std::size_t offset = 0) {
  detail::checkCopy("copyToHost", offset * sizeof(T), dst.size_bytes(), src.bytes());
  copyToHost(src.device(), dst, static_cast<T const*>(src.data() + offset));
}
template <class T>
std::vector<T> copyToHost(GpuBuffer<T> const& src) {
  std::vector<T> result(src.size());
  copyToHost(std::span<T>(result), src);
  return result;
}

}  // namespace mscclpp

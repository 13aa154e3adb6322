// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/gpu_buffer.hpp"

#include <limits>

#include "base/format.hpp"

namespace mscclpp {

DeviceMemory::DeviceMemory(Device device, std::size_t bytes, MemoryKind kind) : device_(device), bytes_(bytes) {
  Runtime& machine = device.runtime();
  if (bytes != 0) data_ = machine.allocate(device.ordinal, bytes, kind);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) runtime(device_.kind).release(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace detail {

void checkCopy(char const* operation, std::size_t offsetBytes, std::size_t bytes, std::size_t room) {
  if (offsetBytes > room || bytes > room - offsetBytes) {
    fail(ErrorCode::invalidUsage, "{}: {} bytes at offset {} do not fit the buffer of {} bytes", operation, bytes,
         offsetBytes, room);
  }
}

std::size_t bytesFor(std::size_t count, std::size_t size) {
  if (count > std::numeric_limits<std::size_t>::max() / size) {
    fail(ErrorCode::invalidUsage, "GpuBuffer: {} elements of {} bytes are more than memory can be", count, size);
  }
  return count * size;
}

}  // namespace detail
}  // namespace mscclpp

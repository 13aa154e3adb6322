// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/stream.hpp"

#include <atomic>
#include <utility>

#include "base/format.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/trace.hpp"

namespace mscclpp {

namespace {
std::uint64_t idOf(Device device, void* native) { return device.runtime().streamId(device.ordinal, native); }
}  // namespace

Stream::Stream(Device device, void* native, std::uint64_t id) : device_(device), native_(native), id_(id) {}

Stream::Stream(Device device) : Stream(device, device.runtime().createStream(device.ordinal), 0) {
  owned_ = true;
  id_ = idOf(device_, native_);
}

Stream Stream::borrow(Device device, void* native) { return Stream(device, native, idOf(device, native)); }

Stream Stream::borrow(Device device, void* native, std::uint64_t id, bool captured) {
  Stream stream(device, native, id);
  stream.captured_ = captured;
  return stream;
}

std::uint64_t Stream::queueId() noexcept {
  // Machines count streams from 0.
  static std::atomic<std::uint64_t> last{std::uint64_t{1} << 63};
  return ++last;
}

Stream::Stream(Stream&& other) noexcept
    : device_(other.device_),
      native_(std::exchange(other.native_, nullptr)),
      id_(std::exchange(other.id_, 0)),
      captured_(other.captured_),
      owned_(std::exchange(other.owned_, false)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  std::swap(id_, other.id_);
  std::swap(captured_, other.captured_);
  std::swap(owned_, other.owned_);
  return *this;
}

Stream::~Stream() {
  // The machine answered when the stream was made, so it is there.
  if (owned_) runtime(device_.kind).destroyStream(native_);
}

void Stream::synchronize(std::optional<std::chrono::nanoseconds> limit) const {
  runtime(device_.kind).synchronize(native_, limit.value_or(environment().timeout));
  if (Trace::on()) Trace::streamIdle(native_);
}

bool Stream::idle() const { return runtime(device_.kind).idle(native_); }

void Stream::runAfter(Stream const& earlier) const {
  if (!(earlier.device_ == device_)) {
    fail(ErrorCode::invalidUsage, "a stream of device {} cannot run after one of device {}; give both one device",
         device_.ordinal, earlier.device_.ordinal);
  }
  runtime(device_.kind).orderAfter(device_.ordinal, native_, earlier.native_);
}

bool Stream::capturing() const { return captured_ ? *captured_ : runtime(device_.kind).capturing(native_); }

std::uint64_t Stream::capture() const { return runtime(device_.kind).captureOf(native_); }

void Stream::copy(void* dst, void const* src, std::size_t bytes) const {
  if (bytes != 0) runtime(device_.kind).copyAsync(dst, src, bytes, native_);
}

}  // namespace mscclpp

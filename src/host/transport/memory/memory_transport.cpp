// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/memory/memory_transport.hpp"

#include <optional>
#include <utility>

#include "base/format.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {
namespace {

class MemoryConnection final : public Connection {
 public:
  MemoryConnection(int rank, int peer, Device device)
      : rank_(rank), peer_(peer), engine_(device.runtime().createCopyEngine(device.ordinal)) {}

  Transport transport() const noexcept override { return Transport::memory; }
  int peer() const noexcept override { return peer_; }

  void write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src, std::uint64_t srcOffset,
             std::uint64_t bytes) override {
    checkWrite(*this, dst, dstOffset, src, srcOffset, bytes);
    guarded("write", [&] { engine_->copy(dst.mapped() + dstOffset, src.mapped() + srcOffset, bytes); });
  }

  void signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) override {
    checkSignal(*this, dst, dstOffset);
    guarded("signal", [&] { engine_->signal(wordOf(dst, dstOffset), count); });
  }

  std::uint64_t posted() const noexcept override { return engine_->posted(); }
  std::uint64_t progress() override {
    guarded("progress", [&] { done_ = engine_->progress(); });
    return done_;
  }
  bool waitsFor(std::vector<pollfd>&) const override { return done_ == posted(); }

  // The count has lost its meaning, so it need not be kept.
  void abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept override {
    try {
      checkSignal(*this, dst, dstOffset);
      engine_->signal(wordOf(dst, dstOffset), abandonedSignal);
    } catch (std::exception const& error) {
      log(LogLevel::debug, "rank {}: cannot tell rank {} of the failure: {}", rank_, peer_, error.what());
    }
  }

 private:
  static std::uint64_t* wordOf(RegisteredMemory const& memory, std::uint64_t offset) {
    return reinterpret_cast<std::uint64_t*>(memory.mapped() + offset);
  }

  template <class Act>
  void guarded(char const* operation, Act&& act) {
    if (failure_) throw *failure_;
    try {
      act();
    } catch (Error const& error) {
      failure_.emplace(error.code(), fmt::format("rank {}: {} to rank {} by copy engine failed: {}", rank_, operation,
                                                 peer_, error.what()));
      throw *failure_;
    }
  }

  int rank_;
  int peer_;
  std::unique_ptr<CopyEngine> engine_;
  std::uint64_t done_ = 0;
  std::optional<Error> failure_;
};

class MemoryEndpoint final : public TransportEndpoint {
 public:
  explicit MemoryEndpoint(Device device) : device_(device) {}
  std::vector<std::byte> address() const override { return {}; }
  std::shared_ptr<Connection> connect(int rank, int peer, std::span<std::byte const> peerAddress) override {
    if (!peerAddress.empty()) {
      fail(ErrorCode::remoteError,
           "rank {}: connect to rank {}: {} bytes of address where the memory transport has none", rank, peer,
           peerAddress.size());
    }
    return std::make_shared<MemoryConnection>(rank, peer, device_);
  }

 private:
  Device device_;
};

// What RegisteredMemory maps by itself is all that copies need.
class MappedRegistration final : public Registration {
 public:
  std::vector<std::byte> key() const override { return {}; }
};

class MemoryTransport final : public TransportContext {
 public:
  Transport transport() const noexcept override { return Transport::memory; }
  std::shared_ptr<Registration> registerMemory(int, Device, void*, std::size_t) override {
    return std::make_shared<MappedRegistration>();
  }
  std::unique_ptr<TransportEndpoint> createEndpoint(int, Device device) override {
    return std::make_unique<MemoryEndpoint>(device);
  }
};

}  // namespace

std::shared_ptr<TransportContext> makeMemoryTransport() { return std::make_shared<MemoryTransport>(); }

}  // namespace mscclpp

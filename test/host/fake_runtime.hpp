// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine without kernels: device memory is shared memory of the host. Enough to test what the host helper does with
// memory, also between processes, and lets tests refuse what a real machine refuses rarely.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/fabric_memory.hpp"
#include "host/cuda/multicast_driver.hpp"
#include "host/memory/split_memory.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp::test {

class FakeRuntime final : public Runtime, public SplitMemory, public FabricMemory {
 public:
  static constexpr int devices = 8;

  // What the present test wants to happen.
  struct Wishes {
    std::size_t largestAllocation = std::size_t{1} << 30;
    bool exportable = true;
    bool ipc = false;     // memory is shared by handles, each of which can be opened once
    int splitLines = -1;  // device to which 128-byte lines do not arrive whole
    bool streamsBusy = false;
    bool lateCopies = false;       // those of a stream are made when somebody waits for it
    bool sideBySide = false;       // memory may be several allocations
    bool driverMulticast = false;  // multicast memory as on GPUs, by the CUDA driver
    FabricClique clique{};         // of all devices
    bool fabricRefused = false;    // memory of other hosts cannot be opened
  };
  Wishes wishes;
  std::atomic<int> peersEnabled{0};
  std::atomic<bool> handleOpen{false};

  // Registers the machine at the first call in this process.
  static FakeRuntime& instance() {
    static FakeRuntime* const fake = [] {
      auto made = std::make_unique<FakeRuntime>();
      auto* const pointer = made.get();
      registerRuntime(std::move(made));
      return pointer;
    }();
    return *fake;
  }

  // Allocations and mappings that exist now: a test that ends with as many as it began with leaks nothing.
  std::size_t liveBlocks() const {
    std::lock_guard const lock(mutex_);
    return blocks_.size();
  }

  DeviceKind kind() const override { return DeviceKind::sim; }
  int deviceCount() const override { return devices; }
  DeviceProperties properties(int device) const override {
    return {"fake", 1, 0, 0, std::size_t{1} << 30, "fake:" + std::to_string(device)};
  }

  // As on GPUs, memory of the standard kind stays on its host.
  void* allocate(int device, std::size_t bytes, MemoryKind kind) override {
    if (bytes > wishes.largestAllocation) {
      throw Error(ErrorCode::deviceError, "fake device " + std::to_string(device) + " has no room");
    }
    int const file = ::memfd_create("fake_device", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) throwSystemError("memfd", errno);
    auto* const base = map(device, file, bytes);
    if (kind == MemoryKind::shareable) {
      std::lock_guard const lock(mutex_);
      blocks_.at(static_cast<std::byte*>(base)).forFabric = true;
    }
    return base;
  }
  // An allocation of `parts` times `bytes` that takes the room of two: all parts but the last are the same memory.
  void* repeat(int device, std::size_t bytes, std::size_t parts) {
    auto* const base = static_cast<std::byte*>(
        ::mmap(nullptr, bytes * parts, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    int const shared = ::memfd_create("fake_device", MFD_CLOEXEC);
    int const last = ::memfd_create("fake_device", MFD_CLOEXEC);
    auto const size = static_cast<off_t>(bytes);
    if (base == MAP_FAILED || ::ftruncate(shared, size) != 0 || ::ftruncate(last, size) != 0) {
      throwSystemError("memfd", errno);
    }
    for (std::size_t part = 0; part < parts; ++part) {
      int const file = part + 1 < parts ? shared : last;
      if (::mmap(base + part * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        throwSystemError("mmap", errno);
      }
    }
    ::close(shared);
    std::lock_guard const lock(mutex_);
    blocks_[base] = {device, last, bytes * parts};
    return base;
  }
  // Allocations of these sizes, whole pages, side by side; each is given back by itself.
  std::vector<std::byte*> allocateSideBySide(int device, std::vector<std::size_t> const& sizes) {
    std::vector<SharedPiece> pieces;
    for (auto const bytes : sizes) {
      int const file = ::memfd_create("fake_device", MFD_CLOEXEC);
      if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) throwSystemError("memfd", errno);
      pieces.push_back({file, bytes});
    }
    auto const bases = mapPieces(pieces);
    std::lock_guard const lock(mutex_);
    for (std::size_t i = 0; i < pieces.size(); ++i) blocks_[bases[i]] = {device, pieces[i].descriptor, pieces[i].bytes};
    return bases;
  }
  void giveBack(void* base) noexcept override { unmap(base); }
  void* allocateHost(std::size_t bytes) override { return map(-1, -1, bytes); }
  void giveBackHost(void* base) noexcept override { unmap(base); }

  Allocation allocationOf(void const* pointer) const override {
    std::lock_guard const lock(mutex_);
    auto const* const wanted = static_cast<std::byte const*>(pointer);
    for (auto const& [base, block] : blocks_) {
      if (block.device >= 0 && wanted >= base && wanted < base + block.bytes) return {base, block.bytes, block.device};
    }
    throw Error(ErrorCode::invalidUsage, "not memory of a fake device");
  }

  std::optional<IpcHandle> exportIpc(Allocation const&) override {
    return wishes.ipc ? std::optional<IpcHandle>(IpcHandle{}) : std::nullopt;
  }
  std::optional<int> exportDescriptor(Allocation const& allocation) override {
    if (!wishes.exportable) return {};
    std::lock_guard const lock(mutex_);
    return ::dup(blocks_.at(static_cast<std::byte*>(allocation.base)).file);
  }
  void* importIpc(int device, IpcHandle const&) override {
    if (!wishes.ipc) throw Error(ErrorCode::unsupported, "no IPC here");
    if (handleOpen.exchange(true)) throw Error(ErrorCode::deviceError, "the handle is open already");
    return map(device, -1, 4096);
  }
  void* importDescriptor(int device, int descriptor, std::size_t bytes) override {
    return map(device, ::dup(descriptor), bytes);
  }
  FabricClique cliqueOf(int) const override { return wishes.clique; }
  // Good in this process.
  std::optional<FabricHandle> exportFabric(Allocation const& allocation) override {
    std::lock_guard const lock(mutex_);
    auto const& block = blocks_.at(static_cast<std::byte*>(allocation.base));
    if (!block.forFabric) return {};
    FabricHandle handle{};
    std::memcpy(handle.data(), &block.file, sizeof block.file);
    return handle;
  }
  void* importFabric(int device, FabricHandle const& handle, std::size_t bytes) override {
    if (wishes.fabricRefused) throw Error(ErrorCode::deviceError, "the fake fabric is torn");
    int file = -1;
    std::memcpy(&file, handle.data(), sizeof file);
    return map(device, ::dup(file), bytes);
  }
  bool mayGoOn(Allocation const&) const override { return wishes.sideBySide; }
  void* importPieces(int device, std::span<SharedPiece const> pieces) override {
    auto* const base = mapPieces(pieces).front();
    std::size_t total = 0;
    for (auto const& piece : pieces) total += piece.bytes;
    std::lock_guard const lock(mutex_);
    blocks_[base] = {device, -1, total};
    return base;
  }
  void releaseImport(void* base) noexcept override {
    std::this_thread::yield();
    unmap(base);
    handleOpen = false;
  }
  void enablePeer(int, Allocation const&) override { ++peersEnabled; }
  bool linesArriveWhole(int, int peer) const override { return peer != wishes.splitLines; }

  bool multicastSupported(int device, std::string& why) const override {
    return wishes.driverMulticast ? driverSupportsMulticast(device, why) : Runtime::multicastSupported(device, why);
  }
  std::unique_ptr<MulticastMemory> multicast(int device) override {
    return wishes.driverMulticast ? makeDriverMulticast(device) : Runtime::multicast(device);
  }

  void copy(void* dst, void const* src, std::size_t bytes) override { std::memcpy(dst, src, bytes); }
  void copyAsync(void* dst, void const* src, std::size_t bytes, void* stream) override {
    if (!wishes.lateCopies) {
      std::memcpy(dst, src, bytes);
      return;
    }
    std::lock_guard const lock(mutex_);
    copies_.emplace_back(stream, [=] { std::memcpy(dst, src, bytes); });
  }
  std::size_t copiesUnderWay() const {
    std::lock_guard const lock(mutex_);
    return copies_.size();
  }
  void fill(void* dst, int value, std::size_t bytes) override { std::memset(dst, value, bytes); }

  void* createStream(int) override { return new int(0); }
  void destroyStream(void* stream) noexcept override { delete static_cast<int*>(stream); }
  std::uint64_t streamId(int, void* stream) override { return reinterpret_cast<std::uintptr_t>(stream); }
  void synchronize(void* stream, std::chrono::nanoseconds) override {
    {
      std::lock_guard const lock(mutex_);
      std::erase_if(copies_, [stream](auto const& copy) {
        if (copy.first == stream) copy.second();
        return copy.first == stream;
      });
    }
    if (!idle(stream)) throw Error(ErrorCode::timeout, "fake stream is busy");
  }
  bool idle(void* stream) override {
    std::lock_guard const lock(mutex_);
    return !wishes.streamsBusy &&
           std::none_of(copies_.begin(), copies_.end(), [stream](auto const& copy) { return copy.first == stream; });
  }
  bool synchronizeDevice(int) override { return !wishes.streamsBusy; }
  bool capturing(void*) override { return false; }
  std::uint64_t captureOf(void*) override { return 0; }
  void orderAfter(int, void*, void*) override {}

 private:
  struct Block {
    int device;
    int file;
    std::size_t bytes;
    bool forFabric = false;
  };

  void* map(int device, int file, std::size_t bytes) {
    void* const base =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (base == MAP_FAILED) throwSystemError("mmap", errno);
    std::lock_guard const lock(mutex_);
    blocks_[static_cast<std::byte*>(base)] = {device, file, bytes};
    return base;
  }
  static std::vector<std::byte*> mapPieces(std::span<SharedPiece const> pieces) {
    std::size_t total = 0;
    for (auto const& piece : pieces) total += piece.bytes;
    void* const base = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throwSystemError("mmap", errno);
    std::vector<std::byte*> bases;
    auto* next = static_cast<std::byte*>(base);
    for (auto const& piece : pieces) {
      if (::mmap(next, piece.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece.descriptor, 0) ==
          MAP_FAILED) {
        int const error = errno;
        ::munmap(base, total);
        throwSystemError("mmap", error);
      }
      bases.push_back(next);
      next += piece.bytes;
    }
    return bases;
  }
  void unmap(void* base) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = blocks_.find(static_cast<std::byte*>(base));
    if (found == blocks_.end()) std::abort();  // a double release
    ::munmap(base, found->second.bytes);
    if (found->second.file >= 0) ::close(found->second.file);
    blocks_.erase(found);
  }

  mutable std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
  std::vector<std::pair<void*, std::function<void()>>> copies_;  // under way, and their streams
};

// A device of it, which this installs.
inline Device fake(int ordinal) {
  FakeRuntime::instance();
  return {DeviceKind::sim, ordinal};
}

}  // namespace mscclpp::test

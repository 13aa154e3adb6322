// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/runtime.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <cxxabi.h>
#include <fmt/format.h>

#include "base/fabric_memory.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/backend/launch.hpp"
#include "sim/machine/copy_engine.hpp"
#include "sim/machine/host_task.hpp"
#include "sim/machine/host_words.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/memory/fabric.hpp"

namespace mscclpp::sim {
namespace {

// The calling rank may be interrupted here, as host code may anywhere.
void hostStep() {
  if (auto* task = currentHostTask(); task != nullptr && !task->cancelled) {
    Machine::instance().scheduler().yieldReady(*task);
  }
}

// A window over the ranks' memory is all that a process needs, so nothing is shared between processes.
class SimMulticast final : public MulticastMemory {
 public:
  explicit SimMulticast(int device) : device_(device) {}
  SimMulticast(SimMulticast const&) = delete;
  SimMulticast& operator=(SimMulticast const&) = delete;
  ~SimMulticast() override {
    if (base_ != nullptr) Machine::instance().multicasts().unmap(base_);
  }

  std::size_t granularity(int) override { return 128; }
  std::optional<int> create(int, std::size_t bytes) override {
    bytes_ = bytes;
    return std::nullopt;
  }
  void open(int, std::size_t bytes) override { bytes_ = bytes; }
  void addDevice() override {}
  void bind(std::size_t, void*, std::size_t) override {}
  bool wantsReplicas() const override { return true; }
  std::byte* map(std::vector<MulticastReplicas> replicas) override {
    base_ = Machine::instance().multicasts().map({device_, bytes_, std::move(replicas)});
    return base_;
  }

 private:
  int device_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

// A thread of the host as a task of the deterministic run's scheduler.
class TaskOfHost final : public HostThread {
 public:
  TaskOfHost(int device, std::string name, std::function<void()> main)
      : stream_(Machine::instance().createStream(device, true)) {
    auto& machine = Machine::instance();
    machine.submit(*stream_, Kernel::ofHost(machine, *stream_, std::move(name), std::move(main)));
  }
  ~TaskOfHost() override { Machine::instance().destroyStream(stream_); }

 private:
  Stream* stream_;
};

class SimRuntime final : public Runtime, public FabricMemory {
 public:
  DeviceKind kind() const override { return DeviceKind::sim; }
  int deviceCount() const override { return machine().deviceCount(); }

  DeviceProperties properties(int device) const override {
    machine().checkDevice(device, "properties");
    auto const options = machine().options();
    DeviceProperties properties;
    properties.name = "simulated GPU";
    properties.multiprocessors = options.multiprocessors;
    properties.computeMajor = 9;
    properties.memoryBytes = options.memoryBytes;
    return properties;
  }

  void* allocate(int device, std::size_t bytes, MemoryKind) override {
    machine().checkDevice(device, "allocate");
    return machine().allocate(device, bytes);
  }
  void giveBack(void* base) noexcept override { machine().release(base); }
  void* allocateHost(std::size_t bytes) override { return machine().allocate(hostMemory, bytes); }
  void giveBackHost(void* base) noexcept override { machine().release(base); }
  Allocation allocationOf(void const* pointer) const override { return machine().heap().allocationOf(pointer); }

  std::optional<IpcHandle> exportIpc(Allocation const&) override { return std::nullopt; }
  std::optional<int> exportDescriptor(Allocation const& allocation) override {
    return machine().heap().duplicateDescriptor(allocation.base);
  }
  void* importIpc(int device, IpcHandle const&) override {
    throw Error(ErrorCode::unsupported,
                fmt::format("importIpc on simulated device {}: simulated memory is shared by descriptor only", device));
  }
  void* importDescriptor(int device, int descriptor, std::size_t bytes) override {
    machine().checkDevice(device, "importDescriptor");
    return machine().heap().import(device, descriptor, bytes);
  }
  void releaseImport(void* base) noexcept override { machine().releaseImport(base); }

  FabricClique cliqueOf(int) const override { return simulatedClique(); }
  std::optional<FabricHandle> exportFabric(Allocation const& allocation) override {
    return nameMemory(machine().heap().descriptorOf(allocation.base));
  }
  void* importFabric(int device, FabricHandle const& handle, std::size_t bytes) override {
    machine().checkDevice(device, "importFabric");
    return machine().heap().import(device, openMemory(handle).get(), bytes);
  }

  void enablePeer(int device, Allocation const& allocation) override {
    machine().checkDevice(device, "enablePeer");
    machine().heap().enablePeer(device, allocation);
  }
  bool linesArriveWhole(int device, int peer) const override {
    machine().checkDevice(device, "linesArriveWhole");
    machine().checkDevice(peer, "linesArriveWhole");
    return machine().linesArriveWhole();
  }

  bool multicastSupported(int device, std::string& why) const override {
    machine().checkDevice(device, "multicastSupported");
    if (machine().options().multicast) return true;
    why = "the simulated machine has no multicast switch (MachineOptions::multicast)";
    return false;
  }
  std::unique_ptr<MulticastMemory> multicast(int device) override {
    machine().checkDevice(device, "multicast");
    return std::make_unique<SimMulticast>(device);
  }

  void copy(void* dst, void const* src, std::size_t bytes) override {
    checkCopy(dst, src, bytes, "copy");
    hostStep();
    machine().hostAccess(src, bytes, false);
    machine().hostAccess(dst, bytes, true);
    if (bytes != 0) std::memmove(dst, src, bytes);
    hostStep();
  }
  void copyAsync(void* dst, void const* src, std::size_t bytes, void* stream) override {
    checkCopy(dst, src, bytes, "copyAsync");
    auto& where = machine().checkStream(stream, "copyAsync");
    if (bytes != 0) machine().copy(where, {dst, src, bytes});
  }
  void orderAfter(int, void* stream, void* earlier) override {
    auto& where = machine().checkStream(stream, "orderAfter");
    machine().orderAfter(where, machine().checkStream(earlier, "orderAfter"));
  }
  void fill(void* dst, int value, std::size_t bytes) override {
    checkCopy(dst, dst, bytes, "fill");
    hostStep();
    machine().hostAccess(dst, bytes, true);
    if (bytes != 0) std::memset(dst, value, bytes);
    hostStep();
  }

  void* createStream(int device) override { return machine().createStream(device, false); }
  void destroyStream(void* stream) noexcept override { machine().destroyStream(stream); }
  std::uint64_t streamId(int, void* stream) override { return machine().streamId(stream); }
  void synchronize(void* stream, std::chrono::nanoseconds limit) override { machine().synchronize(stream, limit); }
  bool idle(void* stream) override { return machine().idle(stream); }
  bool synchronizeDevice(int device) override {
    machine().checkDevice(device, "synchronizeDevice");
    if (machine().captures(device)) return false;
    for (auto* const stream : machine().streamsOf(device)) machine().synchronize(stream, environment().timeout);
    return true;
  }
  bool capturing(void* stream) override { return captureOf(stream) != 0; }
  std::uint64_t captureOf(void* stream) override {
    if (!machine().mayCapture()) return 0;
    auto const* const capture = machine().checkStream(stream, "captureOf").capture();
    return capture == nullptr ? 0 : capture->number;
  }

  std::unique_ptr<CopyEngine> createCopyEngine(int device) override {
    machine().checkDevice(device, "createCopyEngine");
    return makeCopyEngine(device);
  }
  std::unique_ptr<HostThread> startThread(int device, std::string name, std::function<void()> main) override {
    machine().checkDevice(device, "startThread");
    if (!machine().deterministic()) {
      return Runtime::startThread(device, std::move(name), [main = std::move(main)] {
        setThreadHostWords(&restingHostWords);
        main();
      });
    }
    return std::make_unique<TaskOfHost>(device, std::move(name), std::move(main));
  }
  int nodeOf(int device) const override {
    int const perNode = machine().options().devicesPerNode;
    return perNode == 0 ? 0 : device / perNode;
  }

 private:
  static Machine& machine() { return Machine::instance(); }

  static void checkCopy(void* dst, void const* src, std::size_t bytes, char const* operation) {
    if (bytes == 0) return;
    if (dst == nullptr || src == nullptr) {
      throw Error(ErrorCode::invalidUsage,
                  fmt::format("{} of {} bytes {} a null pointer", operation, bytes, dst == nullptr ? "to" : "from"));
    }
    machine().heap().checkRange(dst, bytes, operation);
    machine().heap().checkRange(src, bytes, operation);
  }
};

}  // namespace

bool ensureInstalled() {
  static bool const once = [] {
    registerRuntime(std::make_unique<SimRuntime>());
    return true;
  }();
  return once;
}

void install(MachineOptions const& options) {
  ensureInstalled();
  Machine::instance().install(options);
}

std::string kernelName(std::type_info const& type) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> const name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  if (name == nullptr) return type.name();
  // The library's own names need no namespace, and those of template arguments are long.
  std::string text = name.get();
  for (std::string_view const prefix : {"mscclpp::sim_backend::", "mscclpp::"}) {
    for (auto at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at))
      text.erase(at, prefix.size());
  }
  return text;
}

void enqueueKernel(void* stream, LaunchShape const& shape, std::string name, std::function<void()> perThread) {
  auto refuse = [&](std::string const& why) {
    throw Error(ErrorCode::invalidUsage, fmt::format("launch of kernel \"{}\": {}", name, why));
  };
  auto& machine = Machine::instance();
  if (shape.blocks == 0) refuse("0 blocks; LaunchShape::blocks must be at least 1");
  if (shape.threads == 0 || shape.threads > maxBlockThreads) {
    refuse(fmt::format("{} threads in a block; LaunchShape::threads must be 1 to {}", shape.threads, maxBlockThreads));
  }
  if (shape.dynamicShared > BlockMemory::bytes) {
    refuse(fmt::format("{} bytes of dynamic shared memory; a block has {}", shape.dynamicShared, BlockMemory::bytes));
  }
  if (shape.clusterBlocks == 0 || shape.clusterBlocks > maxClusterBlocks || shape.blocks % shape.clusterBlocks != 0) {
    refuse(fmt::format("{} blocks in clusters of {}; a cluster has 1 to {} blocks, and a grid whole clusters",
                       shape.blocks, shape.clusterBlocks, maxClusterBlocks));
  }
  if (!machine.devices().fitsTogether(shape)) {
    refuse(fmt::format("clusters of {} blocks of {} threads; the simulated device is too small for one of them",
                       shape.clusterBlocks, shape.threads));
  }
  if (!perThread) refuse("no function to run");
  if (insideKernel()) refuse("called inside of a kernel; kernels are launched by host code");
  auto& where = machine.checkStream(stream, "launch");
  machine.launch(where, {shape, std::move(name), std::move(perThread)});
}

}  // namespace mscclpp::sim

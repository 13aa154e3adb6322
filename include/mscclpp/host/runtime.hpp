// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the host helper needs from a machine: memory, streams, sharing of memory between processes. Implemented for CUDA
// in src/host/cuda/cuda_runtime.cpp and for the simulated machine in src/sim/. Users reach it through GpuBuffer, Stream
// and Communicator; only a new kind of machine implements it.
//
// All functions may be called from any thread and throw Error. Device numbers are those of the machine.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/copy_engine.hpp"

namespace mscclpp {

// NVIDIA GPUs by CUDA, or the machine that is simulated on the host's processor.
enum class DeviceKind : std::uint8_t { cuda, sim };

// What a device's driver says of it.
struct DeviceProperties {
  std::string name;
  int multiprocessors = 0;
  int computeMajor = 0;
  int computeMinor = 0;
  std::size_t memoryBytes = 0;
  std::string busId;  // the same in every process, which may number the devices differently; may be empty
};

// How memory of a device is made, and so how other processes can map it.
enum class MemoryKind : std::uint8_t {
  standard,   // cudaMalloc; shared with other processes by CUDA IPC
  shareable,  // virtual memory management; shared by file descriptor, to hosts that NVLink joins by fabric handle
  unfilled,   // as standard, but whatever is in it: nothing waits for the device, whose kernels may wait for others
};

// One allocation as a whole, whoever in this process has made it.
struct Allocation {
  void* base = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  std::uint64_t id = 0;  // that no other allocation of this process has or had; 0: the machine cannot tell
};

// Device memory as other drivers of this host can map it; the caller closes the descriptor.
struct Dmabuf {
  int descriptor;
  std::uint64_t offset;  // of the memory within it
};

using IpcHandle = std::array<std::byte, 64>;

// The same part of multicast memory on all its ranks, as this process has it mapped.
struct MulticastReplicas {
  std::size_t offset = 0;  // in the multicast memory
  std::size_t bytes = 0;
  std::vector<std::byte*> bases;  // by rank
};

// One rank's part in multicast memory, which a switch reads and writes on several devices at once (host/multicast.hpp
// leads through the steps). Each step is taken once, after the one before it has been taken by all ranks; the
// destructor undoes those that were taken, and logs what fails.
class MulticastMemory {
 public:
  virtual ~MulticastMemory() = default;

  // What offsets, sizes and addresses must be multiples of.
  virtual std::size_t granularity(int devices) = 0;
  // One rank makes it, and gives a descriptor where others need one; the caller closes it. The others open that.
  virtual std::optional<int> create(int devices, std::size_t bytes) = 0;
  virtual void open(int descriptor, std::size_t bytes) = 0;
  virtual void addDevice() = 0;
  // Memory of this rank's device.
  virtual void bind(std::size_t offset, void* memory, std::size_t bytes) = 0;
  // Whether map() is told where this process has the other ranks' memory.
  virtual bool wantsReplicas() const = 0;
  // The address for kernels of this rank's device.
  virtual std::byte* map(std::vector<MulticastReplicas> replicas) = 0;
};

class LossListeners;

class Runtime {
 public:
  Runtime();
  virtual ~Runtime();

  // Devices count from 0 to deviceCount() - 1; properties() throws for other numbers.
  virtual DeviceKind kind() const = 0;
  virtual int deviceCount() const = 0;
  virtual DeviceProperties properties(int device) const = 0;

  // Device memory, zero-filled unless it is to be unfilled.
  virtual void* allocate(int device, std::size_t bytes, MemoryKind kind) = 0;
  void release(void* base) noexcept;
  // Memory that host and every device see at the same address; zero-filled.
  virtual void* allocateHost(std::size_t bytes) = 0;
  void releaseHost(void* base) noexcept;
  // Between the two, memory that is released stays allocated; what was, goes with the last of several resumptions. A
  // GPU gives memory back only when all its kernels have ended, which a rank that shares the GPU must not wait for.
  void holdReleases();
  void resumeReleases() noexcept;
  // The allocation that holds `pointer`, made by anyone in this process; throws invalidUsage for other memory.
  virtual Allocation allocationOf(void const* pointer) const = 0;

  // Sharing with another process. At least one of the two exports has a value.
  virtual std::optional<IpcHandle> exportIpc(Allocation const& allocation) = 0;
  virtual std::optional<int> exportDescriptor(Allocation const& allocation) = 0;  // caller closes
  virtual void* importIpc(int device, IpcHandle const& handle) = 0;
  virtual void* importDescriptor(int device, int descriptor, std::size_t bytes) = 0;
  virtual void releaseImport(void* base) noexcept = 0;
  // Lets kernels on `device` use `allocation`, which another device of this process owns.
  virtual void enablePeer(int device, Allocation const& allocation) = 0;
  // Whether a warp's 128-byte line from `device` reaches `peer` as one, which LL128 packets need.
  virtual bool linesArriveWhole(int device, int peer) const = 0;

  // Whether `device` can take part in multicast memory; if not, `why` says so. Not called, nor is the other, where the
  // settings turn multicast off.
  virtual bool multicastSupported(int device, std::string& why) const;
  virtual std::unique_ptr<MulticastMemory> multicast(int device);
  // Whether the memory at `pointer`, of an allocation of this process, is of a kind that can be bound to it.
  virtual bool multicastBinds(void const*) const { return true; }

  // Copies between any of host, device and peer memory; returns when done.
  virtual void copy(void* dst, void const* src, std::size_t bytes) = 0;
  virtual void copyAsync(void* dst, void const* src, std::size_t bytes, void* stream) = 0;
  virtual void fill(void* dst, int value, std::size_t bytes) = 0;

  // A stream that waits for no other, not for the default stream either. destroyStream() logs what fails.
  virtual void* createStream(int device) = 0;
  virtual void destroyStream(void* stream) noexcept = 0;
  // A number that no other stream of this process has or has had, also where handles come again or stand for a stream
  // of each thread.
  virtual std::uint64_t streamId(int device, void* stream) = 0;
  // Returns when all work of the stream is done. A passed limit throws timeout; a failed kernel throws deviceError.
  virtual void synchronize(void* stream, std::chrono::nanoseconds limit) = 0;
  // True when all work of the stream is done.
  virtual bool idle(void* stream) = 0;
  // Returns true when all work of all streams of the device is done, false at once where that cannot be waited for now,
  // because work of this process is being captured into a graph. CUDA invalidates a capture that it is asked beside.
  virtual bool synchronizeDevice(int device) = 0;
  // Whether what is put into the stream now goes into a graph, to be run later and perhaps often.
  virtual bool capturing(void* stream) = 0;
  // That graph's number, which no other graph of this process has; 0: none.
  virtual std::uint64_t captureOf(void* stream) = 0;
  // What is put into `stream` from now on begins when what is in `earlier` now is done. Both are of `device`. Where
  // `earlier` is captured into a graph, `stream` takes part in that from then on.
  virtual void orderAfter(int device, void* stream, void* earlier) = 0;

  // Calls `lost` once for each device that this process can do nothing with any more, as after an illegal address in a
  // kernel: at once where that is known already, else from any thread that a call has failed on. Until what this
  // returns is destroyed, which waits for a call that runs. `lost` calls no machine.
  std::shared_ptr<void> onLoss(std::function<void(int device, std::string const& reason)> lost);
  // The machine has found so.
  void lose(int device, std::string const& reason);

  // For network cards. Empty where the machine, its driver or the memory has no such thing.
  virtual std::optional<Dmabuf> exportDmabuf(void const* pointer, std::size_t bytes);

  // For proxies. A machine that has no copy engines throws unsupported.
  virtual std::unique_ptr<CopyEngine> createCopyEngine(int device);
  // Runs `main`, which throws nothing but HostThreadEnds, on a thread of its own, on behalf of `device`.
  virtual std::unique_ptr<HostThread> startThread(int device, std::string name, std::function<void()> main);
  // Which of several hosts the device belongs to, as far as this machine makes hosts of its own; kernels reach no
  // memory of another.
  virtual int nodeOf(int device) const;

 private:
  virtual void giveBack(void* base) noexcept = 0;
  virtual void giveBackHost(void* base) noexcept = 0;
  bool held(std::vector<void*>& list, void* base) noexcept;

  std::mutex holdMutex_;
  int holds_ = 0;
  std::vector<void*> held_;
  std::vector<void*> heldHost_;
  std::unique_ptr<LossListeners> losses_;  // of devices
};

// The machine of that kind; throws unsupported, with what is missing, where this program has none.
Runtime& runtime(DeviceKind kind);
bool hasRuntime(DeviceKind kind) noexcept;
// Called once by each machine's own library.
void registerRuntime(std::unique_ptr<Runtime> runtime);

}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/memory/heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <mutex>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {
namespace {

// Whether this thread changes a heap, and what it reads and writes is the heap's own. A program may bring functions of
// std::set, say, that are instrumented, and the linker takes them for the heap's, too: then it is asked of itself.
thread_local constinit bool heapChanges = false;

class Change {
 public:
  explicit Change(std::shared_mutex& mutex) : lock_(mutex) { heapChanges = true; }
  ~Change() { heapChanges = false; }
  Change(Change const&) = delete;
  Change& operator=(Change const&) = delete;

 private:
  std::unique_lock<std::shared_mutex> lock_;
};

std::size_t pageSize() {
  static auto const size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::string deviceName(int device) {
  return device == hostMemory ? std::string("the host") : fmt::format("simulated device {}", device);
}

}  // namespace

Heap::~Heap() {
  for (auto const& [address, region] : regions_) unmap(region);
  unmapKept();
}

void Heap::unmapKept() noexcept {
  for (auto const& region : released_) unmap(region);
  released_.clear();
}

void Heap::unmap(Region const& region) noexcept {
  ::munmap(region.base, region.mapped + pageSize());
  if (region.descriptor >= 0) ::close(region.descriptor);
}

// Takes `descriptor` over unless it throws. The caller holds the lock.
void* Heap::map(int device, int descriptor, std::size_t bytes, bool import) {
  std::size_t const mapped = (bytes + pageSize() - 1) / pageSize() * pageSize();
  void* reserved = ::mmap(nullptr, mapped + pageSize(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    throwSystemError(fmt::format("cannot reserve {} bytes of addresses for {}", mapped, deviceName(device)), errno);
  }
  if (::mmap(reserved, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    int const why = errno;
    ::munmap(reserved, mapped + pageSize());
    throwSystemError(fmt::format("cannot map {} bytes of shared memory for {}", bytes, deviceName(device)), why);
  }
  Region region;
  region.base = static_cast<std::byte*>(reserved);
  region.bytes = bytes;
  region.mapped = mapped;
  region.device = device;
  region.descriptor = import ? -1 : descriptor;
  region.id = ++lastId_;
  regions_.emplace(reinterpret_cast<std::uintptr_t>(reserved), std::move(region));
  generation_.fetch_add(1, std::memory_order_release);
  return reserved;
}

void* Heap::allocate(int device, std::size_t bytes, std::size_t limit) {
  if (bytes == 0) throw Error(ErrorCode::invalidUsage, fmt::format("allocation of 0 bytes on {}", deviceName(device)));
  Change const change(mutex_);
  auto& used = used_[device];
  if (bytes > limit || used > limit - bytes) {
    throw Error(ErrorCode::deviceError,
                fmt::format("out of memory on {}: {} bytes asked for, {} in use, the limit is {} "
                            "(MachineOptions::memoryBytes)",
                            deviceName(device), bytes, used, limit));
  }
  int const descriptor = ::memfd_create("mscclpp-sim", MFD_CLOEXEC);
  if (descriptor < 0) throwSystemError(fmt::format("cannot create shared memory for {}", deviceName(device)), errno);
  try {
    if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
      throwSystemError(fmt::format("cannot size shared memory of {} to {} bytes", deviceName(device), bytes), errno);
    }
    void* base = map(device, descriptor, bytes, false);
    used += bytes;
    return base;
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

void Heap::release(void* base, bool keepMapped) noexcept {
  Change const change(mutex_);
  auto const it = regions_.find(reinterpret_cast<std::uintptr_t>(base));
  if (it == regions_.end()) return;
  if (it->second.descriptor >= 0) used_[it->second.device] -= it->second.bytes;
  released_.push_back(std::move(it->second));
  regions_.erase(it);
  generation_.fetch_add(1, std::memory_order_release);
  if (!keepMapped) unmapKept();
}

void Heap::unmapReleased() noexcept {
  Change const change(mutex_);
  unmapKept();
}

void* Heap::import(int device, int descriptor, std::size_t bytes) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    throwSystemError(fmt::format("cannot import descriptor {} into {}", descriptor, deviceName(device)), errno);
  }
  if (bytes == 0 || static_cast<std::uint64_t>(status.st_size) < bytes) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("cannot import {} bytes of descriptor {} into {}: the exported memory has {} bytes", bytes,
                            descriptor, deviceName(device), status.st_size));
  }
  Change const change(mutex_);
  return map(device, descriptor, bytes, true);
}

int Heap::descriptorOf(void const* base) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(reinterpret_cast<std::uintptr_t>(base));
  if (region == nullptr || region->descriptor < 0) {
    throw Error(ErrorCode::invalidUsage, fmt::format("cannot export {}: this process has not allocated it", base));
  }
  return region->descriptor;
}

int Heap::duplicateDescriptor(void const* base) const {
  int const copy = ::fcntl(descriptorOf(base), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throwSystemError(fmt::format("cannot duplicate the descriptor of {}", base), errno);
  return copy;
}

Heap::Region const* Heap::find(std::uintptr_t address) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin()) return nullptr;
  --it;
  return address - it->first < it->second.bytes ? &it->second : nullptr;
}

Allocation Heap::allocationOf(void const* pointer) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(reinterpret_cast<std::uintptr_t>(pointer));
  if (region == nullptr) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{} lies in no allocation of the simulated machine: allocate it with GpuBuffer or "
                            "Runtime::allocate",
                            pointer));
  }
  if (region->descriptor < 0) {
    throw Error(ErrorCode::invalidUsage, fmt::format("{} lies in memory that another process owns and {} has imported",
                                                     pointer, deviceName(region->device)));
  }
  return {region->base, region->bytes, region->device, region->id};
}

void Heap::enablePeer(int device, Allocation const& allocation) {
  Change const change(mutex_);
  auto const it = regions_.find(reinterpret_cast<std::uintptr_t>(allocation.base));
  if (it == regions_.end()) {
    throw Error(ErrorCode::invalidUsage, fmt::format("cannot let {} use {}: it is no allocation of this process",
                                                     deviceName(device), allocation.base));
  }
  it->second.peers.insert(device);
  generation_.fetch_add(1, std::memory_order_release);
}

void Heap::checkRange(void const* pointer, std::size_t bytes, char const* operation) const {
  std::shared_lock const lock(mutex_);
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  auto const* region = find(address);
  if (region == nullptr) return;
  auto const offset = address - reinterpret_cast<std::uintptr_t>(region->base);
  if (bytes > region->bytes - offset) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{} of {} bytes at offset {} runs past the end of an allocation of {} bytes on {}",
                            operation, bytes, offset, region->bytes, deviceName(region->device)));
  }
}

Heap::Window Heap::windowOf(int device, std::uintptr_t address) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(address);
  if (region == nullptr) return {};
  if (region->device != device && region->device != hostMemory && !region->peers.contains(device)) return {};
  auto const begin = reinterpret_cast<std::uintptr_t>(region->base);
  return {begin, begin + region->bytes};
}

std::string Heap::whyNot(int device, std::uintptr_t address, std::size_t bytes) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(address);
  if (region == nullptr) {
    return fmt::format(
        "{} bytes at {:#x} are no memory of the simulated machine (freed, out of bounds, a host variable, "
        "or shared memory of a block, which takes plain accesses, additions in its scope and a cluster's relaxed "
        "words)",
        bytes, address);
  }
  auto const offset = address - reinterpret_cast<std::uintptr_t>(region->base);
  if (bytes > region->bytes - offset) {
    return fmt::format("{} bytes at offset {} run past the end of an allocation of {} bytes on {}", bytes, offset,
                       region->bytes, deviceName(region->device));
  }
  return fmt::format("{} bytes at offset {} of an allocation on {} are not open to {}: call Runtime::enablePeer first",
                     bytes, offset, deviceName(region->device), deviceName(device));
}

bool Heap::touches(std::uintptr_t begin, std::uintptr_t end) const {
  if (heapChanges) return false;
  std::shared_lock const lock(mutex_);
  auto const it = regions_.lower_bound(end);
  return it != regions_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > begin;
}

int Heap::ownerOf(std::uintptr_t address) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(address);
  return region == nullptr ? hostMemory - 1 : region->device;
}

std::size_t Heap::bytesAt(void const* base) const {
  std::shared_lock const lock(mutex_);
  auto const it = regions_.find(reinterpret_cast<std::uintptr_t>(base));
  return it == regions_.end() ? 0 : it->second.bytes;
}

std::string Heap::placeOf(std::uintptr_t address) const {
  std::shared_lock const lock(mutex_);
  auto const* region = find(address);
  if (region == nullptr) return fmt::format("{:#x}", address);
  return fmt::format("offset {} of {} bytes on {}", address - reinterpret_cast<std::uintptr_t>(region->base),
                     region->bytes, deviceName(region->device));
}

std::size_t Heap::regions() const {
  std::shared_lock const lock(mutex_);
  return regions_.size();
}

}  // namespace mscclpp::sim

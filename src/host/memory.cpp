// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/memory.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "descriptor_server.hpp"
#include "format.hpp"
#include "host_identity.hpp"
#include "keyed_hash.hpp"
#include "mscclpp/host/env.hpp"
#include "socket.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t recordMagic = 0x6d7363636c706d65ull;
constexpr std::uint32_t recordVersion = 1;

// What serialize() writes. Only processes of one host can use it, so host byte order is right.
struct MemoryRecord {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t kind;
  std::int32_t rank;
  std::int32_t device;
  std::uint64_t hostIdentity;
  Key128 process;
  Key128 registration;  // finds the original within its own process
  Key128 descriptor;
  std::uint64_t offset;  // into the allocation
  std::uint64_t bytes;
  std::uint64_t allocationBytes;
  std::uint32_t hasIpc;
  std::uint32_t hasDescriptor;
  IpcHandle ipc;
  std::uint64_t check;
};
static_assert(sizeof(MemoryRecord) == 184);

std::uint64_t checkOf(MemoryRecord const& record) {
  return keyedHash(Key128{}, bytesOf(record).first(offsetof(MemoryRecord, check)));
}

// A peer's allocation, as mapped here.
struct Import {
  Runtime& machine;
  void* base;

  Import(Runtime& from, void* address) : machine(from), base(address) {}
  Import(Import const&) = delete;
  Import& operator=(Import const&) = delete;
  ~Import() { machine.releaseImport(base); }
};

// A runtime may refuse to open one handle twice, so all memory of one allocation shares its mapping.
std::shared_ptr<Import> importIpcOnce(Runtime& machine, int device, IpcHandle const& handle) {
  static std::mutex mutex;
  static std::map<std::pair<int, IpcHandle>, std::weak_ptr<Import>> imports;
  std::lock_guard const lock(mutex);
  std::erase_if(imports, [](auto const& entry) { return entry.second.expired(); });
  auto& known = imports[{device, handle}];
  auto import = known.lock();
  if (!import) {
    import = std::make_shared<Import>(machine, machine.importIpc(device, handle));
    known = import;
  }
  return import;
}

}  // namespace

struct RegisteredMemory::Impl {
  int rank = -1;
  Device device;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemoryReach reach = MemoryReach::own;

  // Of the own memory.
  Allocation allocation;
  Key128 registration{};
  mutable std::mutex exporting;
  mutable bool exported = false;
  mutable std::optional<IpcHandle> ipc;
  mutable std::optional<Key128> descriptor;

  // Of memory from elsewhere.
  std::shared_ptr<void> source;

  ~Impl() {
    if (descriptor) DescriptorServer::instance().withdraw(*descriptor);
  }

  void exportOnce() const {
    std::lock_guard const lock(exporting);
    if (exported) return;
    Runtime& machine = device.runtime();
    ipc = machine.exportIpc(allocation);
    if (auto const file = machine.exportDescriptor(allocation)) {
      descriptor = DescriptorServer::instance().publish(FileHandle(*file));
    }
    if (!ipc && !descriptor) {
      fail(ErrorCode::unsupported,
           "rank {}: the memory at {} can be shared with no other process; allocate it with GpuBuffer or cudaMalloc",
           rank, fmt::ptr(data));
    }
    exported = true;
  }

  // Registrations of this process, so that its other ranks can find them.
  struct Table {
    std::mutex mutex;
    std::map<Key128, std::weak_ptr<Impl>> entries;
  };
  static Table& table() {
    static auto* const instance = new Table;  // outlives static objects that hold memory
    return *instance;
  }
};

std::string_view nameOf(MemoryReach reach) noexcept {
  switch (reach) {
    case MemoryReach::own:
      return "own memory";
    case MemoryReach::sameProcess:
      return "pointer of the same process";
    case MemoryReach::ipc:
      return "IPC handle";
    case MemoryReach::descriptor:
      return "file descriptor";
  }
  return "unknown";
}

RegisteredMemory RegisteredMemory::own(int rank, Device device, void* pointer, std::size_t bytes) {
  Runtime& machine = device.runtime();
  if (pointer == nullptr || bytes == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: registerMemory({}, {} bytes): there is nothing to register", rank,
         fmt::ptr(pointer), bytes);
  }
  Allocation const allocation = machine.allocationOf(pointer);
  auto* const data = static_cast<std::byte*>(pointer);
  auto const offset = static_cast<std::size_t>(data - static_cast<std::byte*>(allocation.base));
  if (bytes > allocation.bytes - offset) {
    fail(ErrorCode::invalidUsage,
         "rank {}: registerMemory({}, {} bytes): its allocation ends {} bytes after that address; register at most "
         "those",
         rank, fmt::ptr(pointer), bytes, allocation.bytes - offset);
  }
  if (allocation.device != device.ordinal) {
    fail(ErrorCode::invalidUsage,
         "rank {}: registerMemory({}, {} bytes): the memory is on {} device {}, but this rank's device is {}", rank,
         fmt::ptr(pointer), bytes, nameOf(device.kind), allocation.device, device.ordinal);
  }
  auto impl = std::make_shared<Impl>();
  impl->rank = rank;
  impl->device = device;
  impl->data = data;
  impl->bytes = bytes;
  impl->allocation = allocation;
  impl->registration = randomKey();
  auto& table = Impl::table();
  std::lock_guard const lock(table.mutex);
  std::erase_if(table.entries, [](auto const& entry) { return entry.second.expired(); });
  table.entries[impl->registration] = impl;
  return RegisteredMemory(std::move(impl));
}

RegisteredMemory::Impl const& RegisteredMemory::get() const {
  if (!impl_)
    fail(ErrorCode::invalidUsage, "RegisteredMemory: used while empty; assign a registered or received one first");
  return *impl_;
}

std::byte* RegisteredMemory::data() const { return get().data; }
std::size_t RegisteredMemory::size() const { return get().bytes; }
int RegisteredMemory::rank() const { return get().rank; }
Device RegisteredMemory::device() const { return get().device; }
MemoryReach RegisteredMemory::reach() const { return get().reach; }

std::vector<std::byte> RegisteredMemory::serialize(bool forOtherProcesses) const {
  Impl const& impl = get();
  if (impl.reach != MemoryReach::own) {
    fail(ErrorCode::invalidUsage,
         "RegisteredMemory: memory of rank {} that was received from it cannot be passed on; let rank {} send it",
         impl.rank, impl.rank);
  }
  if (forOtherProcesses) impl.exportOnce();
  MemoryRecord record{};
  record.magic = recordMagic;
  record.version = recordVersion;
  record.kind = static_cast<std::uint32_t>(impl.device.kind);
  record.rank = impl.rank;
  record.device = impl.device.ordinal;
  record.hostIdentity = hostIdentity();
  record.process = processIdentity();
  record.registration = impl.registration;
  record.offset = static_cast<std::uint64_t>(impl.data - static_cast<std::byte*>(impl.allocation.base));
  record.bytes = impl.bytes;
  record.allocationBytes = impl.allocation.bytes;
  {
    std::lock_guard const lock(impl.exporting);
    record.hasIpc = impl.ipc ? 1 : 0;
    record.hasDescriptor = impl.descriptor ? 1 : 0;
    if (impl.ipc) record.ipc = *impl.ipc;
    if (impl.descriptor) record.descriptor = *impl.descriptor;
  }
  record.check = checkOf(record);
  auto const bytes = bytesOf(record);
  return {bytes.begin(), bytes.end()};
}

RegisteredMemory RegisteredMemory::deserialize(std::span<std::byte const> bytes, Device device) {
  if (bytes.size() != sizeof(MemoryRecord)) {
    fail(ErrorCode::invalidUsage, "RegisteredMemory: got {} bytes, but serialize() writes {}", bytes.size(),
         sizeof(MemoryRecord));
  }
  MemoryRecord record{};
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.magic != recordMagic || record.version != recordVersion || record.check != checkOf(record)) {
    fail(ErrorCode::invalidUsage,
         "RegisteredMemory: the bytes are not what serialize() of this library version wrote, or were altered");
  }
  Runtime& machine = device.runtime();
  auto const kind = static_cast<DeviceKind>(record.kind);
  if (kind != device.kind) {
    fail(ErrorCode::invalidUsage, "memory of rank {} is on a {} device, this rank's device is a {} one", record.rank,
         nameOf(kind), nameOf(device.kind));
  }
  if (record.hostIdentity != hostIdentity()) {
    fail(ErrorCode::unsupported,
         "memory of rank {} is on another host or in another network namespace; only memory of this host can be mapped",
         record.rank);
  }
  auto impl = std::make_shared<Impl>();
  impl->rank = record.rank;
  impl->device = device;
  impl->bytes = record.bytes;
  if (record.process == processIdentity()) {
    std::shared_ptr<Impl> original;
    {
      auto& table = Impl::table();
      std::lock_guard const lock(table.mutex);
      if (auto const found = table.entries.find(record.registration); found != table.entries.end()) {
        original = found->second.lock();
      }
    }
    if (!original) {
      fail(ErrorCode::remoteError,
           "memory of rank {} is no longer registered; keep its RegisteredMemory as long as others use it",
           record.rank);
    }
    if (original->device != device) machine.enablePeer(device.ordinal, original->allocation);
    impl->data = original->data;
    impl->reach = MemoryReach::sameProcess;
    impl->source = original;
    return RegisteredMemory(std::move(impl));
  }
  std::shared_ptr<Import> import;
  if (record.hasDescriptor != 0) {
    FileHandle const file =
        fetchDescriptor(record.process, record.descriptor,
                        fmt::format("memory of rank {} ({} bytes)", record.rank, record.bytes), environment().timeout);
    import =
        std::make_shared<Import>(machine, machine.importDescriptor(device.ordinal, file.get(), record.allocationBytes));
    impl->reach = MemoryReach::descriptor;
  } else if (record.hasIpc != 0) {
    import = importIpcOnce(machine, device.ordinal, record.ipc);
    impl->reach = MemoryReach::ipc;
  } else {
    fail(ErrorCode::invalidUsage, "memory of rank {} was serialised for its own process only, by serialize(false)",
         record.rank);
  }
  impl->data = static_cast<std::byte*>(import->base) + record.offset;
  impl->source = std::move(import);
  return RegisteredMemory(std::move(impl));
}

}  // namespace mscclpp

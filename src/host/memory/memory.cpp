// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/memory.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/fabric_memory.hpp"
#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "host/memory/descriptor_server.hpp"
#include "host/memory/import.hpp"
#include "host/memory/process_table.hpp"
#include "host/memory/split_memory.hpp"
#include "host/net/host_identity.hpp"
#include "host/net/socket.hpp"
#include "host/transport/transport.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t recordMagic = 0x6d7363636c706d65ull;
constexpr std::uint32_t recordVersion = 4;

// What serialize() writes, followed by a PieceRecord for each descriptor, and by a KeyRecord and its bytes for each
// transport. In the byte order of the host; the magic number of another order is refused.
struct MemoryRecord {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t kind;
  std::int32_t rank;
  std::int32_t device;
  std::uint64_t hostIdentity;
  Key128 process;
  Key128 registration;   // finds the original within its own process
  std::uint64_t offset;  // into the allocation, or the first of those that lie side by side
  std::uint64_t bytes;
  std::uint64_t allocationBytes;  // of all
  std::uint32_t hasIpc;
  std::uint32_t pieces;
  IpcHandle ipc;
  std::int32_t node;  // Runtime::nodeOf
  std::uint32_t keys;
  FabricClique clique;  // of the device
  std::uint32_t hasFabric;
  FabricHandle fabric;
  std::uint64_t check;  // of everything but itself
};
static_assert(sizeof(MemoryRecord) == 264);

struct PieceRecord {
  Key128 descriptor;
  std::uint64_t bytes;
};

struct KeyRecord {
  std::uint32_t transport;
  std::uint32_t bytes;
};

std::uint64_t checkOf(std::span<std::byte const> all) {
  constexpr auto at = static_cast<std::ptrdiff_t>(offsetof(MemoryRecord, check));
  std::vector<std::byte> text(all.begin(), all.begin() + at);
  text.insert(text.end(), all.begin() + at + sizeof(MemoryRecord::check), all.end());
  return keyedHash(Key128{}, text);
}

// The allocations that hold the range, side by side; but one, where the range ends behind what can be found.
std::vector<Allocation> allocationsOf(Runtime& machine, std::byte* data, std::size_t bytes) {
  std::vector<Allocation> found{machine.allocationOf(data)};
  auto const* const split = dynamic_cast<SplitMemory const*>(&machine);
  auto const end = [&] { return static_cast<std::byte*>(found.back().base) + found.back().bytes; };
  while (split != nullptr && bytes > static_cast<std::size_t>(end() - data) && split->mayGoOn(found.back())) {
    try {
      auto const next = machine.allocationOf(end());
      if (next.base != end() || next.device != found.front().device || !split->mayGoOn(next)) break;
      found.push_back(next);
    } catch (Error const&) {  // no device memory
      break;
    }
  }
  if (bytes > static_cast<std::size_t>(end() - data)) found.resize(1);
  return found;
}

}  // namespace

struct RegisteredMemory::Impl {
  int rank = -1;
  Device device;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemoryReach reach = MemoryReach::own;

  // Of the own memory.
  std::vector<Allocation> allocations;  // mostly one
  Key128 registration{};
  mutable std::mutex exporting;
  mutable bool exported = false;
  mutable std::optional<IpcHandle> ipc;
  mutable std::optional<FabricHandle> fabric;
  mutable std::vector<Key128> descriptors;  // by allocation

  // By transport; of the own memory the registrations that made the keys too.
  std::map<Transport, std::vector<std::byte>> keys;
  std::map<Transport, std::shared_ptr<Registration>> registrations;

  // Of memory from elsewhere.
  std::shared_ptr<void> source;
  std::string whyFar{};  // for errors: that it is not mapped although NVLink goes there, and why

  ~Impl() { withdraw(); }
  void withdraw() const noexcept {
    for (auto const& key : descriptors) DescriptorServer::instance().withdraw(key);
    descriptors.clear();
  }

  void exportOnce() const {
    std::lock_guard const lock(exporting);
    if (exported) return;
    withdraw();  // what a call that failed has left
    Runtime& machine = device.runtime();
    if (allocations.size() == 1) {
      ipc = machine.exportIpc(allocations.front());
      if (fabricCliqueOf(device)) fabric = fabricMemoryOf(device)->exportFabric(allocations.front());
    }
    for (auto const& allocation : allocations) {
      auto const file = machine.exportDescriptor(allocation);
      if (!file) {
        withdraw();
        break;
      }
      descriptors.push_back(DescriptorServer::instance().publish(FileHandle(*file)));
    }
    if (!ipc && !fabric && descriptors.empty()) {
      fail(ErrorCode::unsupported,
           "rank {}: the memory at {} can be shared with no other process; allocate it with GpuBuffer or cudaMalloc",
           rank, fmt::ptr(data));
    }
    exported = true;
  }

  using Table = ProcessTable<Impl>;
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
    case MemoryReach::fabric:
      return "fabric handle";
    case MemoryReach::otherHost:
      return "another host's memory";
  }
  return "unknown";
}

RegisteredMemory RegisteredMemory::own(int rank, Device device, void* pointer, std::size_t bytes) {
  return own(rank, device, pointer, bytes, {});
}

RegisteredMemory RegisteredMemory::own(int rank, Device device, void* pointer, std::size_t bytes,
                                       std::span<std::shared_ptr<TransportContext> const> transports) {
  Runtime& machine = device.runtime();
  if (pointer == nullptr || bytes == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: registerMemory({}, {} bytes): there is nothing to register", rank,
         fmt::ptr(pointer), bytes);
  }
  auto* const data = static_cast<std::byte*>(pointer);
  auto allocations = allocationsOf(machine, data, bytes);
  auto const& allocation = allocations.front();
  auto const offset = static_cast<std::size_t>(data - static_cast<std::byte*>(allocation.base));
  if (allocations.size() == 1 && bytes > allocation.bytes - offset) {
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
  impl->allocations = std::move(allocations);
  impl->registration = randomKey();
  for (auto const& context : transports) {
    auto registration = context->registerMemory(rank, device, pointer, bytes);
    auto key = registration->key();
    if (key.size() > maxTransportBytes) {
      fail(ErrorCode::internalError, "rank {}: the {} transport's key of a memory has {} bytes, the limit is {}", rank,
           nameOf(context->transport()), key.size(), maxTransportBytes);
    }
    impl->keys[context->transport()] = std::move(key);
    impl->registrations[context->transport()] = std::move(registration);
  }
  Impl::Table::instance().add(impl->registration, impl);
  return RegisteredMemory(std::move(impl));
}

RegisteredMemory::Impl const& RegisteredMemory::get() const {
  if (!impl_)
    fail(ErrorCode::invalidUsage, "RegisteredMemory: used while empty; assign a registered or received one first");
  return *impl_;
}

std::byte* RegisteredMemory::data() const {
  Impl const& impl = get();
  if (impl.reach == MemoryReach::otherHost) {
    fail(ErrorCode::unsupported,
         "memory of rank {} is on another host and has no address here; use a port channel, whose proxy reaches it{}",
         impl.rank, impl.whyFar);
  }
  return impl.data;
}
std::byte* RegisteredMemory::mapped() const {
  auto* const address = get().data;
  return address != nullptr ? address : data();  // which throws
}
std::size_t RegisteredMemory::size() const { return get().bytes; }
int RegisteredMemory::rank() const { return get().rank; }
Device RegisteredMemory::device() const { return get().device; }
MemoryReach RegisteredMemory::reach() const { return get().reach; }

TransportSet RegisteredMemory::transports() const {
  Impl const& impl = get();
  TransportSet set = impl.data != nullptr ? TransportSet(Transport::memory) : TransportSet();
  for (auto const& [transport, key] : impl.keys) set = set | transport;
  return set;
}

std::span<std::byte const> RegisteredMemory::key(Transport transport) const {
  Impl const& impl = get();
  auto const found = impl.keys.find(transport);
  if (found == impl.keys.end()) {
    fail(ErrorCode::invalidUsage,
         "memory of rank {} ({} bytes) is not registered for {}; name that transport where it is registered", impl.rank,
         impl.bytes, nameOf(transport));
  }
  return found->second;
}

Registration& RegisteredMemory::registration(Transport transport) const {
  Impl const& impl = get();
  auto const found = impl.registrations.find(transport);
  if (found == impl.registrations.end()) {
    fail(ErrorCode::invalidUsage,
         "memory of rank {} ({} bytes) is not this rank's own memory registered for {}; name that transport in "
         "registerMemory",
         impl.rank, impl.bytes, nameOf(transport));
  }
  return *found->second;
}

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
  record.offset = static_cast<std::uint64_t>(impl.data - static_cast<std::byte*>(impl.allocations.front().base));
  record.bytes = impl.bytes;
  for (auto const& allocation : impl.allocations) record.allocationBytes += allocation.bytes;
  std::vector<PieceRecord> pieces;
  {
    std::lock_guard const lock(impl.exporting);
    record.hasIpc = impl.ipc ? 1 : 0;
    if (impl.ipc) record.ipc = *impl.ipc;
    record.hasFabric = impl.fabric ? 1 : 0;
    if (impl.fabric) record.fabric = *impl.fabric;
    for (std::size_t i = 0; i < impl.descriptors.size(); ++i) {
      pieces.push_back({impl.descriptors[i], impl.allocations[i].bytes});
    }
  }
  record.pieces = static_cast<std::uint32_t>(pieces.size());
  record.node = impl.device.runtime().nodeOf(impl.device.ordinal);
  record.clique = fabricCliqueOf(impl.device);
  record.keys = static_cast<std::uint32_t>(impl.keys.size());
  auto const head = bytesOf(record);
  std::vector<std::byte> all(head.begin(), head.end());
  auto const pieceBytes = std::as_bytes(std::span<PieceRecord const>(pieces));
  all.insert(all.end(), pieceBytes.begin(), pieceBytes.end());
  for (auto const& [transport, key] : impl.keys) {
    KeyRecord const part{static_cast<std::uint32_t>(transport), static_cast<std::uint32_t>(key.size())};
    auto const partBytes = bytesOf(part);
    all.insert(all.end(), partBytes.begin(), partBytes.end());
    all.insert(all.end(), key.begin(), key.end());
  }
  auto const check = checkOf(all);
  std::memcpy(all.data() + offsetof(MemoryRecord, check), &check, sizeof check);
  return all;
}

namespace {

// Bytes of a peer: nothing in them is relied on before it has been looked at.
MemoryRecord parse(std::span<std::byte const> bytes, std::vector<PieceRecord>& pieces,
                   std::map<Transport, std::vector<std::byte>>& keys) {
  auto const refuse = [&](std::string_view why) {
    fail(ErrorCode::invalidUsage,
         "RegisteredMemory: the {} bytes are not what serialize() of this library version wrote, or were altered: {}",
         bytes.size(), why);
  };
  MemoryRecord record{};
  if (bytes.size() < sizeof record) refuse("they are too few");
  std::memcpy(&record, bytes.data(), sizeof record);
  if (record.magic != recordMagic || record.version != recordVersion) refuse("they begin otherwise");
  if (record.check != checkOf(bytes)) refuse("their check sum is wrong");
  if (record.offset > record.allocationBytes || record.bytes > record.allocationBytes - record.offset) {
    refuse("the range does not lie in its allocation");
  }
  auto rest = bytes.subspan(sizeof record);
  auto left = record.allocationBytes;
  for (std::uint32_t i = 0; i < record.pieces; ++i) {
    PieceRecord piece{};
    if (rest.size() < sizeof piece) refuse("a piece is missing");
    std::memcpy(&piece, rest.data(), sizeof piece);
    rest = rest.subspan(sizeof piece);
    if (piece.bytes > left) refuse("its pieces are more than the allocation");
    left -= piece.bytes;
    pieces.push_back(piece);
  }
  if (!pieces.empty() && left != 0) refuse("its pieces are less than the allocation");
  for (std::uint32_t i = 0; i < record.keys; ++i) {
    KeyRecord part{};
    if (rest.size() < sizeof part) refuse("a key is missing");
    std::memcpy(&part, rest.data(), sizeof part);
    rest = rest.subspan(sizeof part);
    if (part.bytes > rest.size() || part.bytes > maxTransportBytes) refuse("a key is longer than what is there");
    if (part.transport >= allTransports.size()) refuse("there is no such transport");
    keys[static_cast<Transport>(part.transport)].assign(rest.begin(), rest.begin() + part.bytes);
    rest = rest.subspan(part.bytes);
  }
  if (!rest.empty()) refuse("they are too many");
  return record;
}

// Memory of another host, which NVLink joins to this one. Empty, or why it is not mapped.
std::string mapFabric(MemoryRecord const& record, Device device, std::shared_ptr<void>& mapped) {
  if (record.hasFabric == 0) {
    return "it was not allocated for other hosts; make it MemoryKind::shareable, which is one allocation for all of it";
  }
  try {
    Runtime& machine = device.runtime();
    mapped = Import(fabricMemoryOf(device)->importFabric(device.ordinal, record.fabric, record.allocationBytes),
                    [&machine](void* base) { machine.releaseImport(base); });
    return {};
  } catch (Error const& error) {
    log(LogLevel::warn, "memory of rank {} ({} bytes) on another host: {}", record.rank, record.bytes, error.what());
    return error.what();
  }
}

}  // namespace

RegisteredMemory RegisteredMemory::deserialize(std::span<std::byte const> bytes, Device device) {
  auto impl = std::make_shared<Impl>();
  std::vector<PieceRecord> pieces;
  auto const record = parse(bytes, pieces, impl->keys);
  Runtime& machine = device.runtime();
  auto const kind = static_cast<DeviceKind>(record.kind);
  if (kind != device.kind) {
    fail(ErrorCode::invalidUsage, "memory of rank {} is on a {} device, this rank's device is a {} one", record.rank,
         nameOf(kind), nameOf(device.kind));
  }
  impl->rank = record.rank;
  impl->device = device;
  impl->bytes = record.bytes;
  auto const clique = fabricCliqueOf(device);
  bool const joined = clique && record.clique == clique;
  if (record.hostIdentity != hostIdentity()) {
    impl->reach = MemoryReach::otherHost;
    if (joined) {
      auto const why = mapFabric(record, device, impl->source);
      if (!why.empty()) impl->whyFar = "; NVLink goes there, but " + why;
    }
    if (impl->source != nullptr) {
      impl->reach = MemoryReach::fabric;
      impl->data = static_cast<std::byte*>(impl->source.get()) + record.offset;
    } else if (impl->keys.empty()) {
      fail(ErrorCode::unsupported,
           "memory of rank {} is on another host or in another network namespace, and is registered with no transport "
           "to there; name one in registerMemory{}",
           record.rank, impl->whyFar);
    }
    return RegisteredMemory(std::move(impl));
  }
  bool const otherNode = record.node != machine.nodeOf(device.ordinal) && !joined;
  if (record.process == processIdentity()) {
    auto const original = Impl::Table::instance().find(record.registration);
    if (!original) {
      fail(ErrorCode::remoteError,
           "memory of rank {} is no longer registered; keep its RegisteredMemory as long as others use it",
           record.rank);
    }
    // Kernels here get no access to another node's memory; copies of the machine do.
    if (original->device != device && !otherNode) {
      for (auto const& allocation : original->allocations) machine.enablePeer(device.ordinal, allocation);
    }
    impl->data = original->data;
    impl->reach = otherNode ? MemoryReach::otherHost : MemoryReach::sameProcess;
    impl->source = original;
    return RegisteredMemory(std::move(impl));
  }
  Import import;
  if (!pieces.empty()) {
    std::vector<FileHandle> files;
    std::vector<SharedPiece> parts;
    for (auto const& piece : pieces) {
      files.push_back(fetchDescriptor(record.process, piece.descriptor,
                                      fmt::format("memory of rank {} ({} bytes)", record.rank, record.bytes),
                                      environment().timeout));
      parts.push_back({files.back().get(), piece.bytes});
    }
    import = importDescriptors(machine, device.ordinal, parts);
    impl->reach = MemoryReach::descriptor;
  } else if (record.hasIpc != 0) {
    import = IpcImports::instance().open(machine, device.ordinal, record.ipc);
    impl->reach = MemoryReach::ipc;
  } else {
    fail(ErrorCode::invalidUsage, "memory of rank {} was serialised for its own process only, by serialize(false)",
         record.rank);
  }
  if (otherNode) impl->reach = MemoryReach::otherHost;
  impl->data = static_cast<std::byte*>(import.get()) + record.offset;
  impl->source = std::move(import);
  return RegisteredMemory(std::move(impl));
}

}  // namespace mscclpp

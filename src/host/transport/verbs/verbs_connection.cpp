// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/verbs/verbs_connection.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t verbsAddressMagic = 0x6d7363636c706962ull;
constexpr std::uint32_t verbsAddressVersion = 1;
constexpr std::uint64_t signalBytes = sizeof(std::uint64_t);
// Writes from here on are cut up among the rails, into pieces of this size.
constexpr std::uint64_t stripeBytes = std::uint64_t{256} << 10;
constexpr std::chrono::nanoseconds farewell = std::chrono::milliseconds(100);

constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

VerbsKey parseVerbsKey(int rank, int peer, std::span<std::byte const> bytes) {
  VerbsKey key{};
  if (bytes.size() == sizeof key) std::memcpy(&key, bytes.data(), sizeof key);
  if (key.rails < 1 || key.rails > mostRails || key.bytes > ~key.address) {
    fail(
        ErrorCode::remoteError,
        "rank {}: the InfiniBand key of memory of rank {} ({} bytes) is of no use; all ranks must run the same version "
        "of this library",
        rank, peer, bytes.size());
  }
  return key;
}

VerbsAddress parseVerbsAddress(int rank, int peer, std::span<std::byte const> bytes) {
  auto const refuse = [&](std::string const& why) {
    fail(ErrorCode::remoteError,
         "rank {}: connect over InfiniBand to rank {}: the address it sent is of no use: {}; all ranks must run the "
         "same version of this library",
         rank, peer, why);
  };
  VerbsAddress address{};
  if (bytes.size() != sizeof address) refuse(fmt::format("{} bytes, {} expected", bytes.size(), sizeof address));
  std::memcpy(&address, bytes.data(), sizeof address);
  if (address.magic != verbsAddressMagic) refuse("it is not that of an InfiniBand endpoint");
  if (address.version != verbsAddressVersion)
    refuse(fmt::format("version {}, {} expected", address.version, verbsAddressVersion));
  if (address.rails < 1 || address.rails > mostRails) {
    refuse(fmt::format("{} devices, 1 to {} are possible", address.rails, mostRails));
  }
  for (std::uint32_t rail = 0; rail < address.rails; ++rail) {
    auto const& queue = address.queues[rail];
    if (queue.mtu < IBV_MTU_256 || queue.mtu > IBV_MTU_4096 || queue.queuePair > 0xffffff ||
        queue.firstPacket > 0xffffff || queue.ethernet > 1) {
      refuse(fmt::format("queue pair {} of its device {} has impossible values", queue.queuePair, rail));
    }
  }
  return address;
}

std::vector<std::byte> serialize(VerbsAddress const& address) {
  VerbsAddress wire = address;
  wire.magic = verbsAddressMagic;
  wire.version = verbsAddressVersion;
  auto const bytes = bytesOf(wire);
  return {bytes.begin(), bytes.end()};
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------

VerbsRegion::VerbsRegion(std::shared_ptr<VerbsDevice> device, void* data, std::size_t bytes, int descriptor,
                         std::uint64_t offset)
    : device_(std::move(device)) {
  auto const& verbs = Verbs::get();
  int const rights = access | (device_->atomics() ? IBV_ACCESS_REMOTE_ATOMIC : 0);
  if (descriptor >= 0) {
    region_ =
        verbs.regDmabufMr(device_->domain(), offset, bytes, reinterpret_cast<std::uint64_t>(data), descriptor, rights);
  } else {
    region_ = verbs.regMr(device_->domain(), data, bytes, rights);
  }
  if (region_ == nullptr) {
    throwSystemError(fmt::format("InfiniBand: register {} bytes at {} with {}{}", bytes, data, device_->describe(),
                                 descriptor >= 0 ? " by dmabuf" : ""),
                     errno);
  }
}

VerbsRegion::~VerbsRegion() { Verbs::get().deregMr(region_); }

void VerbsMemories::add(std::uint32_t key, OpenMemory const& memory) {
  std::lock_guard const lock(mutex_);
  memories_[key] = memory;
}

void VerbsMemories::remove(std::uint32_t key) noexcept {
  std::lock_guard const lock(mutex_);
  memories_.erase(key);
}

std::optional<OpenMemory> VerbsMemories::find(std::uint32_t key) const {
  std::lock_guard const lock(mutex_);
  auto const found = memories_.find(key);
  if (found == memories_.end()) return {};
  return found->second;
}

VerbsRegistration::VerbsRegistration(int rank, std::vector<std::shared_ptr<VerbsDevice>> const& devices,
                                     std::shared_ptr<VerbsMemories> memories, OpenMemory const& memory)
    : memories_(std::move(memories)), memory_(memory) {
  bool const dmabuf = memory.staged && Verbs::get().regDmabufMr != nullptr;
  auto const shared = dmabuf ? memory.device.runtime().exportDmabuf(memory.data, memory.bytes) : std::nullopt;
  FileHandle const descriptor(shared ? shared->descriptor : -1);
  for (auto const& device : devices) {
    try {
      regions_.push_back(std::make_unique<VerbsRegion>(device, memory.data, memory.bytes, descriptor.get(),
                                                       shared ? shared->offset : 0));
    } catch (Error const& error) {
      std::string_view advice = "raise the limit on locked memory (ulimit -l)";
      if (memory.staged && !shared) {
        advice = "GPU memory needs a driver with dmabuf (Linux 5.12, open kernel modules) or the module nvidia-peermem";
      } else if (memory.staged) {
        advice = "the device or its driver does not take this GPU memory by dmabuf";
      }
      fail(error.code(), "rank {}: registerMemory: {}; {}", rank, error.what(), advice);
    }
  }
  for (auto const& region : regions_) localKeys_.push_back(region->localKey());
  memories_->add(regions_.front()->remoteKey(), memory_);
}

VerbsRegistration::~VerbsRegistration() { memories_->remove(regions_.front()->remoteKey()); }

std::vector<std::byte> VerbsRegistration::key() const {
  VerbsKey key{};
  key.address = reinterpret_cast<std::uint64_t>(memory_.data);
  key.bytes = memory_.bytes;
  key.rails = static_cast<std::uint32_t>(regions_.size());
  for (std::size_t rail = 0; rail < regions_.size(); ++rail) key.keys[rail] = regions_[rail]->remoteKey();
  auto const bytes = bytesOf(key);
  return {bytes.begin(), bytes.end()};
}

// ---- connection
// ------------------------------------------------------------------------------------------------------

VerbsConnection::VerbsConnection(int rank, int peer, VerbsParts parts, VerbsAddress const& address, bool ownAtomics,
                                 std::chrono::nanoseconds limit)
    : rank_(rank),
      peer_(peer),
      parts_(std::move(parts)),
      address_(address),
      atomics_(address.atomics != 0),
      receiving_(!ownAtomics),
      silence_(limit) {
  if (!atomics_ && !parts_.queues.front()->inlines()) {
    fail(ErrorCode::unsupported,
         "rank {}: connect over InfiniBand to rank {}: its device has no atomics, and {} of this rank cannot send {} "
         "bytes inline, which the other way of signalling needs; use MSCCLPP_TRANSPORT=tcp",
         rank, peer, parts_.queues.front()->device().describe(), VerbsQueue::inlineBytes);
  }
}

VerbsConnection::~VerbsConnection() {
  if (failure_ || closed_ || outstanding()) return;  // the peer then learns of it from its own requests
  try {
    auto& queue = *parts_.queues.front();
    if (!queue.inlines() || queue.room() == 0) return;
    static constexpr std::uint64_t yes = 1;
    queue.add({.opcode = IBV_WR_RDMA_WRITE,
               .remote = address_.mailbox + offsetof(VerbsMailbox, goodbye),
               .remoteKey = address_.mailboxKey,
               .local = reinterpret_cast<std::uint64_t>(&yes),
               .localKey = 0,
               .bytes = signalBytes,
               .inlined = true});
    queue.flush();
    Deadline const deadline(farewell);
    while (queue.done() < queue.queued() && !deadline.expired()) queue.poll();
  } catch (Error const& error) {
    log(LogLevel::debug, "rank {}: no goodbye to rank {}: {}", rank_, peer_, error.what());
  }
}

template <class Step>
void VerbsConnection::guarded(char const* operation, Step&& step) {
  if (failure_) throw *failure_;
  try {
    step();
  } catch (Error const& error) {
    failure_.emplace(error.code(), fmt::format("rank {}: {}: the InfiniBand connection to rank {} has failed ({}): {}",
                                               rank_, operation, peer_, describeOldest(), error.what()));
    throw *failure_;
  }
}

std::string VerbsConnection::describeOldest() const {
  if (posts_.empty()) return "no post was outstanding";
  auto const& post = posts_.front();
  if (post.isSignal) return fmt::format("post {}, signal {} to offset {}", completed_, post.value, post.dstOffset);
  return fmt::format("post {}, write of {} bytes to offset {}", completed_, post.bytes, post.dstOffset);
}

void VerbsConnection::post(Post const& post) {
  if (failure_) throw *failure_;
  if (closed_) {
    guarded("post", [&] {
      fail(ErrorCode::remoteError, "rank {} has closed the connection; both ranks must keep it as long as either posts",
           peer_);
    });
  }
  if (!outstanding()) silence_.restart();
  posts_.push_back(post);
  ++posted_;
}

void VerbsConnection::write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src,
                            std::uint64_t srcOffset, std::uint64_t bytes) {
  checkWrite(*this, dst, dstOffset, src, srcOffset, bytes);
  Post post{};
  post.remote = parseVerbsKey(rank_, peer_, dst.key(Transport::ib));
  post.dstOffset = dstOffset;
  post.localKeys = src.registration(Transport::ib).localKeys();
  if (post.localKeys.size() < parts_.queues.size()) {
    fail(ErrorCode::internalError,
         "rank {}: write to rank {}: the source is registered with {} devices, and the connection uses {}", rank_,
         peer_, post.localKeys.size(), parts_.queues.size());
  }
  post.source = reinterpret_cast<std::uint64_t>(src.data()) + srcOffset;
  post.bytes = bytes;
  this->post(post);
}

void VerbsConnection::signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) {
  checkSignal(*this, dst, dstOffset);
  Post post{};
  post.isSignal = true;
  post.remote = parseVerbsKey(rank_, peer_, dst.key(Transport::ib));
  post.dstOffset = dstOffset;
  post.value = count;
  post.add = 1;
  if ((post.remote.address + dstOffset) % signalBytes != 0) {
    fail(ErrorCode::invalidUsage, "rank {}: signal to rank {}: the word at offset {} is not aligned to {} bytes there",
         rank_, peer_, dstOffset, signalBytes);
  }
  this->post(post);
}

// The count has lost its meaning, so it need not be kept.
void VerbsConnection::abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept {
  try {
    signal(dst, dstOffset, abandonedSignal);
    posts_.back().add = abandonedSignal;
    progress();
  } catch (std::exception const& error) {
    log(LogLevel::debug, "rank {}: cannot tell rank {} of the failure: {}", rank_, peer_, error.what());
  }
}

bool VerbsConnection::done(Post const& post) const {
  for (std::size_t rail = 0; rail < parts_.queues.size(); ++rail) {
    if (parts_.queues[rail]->done() < post.requests[rail]) return false;
  }
  return true;
}

// Makes requests of posts as far as there is room; false where a request must wait.
bool VerbsConnection::cutWrite(Post& post) {
  auto const rails = std::min<std::size_t>({parts_.queues.size(), address_.rails, post.remote.rails});
  bool const striped = rails > 1 && post.bytes >= 2 * stripeBytes;
  while (post.cut < post.bytes) {
    std::size_t rail = 0;
    if (striped) {
      std::size_t tried = 0;
      while (parts_.queues[nextRail_ % rails]->room() == 0 && ++tried < rails) ++nextRail_;
      rail = nextRail_ % rails;
    }
    auto& queue = *parts_.queues[rail];
    if (queue.room() == 0) return false;
    auto const bytes = std::min({post.bytes - post.cut, queue.longestMessage(), striped ? stripeBytes : post.bytes});
    auto const remote = post.remote.address + post.dstOffset + post.cut;
    queue.add({.opcode = IBV_WR_RDMA_WRITE,
               .remote = remote,
               .remoteKey = post.remote.keys[rail],
               .local = post.source + post.cut,
               .localKey = post.localKeys[rail],
               .bytes = static_cast<std::uint32_t>(bytes)});
    if (rail > 0) unconfirmed_[rail] = {true, remote + bytes - 1, post.remote.keys[rail], 0};
    post.cut += bytes;
    if (striped) ++nextRail_;
  }
  return true;
}

bool VerbsConnection::cutSignal(Post const& post) {
  // An answered read proves that what its queue pair wrote before is in memory, which completions do not.
  bool confirmed = true;
  for (std::size_t rail = 1; rail < parts_.queues.size(); ++rail) {
    auto& last = unconfirmed_[rail];
    auto& queue = *parts_.queues[rail];
    if (last.written && last.read == 0 && queue.room() > 0) {
      queue.add({.opcode = IBV_WR_RDMA_READ,
                 .remote = last.remote,
                 .remoteKey = last.key,
                 .local = reinterpret_cast<std::uint64_t>(&parts_.mailbox->scratch),
                 .localKey = parts_.scratchRegions[rail - 1]->localKey(),
                 .bytes = 1});
      last.read = queue.queued();
    }
    if (last.written && last.read != 0 && queue.done() >= last.read) last = {};
    confirmed = confirmed && !last.written;
  }
  auto& queue = *parts_.queues.front();
  if (!confirmed || queue.room() == 0) return false;
  if (atomics_) {
    queue.add({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
               .remote = post.remote.address + post.dstOffset,
               .remoteKey = post.remote.keys[0],
               .local = reinterpret_cast<std::uint64_t>(&parts_.mailbox->scratch),
               .localKey = parts_.mailboxRegion->localKey(),
               .bytes = signalBytes,
               .add = post.add});
    return true;
  }
  // Read when it is posted, which is before so many more are added.
  auto& record = records_[recordsSent_ % records_.size()];
  record = {post.dstOffset, post.value, post.remote.keys[0], 0};
  auto const slot = static_cast<std::uint32_t>(recordsSent_ % VerbsMailbox::records);
  queue.add({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
             .remote = address_.mailbox + offsetof(VerbsMailbox, record) + slot * sizeof record,
             .remoteKey = address_.mailboxKey,
             .local = reinterpret_cast<std::uint64_t>(&record),
             .localKey = 0,
             .bytes = sizeof record,
             .immediate = slot,
             .inlined = true});
  ++recordsSent_;
  return true;
}

void VerbsConnection::pump() {
  while (uncut_ < posts_.size()) {
    auto& post = posts_[uncut_];
    if (!(post.isSignal ? cutSignal(post) : cutWrite(post))) break;
    for (std::size_t rail = 0; rail < parts_.queues.size(); ++rail) post.requests[rail] = parts_.queues[rail]->queued();
    ++uncut_;
  }
  for (auto const& queue : parts_.queues) queue->flush();
}

// Signals that came as records.
void VerbsConnection::receive() {
  if (!receiving_) return;
  auto& queue = *parts_.queues.front();
  for (auto const slot : queue.pollReceives()) {
    if (slot >= VerbsMailbox::records) {
      fail(ErrorCode::remoteError, "rank {} sent immediate data {}, but there are {} records", peer_, slot,
           VerbsMailbox::records);
    }
    auto const record = parts_.mailbox->record[slot];
    auto const memory = parts_.memories->find(record.key);
    if (!memory || !memory->holds(record.offset, signalBytes) ||
        (reinterpret_cast<std::uint64_t>(memory->data) + record.offset) % signalBytes != 0) {
      fail(ErrorCode::remoteError,
           "rank {} signalled offset {} of memory with key {:#x}, which {}; keep the RegisteredMemory as long as peers "
           "signal it",
           peer_, record.offset, record.key, memory ? "has no such aligned word" : "is not registered here");
    }
    storeWord(*memory, record.offset, record.value, staging_);
    queue.addReceive();
  }
}

// An idle connection shows that the peer is gone only when something is sent.
void VerbsConnection::beat() {
  for (auto const& queue : parts_.queues) {
    if (queue->room() == 0) continue;
    queue->add({.opcode = IBV_WR_RDMA_WRITE,
                .remote = address_.mailbox,
                .remoteKey = address_.mailboxKey,
                .local = 0,
                .localKey = 0,
                .bytes = 0});
    queue->flush();
  }
  silence_.restart();
}

bool VerbsConnection::awaitsAnswer() const {
  return outstanding() ||
         std::ranges::any_of(parts_.queues, [](auto const& queue) { return queue->done() < queue->queued(); });
}

void VerbsConnection::advance() {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  receive();
  for (auto const& queue : parts_.queues) {
    before += queue->done();
    queue->poll();
    after += queue->done();
  }
  pump();
  while (uncut_ > 0 && done(posts_.front())) {
    posts_.pop_front();
    --uncut_;
    ++completed_;
  }
  auto const silent = silence_.step(after != before);
  if (silent < silence_.limit() / 4) return;
  if (!awaitsAnswer()) {
    beat();
  } else if (silent >= silence_.limit()) {  // devices may repeat a request for ever
    fail(ErrorCode::timeout, "no request was answered within {}; look at what rank {} and its host say",
         describe(silence_.limit()), peer_);
  }
}

std::uint64_t VerbsConnection::progress() {
  if (closed_) return completed_;
  guarded("progress", [&] {
    try {
      advance();
    } catch (Error const&) {
      // A peer that has left in good order need not answer any more.
      if (std::atomic_ref(parts_.mailbox->goodbye).load(std::memory_order_acquire) == 0 || outstanding()) throw;
      closed_ = true;
    }
  });
  return completed_;
}

}  // namespace mscclpp

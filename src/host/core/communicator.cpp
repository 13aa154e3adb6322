// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/core/transports.hpp"
#include "host/net/host_identity.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Bootstrap> with, Device on)
    : bootstrap(std::move(with)), device(on), machine(on.runtime()), peers(static_cast<std::size_t>(size())) {
  PeerInfo self{};
  self.place = {hostIdentity(), machine.nodeOf(device.ordinal), fabricCliqueOf(device)};
  self.process = processIdentity();
  self.kind = static_cast<std::uint32_t>(device.kind);
  self.ordinal = device.ordinal;
  for (auto const transport : {Transport::ib, Transport::tcp}) {
    if (missing(transport).empty()) self.transports |= TransportSet(transport).bits();
  }
  machine.properties(device.ordinal).busId.copy(self.busId, sizeof self.busId - 1);
  auto const key = randomKey();
  std::memcpy(&self.random, key.data(), sizeof self.random);
  peers[static_cast<std::size_t>(rank())] = self;
  bootstrap->allGather(peers.data(), sizeof(PeerInfo));
  std::vector<RankPlace> places;
  for (auto const& each : peers) places.push_back(each.place);
  domains = domainsOf(places);
  id = std::max<std::uint64_t>(peer(0).random, 1);
  for (int other = 0; other < size(); ++other) {
    if (peer(other).kind == self.kind) continue;
    fail(ErrorCode::invalidUsage, "rank {} has a {} device, but rank {} a {} one; all ranks must have one kind", rank(),
         nameOf(device.kind), other, nameOf(static_cast<DeviceKind>(peer(other).kind)));
  }
  watch = static_cast<layout::Watch*>(machine.allocateHost(sizeof(layout::Watch)));
  watch->rank = rank();
  watch->limitNs = static_cast<std::uint64_t>(environment().kernelTimeout.count());
  auto const lose = [this](int dead, std::string const& reason) {
    reportFault(ErrorCode::remoteError,
                fmt::format("rank {}: rank {} is gone ({}), so waits of kernels here have been ended; see rank {}'s "
                            "output, and go on with a communicator of the ranks that are left (survivors(), shrink())",
                            rank(), dead, reason, dead));
  };
  deaths = BootstrapAccess::listen(*bootstrap, lose);
  loss = machine.onLoss([this, lose](int lost, std::string const& why) {
    auto const reason = fmt::format("it can do nothing with its device any more: {}", why);
    // Ranks of this process have not died with it, and not every bootstrap tells of them.
    for (int other = 0; deaths == nullptr && other < size(); ++other) {
      if (other != rank() && sameProcess(other) && peer(other).ordinal == lost) lose(other, reason);
    }
    if (lost != device.ordinal) return;
    BootstrapAccess::declareLost(*bootstrap, reason);
    reportFault(ErrorCode::deviceError,
                fmt::format("rank {}: {} device {} is of no use to this process any more ({}); end it, the other ranks "
                            "go on without it (survivors(), shrink())",
                            rank(), nameOf(device.kind), device.ordinal, why));
  });
}

CommunicatorImpl::~CommunicatorImpl() {
  // What they call uses the watch.
  loss.reset();
  deaths.reset();
  machine.releaseHost(watch);
}

bool CommunicatorImpl::sameDevice(int one, int other) const {
  auto const& a = peer(one);
  auto const& b = peer(other);
  if (a.place.host != b.place.host) return false;
  // Processes may number the devices differently.
  if (a.busId[0] != 0 || b.busId[0] != 0) return std::strncmp(a.busId, b.busId, sizeof a.busId) == 0;
  return a.process == b.process && a.ordinal == b.ordinal;
}

void CommunicatorImpl::checkPeer(std::string_view operation, int of) const {
  if (of < 0 || of >= size()) {
    fail(ErrorCode::invalidUsage, "rank {}: {} names rank {}, but ranks are 0 to {}", rank(), operation, of,
         size() - 1);
  }
}

void CommunicatorImpl::checkOwn(std::string_view operation, RegisteredMemory const& memory) const {
  if (!memory || memory.reach() != MemoryReach::own) {
    fail(ErrorCode::invalidUsage, "rank {}: {} takes this rank's own memory, as registerMemory returns it; got {}",
         rank(), operation,
         memory ? fmt::format("memory of rank {}", memory.rank()) : std::string("an empty RegisteredMemory"));
  }
}

std::shared_ptr<Bootstrap> CommunicatorImpl::setup() const {
  std::lock_guard const lock(setupMutex);
  return renewed != nullptr ? renewed : bootstrap;
}

namespace {

std::shared_ptr<Bootstrap> require(std::shared_ptr<Bootstrap> bootstrap) {
  if (!bootstrap)
    fail(ErrorCode::invalidUsage, "Communicator: there is no bootstrap; make one first, such as TcpBootstrap");
  return bootstrap;
}

}  // namespace

// Found without a lock; the newest first, which may use the older ones and goes before them.
struct Communicator::Attachments {
  struct Attachment {
    std::type_index type;
    std::shared_ptr<void> object;
    Attachment const* older;
  };

  ~Attachments() {
    for (auto const* one = newest.load(); one != nullptr;) {
      auto const* const older = one->older;
      delete one;
      one = older;
    }
  }
  void* find(std::type_index type) const {
    for (auto const* one = newest.load(std::memory_order_acquire); one != nullptr; one = one->older) {
      if (one->type == type) return one->object.get();
    }
    return nullptr;
  }

  std::recursive_mutex making;  // one attachment may use another while it is made
  std::atomic<Attachment const*> newest{nullptr};
};

void* Communicator::attach(std::type_index type, std::shared_ptr<void> (*make)(Communicator const&)) const {
  if (auto* const found = attachments_->find(type)) return found;
  std::lock_guard const lock(attachments_->making);
  if (auto* const found = attachments_->find(type)) return found;
  auto made = make(*this);
  auto* const object = made.get();
  attachments_->newest.store(
      new Attachments::Attachment{type, std::move(made), attachments_->newest.load(std::memory_order_relaxed)},
      std::memory_order_release);
  return object;
}

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, Device device)
    : impl_(std::make_shared<CommunicatorImpl>(require(std::move(bootstrap)), device)),
      attachments_(std::make_unique<Attachments>()) {}
Communicator::~Communicator() = default;

std::shared_ptr<Bootstrap> const& Communicator::bootstrap() const noexcept { return impl_->bootstrap; }
int Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
Device Communicator::device() const noexcept { return impl_->device; }
layout::Watch* Communicator::watch() const noexcept { return impl_->watch; }
std::shared_ptr<Bootstrap> Communicator::setup() const { return impl_->setup(); }
std::uint64_t Communicator::failures() const noexcept { return impl_->failures; }

bool Communicator::reaches(int peer) const {
  impl_->checkPeer("reaches", peer);
  return impl_->sameDomain(peer);
}

MemoryKind Communicator::mappedKind() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (impl_->sameDomain(peer) && !impl_->sameHost(peer)) return MemoryKind::shareable;
  }
  return MemoryKind::standard;
}

int Communicator::ranksPerDevice() const {
  int most = 1;
  for (int one = 0; one < size(); ++one) {
    int sharing = 0;
    for (int other = 0; other < size(); ++other) sharing += impl_->sameDevice(one, other) ? 1 : 0;
    most = std::max(most, sharing);
  }
  return most;
}

bool Communicator::linesArriveWhole(int peer) const {
  if (!reaches(peer)) return false;
  // Over the fabric as to any device of this host that it joins.
  if (!impl_->sameHost(peer)) return impl_->machine.linesArriveWhole(impl_->device.ordinal, impl_->device.ordinal);
  auto const& theirs = impl_->peer(peer);
  int ordinal = theirs.ordinal;
  if (std::string_view const busId = theirs.busId; !busId.empty()) {
    ordinal = -1;
    for (int device = 0; device < impl_->machine.deviceCount(); ++device) {
      if (impl_->machine.properties(device).busId == busId) ordinal = device;
    }
    // A device that this process cannot see: nothing is known of the way to it.
    if (ordinal < 0) return false;
  }
  return impl_->machine.linesArriveWhole(impl_->device.ordinal, ordinal);
}

bool Communicator::linesArriveWhole() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (!linesArriveWhole(peer)) return false;
  }
  return true;
}

void Communicator::setTimeLimit(std::chrono::nanoseconds limit) const {
  if (limit < std::chrono::nanoseconds::zero()) {
    fail(ErrorCode::invalidUsage, "rank {}: setTimeLimit({} ns): it must be 0 (none) or more", rank(), limit.count());
  }
  std::atomic_ref(impl_->watch->limitNs).store(static_cast<std::uint64_t>(limit.count()), std::memory_order_relaxed);
}

RegisteredMemory Communicator::registerMemory(void* pointer, std::size_t bytes) const {
  return RegisteredMemory::own(rank(), impl_->device, pointer, bytes);
}

RegisteredMemory Communicator::registerMemory(void* pointer, std::size_t bytes, TransportSet transports) const {
  std::vector<std::shared_ptr<TransportContext>> contexts;
  for (auto const transport : allTransports) {
    if (transport != Transport::memory && transports.has(transport)) contexts.push_back(impl_->context(transport));
  }
  return RegisteredMemory::own(rank(), impl_->device, pointer, bytes, contexts);
}

void Communicator::sendMemory(RegisteredMemory const& memory, int peer, int tag) const {
  BootstrapAccess::checkTag(*impl_->bootstrap, "sendMemory", peer, tag);
  impl_->checkOwn("sendMemory", memory);
  BootstrapAccess::send(*impl_->bootstrap, memory.serialize(!impl_->sameProcess(peer)), peer,
                        BootstrapAccess::beside(tag, BootstrapAccess::memory));
}

RegisteredMemory Communicator::recvMemory(int peer, int tag) const {
  BootstrapAccess::checkTag(*impl_->bootstrap, "recvMemory", peer, tag);
  auto const bytes =
      BootstrapAccess::recv(*impl_->bootstrap, peer, BootstrapAccess::beside(tag, BootstrapAccess::memory));
  return RegisteredMemory::deserialize(bytes, impl_->device);
}

std::vector<RegisteredMemory> Communicator::exchangeMemory(RegisteredMemory const& memory) const {
  impl_->checkOwn("exchangeMemory", memory);
  bool alone = true;
  for (int peer = 0; peer < size(); ++peer) alone = alone && impl_->sameProcess(peer);
  auto const mine = memory.serialize(!alone);
  // Keys of transports differ in size from rank to rank.
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size()));
  sizes[static_cast<std::size_t>(rank())] = mine.size();
  auto const setup = impl_->setup();
  setup->allGather(sizes.data(), sizeof sizes[0]);
  auto const stride = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> all(stride * sizes.size());
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(stride) * rank());
  setup->allGather(all.data(), stride);
  std::vector<RegisteredMemory> result;
  for (int peer = 0; peer < size(); ++peer) {
    auto const at = static_cast<std::size_t>(peer);
    auto const part = std::span<std::byte const>(all).subspan(stride * at, sizes[at]);
    result.push_back(peer == rank() ? memory : RegisteredMemory::deserialize(part, impl_->device));
  }
  // Nobody may withdraw its memory before everybody has mapped it.
  setup->barrier();
  return result;
}

MemoryDevice2DeviceSemaphore Communicator::buildSemaphore(int peer, int tag) const {
  return MemoryDevice2DeviceSemaphore(*this, peer, tag);
}

}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/death_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "base/own_thread.hpp"
#include "host/net/unix_socket.hpp"

namespace mscclpp {
namespace {

// What a word holds: 0 until its holder has the memory; what the holder's thread puts there, and the kernel when it
// dies; this, which is no thread's number.
constexpr std::uint32_t hasLeft = FUTEX_TID_MASK;
// In the log: told by a word.
constexpr std::uint32_t processEnded = std::uint32_t{1} << 31;

// One offset leads from all entries of a list to their words.
constexpr std::size_t wordStride = sizeof(robust_list);
static_assert(wordStride % sizeof(std::uint32_t) == 0);

// Headers of older kernels lack these.
constexpr long futexWaitv = 449;
struct Waiter {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr std::uint32_t size32 = 2;

// Who brings it has sent all at once.
constexpr std::chrono::nanoseconds handoverLimit = std::chrono::milliseconds(200);

struct Handover {
  std::uint64_t magic;
  std::uint64_t proof;
};
constexpr std::uint64_t handoverMagic = 0x6d7363636c707761ull;

std::string doorOf(WireAddress const& listener) {
  std::string name = "mscclpp-watch-";
  for (auto const byte : bytesOf(listener)) name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return name;
}

Waiter waiterFor(std::uint32_t const* word, std::uint32_t value, std::uint32_t flags) {
  return {value, reinterpret_cast<std::uintptr_t>(word), size32 | flags, 0};
}

void wake(std::uint32_t* word, int flags) {
  ::syscall(SYS_futex, word, FUTEX_WAKE | flags, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t* wordIn(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof value == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

FileHandle DeathWatch::openDoor(WireAddress const& listener) {
  int error = 0;
  auto door = listenUnix(doorOf(listener), error);
  if (!door) log(LogLevel::info, "no early notice of deaths on this host: {}", std::strerror(error));
  return door;
}

DeathWatch::DeathWatch(int rank, int ranks, std::vector<Member> members, Key128 const& session, FileHandle door,
                       Died died)
    : rank_(rank),
      ranks_(ranks),
      members_(std::move(members)),
      session_(session),
      died_(std::move(died)),
      entries_(members_.size()),
      door_(std::move(door)) {
  auto const own = std::find_if(members_.begin(), members_.end(), [&](Member const& one) { return one.rank == rank; });
  own_ = static_cast<std::size_t>(own - members_.begin());
  thread_ = startOwnThread([this] { run(); });
}

DeathWatch::~DeathWatch() {
  leave();
  thread_.join();
  if (memory_ != nullptr) ::munmap(memory_, bytes());
}

void DeathWatch::leave() {
  std::lock_guard const lock(mutex_);
  for (std::size_t waiter = 0; holds_ && waiter < members_.size(); ++waiter) {
    if (waiter == own_) continue;
    std::atomic_ref(*wordOf(own_, waiter)).store(hasLeft);
    wake(wordOf(own_, waiter), 0);
  }
  stop_ = 1;
  wake(wordIn(stop_), FUTEX_PRIVATE_FLAG);
  if (door_) ::shutdown(door_.get(), SHUT_RDWR);
}

void DeathWatch::record(int rank) {
  std::lock_guard const lock(mutex_);
  if (memory_ != nullptr) append(rank, 0);
}

std::size_t DeathWatch::bytes() const {
  return members_.size() * members_.size() * wordStride + static_cast<std::size_t>(ranks_) * sizeof(std::uint32_t);
}

std::uint32_t* DeathWatch::wordOf(std::size_t holder, std::size_t waiter) const {
  return reinterpret_cast<std::uint32_t*>(memory_ + (holder * members_.size() + waiter) * wordStride);
}

std::uint32_t* DeathWatch::logOf(std::size_t place) const { return wordOf(members_.size(), 0) + place; }

std::uint64_t DeathWatch::proofFor(std::size_t place) const {
  auto const name = doorOf(members_[place].listener);
  return keyedHash(session_, std::as_bytes(std::span(name)));
}

void DeathWatch::run() {
  setLogRank(rank_);
  try {
    if (own_ == 0) {
      bring();
    } else {
      receive();
    }
    {
      std::lock_guard const lock(mutex_);
      door_.reset();
    }
    if (memory_ == nullptr) return;
    hold();
    watch();
  } catch (std::exception const& error) {
    log(LogLevel::error, "rank {}: no early notice of deaths on this host: {}", rank_, error.what());
  }
}

void DeathWatch::bring() {
  auto const memory = FileHandle::own([] { return ::memfd_create("mscclpp-watch", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  // Sealed: nobody can take it away under the others.
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes())) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    log(LogLevel::info, "rank {}: no early notice of deaths on this host: {}", rank_, std::strerror(errno));
    return;
  }
  map(memory);
  for (std::size_t to = 1; to < members_.size(); ++to) {
    int error = 0;
    auto const socket = connectUnix(doorOf(members_[to].listener), error);
    if (socket && !sameUser(socket.get())) error = EPERM;
    Deadline const deadline(handoverLimit);
    Handover const handover{handoverMagic, proofFor(to)};
    if (error == 0) error = sendAll(socket.get(), bytesOf(handover), deadline);
    if (error == 0) error = sendDescriptor(socket.get(), memory.get());
    if (error != 0) {
      log(LogLevel::info, "rank {}: no early notice between rank {} and others of this host: {}", rank_,
          members_[to].rank, std::strerror(error));
    }
  }
}

void DeathWatch::receive() {
  while (memory_ == nullptr && stop_ == 0 && door_) {
    pollfd entry{door_.get(), POLLIN, 0};
    if (::poll(&entry, 1, -1) < 0 && errno != EINTR) break;
    if (stop_ != 0) break;
    auto const from = acceptFrom(door_.get());
    if (!from) {
      // Without a descriptor to spare this thread would only turn in circles.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      break;
    }
    if (!sameUser(from.get())) continue;
    Deadline const deadline(handoverLimit);
    Handover handover{};
    if (recvAll(from.get(), writableBytesOf(handover), deadline) != 0) continue;
    if (handover.magic != handoverMagic || handover.proof != proofFor(own_)) continue;
    int error = 0;
    auto const memory = recvDescriptor(from.get(), deadline, error);
    if (memory) map(memory);
  }
}

void DeathWatch::map(FileHandle const& memory) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) return;
  int const seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<std::uint64_t>(status.st_size) < bytes()) return;
  void* const base = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (base == MAP_FAILED) return;
  ::madvise(base, bytes(), MADV_DONTFORK);
  std::lock_guard const lock(mutex_);
  memory_ = static_cast<std::byte*>(base);
}

void DeathWatch::hold() {
  std::lock_guard const lock(mutex_);
  if (stop_ != 0) return;
  auto* last = &head_.list;
  for (std::size_t waiter = 0; waiter < members_.size(); ++waiter) {
    if (waiter == own_) continue;
    last->next = &entries_[waiter];
    last = last->next;
  }
  last->next = &head_.list;
  head_.futex_offset = reinterpret_cast<long>(wordOf(own_, 0)) - reinterpret_cast<long>(entries_.data());
  if (::syscall(SYS_set_robust_list, &head_, sizeof head_) != 0) {
    log(LogLevel::info, "rank {}: others will not have early notice of its death: {}", rank_, std::strerror(errno));
    return;
  }
  holds_ = true;
  // The kernel wakes nobody but where a waiter is announced.
  auto const held = static_cast<std::uint32_t>(::syscall(SYS_gettid)) | FUTEX_WAITERS;
  for (std::size_t waiter = 0; waiter < members_.size(); ++waiter) {
    if (waiter == own_) continue;
    std::atomic_ref(*wordOf(own_, waiter)).store(held);
    wake(wordOf(own_, waiter), 0);
  }
}

void DeathWatch::watch() {
  std::vector<bool> ended(members_.size());
  ended[own_] = true;
  std::vector<Waiter> waiters;
  while (stop_ == 0) {
    bool news = false;
    waiters.assign(1, waiterFor(wordIn(stop_), 0, FUTEX_PRIVATE_FLAG));
    for (std::size_t holder = 0; holder < members_.size(); ++holder) {
      if (ended[holder]) continue;
      auto const value = std::atomic_ref(*wordOf(holder, own_)).load();
      bool const died = (value & FUTEX_OWNER_DIED) != 0;
      ended[holder] = died || value == hasLeft;
      if (died) append(members_[holder].rank, processEnded);
      if (!ended[holder]) waiters.push_back(waiterFor(wordOf(holder, own_), value, 0));
      news = news || died;
    }
    if (news) tell();
    auto const woken = ::syscall(futexWaitv, waiters.data(), waiters.size(), 0, nullptr, 0);
    if (woken >= 0 || errno == EAGAIN || errno == EINTR) continue;
    log(LogLevel::info, "rank {}: no early notice of deaths on this host: futex_waitv: {}", rank_,
        std::strerror(errno));
    // The others may have it of this one.
    while (stop_ == 0) ::syscall(SYS_futex, wordIn(stop_), FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

// Of two that find the same place empty one comes first, and the other looks at it again: no rank is there twice.
void DeathWatch::append(int rank, std::uint32_t how) {
  auto const entry = static_cast<std::uint32_t>(rank) + 1;
  for (std::size_t place = 0; place < static_cast<std::size_t>(ranks_); ++place) {
    std::uint32_t found = 0;
    if (std::atomic_ref(*logOf(place)).compare_exchange_strong(found, entry | how)) return;
    if ((found & ~processEnded) == entry) return;
  }
}

// All that others have heard before, for these may have died of it.
void DeathWatch::tell() {
  for (; told_ < static_cast<std::size_t>(ranks_); ++told_) {
    auto const entry = std::atomic_ref(*logOf(told_)).load();
    if (entry == 0) return;
    auto const dead = static_cast<int>(entry & ~processEnded) - 1;
    if (dead == rank_ || dead >= ranks_) continue;
    died_(dead, (entry & processEnded) != 0 ? "its process ended" : "another rank has lost its connection with it");
  }
}

}  // namespace mscclpp

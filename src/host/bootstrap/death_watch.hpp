// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Early notice that the process of a rank on the same host has died. Its sockets tell that as well, but the kernel
// closes them after it has taken the address space down, which takes the CUDA driver tens of milliseconds. Before that
// it walks the robust futexes of each thread, sets FUTEX_OWNER_DIED in those the thread holds and wakes who waits
// (set_robust_list; get_robust_list(2)), within a fraction of a millisecond.
//
// For every pair of ranks of a host there is a word in memory that all of them map: a thread of the one holds it, one
// of the other waits for it. A word has one waiter, since the kernel wakes no more, and that one might be stopped, or
// be dying itself, and wake nobody else. One thread for each rank holds its words and waits for those of all others
// (futex_waitv(2)). It never locks a robust mutex of the C library, whose list its own one has replaced.
//
// Who ends by a signal, abort(), _exit() or exec() has died; who calls leave() has not, whatever it does next. For
// ranks that cannot get the memory or wait for it, as before Linux 5.16, which has no futex_waitv, and on hosts with
// more ranks than mostRanks, sockets are all there is: nothing fails for that or waits, and no call of the program
// passes here.
//
// The first rank of the host makes the memory and brings it to the others, through unix sockets that these open before
// their names can be known: so it need not wait for anybody. Both ends look at the other's user, and at its proof.
//
// In a child of fork() there is neither the memory nor the thread; the kernel gives it no list. An object of the parent
// must not be used or destroyed there.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_handle.hpp"
#include "base/random.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {

class DeathWatch {
 public:
  // futex_waitv takes 128 words, of which one is to end the wait.
  static constexpr std::size_t mostRanks = 128;

  struct Member {
    int rank;
    WireAddress listener;  // no two on a host have the same, so it names the member's door
  };
  // Called on the thread of this, in the order in which ranks of this host have heard; perhaps also of a rank that was
  // told to record().
  using Died = std::function<void(int rank, std::string const& reason)>;

  // Where the memory comes in. To be opened before another rank can know `listener`. Empty where it cannot be.
  static FileHandle openDoor(WireAddress const& listener);

  // `members` are the ranks of this host as all of them list them, 2 to mostRanks, of `ranks` in the job. `session` is
  // a key that they alone know. Waits for nobody; throws where there can be no thread.
  DeathWatch(int rank, int ranks, std::vector<Member> members, Key128 const& session, FileHandle door, Died died);
  // Leaves. Waits for a call of `died` that runs.
  ~DeathWatch();
  DeathWatch(DeathWatch const&) = delete;
  DeathWatch& operator=(DeathWatch const&) = delete;

  // From now on this process may end as it likes, and hears no more.
  void leave();
  // This rank has heard otherwise that `rank` has died, and is about to act on it. Should it die because of that, the
  // others here are told of `rank` first.
  void record(int rank);

 private:
  void run();
  void bring();
  void receive();
  void map(FileHandle const& memory);
  void hold();
  void watch();
  void tell();
  void append(int rank, std::uint32_t how);
  std::size_t bytes() const;
  std::uint64_t proofFor(std::size_t place) const;
  // That the member at one place holds and the one at the other waits for.
  std::uint32_t* wordOf(std::size_t holder, std::size_t waiter) const;
  // Ranks that have died, plus one, in the order in which ranks of this host have heard; then zeros.
  std::uint32_t* logOf(std::size_t place) const;

  int const rank_;
  int const ranks_;
  std::vector<Member> const members_;
  std::size_t own_ = 0;  // this rank's place among them
  Key128 const session_;
  Died const died_;
  std::size_t told_ = 0;  // of the log
  robust_list_head head_{};
  std::vector<robust_list> entries_;    // one for each word of a holder, as far apart as these
  std::atomic<std::uint32_t> stop_{0};  // a futex
  std::mutex mutex_;
  FileHandle door_;              // guarded by mutex_ where others than the thread look
  std::byte* memory_ = nullptr;  // likewise
  bool holds_ = false;           // guarded by mutex_
  std::thread thread_;
};

}  // namespace mscclpp

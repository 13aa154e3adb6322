// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of an NCCL communicator: a Communicator, the links of its messages, and the order of its work.
//
// What this library does not do goes to NVIDIA's own, where the environment names that (real_nccl.hpp): everything of a
// communicator whose ranks do not all reach each other, what the environment forces, and what the build has no
// algorithm for. All of it follows from what is equal on all ranks. Where the environment names none, ranks of several
// hosts use this library's own ways between them.
//
// Work is put in by one thread at a time; abort(), asyncError() and what asks for numbers may be called by any thread
// at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/point_to_point.hpp"
#include "nccl/abi.hpp"
#include "nccl/algorithms.hpp"
#include "nccl/fallback/shadow.hpp"
#include "nccl/operation.hpp"
#include "nccl/queue.hpp"

namespace mscclpp::nccl {

// What a program asks of a communicator.
struct Wishes {
  bool blocking = true;
  std::uint32_t maxBlocks = 0;  // of a kernel; 0: as are fastest
};

class Comm {
 public:
  // Collective over its ranks.
  explicit Comm(std::unique_ptr<Communicator> communicator, Wishes const& wishes = {});
  Comm(std::shared_ptr<Bootstrap> bootstrap, Device device, Wishes const& wishes);
  ~Comm();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  Device device() const noexcept { return device_; }
  Communicator const& communicator() const noexcept { return *communicator_; }
  // Of the communicator; the same on all its ranks.
  std::uint64_t key() const noexcept { return key_; }
  int ranksHere() const noexcept { return ranksHere_; }  // in this process
  Wishes const& wishes() const noexcept { return wishes_; }
  bool hasOneSided() const noexcept { return signals_.has_value(); }
  // Ranks that follow each other and reach each other's memory, as many on each host: all of the communicator on one
  // host, one where hosts have different numbers, or other ranks between them.
  int ranksOfHost() const noexcept { return ranksOfHost_; }

  // Throws where this cannot be right.
  void check(Operation const& operation) const;
  void check(OneSided const& operation);
  // Puts them into their streams: collectives in the order given, then all messages together.
  void start(std::span<Operation const> operations);
  // Waits last, since it may be these puts that others wait for before they signal.
  void start(std::span<OneSided const> operations);
  // The same with an algorithm that is not the library's own.
  void execute(Algorithm const& algorithm, CollectiveCall const& call, void* stream);
  // Whether start() would wait for no other rank.
  bool startsAtOnce(std::span<Operation const> operations);

  // Collective: those of one colour, by key, then by rank. Null for noColor.
  std::shared_ptr<Comm> split(int color, int key, Wishes const& wishes);
  // Collective over those that are not excluded.
  std::shared_ptr<Comm> shrink(std::span<int const> excluded, Wishes const& wishes);

  int addFactor(Factor const& factor);
  Factor factor(int op) const;
  void removeFactor(int op);

  // Collective: the id that one of the ranks gives, on all, for a communicator of `ranks` with these as its first ones.
  ncclUniqueId agreeToGrow(int ranks, ncclUniqueId const* id);
  // Of this communicator, for one growth.
  ncclUniqueId makeGrowthId();

  // Collective, for `symmetric` memory. Whoever unregisters a window names it.
  void* addWindow(void* base, std::size_t bytes, bool symmetric);
  void removeWindow(void* window);
  void* baseOf(void* window);

  // Seconds that they take, by the model of the machine's costs. Throws for what that does not know.
  double predictedTime(std::span<Operation const> operations) const;

  // Collective: returns when this rank's work is done. Further work is refused.
  void finalize();
  void abort() noexcept;
  // Ends this rank's work as abort() does; then split(), shrink() and the end are all that it is good for.
  void revoke() noexcept;
  // Collective: frees the memory that work needs, until resume(), which is, too. Graphs captured so far must not run.
  void suspend();
  void resume();
  struct Memory {
    std::size_t suspendable = 0;  // now or, while it is suspended, before
    std::size_t rest = 0;
    bool suspended = false;
  };
  Memory memory();
  // Of what was started so far: ncclSuccess as far as is known.
  ncclResult_t asyncError();
  // Before it goes, aborted or not: waits for the work of this device, and for the other ranks to have come as far or
  // to have ended, since until then they may write here.
  void finishWork() noexcept;
  void meetLast() noexcept;

 private:
  struct Window {
    std::byte* base;
    std::size_t bytes;
    bool symmetric;                          // lies alike on all ranks
    std::shared_ptr<RemoteMemory> remote{};  // of all ranks; null: it was not registered as symmetric
  };

  void meetFirst();
  bool goesToReal(Operation const& operation) const;
  bool allGoesToReal() const { return isApart_ && shadow_; }
  void makeLinks();
  Queue& queueOf(void* stream);
  CollectiveCall callFor(Operation const& operation) const;
  // Or why the build has nothing for it.
  std::string startCollective(Operation const& operation);
  void startMessages(std::span<Operation const> messages);
  Stream const& streamOf(std::span<Operation const> messages);
  void abortWork() noexcept;
  void requireUsable() const {
    if (barred_.load(std::memory_order_relaxed)) refuseUse();
  }
  void refuseUse() const;
  void requireUsableOrRevoked() const;
  void bar(std::atomic<bool>& why) noexcept;
  Window& windowNamed(void* window);
  bool isSymmetric(void const* data, std::size_t bytes) const;
  std::byte* scratch(std::size_t bytes, bool capturing);
  void note(Error const& error) noexcept;

  std::shared_ptr<Algorithms const> algorithms_;
  std::unique_ptr<Communicator> communicator_;
  // As it has them, which every call asks for.
  int const rank_;
  int const size_;
  Device const device_;
  Runtime& machine_;
  Wishes const wishes_;
  std::uint64_t key_ = 0;
  int ranksHere_ = 1;
  std::mutex mutex_;  // of work
  std::optional<PointToPoint> links_;
  std::optional<Signals> signals_;
  std::optional<Shadow> shadow_;
  bool isApart_ = false;  // there are ranks whose memory is not reached
  int mostReached_ = 0;   // by one rank, of all ranks, with itself
  int ranksOfHost_ = 1;
  Queue queue_;
  std::map<std::pair<int, bool>, Queue> messages_;  // by peer, and whether they go there
  std::map<std::uint64_t, Queue> captured_;  // by graph, each with a team of its own: it may run beside other work
  std::vector<DeviceMemory> scratch_;        // the last is in use
  std::map<void*, std::unique_ptr<Window>> windows_;
  mutable std::mutex factorMutex_;
  std::vector<std::optional<Factor>> factors_;
  // Any of the next: what every call looks at.
  std::atomic<bool> barred_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> revoked_{false};
  std::atomic<bool> suspended_{false};
  std::size_t suspendedBytes_ = 0;
  std::optional<ncclUniqueId> growthId_;
  std::atomic<int> failure_{ncclSuccess};
};

}  // namespace mscclpp::nccl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of an NCCL communicator: a Communicator, the links of its messages, and the order of its work.
//
// What this library does not do goes to NVIDIA's own, where the environment names that (real_nccl.hpp): everything of a
// communicator whose ranks do not all reach each other, what the environment forces, and what the build has no
// algorithm for. All of it follows from what is equal on all ranks.
//
// Work is put in by one thread at a time; abort(), asyncError() and what asks for numbers may be called by any thread
// at any time.
#pragma once

#include <atomic>
#include <cstddef>
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
#include "nccl/fallback/shadow.hpp"
#include "nccl/operation.hpp"
#include "nccl/queue.hpp"

namespace mscclpp::nccl {

class Comm {
 public:
  // Collective over its ranks.
  explicit Comm(std::unique_ptr<Communicator> communicator, bool blocking);
  Comm(std::shared_ptr<Bootstrap> bootstrap, Device device, bool blocking);
  ~Comm();

  int rank() const noexcept { return communicator_->rank(); }
  int size() const noexcept { return communicator_->size(); }
  Device device() const noexcept { return communicator_->device(); }
  Communicator const& communicator() const noexcept { return *communicator_; }
  // Of the communicator; the same on all its ranks.
  std::uint64_t key() const noexcept { return key_; }
  int ranksHere() const noexcept { return ranksHere_; }  // in this process
  bool blocking() const noexcept { return blocking_; }

  // Throws where this cannot be right.
  void check(Operation const& operation) const;
  // Puts them into their streams: collectives in the order given, then all messages together.
  void start(std::span<Operation const> operations);
  // Whether start() would wait for no other rank.
  bool startsAtOnce(std::span<Operation const> operations);

  // Collective: those of one colour, by key, then by rank. Null for noColor.
  std::shared_ptr<Comm> split(int color, int key, bool blocking);
  // Collective over those that are not excluded.
  std::shared_ptr<Comm> shrink(std::span<int const> excluded, bool blocking);

  int addFactor(Factor const& factor);
  Factor factor(int op) const;
  void removeFactor(int op);

  // Collective, for `symmetric` memory. Whoever unregisters a window names it.
  void* addWindow(void* base, std::size_t bytes, bool symmetric);
  void removeWindow(void* window);

  // Collective: returns when this rank's work is done. Further work is refused.
  void finalize();
  void abort() noexcept;
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
    bool symmetric;  // lies alike on all ranks
  };

  void meetFirst();
  bool goesToReal(Operation const& operation) const;
  Queue& queueOf(void* stream);
  CollectiveCall callFor(Operation const& operation) const;
  // Or why the build has nothing for it.
  std::string startCollective(Operation const& operation);
  void startMessages(std::span<Operation const> messages);
  Stream const& streamOf(std::span<Operation const> messages);
  void requireUsable() const;
  bool isSymmetric(void const* data, std::size_t bytes) const;
  std::byte* scratch(std::size_t bytes, bool capturing);
  void note(Error const& error) noexcept;

  std::unique_ptr<Communicator> communicator_;
  bool blocking_;
  std::uint64_t key_ = 0;
  int ranksHere_ = 1;
  std::mutex mutex_;  // of work
  std::optional<PointToPoint> links_;
  std::optional<Shadow> shadow_;
  bool isApart_ = false;  // there are ranks whose memory is not reached
  Queue queue_;
  std::map<std::pair<int, bool>, Queue> messages_;  // by peer, and whether they go there
  std::map<std::uint64_t, Queue> captured_;  // by graph, each with a team of its own: it may run beside other work
  std::vector<DeviceMemory> scratch_;        // the last is in use
  std::map<void*, std::unique_ptr<Window>> windows_;
  mutable std::mutex factorMutex_;
  std::vector<std::optional<Factor>> factors_;
  std::atomic<bool> finalized_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<int> failure_{ncclSuccess};
};

}  // namespace mscclpp::nccl

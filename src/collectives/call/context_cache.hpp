// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one communicator keeps for its collectives: teams, windows, users' contexts, and the calls that were made.
// Attached to the communicator.
//
// Whoever uses it holds lock() from the first look to the launch, so that nothing found can go before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/call/lru_map.hpp"
#include "collectives/call/remembered_calls.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"

namespace mscclpp::collectives_impl {

// What the calls of one stream have in common. Ranks make the same calls in each stream, in the same order, so they
// agree on which stream is which by when it came first.
struct StreamContext {
  std::uint64_t number = 0;  // of the stream, equal on all ranks
  std::uint64_t calls = 0;   // begun
  std::uint64_t resume = 0;  // calls before this one have been given up by some rank
  std::unique_ptr<Team> team{};
  layout::WorkspaceRequirement requirement{};
  bool inGraph = false;                          // the team
  std::vector<std::unique_ptr<Team>> retired{};  // that graphs may use
  std::vector<Stream> sides{};                   // beside the stream
  std::uint64_t lastUse = 0;
};

struct Window {
  std::uint64_t allocation = 0;  // its id
  std::unique_ptr<MemoryWindow> memory;
  std::unique_ptr<MemoryWindow> multicast;  // with multicast addresses, where the first has none
  bool inGraph = false;
  std::uint64_t lastUse = 0;
};

// Where in a window a buffer lies.
struct WindowPlace {
  layout::WindowHandle const* window = nullptr;
  std::uint64_t offset = 0;
};

// How far a rank is in a stream.
struct Progress {
  std::uint64_t stream;
  std::uint64_t next;  // call that has not started
};

// What a rank tells the others after a failure.
struct Standing {
  bool idle = false;  // its device has done all work
  bool anew = false;  // it is in releaseContexts()
  std::vector<Progress> progress{};
};

class ContextCache {
 public:
  explicit ContextCache(Communicator const& communicator);
  static ContextCache& of(Communicator const& communicator) { return communicator.attached<ContextCache>(); }

  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

  // Collective at the first use, and at the first after a failure.
  World const& world();

  // While it lives, calls of this thread are steps of one that has begun, of a user's algorithm: they are not counted.
  class WithinCall {
   public:
    explicit WithinCall(ContextCache& cache);
    ~WithinCall();
    WithinCall(WithinCall const&) = delete;
    WithinCall& operator=(WithinCall const&) = delete;

   private:
    ContextCache& cache_;
  };

  // What `chooser` remembers the call under; the collective and type are those that there are.
  CallKey keyOf(std::uint64_t chooser, Collective collective, Stream const& stream, CollectiveCall const& call) const;
  // Starts a call that was made before under this key; false where it was not, or where anything must be looked at
  // anew, such as wrong buffers or a failure. Takes lock() by itself, no other, and allocates nothing.
  bool startAgain(CallKey const& key, Stream const& stream, CollectiveCall const& call);
  // Whether that would be so, and wait for no other rank.
  bool startsAtOnce(CallKey const& key, Stream const& stream, CollectiveCall const& call);
  // Every other call begins here, before it is resolved. After a failure of this rank it finds together with the
  // others, or throws; so it does where the ranks' calls differ and MSCCLPP_CHECK_CALLS is set.
  void begin(CallKey const& key, Stream const& stream, CollectiveCall const& call);
  // Starts a call of a kernel that is right and not refused, and remembers it.
  void start(CallKey const& key, Algorithm const& algorithm, KernelLaunch const& launch, Stream const& stream,
             CollectiveCall const& call);
  // A call could not be started. Others may have got further, or nowhere, so the next one finds together with them;
  // but what is wrong with a call itself all find out alike.
  void noteNotStarted(Error const& error) { brokenOff_ = brokenOff_ || error.code() != ErrorCode::invalidUsage; }
  // Of an algorithm that starts itself, where somebody looks on. Null within another call, and for the library's
  // messages, which are recorded where they start.
  CallRecord* recordOf(Algorithm const& algorithm);
  // Starts a user's algorithm, as a step of the call, and remembers it.
  void start(CallKey const& key, Resolution const& resolution, Stream const& stream, CollectiveCall const& call);

  // `initialize` runs at the first call with this `algorithm`, `make` where there is no context of the key.
  std::shared_ptr<void> native(Stream const& stream, std::uint64_t algorithm, ContextKey const& key,
                               std::function<void()> const& initialize,
                               std::function<std::shared_ptr<void>()> const& make);

  // Collective.
  void reserve(Stream const& stream, layout::WorkspaceRequirement const& requirement);

  // How often the ranks have begun to make everything anew. What was made before then is left to graphs.
  std::uint64_t renewals() {
    auto const held = lock();
    return renewals_;
  }

  void setLimits(ContextLimits const& limits);
  ContextCounts counts() const;
  void release();

 private:
  struct Native {
    std::shared_ptr<void> context;
    bool inGraph = false;
    std::uint64_t lastUse = 0;
  };
  using NativeKey = std::tuple<std::uint64_t, std::uint64_t, ContextKey>;  // algorithm, stream, the user's key

  void learnWorld();
  bool isWithinCall() const;
  bool hasFailed() const;
  void requireReportsTaken(std::string const& title) const;
  std::vector<Standing> meet(bool anew, std::vector<Progress> progress);
  void settled();
  void recover(Stream const& stream, std::string const& title);
  void compareCalls(CallKey const& key, StreamContext const& context, CollectiveCall const& call) const;
  StreamContext& contextOf(Stream const& stream);
  StreamContext& team(Stream const& stream, layout::WorkspaceRequirement const& requirement);
  WindowPlace window(Stream const& stream, void const* pointer, std::size_t bytes, bool multicast);
  void launch(RememberedCall const& known, Stream const& stream, CollectiveCall const& call);
  RememberedCall const* remembered(CallKey const& key, Stream const& stream, CollectiveCall const& call);
  bool quiesce(bool capturing);
  bool quiesceStream(Stream const& stream, bool capturing);
  bool agree(bool mine) const;
  template <class Map, class MayGo>
  void makeRoom(Map& map, std::size_t limit, bool capturing, MayGo&& mayGo);
  void dropDeadWindows();

  Communicator const& communicator_;
  Runtime& machine_;
  std::recursive_mutex mutex_;
  World world_;
  bool knowsWorld_ = false;  // of others than this rank
  ContextLimits limits_;
  LruMap<std::uint64_t, StreamContext> streams_;  // by id
  LruMap<std::byte*, Window> windows_;            // by start of the allocation
  LruMap<NativeKey, Native> natives_;
  std::set<std::uint64_t> initialized_;
  RememberedCalls calls_;
  std::uint64_t generation_ = 0;  // how often an entry of the maps has gone to make room
  std::uint64_t renewals_ = 0;
  std::uint64_t nextStream_ = 0;
  std::vector<std::shared_ptr<void>> retired_;  // that graphs made before a failure may use
  std::uint64_t failures_ = 0;                  // of the communicator that the ranks have recovered from
  bool brokenOff_ = false;                      // something was not set up to its end
  bool const comparesCalls_;                    // MSCCLPP_CHECK_CALLS
  std::vector<std::thread::id> withinCalls_;
};

}  // namespace mscclpp::collectives_impl

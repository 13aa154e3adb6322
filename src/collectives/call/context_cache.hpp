// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one communicator keeps for its collectives: teams, windows and users' contexts. Attached to the communicator.
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
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/call/lru_map.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"

namespace mscclpp::collectives_impl {

// What all ranks know alike.
struct SharedFacts {
  bool wholeLines = true;       // all links of all ranks
  std::uint32_t maxBlocks = 1;  // that the default launch shapes use
  std::string device;           // product name; empty where the ranks' differ, or ranks share one
  std::string noMulticast;      // why the ranks cannot go through a switch; empty where they can
};

struct Window {
  std::uint64_t allocation = 0;  // its id
  std::unique_ptr<MemoryWindow> memory;
  std::unique_ptr<MemoryWindow> multicast;  // with multicast addresses, where the first has none
  bool inGraph = false;
};

// Where in a window a buffer lies.
struct WindowPlace {
  layout::WindowHandle const* window = nullptr;
  std::uint64_t offset = 0;
};

class ContextCache {
 public:
  explicit ContextCache(Communicator const& communicator);
  static ContextCache& of(Communicator const& communicator) { return communicator.attached<ContextCache>(); }

  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

  SharedFacts const& facts() const { return facts_; }

  Team const& team(Stream const& stream, layout::WorkspaceRequirement const& requirement);
  // Streams for what goes on beside a call in `stream`, whose team there is.
  Stream const* sideStreams(Stream const& stream, unsigned count);
  // `multicast`: with multicast addresses.
  WindowPlace window(Stream const& stream, void const* pointer, std::size_t bytes, bool multicast = false);
  // `initialize` runs at the first call with this `algorithm`, `make` where there is no context of the key.
  std::shared_ptr<void> native(Stream const& stream, std::uint64_t algorithm, ContextKey const& key,
                               std::function<void()> const& initialize,
                               std::function<std::shared_ptr<void>()> const& make);

  void setLimits(ContextLimits const& limits);
  ContextCounts counts() const;
  void release();

 private:
  struct TeamOfStream {
    std::unique_ptr<Team> team;
    layout::WorkspaceRequirement requirement{};
    bool inGraph = false;
    std::vector<std::unique_ptr<Team>> retired;  // that graphs may use
    std::vector<Stream> sides;                   // beside the stream
  };
  struct Native {
    std::shared_ptr<void> context;
    bool inGraph = false;
  };
  using NativeKey = std::tuple<std::uint64_t, void*, ContextKey>;  // algorithm, stream, the user's key

  bool quiesce(bool capturing);
  bool agree(bool mine) const;
  template <class Map, class MayGo>
  void makeRoom(Map& map, std::size_t limit, bool capturing, MayGo&& mayGo);
  void dropDeadWindows();

  Communicator const& communicator_;
  Runtime& machine_;
  std::recursive_mutex mutex_;
  SharedFacts facts_;
  ContextLimits limits_;
  LruMap<void*, TeamOfStream> teams_;   // by stream
  LruMap<std::byte*, Window> windows_;  // by start of the allocation
  LruMap<NativeKey, Native> natives_;
  std::set<std::uint64_t> initialized_;
};

}  // namespace mscclpp::collectives_impl

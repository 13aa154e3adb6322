// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/native_algorithm.hpp"

#include <utility>

#include "base/format.hpp"
#include "collectives/call/call_record.hpp"
#include "collectives/call/context_cache.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {
NativeAlgorithm::NativeAlgorithm(std::string name, Collective collective, NativeFunctions functions)
    : name_(std::move(name)),
      collective_(collective),
      functions_(std::move(functions)),
      id_(collectives_impl::nextChooser()) {
  if (name_.empty()) fail(ErrorCode::invalidUsage, "NativeAlgorithm of {}: it needs a name", nameOf(collective));
  if (!functions_.run) {
    fail(ErrorCode::invalidUsage, "NativeAlgorithm {} of {}: there is no function `run`, which starts the kernel",
         name_, nameOf(collective));
  }
}

std::string NativeAlgorithm::refusal(World const& world, CollectiveCall const& call) const {
  return functions_.refusal ? functions_.refusal(world, call) : std::string();
}

void NativeAlgorithm::execute(Communicator const& communicator, Stream const& stream,
                              CollectiveCall const& call) const {
  if (auto const why = Algorithm::refusal(communicator, call); !why.empty()) {
    fail(ErrorCode::invalidUsage, "rank {}: {} by {}: {}", communicator.rank(), nameOf(collective_), name_, why);
  }
  auto& cache = collectives_impl::ContextCache::of(communicator);
  cache.begin(cache.keyOf(id_, collective_, stream, call), stream, call);
  auto const lock = cache.lock();
  collectives_impl::RecordedCall const recorded(cache.recordOf(*this), collectives_impl::recordedBytes(call));
  auto const key = functions_.contextKey ? functions_.contextKey(communicator, call) : ContextKey{};
  std::function<void()> initialize;
  if (functions_.initialize) initialize = [&] { functions_.initialize(communicator); };
  std::function<std::shared_ptr<void>()> make;
  if (functions_.makeContext) make = [&] { return functions_.makeContext(communicator, call); };
  try {
    functions_.run(cache.native(stream, id_, key, initialize, make), call, stream);
  } catch (Error const& error) {
    cache.noteNotStarted(error);
    throw;
  }
}

}  // namespace mscclpp

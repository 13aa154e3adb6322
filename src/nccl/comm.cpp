// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/comm.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/host/wait_report.hpp"
#include "nccl/ids.hpp"
#include "nccl/machine.hpp"
#include "nccl/patience.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

// Made with the communicator, since only the two ranks of a message call: slots of packets, which leave room for the
// counters of signals in the 8 MiB that a communicator takes until it is used. Packets of a lane of the largest message
// that goes by them fit its slots, where there are 32 lanes: none waits for those ahead to be taken. The slots of
// larger messages come with the first that needs them. Then all of it takes up to 64 MiB, and less where chunks of 256
// KiB need no more, with which 32 lanes fill a link (send_recv.hpp). `near`: ranks of a host. What messages with other
// hosts' ranks go through is made at once, too.
layout::PointToPointRequirement linkRequirement(int ranks, int near) {
  constexpr std::uint64_t mostAtFirst = (8 << 20) - (256 << 10);
  constexpr std::uint64_t most = 64 << 20;
  constexpr std::uint64_t largestChunk = 256 << 10;
  constexpr std::uint64_t mostFar = 32 << 20;
  layout::PointToPointRequirement need;
  auto const all = static_cast<std::uint32_t>(ranks);
  auto const here = static_cast<std::uint32_t>(near);
  need.lanes = std::clamp(std::bit_floor(128 / here), 2u, 32u);
  need.packetBytes = 16 << 10;
  need.stagesLater = true;
  auto const layoutNow = [&] { return layout::PointToPointLayout::make(all, here, need); };
  while (need.packetBytes > 1920 && layoutNow().total > mostAtFirst) need.packetBytes -= 1920;
  auto const peers = here > 1 ? here - 1 : 1;
  auto const each = most / (std::uint64_t{peers} * need.lanes * need.slots);
  need.stageBytes = std::min((each - layoutNow().packetSlot) / 4096 * 4096, largestChunk);
  if (all > here) {
    auto const slots = std::uint64_t{2} * (all - here) * need.farLanes * need.slots;
    need.farBytes = std::min(mostFar / slots / 4096 * 4096, need.farBytes);
  }
  return need;
}

// Calls with parts of up to so many bytes wait for other ranks in their kernels alone, as NCCL's do, once a collective
// has been called.
constexpr std::size_t preparedBytes = 256 << 10;

std::uint64_t freshNumber() {
  auto const key = randomKey();
  std::uint64_t number = 0;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

// NCCL's averages of small integers are of sums that wrap around; the library's own do not.
bool isSummedFirst(Operation const& operation) {
  return operation.op == ReduceOp::avg && (operation.type == DataType::int8 || operation.type == DataType::uint8);
}

CollectiveCall callOf(Operation const& operation, int rank, int ranks) {
  auto const& traits = traitsOf(operation.collective);
  auto const bytes = operation.count * bytesOf(operation.type);
  auto const parts = static_cast<std::size_t>(ranks);
  bool const atRoot = rank == operation.root;
  CollectiveCall call;
  call.type = operation.type;
  call.op = operation.op;
  call.root = operation.root;
  if (traits.in.isUsed(atRoot)) {
    call.in = operation.in;
    call.inBytes = bytes * traits.in.partsOf(parts);
  }
  if (traits.out.isUsed(atRoot)) {
    call.out = operation.out;
    call.outBytes = bytes * traits.out.partsOf(parts);
  }
  return call;
}

}  // namespace

Comm::Comm(std::unique_ptr<Communicator> communicator, Wishes const& wishes)
    : algorithms_(algorithms()),
      communicator_(std::move(communicator)),
      rank_(communicator_->rank()),
      size_(communicator_->size()),
      device_(communicator_->device()),
      machine_(device_.runtime()),
      wishes_(wishes),
      queue_(device_, false) {
  if (auto const limit = patience("MSCCLPP_KERNEL_TIMEOUT")) communicator_->setTimeLimit(*limit);
  meetFirst();
  if (allGoesToReal()) return;
  setContextLimits(*communicator_, {.blocks = wishes.maxBlocks});
  (void)World::of(*communicator_);
  prepareKernels(device());
  makeLinks();
  if (!isApart_) signals_.emplace(*communicator_, ranksHere_ == size());
}

void Comm::makeLinks() { links_.emplace(*communicator_, linkRequirement(size(), mostReached_)); }

Comm::Comm(std::shared_ptr<Bootstrap> bootstrap, Device device, Wishes const& wishes)
    : Comm(std::make_unique<Communicator>(std::move(bootstrap), device), wishes) {}

Comm::~Comm() {
  for (auto const& each : windows_) forgetWindow(each.first);
  for (auto const& each : algorithms_->registered) each->forget(*communicator_);
}

// What ranks find out together once, so that calls need not.
void Comm::meetFirst() {
  static std::uint64_t const process = freshNumber();
  struct Introduction {
    std::uint64_t process;
    std::uint64_t number;
    int realVersion;
    unsigned forced;
    std::uint64_t plans;
    int reached;  // ranks, itself one of them
    int firstReached;
    int lastReached;
  };
  auto const* const real = RealNccl::instance();
  Introduction mine{.process = process,
                    .number = freshNumber(),
                    .realVersion = real == nullptr ? 0 : real->version,
                    .forced = Forced::instance().bits(),
                    .plans = algorithms_->mark,
                    .reached = 0,
                    .firstReached = rank(),
                    .lastReached = rank()};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !communicator_->reaches(peer)) continue;
    ++mine.reached;
    mine.firstReached = std::min(mine.firstReached, peer);
    mine.lastReached = std::max(mine.lastReached, peer);
  }
  std::vector<Introduction> all(static_cast<std::size_t>(size()));
  all[static_cast<std::size_t>(rank())] = mine;
  communicator_->setup()->allGather(all.data(), sizeof(Introduction));
  key_ = all.front().number;
  ranksHere_ = static_cast<int>(std::ranges::count(all, process, &Introduction::process));
  for (int other = 0; other < size(); ++other) {
    auto const& theirs = all[static_cast<std::size_t>(other)];
    if (theirs.realVersion != mine.realVersion || theirs.forced != mine.forced) {
      refuse(ncclInvalidUsage,
             "rank {} has NCCL {} behind this library and forces {:#x} there, rank {} NCCL {} and {:#x}; set "
             "MSCCLPP_NCCL_LIB_PATH and MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION alike on all ranks",
             rank(), mine.realVersion, mine.forced, other, theirs.realVersion, theirs.forced);
    }
    if (theirs.plans != mine.plans) {
      refuse(ncclInvalidUsage,
             "rank {} has other plans in {}, or registered other algorithms, than rank {}; have the same on all ranks",
             rank(), planFolder(), other);
    }
  }
  mostReached_ = std::ranges::max(all, {}, &Introduction::reached).reached;
  isApart_ = std::ranges::any_of(all, [&](Introduction const& one) { return one.reached < size(); });
  bool const even = std::ranges::all_of(all, [&](Introduction const& one) {
    return one.reached == mostReached_ && one.lastReached - one.firstReached + 1 == one.reached;
  });
  ranksOfHost_ = even ? mostReached_ : 1;
  if (real != nullptr) {
    shadow_.emplace(*real, *communicator_);
    if (isApart_)
      log(LogLevel::info, "rank {}: everything goes to NCCL {}, since not all ranks reach each other", rank(),
          real->version);
  } else if (mine.forced != 0) {
    refuse(ncclInvalidUsage,
           "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION is set, but MSCCLPP_NCCL_LIB_PATH, which it needs, is not");
  }
}

bool Comm::goesToReal(Operation const& operation) const {
  return allGoesToReal() || (shadow_ && Forced::instance().holds(operation.collective));
}

void Comm::check(Operation const& operation) const {
  requireUsable();
  if (operation.work != Work::collective) {
    if (operation.root < 0 || operation.root >= size()) {
      refuse(ncclInvalidArgument, "rank {}: peer {}; there are ranks 0 to {}", rank(), operation.root, size() - 1);
    }
    if (operation.count != 0 && operation.in == nullptr && operation.out == nullptr) {
      refuse(ncclInvalidArgument, "rank {}: a message of {} elements with rank {} from a null pointer", rank(),
             operation.count, operation.root);
    }
    return;
  }
  if (hasRoot(operation.collective) && (operation.root < 0 || operation.root >= size())) {
    refuse(ncclInvalidArgument, "rank {}: root {}; there are ranks 0 to {}", rank(), operation.root, size() - 1);
  }
  if (operation.count == 0) return;
  auto const& traits = traitsOf(operation.collective);
  bool const atRoot = rank() == operation.root;
  bool const noInput = operation.in == nullptr && traits.in.isUsed(atRoot);
  if (noInput || (operation.out == nullptr && traits.out.isUsed(atRoot))) {
    refuse(ncclInvalidArgument, "rank {}: {} of {} elements with a null pointer as its {}", rank(),
           nameOf(operation.collective), operation.count, noInput ? "input" : "output");
  }
}

void Comm::check(OneSided const& operation) {
  requireUsable();
  if (!signals_) {
    refuse(ncclInvalidUsage,
           "rank {}: puts and signals go where all ranks reach each other's memory, which these, of several hosts, do "
           "not; send messages",
           rank());
  }
  signals_->check(operation.signal);
  if (operation.kind == OneSided::Kind::wait && operation.count == 0) {
    refuse(ncclInvalidArgument, "rank {}: a wait for no signal of rank {}", rank(), operation.signal.peer);
  }
  if (operation.kind != OneSided::Kind::put) return;
  std::lock_guard const lock(mutex_);
  auto const& window = windowNamed(operation.window);
  if (window.remote == nullptr) {
    refuse(ncclInvalidArgument, "rank {}: a put into a window that was not registered with NCCL_WIN_COLL_SYMMETRIC",
           rank());
  }
  if (operation.offset > window.bytes || operation.bytes > window.bytes - operation.offset) {
    refuse(ncclInvalidArgument, "rank {}: a put of {} bytes from byte {} on into a window of {}", rank(),
           operation.bytes, operation.offset, window.bytes);
  }
  if (operation.in == nullptr && operation.bytes != 0) {
    refuse(ncclInvalidArgument, "rank {}: a put of {} bytes from a null pointer", rank(), operation.bytes);
  }
}

void Comm::start(std::span<OneSided const> operations) {
  KeepDevice const keep(device());
  std::lock_guard const lock(mutex_);
  requireUsable();
  using Kind = OneSided::Kind;
  try {
    for (auto const& each : operations) {
      if (each.kind == Kind::wait) continue;
      auto const stream = Stream::borrow(device(), each.stream);
      if (each.kind == Kind::put) {
        stream.copy(windowNamed(each.window).remote->of(each.signal.peer) + each.offset, each.in, each.bytes);
      }
      signals_->signal(stream, each.signal);
    }
    for (auto const& each : operations) {
      if (each.kind == Kind::wait) signals_->wait(Stream::borrow(device(), each.stream), each.signal, each.count);
    }
  } catch (Error const& error) {
    note(error);
    throw;
  }
}

void Comm::bar(std::atomic<bool>& why) noexcept {
  why = true;
  barred_ = true;
}

void Comm::refuseUse() const {
  if (revoked_) {
    refuse(ncclInvalidUsage, "rank {}: the communicator has been revoked; split, shrink or destroy it", rank());
  }
  if (suspended_) {
    refuse(ncclInvalidUsage, "rank {}: the communicator is suspended; call ncclCommResume on all ranks", rank());
  }
  requireUsableOrRevoked();
}

void Comm::requireUsableOrRevoked() const {
  if (aborted_) refuse(ncclInvalidUsage, "rank {}: the communicator has been aborted; make another", rank());
  if (finalized_) refuse(ncclInvalidUsage, "rank {}: the communicator has been finalized; only destroy it", rank());
  if (auto const code = failure_.load(); code != ncclSuccess) {
    refuse(
        static_cast<ncclResult_t>(code),
        "rank {}: the communicator has failed before (ncclCommGetAsyncError says with which code); abort it and make "
        "another",
        rank());
  }
}

Queue& Comm::queueOf(void* stream) {
  auto const graph = machine_.captureOf(stream);
  return graph == 0 ? queue_ : captured_.try_emplace(graph, device(), true).first->second;
}

void Comm::start(std::span<Operation const> operations) {
  KeepDevice const keep(device());
  std::lock_guard const lock(mutex_);
  requireUsable();
  // The most frequent call needs no lists.
  if (operations.size() == 1 && operations.front().work == Work::collective && !shadow_) {
    auto const& operation = operations.front();
    if (operation.count == 0) return;
    try {
      if (auto const why = startCollective(operation); !why.empty()) fail(ErrorCode::unsupported, "{}", why);
    } catch (Error const& error) {
      note(error);
      throw;
    }
    return;
  }
  std::vector<Operation> messages;
  std::vector<Operation> others;
  try {
    for (auto const& operation : operations) {
      if (operation.work == Work::collective && operation.count == 0) continue;
      if (goesToReal(operation)) {
        if (auto const why = shadow_->refusal(operation.collective); !why.empty()) refuse(ncclInvalidUsage, "{}", why);
        others.push_back(operation);
      } else if (operation.work != Work::collective) {
        messages.push_back(operation);
      } else if (auto why = startCollective(operation); !why.empty()) {
        if (!shadow_ || !shadow_->refusal(operation.collective).empty()) fail(ErrorCode::unsupported, "{}", why);
        log(LogLevel::info, "rank {}: {} goes to NCCL: {}", rank(), nameOf(operation.collective), why);
        others.push_back(operation);
      }
    }
    if (!messages.empty()) startMessages(messages);
    if (!others.empty()) shadow_->start(others);
  } catch (Error const& error) {
    note(error);
    throw;
  }
}

void Comm::execute(Algorithm const& algorithm, CollectiveCall const& call, void* stream) {
  KeepDevice const keep(device());
  std::lock_guard const lock(mutex_);
  requireUsable();
  if (isApart_) {
    refuse(ncclInvalidUsage, "rank {}: {} runs where all ranks reach each other's memory, which these do not", rank(),
           algorithm.name());
  }
  try {
    algorithm.execute(*communicator_, queueOf(stream).in(stream), call);
  } catch (Error const& error) {
    note(error);
    throw;
  }
}

CollectiveCall Comm::callFor(Operation const& operation) const {
  auto call = callOf(operation, rank(), size());
  if (isSummedFirst(operation)) call.op = ReduceOp::sum;
  if (!operation.factor) {
    call.symmetric =
        !hasRoot(operation.collective) && isSymmetric(call.in, call.inBytes) && isSymmetric(call.out, call.outBytes);
  }
  return call;
}

bool Comm::startsAtOnce(std::span<Operation const> operations) {
  std::lock_guard const lock(mutex_);
  return std::ranges::all_of(operations, [&](Operation const& operation) {
    if (operation.work == Work::collective && operation.count == 0) return true;
    if (goesToReal(operation) || operation.factor) return false;
    if (operation.work != Work::collective) return true;
    auto const& last = queueOf(operation.stream).last();
    return last &&
           algorithms_->collection.startsAtOnce(operation.collective, *communicator_, *last, callFor(operation));
  });
}

std::string Comm::startCollective(Operation const& operation) {
  auto& queue = queueOf(operation.stream);
  auto const& stream = queue.in(operation.stream);
  auto call = callFor(operation);
  try {
    if (queue.isNew()) algorithms_->collection.prepare(*communicator_, stream, preparedBytes);
    if (operation.factor) {
      // Nothing may be multiplied yet where the call then goes to NCCL, which does that itself.
      (void)algorithms_->collection.resolve(operation.collective, World::of(*communicator_), call);
      // Into the output where there is room, which then is the input too.
      bool const fits = call.outBytes >= call.inBytes;
      void* const scaled = fits ? call.out : scratch(call.inBytes, stream.capturing());
      scale(stream, *operation.factor, call.in, scaled, call.inBytes / bytesOf(call.type));
      call.in = scaled;
    }
    algorithms_->collection.execute(operation.collective, *communicator_, stream, call);
  } catch (Error const& error) {
    if (error.code() == ErrorCode::unsupported) return error.what();
    throw;
  }
  if (isSummedFirst(operation) && call.outBytes != 0) {
    divide(stream, operation.type, call.out, operation.count, size());
  }
  return {};
}

// Messages with different ranks, or of different directions, share nothing: those in several streams go on side by
// side.
Stream const& Comm::streamOf(std::span<Operation const> messages) {
  auto* const native = messages.front().stream;
  if (machine_.captureOf(native) != 0) return queueOf(native).in(native);
  Stream const* stream = nullptr;
  for (auto const& message : messages) {
    std::pair const end(message.root, message.work == Work::send);
    stream = &messages_.try_emplace(end, device(), false).first->second.in(native);
  }
  return *stream;
}

void Comm::startMessages(std::span<Operation const> messages) {
  auto const& stream = streamOf(messages);
  MessageGroup group(*links_, stream, wishes_.maxBlocks);
  std::vector<void*> others;
  for (auto const& message : messages) {
    auto const bytes = message.count * bytesOf(message.type);
    if (message.work == Work::send) {
      group.send(message.in, bytes, message.root);
    } else {
      group.recv(message.out, bytes, message.root);
    }
    if (message.stream != stream.native() && std::ranges::find(others, message.stream) == others.end()) {
      others.push_back(message.stream);
    }
  }
  for (auto* const other : others) stream.runAfter(Stream::borrow(device(), other));
  group.start();
  for (auto* const other : others) Stream::borrow(device(), other).runAfter(stream);
}

std::byte* Comm::scratch(std::size_t bytes, bool capturing) {
  if (scratch_.empty() || scratch_.back().bytes() < bytes || capturing) {
    // What was used before may still be read, or be a graph's.
    scratch_.emplace_back(device(), bytes);
  }
  return static_cast<std::byte*>(scratch_.back().data());
}

std::shared_ptr<Comm> Comm::split(int color, int key, Wishes const& wishes) {
  std::lock_guard const lock(mutex_);
  requireUsableOrRevoked();
  if (color < 0 && color != noColor) refuse(ncclInvalidArgument, "rank {}: colour {}; give 0 or more", rank(), color);
  struct Choice {
    int color;
    int key;
  };
  std::vector<Choice> all(static_cast<std::size_t>(size()));
  all[static_cast<std::size_t>(rank())] = {color, key};
  communicator_->setup()->allGather(all.data(), sizeof(Choice));
  if (color == noColor) return nullptr;
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (all[static_cast<std::size_t>(other)].color == color) members.push_back(other);
  }
  std::ranges::stable_sort(members, {}, [&](int member) { return all[static_cast<std::size_t>(member)].key; });
  return std::make_shared<Comm>(communicator_->shrink(members), wishes);
}

std::shared_ptr<Comm> Comm::shrink(std::span<int const> excluded, Wishes const& wishes) {
  std::lock_guard const lock(mutex_);
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (std::ranges::find(excluded, other) == excluded.end()) members.push_back(other);
  }
  for (int const out : excluded) {
    if (out < 0 || out >= size()) {
      refuse(ncclInvalidArgument, "rank {}: rank {} is to be excluded; there are ranks 0 to {}", rank(), out,
             size() - 1);
    }
    if (out == rank()) refuse(ncclInvalidUsage, "rank {}: it is excluded itself, so it must not call", rank());
  }
  return std::make_shared<Comm>(communicator_->shrink(members), wishes);
}

ncclUniqueId Comm::makeGrowthId() {
  std::lock_guard const lock(mutex_);
  requireUsable();
  if (growthId_) {
    refuse(ncclInvalidUsage, "rank {}: the id that was made before has not been used; give it to ncclCommGrow", rank());
  }
  return growthId_.emplace(freshId());
}

ncclUniqueId Comm::agreeToGrow(int ranks, ncclUniqueId const* id) {
  std::lock_guard const lock(mutex_);
  requireUsable();
  struct Offer {
    ncclUniqueId id;
    int given;
    int ranks;
  };
  std::vector<Offer> all(static_cast<std::size_t>(size()));
  auto& mine = all[static_cast<std::size_t>(rank())];
  mine.ranks = ranks;
  if (id != nullptr) {
    mine.id = *id;
    // One that is none of this communicator's is refused by all, so that nobody waits.
    bool const own = growthId_ && std::memcmp(growthId_->internal, id->internal, sizeof id->internal) == 0;
    mine.given = own ? 1 : -1;
  }
  communicator_->setup()->allGather(all.data(), sizeof(Offer));
  ncclUniqueId const* chosen = nullptr;
  for (int other = 0; other < size(); ++other) {
    auto const& offer = all[static_cast<std::size_t>(other)];
    if (offer.ranks != ranks) {
      refuse(ncclInvalidArgument, "rank {}: to grow to {} ranks, but rank {} says {}", rank(), ranks, other,
             offer.ranks);
    }
    if (offer.given < 0) {
      refuse(ncclInvalidArgument, "rank {}: the id that rank {} gives is not from its ncclCommGetUniqueId", rank(),
             other);
    }
    if (offer.given == 0) continue;
    if (chosen != nullptr) {
      refuse(ncclInvalidArgument, "rank {}: rank {} gives an id, too; one of the ranks that are there gives it", rank(),
             other);
    }
    chosen = &offer.id;
  }
  if (chosen == nullptr) {
    refuse(ncclInvalidArgument,
           "rank {}: none of the ranks that are there gives an id; the one that made it by ncclCommGetUniqueId does",
           rank());
  }
  growthId_.reset();
  return *chosen;
}

int Comm::addFactor(Factor const& factor) {
  std::lock_guard const lock(factorMutex_);
  auto const free = std::ranges::find_if(factors_, [](auto const& held) { return !held; });
  auto const place = free - factors_.begin();
  if (free == factors_.end()) {
    factors_.emplace_back(factor);
  } else {
    *free = factor;
  }
  return ncclNumOps + static_cast<int>(place);
}

Factor Comm::factor(int op) const {
  std::lock_guard const lock(factorMutex_);
  auto const place = static_cast<std::size_t>(op) - ncclNumOps;
  if (op < ncclNumOps || place >= factors_.size() || !factors_[place]) {
    refuse(ncclInvalidArgument, "rank {}: operation {} is none of this communicator's", rank(), op);
  }
  return *factors_[place];
}

void Comm::removeFactor(int op) {
  (void)factor(op);
  std::lock_guard const lock(factorMutex_);
  factors_[static_cast<std::size_t>(op) - ncclNumOps].reset();
}

void* Comm::addWindow(void* base, std::size_t bytes, bool symmetric) {
  std::lock_guard const lock(mutex_);
  requireUsable();
  if (base == nullptr || bytes == 0) refuse(ncclInvalidArgument, "rank {}: a window without memory", rank());
  std::shared_ptr<RemoteMemory> remote;
  if (symmetric && !isApart_) {
    remote = std::make_shared<RemoteMemory>(*communicator_, base, bytes, ranksHere_ == size());
  }
  if (symmetric) {
    // Peers find each other's buffers by how far they lie in their allocations.
    auto const allocation = device().runtime().allocationOf(base);
    std::vector<std::uint64_t> places(static_cast<std::size_t>(size()));
    auto& mine = places[static_cast<std::size_t>(rank())];
    mine = static_cast<std::uint64_t>(static_cast<std::byte*>(base) - static_cast<std::byte*>(allocation.base));
    communicator_->setup()->allGather(places.data(), sizeof mine);
    symmetric = std::ranges::count(places, mine) == size();
  }
  auto window = std::make_unique<Window>(Window{static_cast<std::byte*>(base), bytes, symmetric, std::move(remote)});
  auto* const handle = window.get();
  if (window->remote != nullptr) nameWindow(handle, window->remote);
  windows_.emplace(handle, std::move(window));
  return handle;
}

void Comm::removeWindow(void* window) {
  std::lock_guard const lock(mutex_);
  (void)windowNamed(window);
  forgetWindow(window);
  windows_.erase(window);
}

Comm::Window& Comm::windowNamed(void* window) {
  auto const found = windows_.find(window);
  if (found == windows_.end()) refuse(ncclInvalidArgument, "rank {}: no such window", rank());
  return *found->second;
}

void* Comm::baseOf(void* window) {
  std::lock_guard const lock(mutex_);
  return windowNamed(window).base;
}

bool Comm::isSymmetric(void const* data, std::size_t bytes) const {
  auto const* const first = static_cast<std::byte const*>(data);
  return std::ranges::any_of(windows_, [&](auto const& entry) {
    auto const& window = *entry.second;
    return window.symmetric && first >= window.base && first + bytes <= window.base + window.bytes;
  });
}

void Comm::finalize() {
  std::lock_guard const lock(mutex_);
  if (finalized_) refuse(ncclInvalidArgument, "rank {}: the communicator has been finalized already", rank());
  requireUsable();
  bar(finalized_);
  finishWork();
  communicator_->checkReports();
}

void Comm::abort() noexcept {
  bar(aborted_);
  abortWork();
}

void Comm::revoke() noexcept {
  bar(revoked_);
  abortWork();
}

void Comm::abortWork() noexcept {
  communicator_->abort();
  for (auto const& each : algorithms_->registered) each->abort(*communicator_);
  if (shadow_) shadow_->abort();
}

void Comm::suspend() {
  std::lock_guard const lock(mutex_);
  requireUsable();
  auto const bytes = contextCounts(*communicator_).workspaceBytes + (links_ ? links_->bytes() : 0);
  // Waits for the work of all ranks.
  releaseContexts(*communicator_);
  links_.reset();
  scratch_.clear();
  captured_.clear();
  suspendedBytes_ = bytes;
  bar(suspended_);
}

void Comm::resume() {
  std::lock_guard const lock(mutex_);
  if (!suspended_) refuse(ncclInvalidUsage, "rank {}: the communicator is not suspended", rank());
  if (!allGoesToReal()) makeLinks();
  queue_.renew();
  suspended_ = false;
  barred_ = false;
  if (aborted_ || revoked_ || finalized_ || failure_ != ncclSuccess) barred_ = true;
}

Comm::Memory Comm::memory() {
  std::lock_guard const lock(mutex_);
  Memory memory{.suspendable = suspendedBytes_, .rest = signals_ ? signals_->bytes() : 0, .suspended = suspended_};
  if (!suspended_) {
    memory.suspendable = contextCounts(*communicator_).workspaceBytes + (links_ ? links_->bytes() : 0);
    for (auto const& scratch : scratch_) memory.suspendable += scratch.bytes();
  }
  return memory;
}

double Comm::predictedTime(std::span<Operation const> operations) const {
  auto const& world = World::of(*communicator_);
  auto const& model = MachineModel::of(world.device);
  double seconds = 0;
  double sent = 0;
  bool messages = false;
  for (auto const& operation : operations) {
    if (operation.work != Work::collective) {
      messages = true;
      if (operation.work == Work::send) sent += static_cast<double>(operation.count * bytesOf(operation.type));
      continue;
    }
    if (operation.count == 0) continue;
    auto const call = callFor(operation);
    auto const found = algorithms_->collection.resolve(operation.collective, world, call);
    std::optional<double> time;
    if (found.launch) {
      auto const& shape = found.launch->shape;
      auto const parts = static_cast<std::size_t>(size());
      time = predict(model, {.ranks = size(),
                             .collective = operation.collective,
                             .algorithm = found.algorithm->name(),
                             .bytes = traitsOf(operation.collective).wholeBytes(call.inBytes, call.outBytes, parts),
                             .blocks = shape.blocks,
                             .threads = shape.threads,
                             .overlapped = shape.overlapPrevious});
    }
    if (!time) {
      refuse(ncclInvalidUsage, "rank {}: the model of costs does not know {} by {}", rank(),
             nameOf(operation.collective), found.algorithm->name());
    }
    seconds += *time;
  }
  if (messages && isApart_) {
    refuse(ncclInvalidUsage, "rank {}: the model of costs does not know messages of ranks of several hosts", rank());
  }
  // All together, in one kernel.
  if (messages) seconds += model.kernelTime + model.packetTime + sent / model.storeRate;
  return seconds;
}

void Comm::note(Error const& error) noexcept {
  // What a call refuses before anything is started is no failure of the communicator.
  if (error.code() == ErrorCode::invalidUsage || error.code() == ErrorCode::unsupported) return;
  int none = ncclSuccess;
  failure_.compare_exchange_strong(none, codeOf(error.code()));
  barred_ = true;
}

ncclResult_t Comm::asyncError() {
  // Another thread may be at work here, so nothing is taken away.
  if (failure_ == ncclSuccess && !aborted_ && !revoked_) {
    auto text = explain(*communicator_->watch());
    auto const fault = communicator_->fault();
    for (auto const& each : algorithms_->registered) {
      if (text.empty()) text = each->fault(*communicator_);
    }
    if (fault || !text.empty()) {
      int none = ncclSuccess;
      if (failure_.compare_exchange_strong(none, ncclRemoteError)) {
        barred_ = true;
        (void)guarded("ncclCommGetAsyncError",
                      [&]() -> ncclResult_t { refuse(ncclRemoteError, "{}", fault ? fault->what() : text); });
      }
    }
  }
  if (failure_ == ncclSuccess && shadow_ && !aborted_ && !revoked_) return shadow_->asyncError();
  return static_cast<ncclResult_t>(failure_.load());
}

void Comm::finishWork() noexcept {
  try {
    (void)device().runtime().synchronizeDevice(device().ordinal);
  } catch (std::exception const& error) {
    log(LogLevel::info, "rank {}: as its NCCL communicator is destroyed: {}", rank(), error.what());
  }
}

void Comm::meetLast() noexcept {
  try {
    communicator_->setup()->barrier();
  } catch (std::exception const& error) {
    log(LogLevel::info, "rank {}: as its NCCL communicator is destroyed: {}", rank(), error.what());
  }
}

}  // namespace mscclpp::nccl

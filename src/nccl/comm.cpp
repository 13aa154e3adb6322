// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/comm.hpp"

#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/host/wait_report.hpp"
#include "nccl/algorithms.hpp"
#include "nccl/machine.hpp"
#include "nccl/patience.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

// Made with the communicator, since only the two ranks of a message call: small, and smaller the more ranks there are.
layout::PointToPointRequirement linkRequirement(int ranks) {
  layout::PointToPointRequirement need;
  need.lanes = ranks <= 8 ? 8 : 2;
  need.stageBytes = 32 << 10;
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

Comm::Comm(std::unique_ptr<Communicator> communicator, bool blocking)
    : communicator_(std::move(communicator)), blocking_(blocking), queue_(communicator_->device(), false) {
  if (auto const limit = patience("MSCCLPP_KERNEL_TIMEOUT")) communicator_->setTimeLimit(*limit);
  meetFirst();
  if (isApart_) return;
  (void)World::of(*communicator_);
  prepareScaling(device());
  links_.emplace(*communicator_, linkRequirement(size()));
}

Comm::Comm(std::shared_ptr<Bootstrap> bootstrap, Device device, bool blocking)
    : Comm(std::make_unique<Communicator>(std::move(bootstrap), device), blocking) {}

Comm::~Comm() = default;

// What ranks find out together once, so that calls need not.
void Comm::meetFirst() {
  static std::uint64_t const process = freshNumber();
  struct Introduction {
    std::uint64_t process;
    std::uint64_t number;
    int realVersion;
    unsigned forced;
    std::uint64_t plans;
    int apartFrom;  // a rank; -1: none
  };
  auto const* const real = RealNccl::instance();
  Introduction mine{.process = process,
                    .number = freshNumber(),
                    .realVersion = real == nullptr ? 0 : real->version,
                    .forced = Forced::instance().bits(),
                    .plans = planMark(),
                    .apartFrom = -1};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && !communicator_->reaches(peer)) mine.apartFrom = peer;
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
      refuse(ncclInvalidUsage, "rank {} has other plans in {} than rank {} in its folder; have the same on all ranks",
             rank(), planFolder(), other);
    }
  }
  auto const apart = std::ranges::find_if(all, [](Introduction const& one) { return one.apartFrom >= 0; });
  isApart_ = apart != all.end();
  if (real != nullptr) {
    shadow_.emplace(*real, *communicator_);
    if (isApart_)
      log(LogLevel::info, "rank {}: everything goes to NCCL {}, since not all ranks reach each other", rank(),
          real->version);
  } else if (isApart_) {
    refuse(ncclInvalidUsage,
           "rank {} does not reach the memory of rank {}, on another host perhaps; name NVIDIA's libnccl.so.2 in "
           "MSCCLPP_NCCL_LIB_PATH, which such communicators then go to",
           apart - all.begin(), apart->apartFrom);
  } else if (mine.forced != 0) {
    refuse(ncclInvalidUsage,
           "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION is set, but MSCCLPP_NCCL_LIB_PATH, which it needs, is not");
  }
}

bool Comm::goesToReal(Operation const& operation) const {
  return shadow_ && (isApart_ || Forced::instance().holds(operation.collective));
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
  auto const call = callOf(operation, rank(), size());
  if ((call.inBytes != 0 && call.in == nullptr) || (call.outBytes != 0 && call.out == nullptr)) {
    refuse(ncclInvalidArgument, "rank {}: {} of {} elements with a null pointer as its {}", rank(),
           nameOf(operation.collective), operation.count, call.in == nullptr ? "input" : "output");
  }
}

void Comm::requireUsable() const {
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
  auto const graph = runtime(device().kind).captureOf(stream);
  return graph == 0 ? queue_ : captured_.try_emplace(graph, device(), true).first->second;
}

void Comm::start(std::span<Operation const> operations) {
  KeepDevice const keep(device());
  std::lock_guard const lock(mutex_);
  requireUsable();
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
    return last && algorithms().startsAtOnce(operation.collective, *communicator_, *last, callFor(operation));
  });
}

std::string Comm::startCollective(Operation const& operation) {
  auto& queue = queueOf(operation.stream);
  auto const& stream = queue.in(operation.stream);
  auto call = callFor(operation);
  try {
    if (queue.isNew()) algorithms().prepare(*communicator_, stream, preparedBytes);
    if (operation.factor) {
      // Nothing may be multiplied yet where the call then goes to NCCL, which does that itself.
      (void)algorithms().resolve(operation.collective, World::of(*communicator_), call);
      // Into the output where there is room, which then is the input too.
      bool const fits = call.outBytes >= call.inBytes;
      void* const scaled = fits ? call.out : scratch(call.inBytes, stream.capturing());
      scale(stream, *operation.factor, call.in, scaled, call.inBytes / bytesOf(call.type));
      call.in = scaled;
    }
    algorithms().execute(operation.collective, *communicator_, stream, call);
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
  if (runtime(device().kind).captureOf(native) != 0) return queueOf(native).in(native);
  Stream const* stream = nullptr;
  for (auto const& message : messages) {
    std::pair const end(message.root, message.work == Work::send);
    stream = &messages_.try_emplace(end, device(), false).first->second.in(native);
  }
  return *stream;
}

void Comm::startMessages(std::span<Operation const> messages) {
  auto const& stream = streamOf(messages);
  MessageGroup group(*links_, stream);
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

std::shared_ptr<Comm> Comm::split(int color, int key, bool blocking) {
  std::lock_guard const lock(mutex_);
  requireUsable();
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
  return std::make_shared<Comm>(communicator_->shrink(members), blocking);
}

std::shared_ptr<Comm> Comm::shrink(std::span<int const> excluded, bool blocking) {
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
  return std::make_shared<Comm>(communicator_->shrink(members), blocking);
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
  if (symmetric) {
    // Peers find each other's buffers by how far they lie in their allocations.
    auto const allocation = device().runtime().allocationOf(base);
    std::vector<std::uint64_t> places(static_cast<std::size_t>(size()));
    auto& mine = places[static_cast<std::size_t>(rank())];
    mine = static_cast<std::uint64_t>(static_cast<std::byte*>(base) - static_cast<std::byte*>(allocation.base));
    communicator_->setup()->allGather(places.data(), sizeof mine);
    symmetric = std::ranges::count(places, mine) == size();
  }
  auto window = std::make_unique<Window>(Window{static_cast<std::byte*>(base), bytes, symmetric});
  auto* const handle = window.get();
  windows_.emplace(handle, std::move(window));
  return handle;
}

void Comm::removeWindow(void* window) {
  std::lock_guard const lock(mutex_);
  if (windows_.erase(window) == 0) refuse(ncclInvalidArgument, "rank {}: no such window", rank());
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
  finalized_ = true;
  finishWork();
  communicator_->checkReports();
}

void Comm::abort() noexcept {
  aborted_ = true;
  communicator_->abort();
  if (shadow_) shadow_->abort();
}

void Comm::note(Error const& error) noexcept {
  // What a call refuses before anything is started is no failure of the communicator.
  if (error.code() == ErrorCode::invalidUsage || error.code() == ErrorCode::unsupported) return;
  int none = ncclSuccess;
  failure_.compare_exchange_strong(none, codeOf(error.code()));
}

ncclResult_t Comm::asyncError() {
  // Another thread may be at work here, so nothing is taken away.
  if (failure_ == ncclSuccess && !aborted_) {
    auto const text = explain(*communicator_->watch());
    auto const fault = communicator_->fault();
    if (fault || !text.empty()) {
      int none = ncclSuccess;
      if (failure_.compare_exchange_strong(none, ncclRemoteError)) {
        (void)guarded("ncclCommGetAsyncError",
                      [&]() -> ncclResult_t { refuse(ncclRemoteError, "{}", fault ? fault->what() : text); });
      }
    }
  }
  if (failure_ == ncclSuccess && shadow_ && !aborted_) return shadow_->asyncError();
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

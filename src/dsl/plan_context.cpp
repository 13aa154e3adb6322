// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/dsl/plan_context.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "dsl/plan_ports.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/dsl/detail/lower/lower.hpp"
#include "mscclpp/dsl/passes/coarsen.hpp"
#include "mscclpp/dsl/passes/promote.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/multicast.hpp"

namespace mscclpp::dsl {
namespace {

constexpr std::size_t signalStride = 64;  // counters of different peers do not share a sector

// All ranks lay out alike: room for the rank with the most channels and the most scratch.
struct SharedLayout {
  std::size_t calls = 0, scratch = 0;  // where they begin
  std::size_t bytes = 0;
  std::uint64_t stride = 0, half = 0;
};

SharedLayout layoutOf(Program const& program, layout::PlanShape const& shape, std::uint64_t maxBytes) {
  std::size_t channels = 0, chunks = 0;
  for (auto const& rank : program.ranks) {
    channels = std::max(channels, rank.channels.size());
    chunks = std::max(chunks, static_cast<std::size_t>(rank.scratchChunks));
  }
  SharedLayout at;
  at.calls = channels * signalStride;
  at.scratch = roundUp<std::size_t>(at.calls + sizeof(layout::RoundCounter) * shape.blocks, 256);
  at.stride = roundUp<std::size_t>(std::max<std::uint64_t>(longestChunk(maxBytes, shape.longestOf), 16), 16) *
              (program.protocol == Protocol::lowLatency ? 2 : 1);
  at.half = roundUp<std::size_t>(at.stride * chunks, 256);
  at.bytes = std::max<std::size_t>(at.scratch + at.half * (program.doubleScratch ? 2 : 1), 256);
  return at;
}

template <class T>
std::size_t append(std::vector<std::byte>& bytes, std::vector<T> const& items) {
  auto const at = roundUp<std::size_t>(bytes.size(), 16);
  bytes.resize(at + items.size() * sizeof(T));
  if (!items.empty()) std::memcpy(bytes.data() + at, items.data(), items.size() * sizeof(T));
  return at;
}

// Whether a switch reads or writes scratch.
bool wantsMulticastScratch(Program const& program) {
  for (auto const& rank : program.ranks) {
    for (auto const& channel : rank.channels) {
      if (channel.kind == ChannelKind::switched && channel.buffer == BufferKind::scratch) return true;
    }
  }
  return false;
}

// Chunks that a block moves side by side, at most: those of one step, and those of the steps between two barriers.
struct Widest {
  unsigned step = 1, steps = 1;
};
Widest widestOf(Program const& program) {
  Widest widest;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) {
      unsigned beside = 0;
      for (auto const& step : block.steps) {
        if (step.kind == StepKind::sync || step.kind == StepKind::barrier) beside = 0;
        if (step.kind != StepKind::move) continue;
        auto const chunks = static_cast<unsigned>(step.sources[0].count);
        beside += chunks;
        widest.step = std::max(widest.step, chunks);
        widest.steps = std::max(widest.steps, beside);
      }
    }
  }
  return widest;
}

Verdict verdictOn(Program program) { return prove(program); }

}  // namespace

std::string hostsRefusal(Program const& program, std::vector<int> const& hosts) {
  if (hosts.empty()) return {};
  auto const hostOf = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < program.size(); ++rank) {
    auto const apart = [&](int other) { return hostOf(other) != hostOf(rank); };
    auto const refused = [&](char const* what, int other) {
      return fmt::format("it has {} rank {} and rank {}, which are on different hosts; use a port channel there", what,
                         std::min(rank, other), std::max(rank, other));
    };
    auto const& mine = program.ranks[static_cast<std::size_t>(rank)];
    for (auto const& channel : mine.channels) {
      if (channel.kind == ChannelKind::memory && apart(channel.peer)) {
        return refused("a memory channel between", channel.peer);
      }
      auto const far = std::ranges::find_if(channel.ranks, apart);
      if (far != channel.ranks.end()) return refused("a switch channel of", *far);
    }
    for (auto const& block : mine.blocks) {
      for (auto const& step : block.steps) {
        if (step.link == ChannelKind::port) continue;
        for (auto const* operands : {&step.sources, &step.targets}) {
          auto const far = std::ranges::find_if(*operands, apart, &Chunks::rank);
          if (far != operands->end()) return refused("a step that moves data between", far->rank);
        }
      }
    }
  }
  return {};
}

PlanContext::PlanContext(Communicator const& communicator, Program const& program, std::uint64_t maxBytes,
                         StepForm form)
    : PlanContext(communicator, program, verdictOn(program), maxBytes, form) {}

PlanContext::PlanContext(Communicator const& communicator, Program const& program, Verdict const& verdict,
                         std::uint64_t maxBytes, StepForm form)
    : maxBytes_(maxBytes), form_(form) {
  int const rank = communicator.rank();
  if (!verdict.right()) {
    fail(ErrorCode::invalidUsage, "rank {}: program '{}' is wrong: {}", rank, program.name.str(),
         verdict.diagnostic.str());
  }
  if (program.size() != communicator.size()) {
    fail(ErrorCode::invalidUsage, "rank {}: program '{}' is for {} ranks, the communicator has {}", rank,
         program.name.str(), program.size(), communicator.size());
  }
  if (maxBytes > largestMessage) {
    fail(ErrorCode::invalidUsage, "rank {}: a context of program '{}' for messages of {} bytes; {} are possible", rank,
         program.name.str(), maxBytes, largestMessage);
  }
  if (auto const why = hostsRefusal(program, hostsOf(communicator)); !why.empty()) {
    fail(ErrorCode::unsupported, "rank {}: program '{}': {}", rank, program.name.str(), why);
  }
  // As kernels have it.
  auto made = program;
  markConclusions(made, verdict.reductions);
  coarsen(made);
  handle_.rank = rank;
  handle_.shape = shapeOf(made, verdict.needsEvenChunks);
  handle_.watch = communicator.watch();
  shape_ = {.blocks = handle_.shape.blocks, .threads = static_cast<unsigned>(made.threads)};
  auto const widest = widestOf(made);
  widestStep_ = widest.step;
  widestSteps_ = widest.steps;
  share(communicator, made);
  makeCounters(communicator, made);
  makeTable(communicator, made);
}

LaunchShape PlanContext::launchShape(std::uint64_t bytes, StepForm form) const noexcept {
  constexpr std::uint64_t warp = 32;
  // Packets of LL16, whose payload is half an access, are the most slots that there can be.
  auto const slots =
      ceilDiv<std::uint64_t>(longestChunk(std::max<std::uint64_t>(bytes, 1), handle_.shape.longestOf), 8);
  // A thread for each slot of a step. More, so that steps get threads of their own, always where they are interpreted,
  // which takes long; of code only up to a few warps, since each one more takes time to start and runs through all
  // steps (two-shot all-reduce of 4 KiB, 4 ranks on 2 H200: code 4.0 us with 128 threads, 4.2 with 512; table 23 and
  // 19).
  std::uint64_t const most = form == StepForm::code ? 4 * warp : shape_.threads;
  auto const filled = roundUp(slots, warp);
  auto const threads = std::max(filled * widestStep_, std::min(filled * widestSteps_, most));
  auto shape = shape_;
  shape.threads = static_cast<unsigned>(std::min<std::uint64_t>(threads, shape.threads));
  return shape;
}

void PlanContext::stopPorts() const noexcept {
  if (ports_) ports_->stop();
}

void PlanContext::share(Communicator const& communicator, Program const& program) {
  auto const at = layoutOf(program, handle_.shape, maxBytes_);
  auto const chunk = longestChunk(maxBytes_, handle_.shape.longestOf);
  if (program.protocol == Protocol::lowLatency && chunk > largestPacketChunk) {
    fail(ErrorCode::invalidUsage,
         "rank {}: program '{}' sends chunks of {} bytes of a message of {} as packets; {} are possible. Cut the "
         "message into more chunks, or into several calls",
         handle_.rank, program.name.str(), chunk, maxBytes_, largestPacketChunk);
  }
  if (at.bytes - at.scratch > largestScratch) {
    fail(ErrorCode::invalidUsage,
         "rank {}: program '{}' needs {} bytes of scratch for messages of {} bytes; {} are possible. Give the context "
         "a smaller message",
         handle_.rank, program.name.str(), at.bytes - at.scratch, maxBytes_, largestScratch);
  }
  bool const multicast = wantsMulticastScratch(program) && canMulticast(communicator);
  shared_ =
      DeviceMemory(communicator.device(), at.bytes, multicast ? MemoryKind::shareable : communicator.mappedKind());
  bool const ports = usesPorts(program);
  mapped_ = communicator.exchangeMemory(
      ports ? communicator.registerMemory(shared_.data(), at.bytes, communicator.transports())
            : communicator.registerMemory(shared_.data(), at.bytes));
  handle_.scratchStride = static_cast<std::uint32_t>(at.stride / 16);
  handle_.scratchHalf = static_cast<std::uint32_t>(at.half / 16);
  handle_.maxBytes = maxBytes_;
  for (std::size_t r = 0; r < mapped_.size(); ++r) {
    if (mapped_[r].size() < at.bytes) {
      fail(
          ErrorCode::invalidUsage,
          "rank {}: program '{}' needs {} bytes here and rank {} made {}; all ranks must make the same contexts in the "
          "same order",
          handle_.rank, program.name.str(), at.bytes, r, mapped_[r].size());
    }
    // Between hosts there are ports only.
    if (communicator.reaches(static_cast<int>(r))) handle_.scratch[r] = mapped_[r].data() + at.scratch;
  }
  handle_.scratchStart = at.scratch;
  std::vector<layout::RoundCounters> counters;
  for (std::size_t r = 0; r < mapped_.size(); ++r) {
    if (!communicator.reaches(static_cast<int>(r))) continue;
    auto* const calls = reinterpret_cast<layout::RoundCounter*>(mapped_[r].data() + at.calls);
    counters.push_back({calls, handle_.shape.blocks, static_cast<unsigned>(r)});
    if (static_cast<int>(r) == handle_.rank) handle_.calls = calls;
  }
  guard_ = communicator.leadAstray(counters);
  if (multicast) {
    multicast_.emplace(communicator, shared_.data(), at.bytes);
    handle_.scratchMulticast = multicast_->address() + at.scratch;
  }
  std::fill(std::begin(handle_.portMemories), std::end(handle_.portMemories), layout::noPortMemory);
  if (!ports) return;
  ports_ = std::make_shared<PlanPorts>(communicator, program, mapped_);
  handle_.ports = ports_->handles();
  handle_.portMemories[static_cast<int>(BufferKind::scratch)] = ports_->shared();
}

layout::PlanHandle PlanContext::deviceHandle(MemoryWindow const* in, MemoryWindow const* out) const {
  auto handle = handle_;
  if (!ports_) return handle;
  if (in != nullptr) handle.portMemories[static_cast<int>(BufferKind::input)] = ports_->ofWindow(*in);
  if (out != nullptr) handle.portMemories[static_cast<int>(BufferKind::output)] = ports_->ofWindow(*out);
  return handle;
}

// Counters for each channel and semaphore, words for each barrier, the epoch of each block.
void PlanContext::makeCounters(Communicator const& communicator, Program const& program) {
  auto const& mine = program.ranks[static_cast<std::size_t>(handle_.rank)];
  std::size_t barriers = 0;
  for (auto const& block : mine.blocks) {
    for (auto const& step : block.steps) {
      if (step.kind == StepKind::barrier) barriers = std::max(barriers, static_cast<std::size_t>(step.objects[0]) + 1);
    }
  }
  std::size_t const channels = mine.channels.size(), semaphores = mine.semaphores.size();
  std::vector<std::uint64_t> words(channels + 2 * semaphores + barriers);
  auto const tokens = channels;
  auto const firstBarrier = tokens + 2 * semaphores;
  for (std::size_t s = 0; s < semaphores; ++s) words[tokens + 2 * s] = static_cast<std::uint64_t>(mine.semaphores[s]);

  auto const handles = words.size() * sizeof(std::uint64_t);
  private_ = DeviceMemory(communicator.device(), handles + (channels + semaphores) * sizeof(layout::SemaphoreHandle));
  auto* const base = static_cast<std::uint64_t*>(private_.data());
  std::vector<layout::SemaphoreHandle> list;
  auto const pairs = pairChannels(program)[static_cast<std::size_t>(handle_.rank)];
  for (std::size_t c = 0; c < channels; ++c) {
    int const peer = mine.channels[c].peer;
    if (mine.channels[c].kind != ChannelKind::memory) {
      list.push_back({});
      continue;
    }
    int const pair = pairs[c];
    auto const word = [&](int rank, int channel) {
      return reinterpret_cast<std::uint64_t*>(mapped_[static_cast<std::size_t>(rank)].data() +
                                              static_cast<std::size_t>(channel) * signalStride);
    };
    // A channel without a partner has no signals.
    list.push_back({word(handle_.rank, static_cast<int>(c)), pair < 0 ? nullptr : word(peer, pair), base + c,
                    handle_.watch, peer, static_cast<std::uint32_t>(c)});
  }
  for (std::size_t s = 0; s < semaphores; ++s) {
    auto* const token = base + tokens + 2 * s;
    list.push_back({token, token, token + 1, handle_.watch, handle_.rank, static_cast<std::uint32_t>(s)});
  }
  copyToDevice(communicator.device(), base, std::span<std::uint64_t const>(words));
  auto* const placed = reinterpret_cast<layout::SemaphoreHandle*>(static_cast<std::byte*>(private_.data()) + handles);
  copyToDevice(communicator.device(), placed, std::span<layout::SemaphoreHandle const>(list));
  handle_.barriers = reinterpret_cast<std::uint32_t*>(base + firstBarrier);
  handle_.channels = placed;
  handle_.semaphores = placed + channels;
}

void PlanContext::makeTable(Communicator const& communicator, Program const& program) {
  std::vector<layout::PlanBlock> blocks;
  std::vector<layout::PlanStep> steps;
  std::vector<layout::PlanOperand> operands;
  std::vector<std::int32_t> objects;
  detail::Lowering lowering(program);
  for (int b = 0; b < static_cast<int>(handle_.shape.blocks); ++b) {
    auto const slice = lowering.ofRank(handle_.rank, b);
    blocks.push_back({static_cast<std::int32_t>(steps.size()), static_cast<std::int32_t>(slice.steps.size())});
    for (auto step : slice.steps) {
      step.firstOperand += static_cast<std::int32_t>(operands.size());
      step.firstObject += static_cast<std::int32_t>(objects.size());
      steps.push_back(step);
    }
    operands.insert(operands.end(), slice.operands.begin(), slice.operands.end());
    for (auto const& object : slice.objects) objects.push_back(object.base);
  }
  std::vector<std::byte> bytes;
  auto const blocksAt = append(bytes, blocks), stepsAt = append(bytes, steps), operandsAt = append(bytes, operands),
             objectsAt = append(bytes, objects);
  table_ = DeviceMemory(communicator.device(), std::max<std::size_t>(bytes.size(), 16));
  auto* const base = static_cast<std::byte*>(table_.data());
  copyToDevice(communicator.device(), base, std::span<std::byte const>(bytes));
  handle_.table = reinterpret_cast<layout::PlanBlock const*>(base + blocksAt);
  handle_.steps = reinterpret_cast<layout::PlanStep const*>(base + stepsAt);
  handle_.operands = reinterpret_cast<layout::PlanOperand const*>(base + operandsAt);
  handle_.objects = reinterpret_cast<std::int32_t const*>(base + objectsAt);
}

}  // namespace mscclpp::dsl

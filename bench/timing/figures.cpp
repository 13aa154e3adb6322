// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "figures.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "machine/over_ranks.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

namespace timing_bench {
namespace {

using namespace mscclpp;
using Word = std::uint64_t;

constexpr unsigned warm = 16;  // rounds ahead of the measured ones
constexpr int repeats = 5;
constexpr unsigned streamBytes = 1 << 18;  // of a block; far less than the caches hold
constexpr unsigned streamThreads = 512;
constexpr unsigned manyBlocks = 16;

MSCCLPP_DEVICE void await(Word const* word, Word wanted) {
  poll(nullptr, {layout::WaitKind::semaphore, -1, 0, wanted}, [&](Word& seen) {
    seen = load<Order::relaxed, Scope::system>(word);
    return seen == wanted;
  });
}

// Calls act(round) in every round and tells how long a round takes, from the first thread of the grid.
template <class Act>
MSCCLPP_DEVICE void timeRounds(unsigned rounds, Word* ns, Act&& act) {
  Word begin = 0;
  for (unsigned round = 0; round < rounds + warm; ++round) {
    if (round == warm) begin = arch::nanoseconds();
    act(round);
  }
  if (thisGrid().rank() == 0) *ns = arch::nanoseconds() - begin;
}

// Waits whose condition is true at once: a look each.
struct Looks {
  MSCCLPP_DEVICE void operator()(Word const* word, unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [&](unsigned) { await(word, 0); });
  }
};

struct Stores {
  MSCCLPP_DEVICE void operator()(Word* words, unsigned rounds, Word* ns) const {
    auto* const word = words + arch::threadIndex();
    timeRounds(rounds, ns, [&](unsigned round) { store<Order::relaxed, Scope::system>(word, round); });
  }
};

template <Scope S>
struct Fences {
  MSCCLPP_DEVICE void operator()(unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [](unsigned) { fence<Order::acquireRelease, S>(); });
  }
};

// One block's bytes, over and over; the links take no part.
struct StreamOut {
  MSCCLPP_DEVICE void operator()(Words4* words, unsigned count, unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [&](unsigned round) {
      for (unsigned i = arch::threadIndex(); i < count; i += arch::blockThreads()) {
        arch::storeWords4(words + i, Words4{{round, round, round, round}});
      }
      arch::syncBlock();
    });
  }
};
struct StreamIn {
  MSCCLPP_DEVICE void operator()(Words4 const* words, unsigned count, unsigned rounds, Word* ns, unsigned* sink) const {
    constexpr unsigned atOnce = 8;
    unsigned sum = 0;
    timeRounds(rounds, ns, [&](unsigned) {
      for (unsigned first = arch::threadIndex(); first < count; first += atOnce * arch::blockThreads()) {
        Words4 values[atOnce];
        for (unsigned k = 0; k < atOnce; ++k) values[k] = arch::loadWords4(words + first + k * arch::blockThreads());
        for (auto const& value : values) sum += value.w[0] ^ value.w[3];
      }
      arch::syncBlock();
    });
    sink[arch::threadIndex()] = sum;
  }
};

// Two who answer each other. `first` begins.
struct PingPong {
  MSCCLPP_DEVICE void operator()(Word* own, Word* other, bool first, unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [&](unsigned round) {
      if (first) store<Order::relaxed, Scope::system>(other, round + 1);
      await(own, round + 1);
      if (!first) store<Order::relaxed, Scope::system>(other, round + 1);
    });
  }
};
struct PingPongOfBlocks {
  MSCCLPP_DEVICE void operator()(Word* words, unsigned rounds, Word* ns) const {
    constexpr unsigned apart = 32;  // not in one line
    bool const first = arch::blockIndex() == 0;
    PingPong{}(words + (first ? 0 : apart), words + (first ? apart : 0), first, rounds, ns);
  }
};

struct BlockMeetings {
  MSCCLPP_DEVICE void operator()(unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [](unsigned) { arch::syncBlock(); });
  }
};
struct WarpMeetings {
  MSCCLPP_DEVICE void operator()(unsigned rounds, Word* ns, unsigned* sink) const {
    unsigned value = arch::threadIndex();
    timeRounds(rounds, ns, [&](unsigned round) { value = arch::shuffle(value + round, value % 32); });
    sink[arch::threadIndex()] = value;
  }
};
struct ClusterMeetings {
  MSCCLPP_DEVICE void operator()(unsigned rounds, Word* ns) const {
    timeRounds(rounds, ns, [](unsigned) { arch::syncCluster(); });
  }
};

struct AwaitsPrevious {
  MSCCLPP_DEVICE void operator()() const {
    arch::allowNextKernel();
    arch::waitForPreviousKernel();
  }
};

class RankFigures {
 public:
  RankFigures(Communicator const& communicator, MakeTimer const& makeTimer, unsigned rounds)
      : communicator_(communicator),
        rounds_(rounds),
        stream_(communicator.device()),
        timer_(makeTimer(stream_)),
        words_(communicator.device(), streamBytes / sizeof(Word)),
        ns_(communicator.device(), 1),
        sink_(communicator.device(), 1024),
        window_(communicator, words_.data(), words_.bytes()) {}

  sim::TimingModel measure(sim::TimingModel model) {
    int const rank = communicator_.rank();
    auto* const own = words_.data();
    auto* const peer = reinterpret_cast<Word*>(window_.deviceHandle().bases[rank == 0 ? 1 : 0]);
    constexpr LaunchShape alone{.blocks = 1, .threads = 1};
    constexpr LaunchShape warp{.blocks = 1, .threads = 32};
    auto const n = rounds_;
    // A pair of lines of its own for each.
    model.issue = time(true, warp, Stores{}, peer + 128, n, ns_.data());
    auto const nearLook = time(true, alone, Looks{}, own, n, ns_.data());
    model.nearRound = nearLook - model.issue;
    model.farRound = time(true, alone, Looks{}, peer, n, ns_.data()) - model.issue;
    model.fence = time(true, alone, Fences<Scope::system>{}, n, ns_.data());
    model.deviceFence = time(true, alone, Fences<Scope::device>{}, n, ns_.data());
    // Of a round: two stores that are seen, and two looks that see them.
    auto const near = time(true, {.blocks = 2, .threads = 1}, PingPongOfBlocks{}, own + 384, n, ns_.data());
    model.nearStore = near / 2 - nearLook - model.issue;
    auto const far = time(rank < 2, alone, PingPong{}, own + 512, peer + 512, rank == 0, n, ns_.data());
    model.farStore = far / 2 - nearLook - model.issue;
    model.barrier = time(true, {.blocks = 1, .threads = 256}, BlockMeetings{}, n, ns_.data());
    model.warp = time(true, warp, WarpMeetings{}, n, ns_.data(), sink_.data());
    model.cluster = time(true, {.blocks = 4, .threads = 256, .clusterBlocks = 4}, ClusterMeetings{}, n, ns_.data());
    auto* const stream = reinterpret_cast<Words4*>(own);
    constexpr LaunchShape wide{.blocks = 1, .threads = streamThreads};
    constexpr unsigned count = streamBytes / sizeof(Words4);
    model.multiprocessorStoreRate = streamBytes / time(true, wide, StreamOut{}, stream, count, n, ns_.data());
    // The meeting of the threads waits for the last load.
    auto const in = time(true, wide, StreamIn{}, stream, count, n, ns_.data(), sink_.data());
    model.multiprocessorLoadRate = streamBytes / (in - nearLook - model.barrier);
    model.end = ofKernels(true, 1);
    model.endDoubling = (ofKernels(true, manyBlocks) - model.end) / std::countr_zero(manyBlocks);
    model.start = ofKernels(false, 1) - model.end;
    model.overlap = model.end / 2;  // hidden behind the end of the kernel ahead
    return model;
  }

 private:
  // Nanoseconds of a round, of the slower of the first two ranks.
  template <class Kernel, class... P>
  double time(bool takesPart, LaunchShape const& shape, Kernel const& kernel, P... parameters) {
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      words_.fill(0);
      communicator_.bootstrap()->barrier();
      if (takesPart) {
        launch(stream_, shape, kernel, parameters...);
        communicator_.synchronize(stream_);
      }
      communicator_.bootstrap()->barrier();
      bool const counts = takesPart && communicator_.rank() < 2;
      times.push_back(counts ? static_cast<double>(copyToHost(ns_)[0]) / rounds_ : 0);
    }
    return middle(std::move(times));
  }

  // Nanoseconds from one empty kernel to the next.
  double ofKernels(bool overlap, unsigned blocks) {
    auto const seconds = timer_->measure(
        {.restore = [] {},
         .operate =
             [&](int, bool behindKernel) {
               launch(stream_, {.blocks = blocks, .threads = 32, .overlapPrevious = overlap && behindKernel},
                      AwaitsPrevious{});
             },
         .operations = 512,  // the first of which overlaps nothing
         .together = [&] { communicator_.bootstrap()->barrier(); },
         .synchronize = [&] { communicator_.synchronize(stream_); }},
        repeats);
    return middle(seconds) * 1e9;
  }

  double middle(std::vector<double> values) const {
    std::ranges::nth_element(values, values.begin() + values.size() / 2);
    return bench::largest(communicator_, communicator_.rank() < 2 ? values[values.size() / 2] : 0);
  }

  Communicator const& communicator_;
  unsigned rounds_;
  Stream stream_;
  std::unique_ptr<bench::Timer> timer_;
  GpuBuffer<Word> words_;
  GpuBuffer<Word> ns_;
  GpuBuffer<unsigned> sink_;
  MemoryWindow window_;
};

}  // namespace

sim::TimingModel measure(Communicator const& communicator, MakeTimer const& makeTimer, unsigned rounds,
                         sim::TimingModel const& rest) {
  auto result = RankFigures(communicator, makeTimer, rounds).measure(rest);
  auto const properties = communicator.device().properties();
  result.multiprocessors = static_cast<int>(properties.multiprocessors);
  result.device = properties.name;
  return result;
}

}  // namespace timing_bench

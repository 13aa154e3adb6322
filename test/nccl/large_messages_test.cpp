// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages too large for packets: their memory comes with the first of them, whoever calls first, and nobody waits for
// another's call.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

// Beyond 1 MiB, and all of it fits the slots of memory for it, where two ranks have 32 lanes.
constexpr std::size_t count = 700'001;
constexpr std::uint64_t MiB = 1 << 20;
constexpr std::uint64_t atFirst = 8 * MiB;

std::uint64_t memory(ncclComm_t comm, int which = ncclStatGpuMemTotal) {
  std::uint64_t bytes = 0;
  CHECK_NCCL(ncclCommMemStats(comm, which, &bytes));
  return bytes;
}
std::uint64_t memory(NcclRank const& rank) { return memory(rank.comm); }

// Two slots of 256 KiB in each lane from each peer.
std::uint64_t slotBytes(int ranks) { return (ranks - 1u) * (ranks > 4 ? 16u : 32u) * 2 * MiB / 4; }

void waitFor(std::atomic<bool> const& what) {
  while (!what) std::this_thread::yield();
}

using Values = Data<std::uint32_t>;

// Each other than its neighbours, and than those of other ranks and turns.
std::vector<std::uint32_t> sentBy(int rank, int turn = 0) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<std::uint32_t>(i * 2654435761u) ^ static_cast<std::uint32_t>(rank * 1000 + turn);
  }
  return values;
}

void send(NcclRank const& rank, Values const& data, int to, Stream const& stream) {
  CHECK_NCCL(ncclSend(data.data(), count, ncclUint32, to, rank.comm, stream.native()));
}
void receive(NcclRank const& rank, Values const& data, int from, Stream const& stream) {
  CHECK_NCCL(ncclRecv(data.data(), count, ncclUint32, from, rank.comm, stream.native()));
}

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    for (int const end : ends) ::close(end);
  }
  template <class T>
  bool give(T const& value) const {
    return ::write(ends[1], &value, sizeof value) == sizeof value;
  }
  template <class T>
  bool take(T& value) const {
    return ::read(ends[0], &value, sizeof value) == sizeof value;
  }
  int ends[2]{};
};

// Rank `rank` of two, in this process. Rank 1 calls nothing until rank 0's message is done.
bool passesOn(int rank, Pipe const& toFirst, Pipe const& toSecond) {
  ncclUniqueId id{};
  bool right = rank == 0 ? ncclGetUniqueId(&id) == ncclSuccess && toSecond.give(id) : toSecond.take(id);
  mscclppNcclSimSetDevice(rank);
  ncclComm_t comm = nullptr;
  if (!right || ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return false;
  Stream const stream(simDevice(rank));
  Values const data(simDevice(rank), sentBy(rank));
  char word = 0;
  if (rank == 0) {
    right = ncclSend(data.data(), count, ncclUint32, 1, comm, stream.native()) == ncclSuccess;
    stream.synchronize();
    right = right && toSecond.give(word) && toFirst.take(word);
  } else {
    right = toSecond.take(word) && memory(comm) > atFirst;
    right = right && ncclRecv(data.data(), count, ncclUint32, 0, comm, stream.native()) == ncclSuccess;
    stream.synchronize();
    right = toFirst.give(word) && right && data.values() == sentBy(0);
  }
  return ncclCommDestroy(comm) == ncclSuccess && right;
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("the sender comes first, and the receiver is another process") {
  Pipe const toFirst, toSecond;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    auto const child = ::fork();
    if (child == 0) ::_exit(passesOn(rank, toFirst, toSecond) ? 0 : 1);
    children.push_back(child);
  }
  for (auto const child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("a communicator has no memory for large messages until there is one, and 64 MiB at most") {
  for (int const ranks : {1, 2, 3, 4, 7, 8}) {
    CAPTURE(ranks);
    std::barrier<> meeting(ranks);
    forEachNcclRank(ranks, [&](NcclRank const& rank) {
      Values const out(rank.device, sentBy(rank.rank)), in(rank.device, count, 0);
      int const next = (rank.rank + 1) % ranks, last = (rank.rank + ranks - 1) % ranks;
      auto const pass = [&](std::size_t elements) {
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclSend(out.data(), elements, ncclUint32, next, rank.comm, rank.native()));
        CHECK_NCCL(ncclRecv(in.data(), elements, ncclUint32, last, rank.comm, rank.native()));
        CHECK_NCCL(ncclGroupEnd());
        rank.stream.synchronize();
      };
      pass(MiB / sizeof(std::uint32_t));
      CHECK(memory(rank) <= atFirst);
      meeting.arrive_and_wait();  // then the first large one may come
      for (int turn = 0; turn < 2; ++turn) {
        pass(count);
        CHECK(in.values() == sentBy(last));
        CHECK(memory(rank) >= slotBytes(ranks));
        CHECK(memory(rank) <= 65 * MiB);
      }
    });
  }
}

TEST_CASE("however many ranks, a new communicator has 8 MiB at most") {
  for (int const ranks : {9, 16, 24}) {
    CAPTURE(ranks);
    ncclUniqueId id{};
    CHECK_NCCL(ncclGetUniqueId(&id));
    onThreads(ranks, [&](int rank) {
      mscclppNcclSimSetDevice(rank % 8);
      ncclComm_t comm = nullptr;
      CHECK_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
      CHECK(memory(comm) <= atFirst);
      CHECK_NCCL(ncclCommDestroy(comm));
    });
  }
}

TEST_CASE("the sender comes first: its call waits for nothing that the receiver calls, nor has others more memory") {
  std::atomic<bool> sent{false};
  std::atomic<int> done{0};
  forEachNcclRank(3, [&](NcclRank const& rank) {
    Values const data(rank.device, sentBy(rank.rank));
    if (rank.rank == 0) {
      send(rank, data, 1, rank.stream);
      rank.stream.synchronize();  // it fits
      sent = true;
    } else if (rank.rank == 1) {
      waitFor(sent);
      CHECK(memory(rank) > atFirst);
      receive(rank, data, 0, rank.stream);
      rank.stream.synchronize();
      CHECK(data.values() == sentBy(0));
    }
    ++done;
    while (done != 3) std::this_thread::yield();
    CHECK((memory(rank) > atFirst) == (rank.rank == 1));
  });
}

TEST_CASE("the receiver comes first") {
  std::atomic<bool> waits{false};
  forEachNcclRank(2, [&](NcclRank const& rank) {
    Values const data(rank.device, sentBy(rank.rank));
    if (rank.rank == 0) {
      waitFor(waits);
      send(rank, data, 1, rank.stream);
      rank.stream.synchronize();
      CHECK(memory(rank) <= atFirst);
    } else {
      receive(rank, data, 0, rank.stream);
      CHECK(memory(rank) > atFirst);
      waits = true;
      rank.stream.synchronize();
      CHECK(data.values() == sentBy(0));
    }
  });
}

TEST_CASE("both send, then receive, in a stream and without a group") {
  for (int turn = 0; turn < 10; ++turn) {
    forEachNcclRank(2, [&](NcclRank const& rank) {
      Values const out(rank.device, sentBy(rank.rank, turn)), in(rank.device, count, 0);
      send(rank, out, 1 - rank.rank, rank.stream);
      receive(rank, in, 1 - rank.rank, rank.stream);
      rank.stream.synchronize();
      CHECK(in.values() == sentBy(1 - rank.rank, turn));
    });
  }
}

TEST_CASE("threads that send and receive at once, to and from all ranks, in orders of their own") {
  constexpr int ranks = 3;
  for (int turn = 0; turn < 5; ++turn) {
    forEachNcclRank(ranks, [&](NcclRank const& rank) {
      std::vector<std::thread> threads;
      for (int distance = 1; distance < ranks; ++distance) {
        for (bool const sends : {true, false}) {
          threads.emplace_back([&, distance, sends] {
            int const peer = (rank.rank + (sends ? distance : ranks - distance)) % ranks;
            Stream const stream(rank.device);
            Values const data(rank.device, sentBy(rank.rank, turn));
            for (int i = 0; i < 3; ++i) sends ? send(rank, data, peer, stream) : receive(rank, data, peer, stream);
            stream.synchronize();
            if (!sends) CHECK(data.values() == sentBy(peer, turn));
          });
        }
      }
      for (auto& thread : threads) thread.join();
    });
  }
}

TEST_CASE("suspending frees the memory for large messages, and the next makes it anew") {
  std::barrier<> meeting(2);
  forEachNcclRank(2, [&](NcclRank const& rank) {
    Values const data(rank.device, sentBy(rank.rank));
    for (int turn = 0; turn < 3; ++turn) {
      CHECK(memory(rank) <= atFirst);
      meeting.arrive_and_wait();
      rank.rank == turn % 2 ? send(rank, data, 1 - rank.rank, rank.stream)
                            : receive(rank, data, 1 - rank.rank, rank.stream);
      rank.stream.synchronize();
      auto const used = memory(rank);
      CHECK((used > atFirst) == (rank.rank != turn % 2));
      CHECK_NCCL(ncclCommSuspend(rank.comm, 1));
      CHECK(memory(rank) == memory(rank.comm, ncclStatGpuMemPersist));
      CHECK(memory(rank.comm, ncclStatGpuMemSuspend) == used - memory(rank));
      CHECK_NCCL(ncclCommResume(rank.comm));
    }
    CHECK(data.values() == sentBy(0));
  });
}

TEST_CASE("abort ends a large message that nobody receives, and its memory goes") {
  forEachNcclRank(2, [](NcclRank const& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    if (rank.rank == 0) {
      constexpr std::size_t bytes = 40 * MiB;  // more than the slots have
      Data<std::uint8_t> const data(rank.device, bytes, 1);
      CHECK_NCCL(ncclSend(data.data(), bytes, ncclUint8, 1, other, rank.native()));
      std::thread([&] { CHECK_NCCL(ncclCommAbort(other)); }).join();
      rank.stream.synchronize(std::chrono::seconds(20));
    } else {
      CHECK_NCCL(ncclCommAbort(other));
    }
  });
}

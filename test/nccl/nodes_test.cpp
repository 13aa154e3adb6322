// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators over several simulated hosts, without NVIDIA's own library.
#include "mscclpp/sim/runtime.hpp"
#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

// The last two have hosts of 2 and 1, and of 4 and 2 ranks.
struct Shape {
  int ranks;
  int largestHost;
};
constexpr Shape shapes[] = {{2, 1}, {4, 2}, {3, 2}, {6, 4}};

void onHosts(Shape const& shape, std::function<void(NcclRank&)> const& body) {
  sim::install({.devices = (shape.ranks + shape.largestHost - 1) / shape.largestHost * shape.largestHost,
                .devicesPerNode = shape.largestHost});
  forEachNcclRank(shape.ranks, body);
}

using Values = std::vector<std::int32_t>;

std::int32_t valueOf(int rank, std::size_t i) {
  return static_cast<std::int32_t>(rank * 1000 + static_cast<int>(i % 997));
}

Values valuesOf(int rank, std::size_t first, std::size_t count) {
  Values values;
  for (std::size_t i = first; i < first + count; ++i) values.push_back(valueOf(rank, i));
  return values;
}

Values sumOf(int ranks, std::size_t first, std::size_t count) {
  Values values(count);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) values[i] += valueOf(rank, first + i);
  }
  return values;
}

Values join(Values all, Values const& next) {
  all.insert(all.end(), next.begin(), next.end());
  return all;
}

// Behind its stream's work.
Values outcome(NcclRank const& rank, Data<std::int32_t> const& data, std::size_t count) {
  rank.stream.synchronize();
  auto values = data.values();
  values.resize(count);
  return values;
}

bool mentions(char const* words) { return lastError().find(words) != std::string::npos; }

}  // namespace

TEST_CASE("every collective over hosts") {
  for (auto const& shape : shapes) {
    onHosts(shape, [&](NcclRank& rank) {
      int const ranks = rank.size;
      auto const all = static_cast<std::size_t>(ranks);
      for (std::size_t const count : {1, 3000}) {
        int const root = static_cast<int>(count) % ranks;
        bool const atRoot = rank.rank == root;
        auto const mine = valuesOf(rank.rank, 0, count);
        auto const parts = valuesOf(rank.rank, 0, count * all);
        Data<std::int32_t> const one(rank.device, mine), many(rank.device, parts);
        Data<std::int32_t> const out(rank.device, count * all, -1);
        Values everybody, dealt;
        for (int other = 0; other < ranks; ++other) {
          everybody = join(everybody, valuesOf(other, 0, count));
          dealt = join(dealt, valuesOf(other, count * static_cast<std::size_t>(rank.rank), count));
        }
        CHECK_NCCL(ncclAllReduce(one.data(), out.data(), count, ncclInt32, ncclSum, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count) == sumOf(ranks, 0, count));
        CHECK_NCCL(ncclAllGather(one.data(), out.data(), count, ncclInt32, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count * all) == everybody);
        CHECK_NCCL(ncclReduceScatter(many.data(), out.data(), count, ncclInt32, ncclSum, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count) == sumOf(ranks, count * static_cast<std::size_t>(rank.rank), count));
        CHECK_NCCL(ncclAlltoAll(many.data(), out.data(), count, ncclInt32, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count * all) == dealt);
        CHECK_NCCL(ncclBroadcast(one.data(), out.data(), count, ncclInt32, root, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count) == valuesOf(root, 0, count));
        CHECK_NCCL(ncclReduce(one.data(), atRoot ? out.data() : nullptr, count, ncclInt32, ncclSum, root, rank.comm,
                              rank.native()));
        if (atRoot) CHECK(outcome(rank, out, count) == sumOf(ranks, 0, count));
        CHECK_NCCL(ncclGather(one.data(), out.data(), count, ncclInt32, root, rank.comm, rank.native()));
        if (atRoot) CHECK(outcome(rank, out, count * all) == everybody);
        CHECK_NCCL(ncclScatter(many.data(), out.data(), count, ncclInt32, root, rank.comm, rank.native()));
        CHECK(outcome(rank, out, count) == valuesOf(root, count * static_cast<std::size_t>(rank.rank), count));
        // A pass of its own first, and zero elements.
        std::int32_t factor = 3;
        int tripled = 0;
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&tripled, &factor, ncclInt32, ncclScalarHostImmediate, rank.comm));
        CHECK_NCCL(ncclAllReduce(one.data(), out.data(), count, ncclInt32, tripled, rank.comm, rank.native()));
        CHECK_NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, rank.comm, rank.native()));
        auto expected = sumOf(ranks, 0, count);
        for (auto& value : expected) value *= 3;
        CHECK(outcome(rank, out, count) == expected);
      }
    });
  }
}

TEST_CASE("messages over hosts: groups, of two streams, and alone") {
  for (auto const& shape : shapes) {
    onHosts(shape, [](NcclRank& rank) {
      Stream const second(rank.device);
      for (std::size_t const count : {0, 5, 400'000}) {
        std::vector<Data<std::int32_t>> out, in;
        for (int peer = 0; peer < rank.size; ++peer) {
          out.emplace_back(rank.device, valuesOf(rank.rank + peer, 0, count + 1));
          in.emplace_back(rank.device, count + 1, -1);
        }
        CHECK_NCCL(ncclGroupStart());
        for (int peer = 0; peer < rank.size; ++peer) {
          auto const at = static_cast<std::size_t>(peer);
          CHECK_NCCL(ncclSend(out[at].data(), count, ncclInt32, peer, rank.comm, rank.native()));
          CHECK_NCCL(ncclRecv(in[at].data(), count, ncclInt32, peer, rank.comm, second.native()));
        }
        CHECK_NCCL(ncclGroupEnd());
        rank.stream.synchronize();
        second.synchronize();
        for (int peer = 0; peer < rank.size; ++peer) {
          auto expected = valuesOf(rank.rank + peer, 0, count);
          expected.push_back(-1);
          CHECK(in[static_cast<std::size_t>(peer)].values() == expected);
        }
      }
      // Of the last rank to the first one.
      Data<float> const data(rank.device, 1000, static_cast<float>(rank.rank));
      int const last = rank.size - 1;
      if (rank.rank == last) CHECK_NCCL(ncclSend(data.data(), 1000, ncclFloat32, 0, rank.comm, rank.native()));
      if (rank.rank == 0) CHECK_NCCL(ncclRecv(data.data(), 1000, ncclFloat32, last, rank.comm, rank.native()));
      rank.stream.synchronize();
      CHECK(data.are(static_cast<float>(rank.rank == 0 ? last : rank.rank)));
    });
  }
}

TEST_CASE("one thread drives the ranks of several hosts") {
  sim::install({.devices = 2, .devicesPerNode = 1});
  ncclComm_t comms[2]{};
  CHECK_NCCL(ncclCommInitAll(comms, 2, nullptr));
  std::vector<Stream> streams;
  std::vector<Data<float>> data;
  for (int rank = 0; rank < 2; ++rank) {
    streams.emplace_back(simDevice(rank));
    data.emplace_back(simDevice(rank), 1000, static_cast<float>(rank + 1));
  }
  for (int turn = 0; turn < 2; ++turn) {
    CHECK_NCCL(ncclGroupStart());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      CHECK_NCCL(ncclAllReduce(data[rank].data(), data[rank].data(), 1000, ncclFloat32, ncclSum, comms[rank],
                               streams[rank].native()));
    }
    CHECK_NCCL(ncclGroupEnd());
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    streams[rank].synchronize();
    CHECK(data[rank].are(6));
  }
  CHECK_NCCL(ncclGroupStart());
  for (auto* const comm : comms) CHECK_NCCL(ncclCommDestroy(comm));
  CHECK_NCCL(ncclGroupEnd());
}

TEST_CASE("teams, split communicators, and what is made anew") {
  onHosts({4, 2}, [](NcclRank& rank) {
    auto const lsa = ncclTeamLsa(rank.comm), rail = ncclTeamRail(rank.comm);
    CHECK(lsa.nRanks == 2);
    CHECK(lsa.rank == rank.rank % 2);
    CHECK(ncclTeamRankToWorld(rank.comm, lsa, 1 - lsa.rank) == (rank.rank ^ 1));
    CHECK(rail.nRanks == 2);
    CHECK(ncclTeamRankToWorld(rank.comm, rail, 1 - rail.rank) == (rank.rank ^ 2));
    auto const sum = [&](ncclComm_t comm, float expected) {
      Data<float> const data(rank.device, 100, static_cast<float>(rank.rank));
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 100, ncclFloat32, ncclSum, comm, rank.native()));
      rank.stream.synchronize();
      CHECK(data.are(expected));
    };
    sum(rank.comm, 6);
    // Of the same host, and of different ones.
    for (int const color : {rank.rank / 2, rank.rank % 2}) {
      ncclComm_t part = nullptr;
      CHECK_NCCL(ncclCommSplit(rank.comm, color, rank.rank, &part, nullptr));
      bool const sameHost = ncclTeamLsa(part).nRanks == 2;
      sum(part, static_cast<float>(sameHost ? 4 * (rank.rank / 2) + 1 : 2 * (rank.rank % 2) + 2));
      rank.stream.synchronize();
      CHECK_NCCL(ncclCommDestroy(part));
    }
    std::uint64_t before = 0, meanwhile = 0, after = 0;
    constexpr int total = 3;  // ncclStatGpuMemTotal
    CHECK_NCCL(ncclCommMemStats(rank.comm, total, &before));
    CHECK_NCCL(ncclCommSuspend(rank.comm, 1));
    CHECK_NCCL(ncclCommMemStats(rank.comm, total, &meanwhile));
    CHECK_NCCL(ncclCommResume(rank.comm));
    sum(rank.comm, 6);
    CHECK_NCCL(ncclCommMemStats(rank.comm, total, &after));
    CHECK(before > meanwhile);
    CHECK(after == before);
  });
}

TEST_CASE("what needs memory that all ranks reach is refused in words") {
  onHosts({2, 1}, [](NcclRank& rank) {
    void* memory = nullptr;
    CHECK_NCCL(ncclMemAlloc(&memory, 4096));
    ncclWindow_t window = nullptr;
    CHECK_NCCL(ncclCommWindowRegister(rank.comm, memory, 4096, &window, 1));
    CHECK(ncclPutSignal(memory, 1, ncclInt32, 1 - rank.rank, window, 0, 0, 0, 0, rank.comm, rank.native()) ==
          ncclInvalidUsage);
    CHECK(mentions("puts and signals go where all ranks reach each other's memory"));
    void* place = nullptr;
    CHECK(ncclGetPeerDevicePointer(window, 0, 1 - rank.rank, &place) == ncclInvalidArgument);
    CHECK(mentions("by ranks of one host"));
    // In a window a buffer is as good as any other.
    CHECK_NCCL(ncclAllReduce(memory, memory, 100, ncclInt32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK_NCCL(ncclCommWindowDeregister(rank.comm, window));
    CHECK_NCCL(ncclMemFree(memory));

    Data<float> const data(rank.device, 10, 1);
    ncclSimInfo_t info{sizeof(ncclSimInfo_t), 0x74685283, 22809, -1};
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(data.data(), 10, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    CHECK(mentions("does not know messages of ranks of several hosts"));
  });
}

TEST_CASE("abort ends what waits for another host") {
  onHosts({2, 1}, [](NcclRank& rank) {
    ncclComm_t part = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &part, nullptr));
    Data<float> const data(rank.device, 1000, 1);
    CHECK_NCCL(ncclRecv(data.data(), 1000, ncclFloat32, 1 - rank.rank, part, rank.native()));
    CHECK_NCCL(ncclCommAbort(part));
    rank.stream.synchronize();
  });
}

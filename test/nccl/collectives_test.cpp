// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives, messages and groups through NCCL's interface.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr int ranks = 4;
constexpr std::size_t count = 1000;

std::vector<float> numbered(int rank, std::size_t parts) {
  std::vector<float> values(count * parts);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(100 * rank) + static_cast<float>(i / count);
  return values;
}

}  // namespace

TEST_CASE("every collective gives what it should, apart and in place") {
  forEachNcclRank(ranks, [](NcclRank& rank) {
    auto const me = static_cast<float>(rank.rank);
    Data<float> one(rank.device, count, me + 1);
    Data<float> other(rank.device, count, 0);
    Data<float> all(rank.device, count * ranks, 0);
    Data<float> parts(rank.device, numbered(rank.rank, ranks));

    CHECK_NCCL(ncclAllReduce(one.data(), other.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(other.are(sumTo(ranks)));

    CHECK_NCCL(ncclAllGather(one.data(), all.data(), count, ncclFloat32, rank.comm, rank.native()));
    rank.stream.synchronize();
    auto gathered = all.values();
    for (int part = 0; part < ranks; ++part) CHECK(gathered[static_cast<std::size_t>(part) * count] == part + 1);

    CHECK_NCCL(ncclAlltoAll(parts.data(), all.data(), count, ncclFloat32, rank.comm, rank.native()));
    rank.stream.synchronize();
    gathered = all.values();
    for (int part = 0; part < ranks; ++part) {
      CHECK(gathered[static_cast<std::size_t>(part) * count] == 100 * part + rank.rank);
    }

    CHECK_NCCL(ncclReduceScatter(parts.data(), other.data(), count, ncclFloat32, ncclMax, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(other.are(100 * (ranks - 1) + me));

    int const root = 2;
    bool const atRoot = rank.rank == root;
    Data<float> result(rank.device, count * ranks, -1);
    CHECK_NCCL(ncclReduce(one.data(), atRoot ? result.data() : nullptr, count, ncclFloat32, ncclProd, root, rank.comm,
                          rank.native()));
    rank.stream.synchronize();
    CHECK(result.values().front() == (atRoot ? 24 : -1));

    CHECK_NCCL(
        ncclBroadcast(atRoot ? one.data() : nullptr, other.data(), count, ncclFloat32, root, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(other.are(root + 1));

    CHECK_NCCL(
        ncclGather(one.data(), atRoot ? all.data() : nullptr, count, ncclFloat32, root, rank.comm, rank.native()));
    rank.stream.synchronize();
    if (atRoot) CHECK(all.values()[(ranks - 1) * count] == ranks);

    CHECK_NCCL(
        ncclScatter(atRoot ? parts.data() : nullptr, other.data(), count, ncclFloat32, root, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(other.are(100 * root + me));

    // In place.
    CHECK_NCCL(ncclAllReduce(one.data(), one.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    CHECK_NCCL(ncclBcast(other.data(), count, ncclFloat32, root, rank.comm, rank.native()));
    auto* const own = all.data() + static_cast<std::size_t>(rank.rank) * count;
    all.set(std::vector<float>(count * ranks, me));
    CHECK_NCCL(ncclAllGather(own, all.data(), count, ncclFloat32, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(one.are(sumTo(ranks)));
    CHECK(other.are(100 * root + root));
    CHECK(all.values()[count * (ranks - 1)] == ranks - 1);
    CHECK_NCCL(ncclReduceScatter(all.data(), own, count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(all.values()[static_cast<std::size_t>(rank.rank) * count] == me * ranks);

    // At the root, whose part lies where it goes to or comes from.
    all.set(numbered(rank.rank, ranks));
    CHECK_NCCL(ncclGather(own, atRoot ? all.data() : nullptr, count, ncclFloat32, root, rank.comm, rank.native()));
    rank.stream.synchronize();
    if (atRoot) {
      for (int part = 0; part < ranks; ++part) {
        CHECK(all.values()[static_cast<std::size_t>(part) * count] == 100 * part + part);
      }
    }
    all.set(numbered(rank.rank, ranks));
    CHECK_NCCL(ncclScatter(atRoot ? all.data() : nullptr, own, count, ncclFloat32, root, rank.comm, rank.native()));
    one.set(std::vector<float>(count, me));
    CHECK_NCCL(ncclReduce(one.data(), one.data(), count, ncclFloat32, ncclSum, root, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(all.values()[static_cast<std::size_t>(rank.rank) * count] == 100 * root + me);
    if (atRoot) CHECK(one.are(6));
  });
}

TEST_CASE("types, operations and averages") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<double> doubles(rank.device, count, rank.rank == 0 ? 0.5 : 1.5);
    CHECK_NCCL(ncclAllReduce(doubles.data(), doubles.data(), count, ncclFloat64, ncclAvg, rank.comm, rank.native()));
    Data<std::int64_t> wide(rank.device, count, (std::int64_t{1} << 40) + rank.rank);
    CHECK_NCCL(ncclAllReduce(wide.data(), wide.data(), count, ncclInt64, ncclMin, rank.comm, rank.native()));
    Data<std::uint8_t> bytes(rank.device, count, static_cast<std::uint8_t>(3 + rank.rank));
    CHECK_NCCL(ncclAllReduce(bytes.data(), bytes.data(), count, ncclUint8, ncclProd, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(doubles.are(1.0));
    CHECK(wide.are(std::int64_t{1} << 40));
    CHECK(bytes.are(12));
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (int op = 0; op < ncclNumOps; ++op) {
        CHECK_NCCL(ncclAllReduce(doubles.data(), doubles.data(), 16, type, op, rank.comm, rank.native()));
      }
    }
    rank.stream.synchronize();
  });
}

TEST_CASE("nothing is as good as something: zero elements, with null pointers") {
  forEachNcclRank(2, [](NcclRank& rank) {
    CHECK_NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, rank.comm, rank.native()));
    CHECK_NCCL(ncclAlltoAll(nullptr, nullptr, 0, ncclFloat32, rank.comm, rank.native()));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(nullptr, 0, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclRecv(nullptr, 0, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(ncclAllReduce(nullptr, nullptr, 0, 77, ncclSum, rank.comm, rank.native()) == ncclInvalidArgument);
  });
}

TEST_CASE("once a collective has run, the first of each other kind waits for other ranks on the device alone") {
  std::atomic<bool> isIn{false};
  forEachNcclRank(2, [&](NcclRank& rank) {
    Data<float> data(rank.device, count, static_cast<float>(rank.rank + 1));
    Data<float> both(rank.device, 2 * count, 0);
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, rank.comm, rank.native()));
    // Rank 1 comes only when rank 0's calls have returned.
    for (int waited = 0; rank.rank == 1 && !isIn && waited < 1000; ++waited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK((rank.rank == 0 || isIn));
    CHECK_NCCL(ncclBroadcast(data.data(), data.data(), count, ncclFloat32, 0, rank.comm, rank.native()));
    CHECK_NCCL(ncclAllGather(data.data(), both.data(), count, ncclFloat32, rank.comm, rank.native()));
    CHECK_NCCL(ncclReduceScatter(both.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    isIn = isIn || rank.rank == 0;
    rank.stream.synchronize();
    CHECK(data.values()[0] == 6);
    CHECK(data.values()[1] == 2);
  });
}

TEST_CASE("messages: to all, to oneself, several to one in their order") {
  forEachNcclRank(ranks, [](NcclRank& rank) {
    Data<float> out(rank.device, numbered(rank.rank, ranks));
    Data<float> in(rank.device, count * ranks, -1);
    CHECK_NCCL(ncclGroupStart());
    for (int peer = 0; peer < ranks; ++peer) {
      auto const place = static_cast<std::size_t>(peer) * count;
      CHECK_NCCL(ncclSend(out.data() + place, count, ncclFloat32, peer, rank.comm, rank.native()));
      CHECK_NCCL(ncclRecv(in.data() + place, count, ncclFloat32, peer, rank.comm, rank.native()));
    }
    CHECK_NCCL(ncclGroupEnd());
    rank.stream.synchronize();
    auto const got = in.values();
    for (int peer = 0; peer < ranks; ++peer) {
      CHECK(got[static_cast<std::size_t>(peer) * count] == 100 * peer + rank.rank);
    }

    if (rank.rank == 0) {
      CHECK_NCCL(ncclSend(out.data(), 10, ncclFloat32, 1, rank.comm, rank.native()));
      CHECK_NCCL(ncclSend(out.data() + count, 20, ncclFloat32, 1, rank.comm, rank.native()));
    } else if (rank.rank == 1) {
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclRecv(in.data(), 10, ncclFloat32, 0, rank.comm, rank.native()));
      CHECK_NCCL(ncclRecv(in.data() + count, 20, ncclFloat32, 0, rank.comm, rank.native()));
      CHECK_NCCL(ncclGroupEnd());
      rank.stream.synchronize();
      CHECK(in.values()[0] == 0);
      CHECK(in.values()[count + 19] == 1);
    }
    rank.stream.synchronize();
  });
}

TEST_CASE("messages of different directions go side by side in streams of their own") {
  forEachNcclRank(ranks, [](NcclRank& rank) {
    Stream const second(rank.device);
    constexpr std::size_t many = 500000;  // more than the rings hold
    Data<float> const out(rank.device, many, static_cast<float>(rank.rank));
    Data<float> const in(rank.device, many, -1);
    int const next = (rank.rank + 1) % rank.size, last = (rank.rank + rank.size - 1) % rank.size;
    CHECK_NCCL(ncclSend(out.data(), many, ncclFloat32, next, rank.comm, rank.native()));
    CHECK_NCCL(ncclRecv(in.data(), many, ncclFloat32, last, rank.comm, second.native()));
    rank.stream.synchronize();
    second.synchronize();
    CHECK(in.are(static_cast<float>(last)));
  });
}

TEST_CASE("ranks need not use streams that correspond") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Stream const second(rank.device);
    Data<float> data(rank.device, count, 1);
    for (int call = 0; call < 6; ++call) {
      auto const& stream = (call + rank.rank) % 3 == 0 ? second : rank.stream;
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, stream.native()));
    }
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, second.native()));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    CHECK_NCCL(ncclGroupEnd());
    second.synchronize();
    rank.stream.synchronize();
    CHECK(data.are(256));
  });
}

TEST_CASE("sums of products with a factor, on the host and on the device") {
  forEachNcclRank(2, [](NcclRank& rank) {
    auto const me = static_cast<float>(rank.rank + 1);
    Data<float> in(rank.device, std::vector<float>(count * 2, me));
    Data<float> out(rank.device, count * 2, 0);
    Data<float> onDevice(rank.device, 1, 10);
    float scalar = me;
    int byHost = 0;
    int byDevice = 0;
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&byHost, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm));
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&byDevice, onDevice.data(), ncclFloat32, ncclScalarDevice, rank.comm));
    CHECK(byHost >= ncclNumOps);
    CHECK(byDevice != byHost);
    scalar = -1;

    CHECK_NCCL(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, byHost, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(out.values().front() == 1 * 1 + 2 * 2);
    CHECK(in.are(me));

    onDevice.set({100});  // read when the kernel runs
    CHECK_NCCL(ncclReduceScatter(in.data(), out.data(), count, ncclFloat32, byDevice, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(out.values().front() == 300);
    CHECK(in.are(me));

    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclReduce(in.data(), rank.rank == 1 ? out.data() : nullptr, count, ncclFloat32, byHost, 1, rank.comm,
                          rank.native()));
    CHECK_NCCL(ncclRedOpDestroy(byHost, rank.comm));
    CHECK_NCCL(ncclGroupEnd());
    rank.stream.synchronize();
    if (rank.rank == 1) CHECK(out.values().front() == 5);

    CHECK(ncclRedOpDestroy(byHost, rank.comm) == ncclInvalidArgument);
    CHECK(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, byHost, rank.comm, rank.native()) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(in.data(), out.data(), count, ncclFloat64, byDevice, rank.comm, rank.native()) ==
          ncclInvalidArgument);
  });
}

TEST_CASE("one rank: operations apply") {
  forEachNcclRank(1, [](NcclRank& rank) {
    Data<float> in(rank.device, count, 3);
    Data<float> out(rank.device, count, 0);
    float const scalar = 2;
    int twice = 0;
    CHECK_NCCL(
        ncclRedOpCreatePreMulSum(&twice, const_cast<float*>(&scalar), ncclFloat32, ncclScalarHostImmediate, rank.comm));
    CHECK_NCCL(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, twice, rank.comm, rank.native()));
    CHECK_NCCL(ncclAllReduce(in.data(), in.data(), count, ncclFloat32, ncclAvg, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(out.are(6));
    CHECK(in.are(3));
  });
}

TEST_CASE("groups: one thread drives several communicators") {
  std::vector<ncclComm_t> comms(ranks);
  CHECK_NCCL(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<Stream> streams;
  std::vector<Data<float>> data;
  for (int rank = 0; rank < ranks; ++rank) {
    streams.emplace_back(simDevice(rank));
    data.emplace_back(simDevice(rank), count, static_cast<float>(rank + 1));
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupStart());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK_NCCL(ncclAllReduce(data[rank].data(), data[rank].data(), count, ncclFloat32, ncclSum, comms[rank],
                               streams[rank].native()));
    }
    CHECK_NCCL(ncclGroupEnd());
    for (auto const& one : data) CHECK(one.values().front() <= ranks * (repeat == 0 ? 1 : 10));  // not begun
    CHECK_NCCL(ncclGroupEnd());
    for (auto const& stream : streams) stream.synchronize();
  }
  for (auto const& one : data) CHECK(one.are(sumTo(ranks) * ranks));
  for (auto* const comm : comms) CHECK_NCCL(ncclCommDestroy(comm));
}

TEST_CASE("groups: an error inside is the end's, and nothing is started") {
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> data(rank.device, count, 1);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    CHECK(ncclSend(data.data(), count, ncclFloat32, 2, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(lastError().find("peer 2; there are ranks 0 to 1") != std::string::npos);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    rank.stream.synchronize();
    CHECK(data.are(1));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(data.are(2));
  });
}

TEST_CASE("averages of small integers are of sums that wrap around, as NCCL's") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<std::uint8_t> large(rank.device, count, 200);
    Data<std::int8_t> negative(rank.device, count, static_cast<std::int8_t>(rank.rank == 0 ? -2 : -1));
    CHECK_NCCL(ncclAllReduce(large.data(), large.data(), count, ncclUint8, ncclAvg, rank.comm, rank.native()));
    CHECK_NCCL(ncclAllReduce(negative.data(), negative.data(), count, ncclInt8, ncclAvg, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(large.are((400 - 256) / 2));
    CHECK(negative.are(-1));
  });
}

TEST_CASE("different communicators are used by different threads at once") {
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t others[3]{};
    for (auto& other : others) CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    std::vector<std::thread> threads;
    for (auto* const other : others) {
      threads.emplace_back([&rank, other] {
        Stream const stream(rank.device);
        Data<float> const data(rank.device, 16, 1);
        for (int call = 0; call < 5; ++call) {
          CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32, ncclSum, other, stream.native()));
          stream.synchronize();  // simulated threads are not many
        }
        CHECK(data.are(32));
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto* const other : others) CHECK_NCCL(ncclCommDestroy(other));
  });
}

TEST_CASE("ranks may have one device") {
  ncclUniqueId id{};
  CHECK_NCCL(ncclGetUniqueId(&id));
  onThreads(3, [&](int rank) {
    mscclppNcclSimSetDevice(1);
    Stream const stream(simDevice(1));
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, 3, id, rank));
    int device = -1;
    CHECK_NCCL(ncclCommCuDevice(comm, &device));
    CHECK(device == 1);
    Data<float> const data(simDevice(1), count, static_cast<float>(rank + 1));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, stream.native()));
    stream.synchronize();
    CHECK(data.are(6));
    CHECK_NCCL(ncclCommDestroy(comm));
  });
}

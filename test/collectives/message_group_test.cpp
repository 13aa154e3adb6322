// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages and barriers from the host: groups, order, several rounds between one pair, bad input; the same between
// ranks of several simulated nodes.
#include "mscclpp/collectives/message_group.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "support/message_exchange.hpp"

using namespace mscclpp;

namespace {

void onRanks(int ranks, std::function<void(Communicator const&, Stream const&)> const& body) {
  if (Device::count(DeviceKind::sim) < ranks) sim::install({.devices = ranks});
  sim::run({.ranks = ranks}, [&](sim::RankContext& context) {
    Communicator const communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    Stream const stream(communicator.device());
    body(communicator, stream);
  });
}

GpuBuffer<std::int32_t> filled(Device device, std::size_t count, std::int32_t first) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<std::int32_t>(i);
  GpuBuffer<std::int32_t> buffer(device, count);
  copyToDevice(buffer, std::span<std::int32_t const>(values));
  return buffer;
}

bool holds(GpuBuffer<std::int32_t> const& buffer, std::int32_t first) {
  auto const values = copyToHost(buffer);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != first + static_cast<std::int32_t>(i)) return false;
  }
  return true;
}

std::string errorOf(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

void checkContains(std::string const& text, std::string const& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

}  // namespace

TEST_CASE("a ring, larger than the rings in device memory") {
  onRanks(3, [](Communicator const& communicator, Stream const& stream) {
    PointToPoint const links(communicator, {.lanes = 2, .slots = 2, .stageBytes = 4096, .packetLimit = 1000});
    int const rank = communicator.rank();
    auto const out = filled(communicator.device(), 20000, rank * 1000);
    auto const in = filled(communicator.device(), 20000, -1000000);
    int const ahead = (rank + 1) % 3;
    int const behind = (rank + 2) % 3;
    MessageGroup(links, stream).send(out.data(), out.bytes(), ahead).recv(in.data(), in.bytes(), behind).start();
    communicator.synchronize(stream);
    CHECK(holds(in, behind * 1000));
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("the i-th send meets the i-th recv, in groups of any shape") {
  onRanks(2, [](Communicator const& communicator, Stream const& stream) {
    PointToPoint const links(communicator);
    auto const device = communicator.device();
    std::vector<GpuBuffer<std::int32_t>> buffers;
    for (std::int32_t i = 0; i < 4; ++i) {
      buffers.push_back(filled(device, 100, communicator.rank() == 0 ? 1000 * i : -1000000));
    }
    MessageGroup group(links, stream);
    for (std::size_t i = 0; i < 4; ++i) {
      if (communicator.rank() == 0) {
        group.send(buffers[i].data(), buffers[i].bytes(), 1);
        if (i == 2) group.start();
      } else {
        group.recv(buffers[i].data(), buffers[i].bytes(), 0);
        if (i == 0) group.start();
      }
    }
    group.start();
    group.start();  // nothing is left
    communicator.synchronize(stream);
    for (std::int32_t i = 0; i < 4; ++i) CHECK(holds(buffers[static_cast<std::size_t>(i)], 1000 * i));
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("messages to the own rank, and of no bytes") {
  onRanks(2, [](Communicator const& communicator, Stream const& stream) {
    PointToPoint const links(communicator);
    int const rank = communicator.rank();
    auto const out = filled(communicator.device(), 300, 7);
    auto const in = filled(communicator.device(), 300, 0);
    MessageGroup(links, stream)
        .send(out.data(), out.bytes(), rank)
        .recv(in.data(), in.bytes(), rank)
        .send(nullptr, 0, 1 - rank)
        .recv(nullptr, 0, 1 - rank)
        .start();
    communicator.synchronize(stream);
    CHECK(holds(in, 7));
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("the collection sends round a ring, and meets at a barrier") {
  onRanks(4, [](Communicator const& communicator, Stream const& stream) {
    auto const algorithms = AlgorithmCollection::defaults();
    int const rank = communicator.rank();
    auto const out = filled(communicator.device(), 5000, rank * 10000);
    auto const in = filled(communicator.device(), 5000, -1);
    algorithms.execute(
        Collective::sendRecv, communicator, stream,
        {.in = out.data(), .out = in.data(), .inBytes = out.bytes(), .outBytes = in.bytes(), .type = DataType::int32});
    algorithms.execute(Collective::barrier, communicator, stream, {});
    communicator.synchronize(stream);
    CHECK(holds(in, (rank + 3) % 4 * 10000));
    checkContains(errorOf([&] {
                    algorithms.execute(Collective::sendRecv, communicator, stream,
                                       {.in = in.data(), .out = in.data(), .inBytes = 8, .outBytes = 8});
                  }),
                  "it does not work in place");
    checkContains(errorOf([&] {
                    algorithms.execute(Collective::sendRecv, communicator, stream,
                                       {.in = out.data(), .out = in.data(), .inBytes = 8, .outBytes = 8, .blocks = 1});
                  }),
                  "1 block; give at least 2");
    // Fewer blocks than lanes, and an odd number.
    for (int blocks : {2, 7}) {
      in.fill(0);
      algorithms.execute(Collective::sendRecv, communicator, stream,
                         {.in = out.data(),
                          .out = in.data(),
                          .inBytes = out.bytes(),
                          .outBytes = in.bytes(),
                          .type = DataType::int32,
                          .blocks = blocks});
      communicator.synchronize(stream);
      CHECK(holds(in, (rank + 3) % 4 * 10000));
    }
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("bad input is refused before anything is started") {
  onRanks(2, [](Communicator const& communicator, Stream const& stream) {
    PointToPoint const links(communicator, {.lanes = 2});
    int const rank = communicator.rank();
    auto const data = filled(communicator.device(), 10, 0);
    MessageGroup group(links, stream);
    auto const prefix = "rank " + std::to_string(rank) + ": MessageGroup::";
    checkContains(errorOf([&] { group.send(data.data(), 8, 2); }),
                  prefix + "send of 8 bytes with rank 2; there are ranks 0 to 1");
    checkContains(errorOf([&] { group.recv(nullptr, 8, 0); }),
                  prefix + "recv of 8 bytes with rank 0: the buffer is a null pointer");
    checkContains(errorOf([&] { group.send(data.data(), 8, rank).start(); }), "no recv that meets it");
    checkContains(errorOf([&] { group.send(data.data(), 8, rank).recv(data.data(), 4, rank).start(); }),
                  "8 bytes sent to the own rank, where 4");
    checkContains(errorOf([&] { group.start(1); }), "start with 1 blocks of 0 threads; give at least 2 blocks");
    checkContains(errorOf([&] { group.start(-2); }), "start with -2 blocks of 0 threads; give at least 2 blocks");
    checkContains(errorOf([&] { group.start(0, 33); }), "a multiple of 32 up to 512");
    if (rank == 0) {
      Stream const other({DeviceKind::sim, 1});
      checkContains(errorOf([&] { MessageGroup(links, other); }),
                    "the stream belongs to simulated device 1, the links to simulated device 0");
    }
    communicator.bootstrap()->barrier();
  });
}

namespace {

// Hosts of `largest` ranks, but for the last one, which may have fewer.
struct Shape {
  int ranks;
  int largest;
};
constexpr Shape shapes[] = {{2, 1}, {3, 1}, {3, 2}, {4, 2}, {6, 4}};

// A wait gives up once nobody can go on.
void onNodes(Shape const& shape, std::function<void(Communicator&, Stream const&)> const& body) {
  sim::install(
      {.devices = (shape.ranks + shape.largest - 1) / shape.largest * shape.largest, .devicesPerNode = shape.largest});
  sim::run({.ranks = shape.ranks, .seed = 1, .waitsExpire = true}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    communicator.setTimeLimit(std::chrono::seconds(1));
    Stream const stream(communicator.device());
    body(communicator, stream);
    communicator.bootstrap()->barrier();
  });
}

// Rings that large messages go round several times, within a node and between nodes.
constexpr layout::PointToPointRequirement smallRings{.lanes = 4,
                                                     .slots = 2,
                                                     .stageBytes = 1024,
                                                     .packetBytes = 1920,
                                                     .packetLimit = 4096,
                                                     .farLanes = 2,
                                                     .farBytes = 1024};

std::vector<std::size_t> const sizes{0, 1, 900, 1024, 1025, 3000, 20001};

}  // namespace

TEST_CASE("groups of all messages with all ranks, the own one included, of any bytes") {
  for (auto const& shape : shapes) {
    onNodes(shape, [&](Communicator& communicator, Stream const& stream) {
      PointToPoint const links(communicator, smallRings);
      for (int blocks : {0, 2, 5}) {
        mscclpp_test::MessageExchange const messages(links, sizes);
        MessageGroup group(links, stream);
        messages.addTo(group);
        group.start(blocks);
        communicator.synchronize(stream);
        CHECK_MESSAGE(messages.wrong() == 0, shape.ranks, " ranks, hosts of up to ", shape.largest, ", ", blocks,
                      " blocks");
        communicator.bootstrap()->barrier();
      }
      for (int peer = 0; peer < communicator.size(); ++peer) CHECK(links.undelivered(peer) == 0);
    });
  }
}

TEST_CASE("links as they are by default, and only some ranks of a communicator") {
  onNodes({4, 2}, [](Communicator& communicator, Stream const& stream) {
    // Two of one node, and one of the other.
    constexpr int ranks[] = {3, 0, 2};
    std::optional<PointToPoint> links;
    if (communicator.rank() != 1) {
      links.emplace(communicator, layout::PointToPointRequirement{}, std::vector<int>(ranks, ranks + 3));
      int const ahead = (links->rank() + 1) % 3, behind = (links->rank() + 2) % 3;
      auto const out = filled(communicator.device(), 300000, communicator.rank() * 1000);
      auto const in = filled(communicator.device(), 300000, -1000000);
      MessageGroup(*links, stream).send(out.data(), out.bytes(), ahead).recv(in.data(), in.bytes(), behind).start();
      communicator.synchronize(stream);
      CHECK(holds(in, ranks[behind] * 1000));
    }
    communicator.bootstrap()->barrier();
    if (links) CHECK(links->undelivered((links->rank() + 1) % 3) == 0);
  });
}

TEST_CASE("a message that nobody sends, or takes, ends in a time-out that names it") {
  onNodes({2, 1}, [](Communicator& communicator, Stream const& stream) {
    GpuBuffer<std::byte> const data(communicator.device(), 10000);
    bool const first = communicator.rank() == 0;
    {
      PointToPoint const links(communicator, smallRings);
      MessageGroup group(links, stream);
      if (first) group.recv(data.data(), 100, 1).start();
      auto const error = errorOf([&] { communicator.synchronize(stream); });
      if (first) checkContains(error, "a message of rank 1: expected chunk 1 of lane 0, seen 0");
      communicator.bootstrap()->barrier();
      // What was begun is refused from then on.
      if (first) {
        group.recv(data.data(), 100, 1).start();
        checkContains(errorOf([&] { communicator.synchronize(stream); }), "of which a wait was given up before");
      }
      communicator.bootstrap()->barrier();
    }
    PointToPoint const links(communicator, smallRings);
    // Of 5 chunks in a lane there is room for 2.
    if (first) MessageGroup(links, stream).send(data.data(), 10000, 1).start();
    auto const error = errorOf([&] { communicator.synchronize(stream); });
    if (first) checkContains(error, "rank 1 to receive: expected it to have taken 1 chunks of lane");
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("a message of another size is refused where it is received") {
  onNodes({2, 1}, [](Communicator& communicator, Stream const& stream) {
    GpuBuffer<std::byte> const data(communicator.device(), 10000);
    for (auto const& [sent, expected] : {std::pair<std::size_t, std::size_t>{100, 101}, {100, 5000}, {1000, 0}}) {
      PointToPoint const links(communicator, smallRings);
      MessageGroup group(links, stream);
      if (communicator.rank() == 0) {
        group.send(data.data(), sent, 1).start();
        communicator.synchronize(stream);
      } else {
        group.recv(data.data(), expected, 0).start();
        checkContains(errorOf([&] { communicator.synchronize(stream); }),
                      "refused a message of " + std::to_string(sent) + " bytes from rank 0, where " +
                          std::to_string(expected) + " are to be received");
      }
      communicator.bootstrap()->barrier();
    }
  });
}

TEST_CASE("links between nodes that cannot be are refused on all ranks") {
  onNodes({3, 2}, [](Communicator& communicator, Stream const&) {
    auto const refusal = [&](layout::PointToPointRequirement const& need) {
      return errorOf([&] { PointToPoint const links(communicator, need); });
    };
    auto need = smallRings;
    need.farLanes = 0;
    checkContains(refusal(need), "PointToPoint with farLanes = 0; 1 to 1024 are possible");
    need = smallRings;
    need.farBytes = communicator.rank() == 2 ? 128 : 256;
    checkContains(refusal(need), "for farBytes = ");
    need = smallRings;
    need.farBytes = std::uint64_t{1} << 31;
    checkContains(refusal(need), "farBytes");
  });
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans as MSCCL++'s own DSL prints them: what it makes one operation of, where it has blocks meet themselves, how it
// numbers, and that such plans are read again. scripts/reference_plans.py --package= compares with the DSL itself.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/error.hpp"

using namespace dsl_test;

namespace {

using Define = std::function<void(dsl::Builder&)>;

// Two ranks of four chunks.
constexpr auto fourChunks = dsl::custom(2, 4, 4);
std::string printed(Define const& define, dsl::Spec const& spec = {.name = "printed", .collective = fourChunks}) {
  dsl::Builder builder(spec);
  define(builder);
  return dsl::toMscclppJson(builder.program(), spec);
}

// The list behind the n-th such key.
std::string listOf(std::string const& text, std::string const& key, int nth = 0) {
  std::size_t at = 0;
  for (int i = 0; i <= nth; ++i) {
    at = text.find("\"" + key + "\":[", at == 0 ? 0 : at + 1);
    REQUIRE(at != std::string::npos);
  }
  at = text.find('[', at);
  int depth = 0;
  for (auto end = at; end < text.size(); ++end) {
    depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
    if (depth == 0) return text.substr(at, end + 1 - at);
  }
  return "";
}
// Of the first block of rank 0, in which the tests have their steps.
std::string opsOf(Define const& define) { return listOf(printed(define), "ops"); }
std::string opsOf(Define const& define, dsl::Spec const& spec) { return listOf(printed(define, spec), "ops"); }

std::string local(char const* buffer, int index, int size = 1) {
  return std::string("{\"type\":\"") + buffer + "\",\"index\":" + std::to_string(index) +
         ",\"size\":" + std::to_string(size) + "}";
}
std::string remote(int id, int index) {
  return "{\"buffer_id\":" + std::to_string(id) + ",\"index\":" + std::to_string(index) + ",\"size\":1}";
}
std::string move(char const* name, std::string const& from, std::string const& to, std::string const& more = "") {
  return std::string("{\"name\":\"") + name + "\",\"src_buff\":[" + from + "],\"dst_buff\":[" + to + "]" + more + "}";
}
std::string order(char const* name, char const* channels, char const* type = "memory") {
  return std::string("{\"name\":\"") + name + "\",\"channel_ids\":[" + channels + "],\"channel_type\":\"" + type +
         "\"}";
}
std::string const nop = "{\"name\":\"nop\"}";
std::string const byMemory = ",\"channel_type\":\"memory\"", sum = ",\"reduce_op\":\"sum\"";
std::string portPut(char const* channels) {
  return std::string(",\"channel_ids\":[") + channels + "],\"channel_type\":\"port\"";
}

// What is wrong with what is read again.
template <class P>
std::string diagnosticOf() {
  dsl::Builder builder(P::spec);
  P::define(builder);
  return dsl::verify(dsl::programFromJson(dsl::toMscclppJson(builder.program(), P::spec), "again")).diagnostic.str();
}

}  // namespace

TEST_CASE("signals are one with signals, waits with waits; what is synced on both sides is synced once") {
  auto const signals = [](dsl::DataSync first, dsl::DataSync second) {
    return [=](dsl::Builder& p) {
      auto const a = p.memoryChannel(1, 0), b = p.memoryChannel(1, 0);
      a.signal({.dataSync = first});
      b.signal({.dataSync = second});
      a.wait({.dataSync = first});
    };
  };
  CHECK(opsOf(signals(dsl::both, dsl::both)) ==
        "[" + nop + "," + order("signal", "0,1") + "," + nop + "," + order("wait", "0") + "," + nop + "]");
  CHECK(opsOf(signals(dsl::after, dsl::none)) ==
        "[" + order("signal", "0,1") + "," + nop + "," + order("wait", "0") + "," + nop + "]");
  CHECK(opsOf(signals(dsl::none, dsl::before)) ==
        "[" + nop + "," + order("signal", "0,1") + "," + order("wait", "0") + "]");
  // What is not said is both.
  CHECK(opsOf(signals(dsl::DataSync::automatic, dsl::none)) == opsOf(signals(dsl::both, dsl::none)));
  CHECK(opsOf(signals(dsl::both, dsl::both), {.name = "printed", .collective = fourChunks, .fuse = false}) ==
        "[" + nop + "," + order("signal", "0") + "," + nop + "," + nop + "," + order("signal", "1") + "," + nop + "," +
            nop + "," + order("wait", "0") + "," + nop + "]");
}

TEST_CASE("a channel is signalled once by an operation, and semaphores are one with their like") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const channel = p.memoryChannel(1, 0);
          channel.signal({.dataSync = dsl::none});
          channel.signal({.dataSync = dsl::none});
          channel.signal({.relaxed = true, .dataSync = dsl::none});
          auto const semaphore = p.semaphore(0, 1), other = p.semaphore(0);
          semaphore.acquire({.dataSync = dsl::none});
          other.acquire({.dataSync = dsl::none});
          other.release({.dataSync = dsl::none});
        }) ==
        "[" + order("signal", "0") + "," + order("signal", "0") + "," + order("rlxsignal", "0") +
            ",{\"name\":\"sem_acquire\",\"semaphore_ids\":[0,1]},{\"name\":\"sem_release\",\"semaphore_ids\":[1]}]");
}

TEST_CASE("a barrier and an author's sync take the place of those around steps") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const channel = p.memoryChannel(1, 0);
          channel.signal();
          p.rank(0).barrier({0, 1});
          channel.wait();
          p.rank(0).sync(0);
          p.rank(0).sync(0);
        }) == "[" + nop + "," + order("signal", "0") +
                  ",{\"name\":\"barrier\",\"barrier_id\":0,\"num_threadblocks\":2}," + order("wait", "0") + "," + nop +
                  "]");
}

TEST_CASE("puts and gets of one size are one") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const channel = p.memoryChannel(1, 0);
          auto const here = p.rank(0).input(), there = p.rank(1).output();
          channel.put(there[0], here[0]);
          channel.put(there[1], here[1]);
          channel.get(p.rank(0).output()[2], there[2]);
          channel.get(p.rank(0).output()[3], there[3]);
        }) == "[" + move("put", local("i", 0) + "," + local("i", 1), remote(0, 0) + "," + remote(0, 1), byMemory) +
                  "," +
                  move("get", remote(0, 2) + "," + remote(0, 3), local("o", 2) + "," + local("o", 3),
                       ",\"channel_ids\":[0,0]" + byMemory) +
                  "]");
}

TEST_CASE("a port's put is one with its signal and flush where one call asks for them") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const port = p.portChannel(1, 0);
          auto const here = p.rank(0).input(), there = p.rank(1).output();
          port.putWithSignal(there[0], here[0]);
          port.putWithSignal(there[1], here[1]);
          port.putWithSignalAndFlush(there[2], here[2]);
          port.put(there[3], here[3]);
          port.signal({.dataSync = dsl::none});
        }) == "[" +
                  move("pws", local("i", 0) + "," + local("i", 1), remote(0, 0) + "," + remote(0, 1), portPut("0,0")) +
                  "," + move("pwsf", local("i", 2), remote(0, 2), portPut("0")) + "," +
                  move("put", local("i", 3), remote(0, 3), portPut("0")) + "," + order("signal", "0", "port") + "]");
}

TEST_CASE("packets are sent together, passed on to several, and told apart as a port awaits them or not") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const channel = p.memoryChannel(1, 0);
          auto const port = p.portChannel(1, 0);
          auto const mine = p.rank(0).scratch(4), theirs = p.rank(1).scratch(4);
          channel.readPutPackets(theirs[0], mine[0]);
          channel.readPutPackets(theirs[1], mine[0]);
          port.putPackets(theirs[2], mine[2]);
          port.readPutPackets(theirs[3], mine[3]);
        }) == "[" + move("rppkt", local("s", 0), remote(0, 0) + "," + remote(0, 1), byMemory) + "," +
                  move("ppkt", local("s", 2), remote(0, 2), portPut("0")) + "," +
                  move("rppkt", local("s", 3), remote(0, 3), portPut("0")) + "]");
}

TEST_CASE("a sum takes in more sources, and is stored and sent while it is there") {
  auto const reduced = [](bool ofOther) {
    return [=](dsl::Builder& p) {
      auto const channel = p.memoryChannel(1, 0);
      auto const rank = p.rank(0);
      auto const in = rank.input(), out = rank.output(), theirs = p.rank(1).input();
      for (int i = 1; i < 3; ++i) {
        if (ofOther) channel.reduce(out[0], in[0], {theirs[i]});
        if (!ofOther) rank.reduce(out[0], in[0], {in[i]});
      }
      channel.put(p.rank(1).output()[0], out[0]);
      channel.put(p.rank(1).output()[1], out[0]);
    };
  };
  CHECK(opsOf(reduced(false)) == "[" +
                                     move("res", local("i", 0) + "," + local("i", 1) + "," + local("i", 2),
                                          local("o", 0) + "," + remote(0, 0) + "," + remote(0, 1), byMemory + sum) +
                                     "]");
  CHECK(opsOf(reduced(true)) == "[" +
                                    move("rres", local("i", 0) + "," + remote(0, 1) + "," + remote(0, 2),
                                         local("o", 0) + "," + remote(1, 0) + "," + remote(1, 1), byMemory + sum) +
                                    "]");
}

TEST_CASE("a sum of packets is stored, as packets too, and sent") {
  auto const reduced = [](bool copies, bool sends) {
    return [=](dsl::Builder& p) {
      auto const channel = p.memoryChannel(1, 0);
      auto const rank = p.rank(0);
      auto const mine = rank.scratch(4), theirs = p.rank(1).scratch(4);
      rank.reducePackets(rank.output()[0], rank.input()[0], {mine[0]});
      rank.reducePackets(rank.output()[0], rank.input()[0], {mine[1]});
      if (copies) rank.copyPackets(mine[2], rank.output()[0]);
      if (sends) channel.putPackets(theirs[0], rank.output()[0]);
      if (copies && sends) channel.readPutPackets(theirs[1], mine[2]);
    };
  };
  auto const sources = local("i", 0) + "," + local("s", 0) + "," + local("s", 1);
  CHECK(opsOf(reduced(false, false)) == "[" + move("repkt", sources, local("o", 0), sum) + "]");
  CHECK(opsOf(reduced(true, false)) == "[" + move("recpkt", sources, local("o", 0) + "," + local("s", 2), sum) + "]");
  CHECK(opsOf(reduced(false, true)) ==
        "[" + move("respkt", sources, local("o", 0) + "," + remote(0, 0), byMemory + sum) + "]");
  CHECK(opsOf(reduced(true, true)) ==
        "[" +
            move("recspkt", sources, local("o", 0) + "," + local("s", 2) + "," + remote(0, 0) + "," + remote(0, 1),
                 byMemory + sum) +
            "]");
}

TEST_CASE("a switch combines and stores at once") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const port = p.switchChannel({0, 1}, dsl::BufferKind::input).atRank(0);
          port.reduce(p.rank(0).output()[1], 1, 1);
          port.broadcast(2, p.rank(0).output()[1]);
          port.broadcast(3, p.rank(0).output()[1]);
        }) ==
        "[{\"name\":\"glres\",\"src_buff\":[{\"switch_channel_id\":0,\"index\":1,\"size\":1}],"
        "\"dst_buff\":[{\"switch_channel_id\":0,\"index\":2,\"size\":1}],\"channel_type\":\"switch\"" +
            sum +
            "},{\"name\":\"gstore\",\"src_buff\":[{\"rank\":0,\"type\":\"o\",\"index\":1,\"size\":1}],"
            "\"dst_buff\":[{\"switch_channel_id\":0,\"index\":3,\"size\":1}],\"channel_type\":\"switch\"}]");
}

TEST_CASE("a sync stands where one operation touches what another has touched") {
  Define const define = [](dsl::Builder& p) {
    auto const rank = p.rank(0);
    rank.copy(rank.output()[0], rank.input()[0]);
    rank.copy(rank.output()[1], rank.input()[0]);
    rank.copy(rank.output()[2], rank.output()[1]);
    rank.copy(rank.output()[3], rank.output()[0]);
  };
  auto const copy = [](char const* from, int source, int target) {
    return move("copy", local(from, source), local("o", target));
  };
  CHECK(opsOf(define) == "[" + copy("i", 0, 0) + "," + copy("i", 0, 1) + "," + nop + "," + copy("o", 1, 2) + "," +
                             copy("o", 0, 3) + "]");
  CHECK(opsOf(define, {.name = "printed", .collective = fourChunks, .autoSync = false}).find("nop") ==
        std::string::npos);
}

TEST_CASE("a loop is an operation of a block, fused within") {
  CHECK(opsOf([](dsl::Builder& p) {
          auto const channel = p.memoryChannel(1, 0), other = p.memoryChannel(1, 0);
          p.loop(1 << 12, 1, [&] {
            channel.put(p.rank(1).output()[0], p.rank(0).input()[0]);
            channel.signal({.dataSync = dsl::before});
            other.signal({.dataSync = dsl::after});
          });
          channel.wait({.dataSync = dsl::before});
        }) == "[{\"name\":\"pipeline\",\"iter_context\":{\"unit_size\":4096,\"num_chunks\":1},\"ops\":[" +
                  move("put", local("i", 0), remote(0, 0), byMemory) + "," + nop + "," + order("signal", "0,1") + "," +
                  nop + "]}," + order("wait", "0") + "]");
}

TEST_CASE("things are numbered as they are first used; a group of one block is a group") {
  auto const text = printed([](dsl::Builder& p) {
    auto const port = p.portChannel(1, 0);
    auto const unused = p.memoryChannel(1, 0), memory = p.memoryChannel(1, 0);
    (void)unused;
    memory.put(p.rank(1).output()[0], p.rank(0).input()[0], {.tb = 1});
    port.put(p.rank(1).input()[0], p.rank(0).input()[0]);
    port.put(p.rank(1).output()[1], p.rank(0).input()[1]);
    memory.put(p.rank(1).output()[2], p.rank(0).input()[2], {.group = {.first = 0, .count = 1}});
  });
  CHECK(listOf(text, "channels", 0) ==
        "[{\"channel_type\":\"port\",\"channel_ids\":[0]},{\"channel_type\":\"memory\",\"channel_ids\":[1]}]");
  CHECK(listOf(text, "channels", 2) ==
        "[{\"channel_type\":\"port\",\"connected_to\":[1]},{\"channel_type\":\"memory\",\"connected_to\":[1,1]}]");
  CHECK(listOf(text, "remote_buffers") ==
        "[{\"rank\":1,\"type\":\"o\",\"access_channel_types\":[\"memory\",\"port\"]},"
        "{\"rank\":1,\"type\":\"i\",\"access_channel_types\":[\"port\"]}]");
  CHECK(listOf(text, "remote_buffer_refs") ==
        "[{\"access_channel_type\":\"port\",\"remote_buffer_ids\":[1,0]},"
        "{\"access_channel_type\":\"memory\",\"remote_buffer_ids\":[0]}]");
  CHECK(listOf(text, "ops").find("\"tbg_info\":{\"tb_id\":0,\"tbg_size\":1}") != std::string::npos);
}

TEST_CASE("instances have neighbouring parts of chunks, and channels and semaphores of their own") {
  Define const define = [](dsl::Builder& p) {
    auto const first = p.memoryChannel(1, 0), second = p.memoryChannel(1, 0);
    (void)first;
    second.put(p.rank(1).output()(2, 2), p.rank(0).input()(2, 2));
    second.signal({.dataSync = dsl::none});
    p.semaphore(0, 3).acquire({.dataSync = dsl::none});
  };
  auto const text = printed(define, {.name = "printed", .collective = fourChunks, .instances = 2});
  CHECK(text.find("\"input_chunks\":8,") != std::string::npos);
  CHECK(listOf(text, "src_buff", 0) == "[" + local("i", 4, 2) + "]");
  CHECK(listOf(text, "src_buff", 1) == "[" + local("i", 6, 2) + "]");
  CHECK(listOf(text, "channels", 1) == "[{\"channel_type\":\"memory\",\"channel_ids\":[3]}]");
  CHECK(listOf(text, "semaphore_ids", 1) == "[1]");
  CHECK(listOf(text, "connected_to") == "[1,1,1,1]");
  CHECK(listOf(text, "semaphores") == "[{\"init_value\":3},{\"init_value\":3}]");
  CHECK_THROWS_AS(
      printed(define,
              {.name = "printed", .collective = fourChunks, .instances = 2, .replication = dsl::Replication::grouped}),
      Error);
}

TEST_CASE("what is printed is read again, and right") {
  CHECK(diagnosticOf<SimpleAllGather>() == "");
  CHECK(diagnosticOf<RingAllGather<4>>() == "");
  CHECK(diagnosticOf<AllPairsAllGather<4, 2>>() == "");
  CHECK(diagnosticOf<TwoShotPackets<4, 2>>() == "");
  CHECK(diagnosticOf<PullPushAllReduce<4>>() == "");
  CHECK(diagnosticOf<ScratchAllToAll<4>>() == "");
  CHECK(diagnosticOf<TwoLevelReduceScatter>() == "");
  CHECK(diagnosticOf<PipelinedSendReceive>() == "");
  CHECK(diagnosticOf<PortAllGather<3>>() == "");
  CHECK(diagnosticOf<PortPackets>() == "");
  CHECK(diagnosticOf<SwitchAllReduce<4>>() == "");
  CHECK(diagnosticOf<SwitchScratch>() == "");
}

TEST_CASE("what is printed can be less than right: that buffers are one in place is not known there") {
  static_assert(dsl::verify<OneShotPackets<3>>());
  CHECK(diagnosticOf<OneShotPackets<3>>().ends_with("a sync of the block between them is missing"));
}

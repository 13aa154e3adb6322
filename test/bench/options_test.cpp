// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/options.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

Options parse(std::vector<std::string> const& arguments) { return parseCommandLine(arguments).options; }

std::string complaint(std::vector<std::string> const& arguments) {
  try {
    parseCommandLine(arguments);
  } catch (UsageError const& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("without flags everything is a default") {
  auto const options = parse({});
  CHECK(!options.device);
  CHECK(!options.ranks);
  CHECK(options.algorithmChoice == AlgorithmChoice::automatic);
  CHECK(options.types == std::vector{DataType::bfloat16});
  CHECK(options.operations == std::vector{ReduceOp::sum});
  CHECK(options.minBytes == 1024);
  CHECK(!options.maxBytes);
  CHECK(options.check);
  CHECK(!options.overlap);
  CHECK(options.launch == LaunchMode::graph);
  CHECK(!options.seed);
  CHECK(options.collectives == std::vector{Collective::allReduce});
  CHECK(options.peers.empty());
}

TEST_CASE("all collectives are those that can be timed") {
  auto const options = parse({"--collective=all"});
  CHECK(options.everyCollective);
  CHECK(options.collectives == std::vector(timedCollectives.begin(), timedCollectives.end()));
}

TEST_CASE("flags are read in both notations and in any order") {
  auto const options = parse({"--in-place",
                              "--ranks",
                              "8",
                              "--device=sim",
                              "--algorithm=twoshot_ll16,oneshot_memory",
                              "--op=max,avg",
                              "--dtype=float8_e4m3,uint64",
                              "--max-bytes=2M",
                              "--min-bytes=512",
                              "--factor=2",
                              "--check=off",
                              "--replays=7",
                              "--ops-per-graph=9",
                              "--blocks=11",
                              "--threads=64",
                              "--overlap=on",
                              "--seed=5",
                              "--output=a.md",
                              "--peers=nccl,nccl-symmetric",
                              "--devices=3",
                              "--dry-run",
                              "--collective=alltoall,reduce"});
  CHECK(options.device == DeviceKind::sim);
  CHECK(options.ranks == 8);
  CHECK(options.algorithmChoice == AlgorithmChoice::named);
  CHECK(options.algorithms == std::vector<std::string>{"twoshot_ll16", "oneshot_memory"});
  CHECK(options.operations == std::vector{ReduceOp::max, ReduceOp::avg});
  CHECK(options.types == std::vector{DataType::float8E4M3, DataType::uint64});
  CHECK(options.minBytes == 512);
  CHECK(options.maxBytes == 2u << 20);
  CHECK(options.factor == 2);
  CHECK(options.inPlace);
  CHECK(!options.check);
  CHECK(options.replays == 7);
  CHECK(options.operationsPerGraph == 9);
  CHECK(options.blocks == 11u);
  CHECK(options.threads == 64u);
  CHECK(options.overlap == true);
  CHECK(options.seed == 5u);
  CHECK(options.output == "a.md");
  CHECK(options.devices == 3);
  CHECK(options.dryRun);
  CHECK(options.peers == std::vector{Contender::nccl, Contender::ncclSymmetric});
  CHECK(options.collectives == std::vector{Collective::allToAll, Collective::reduce});
  CHECK(!options.everyCollective);
}

TEST_CASE("flags of Google Benchmark are set aside") {
  auto const line = parseCommandLine({"--benchmark_filter=ll8", "--ranks=2", "--benchmark_out=x.json"});
  CHECK(line.benchmarkArguments == std::vector<std::string>{"--benchmark_filter=ll8", "--benchmark_out=x.json"});
  CHECK(line.options.ranks == 2);
}

TEST_CASE("sizes have units and print as they are written") {
  CHECK(parseBytes("--x", "1") == 1);
  CHECK(parseBytes("--x", "64K") == 65536);
  CHECK(parseBytes("--x", "3m") == 3u << 20);
  CHECK(parseBytes("--x", "1G") == 1u << 30);
  for (auto bad : {"", "0", "K", "1KB", "-1", "1.5K", "1025G", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parseBytes("--x", bad), UsageError);
  }
  CHECK(formatBytes(1024) == "1K");
  CHECK(formatBytes(3u << 20) == "3M");
  CHECK(formatBytes(1000) == "1000");
  CHECK(formatBytes(std::uint64_t{1} << 30) == "1G");
}

TEST_CASE("what cannot be used is named together with what can") {
  CHECK(complaint({"--dtype=float31"}).find("--dtype=float31: allowed is float32, float64") == 0);
  CHECK(complaint({"--collective=allreduce,barrier"}) ==
        "--collective=barrier: allowed is all, or a list of allreduce, allgather, reducescatter, alltoall, broadcast, "
        "reduce, gather, scatter, sendrecv");
  CHECK(complaint({"--collective=all,reduce"}).find("--collective=all: allowed") == 0);
  CHECK(complaint({"--peers=nccl,own"}) == "--peers=own: allowed is a list of nccl, nccl-symmetric");
  CHECK(complaint({"--op="}).find("--op") == 0);
  CHECK(complaint({"--overlap=yes"}) == "--overlap=yes: allowed is on, off");
  CHECK(complaint({"--ranks=73"}) == "--ranks=73: allowed is a whole number from 1 to 72");
  CHECK(complaint({"--min-bytes=8K", "--max-bytes=4K"}) == "--min-bytes=8K is more than --max-bytes=4K");
  CHECK(complaint({"--launch=stream"}) == "--launch=stream: allowed is graph, eager, host");
  CHECK(complaint({"--launch=eager", "--overlap=off"}) ==
        "--overlap=off: with --launch=eager the library decides it; leave it out");
  CHECK(complaint({"--launch=host", "--ops-per-graph=257"}).find("--launch=host takes at most 256 calls in a row") !=
        std::string::npos);
  CHECK(complaint({"--limits=a.json", "--launch=eager"}).find("--launch=eager: --limits measures") == 0);
  CHECK(complaint({"--nonsense"}).find("--nonsense") != std::string::npos);
}

TEST_CASE("every type and operation has a name of its own that finds it") {
  for (auto type : dataTypes) CHECK(dataTypeByName(nameOf(type)) == type);
  for (auto operation : reduceOps) CHECK(reduceOpByName(nameOf(operation)) == operation);
  CHECK(!dataTypeByName("float"));
  CHECK(!reduceOpByName(""));
  CHECK(dataTypeOf<Float8E5M2>() == DataType::float8E5M2);
  CHECK(reduceOpOf<Avg>() == ReduceOp::avg);
}

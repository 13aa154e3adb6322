// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes plans into the folder that is named, for plan_cli.py to judge and run; as our writer writes them today.
#include <fstream>
#include <iostream>
#include <string>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace dsl_test;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_plans FOLDER\n";
    return 2;
  }
  auto const write = [&](std::string const& name, dsl::Program const& program) {
    std::ofstream(std::string(argv[1]) + "/" + name + ".json") << dsl::toJson(program);
  };
  auto const gather = dsl::build<SimpleAllGather>();
  write("gather", gather);
  write("packets", dsl::build<TwoShotPackets<2>>());
  write("pull_push", dsl::build<PullPushAllReduce<2>>());
  write("all_to_all", dsl::build<ScratchAllToAll<2>>());
  write("reduce_scatter", dsl::build<TwoLevelReduceScatter>());
  write("pipelined", dsl::build<PipelinedSendReceive>());
  write("port", dsl::build<PortAllGather<2>>());
  write("switch", dsl::build<SwitchAllReduce<2>>());
  write("relaxed", dsl::build<SwitchAllReduce<2, true>>());
  write("two_hosts_allreduce", dsl::build<TwoHostsAllReduce>());
  write("two_hosts_allgather", dsl::build<TwoHostsAllGather>());
  auto wrong = gather;
  wrong.ranks[0].blocks[0].steps.pop_back();
  wrong.ranks[0].blocks[0].steps.pop_back();
  write("wrong", wrong);
  auto custom = dsl::build<PipelinedSendReceive>();
  custom.collective = dsl::custom(custom.size(), custom.collective.inputChunks(), custom.collective.outputChunks());
  write("custom", custom);
  return 0;
}

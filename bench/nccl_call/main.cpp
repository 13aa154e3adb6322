// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface adds to a call of the library: all-reduces by AlgorithmCollection::execute and by
// ncclAllReduce, in turn, in one stream.
//
//   mscclpp-bench-nccl-call [CALLS]            one rank on the simulated machine: the library's own instructions
//   mscclpp-bench-nccl-call_cuda [CALLS]       on a GPU, by libmscclpp_nccl.so; a launcher (docs/host.md) starts
//   several
//
// Rank 0 prints nanoseconds of a call, of the fastest and the middle one of 31 rounds, and what one question takes of
// the driver whether the stream is captured, which both calls ask. Instructions, without those of the machine:
//
//   valgrind --tool=callgrind --toggle-collect=byExecute mscclpp-bench-nccl-call 1000
//   valgrind --tool=callgrind --toggle-collect=byNccl mscclpp-bench-nccl-call 1000
//
// of which callgrind_annotate --inclusive=yes says how many belong to the launch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

#include "machine/machine.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/launch/launch.hpp"
#include "nccl/functions.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t count = 256;

constexpr int rounds = 31;

struct Calls {
  AlgorithmCollection algorithms;
  Communicator const& communicator;
  Stream const& stream;
  ncclComm_t comm;
  GpuBuffer<float> data;

  void execute() const {
    CollectiveCall call;
    call.in = call.out = data.data();
    call.inBytes = call.outBytes = data.bytes();
    call.type = DataType::float32;
    call.op = ReduceOp::sum;
    algorithms.execute(Collective::allReduce, communicator, stream, call);
  }
  void nccl() const {
    (void)ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, stream.native());
  }
};

}  // namespace

extern "C" {

__attribute__((noinline)) void byExecute(int calls, void const* with) {
  auto const& of = *static_cast<Calls const*>(with);
  for (int i = 0; i < calls; ++i) of.execute();
}

__attribute__((noinline)) void byNccl(int calls, void const* with) {
  auto const& of = *static_cast<Calls const*>(with);
  for (int i = 0; i < calls; ++i) of.nccl();
}

void byQuestion(int calls, void const* with) {
  auto const& of = *static_cast<Calls const*>(with);
  for (int i = 0; i < calls; ++i) (void)of.stream.capturing();
}
}

namespace {

using Round = void (*)(int, void const*);

// Nanoseconds of a call in each round, sorted; the ways take turns.
std::vector<std::vector<double>> timesOf(std::vector<Round> const& ways, int calls, Calls const& with) {
  std::vector<std::vector<double>> times(ways.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t way = 0; way < ways.size(); ++way) {
      with.communicator.bootstrap()->barrier();
      auto const begin = std::chrono::steady_clock::now();
      ways[way](calls, &with);
      std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - begin;
      with.communicator.synchronize(with.stream);
      times[way].push_back(took.count() / calls);
    }
  }
  for (auto& each : times) std::ranges::sort(each);
  return times;
}

ncclComm_t join(Bootstrap& bootstrap) {
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(bootstrap.getNranks()));
  ncclComm_t comm = nullptr;
  if (bootstrap.getRank() == 0 && ncclGetUniqueId(ids.data()) != ncclSuccess) throw std::runtime_error("no id is made");
  bootstrap.allGather(ids.data(), sizeof(ncclUniqueId));
  if (ncclCommInitRank(&comm, bootstrap.getNranks(), ids[0], bootstrap.getRank()) != ncclSuccess) {
    throw std::runtime_error(ncclGetLastError(nullptr));
  }
  return comm;
}

void run(int calls) {
  auto const launched = launchFromEnvironment();
  auto const bootstrap = bootstrapFor(launched, 0);
  auto& machine = *bench::machine(kernelDevice);
  machine.prepare(1);
  Device const device{kernelDevice, launched.localRank % Device::count(kernelDevice)};
  machine.use(device);
  Communicator const communicator(bootstrap, device);
  Stream const stream(device);
  auto* const comm = join(*bootstrap);
  Calls const with{AlgorithmCollection::defaults(), communicator, stream, comm, GpuBuffer<float>(device, count)};
  with.execute();  // what the first of each makes
  with.nccl();
  auto const times = timesOf({&byExecute, &byNccl, &byQuestion}, calls, with);
  if (launched.rank == 0) {
    auto const print = [](char const* name, std::vector<double> const& all) {
      std::printf("%s %.0f ns (median %.0f)", name, all.front(), all[all.size() / 2]);
    };
    print("execute", times[0]);
    print(", ncclAllReduce", times[1]);
    print(", asking for a capture", times[2]);
    std::printf("\n");
  }
  if (ncclCommDestroy(comm) != ncclSuccess) throw std::runtime_error(ncclGetLastError(nullptr));
}

}  // namespace

int main(int arguments, char** argument) {
  try {
    run(arguments > 1 ? std::atoi(argument[1]) : 1000);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

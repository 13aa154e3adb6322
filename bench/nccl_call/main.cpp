// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface adds to a call of the library, of instructions of the host: all-reduces of one rank on the
// simulated machine, by AlgorithmCollection::execute and by ncclAllReduce.
//
//   mscclpp-bench-nccl-call [CALLS]
//
// Prints nanoseconds of a call, of the fastest of ten rounds. Instructions, without those of the machine:
//
//   valgrind --tool=callgrind --toggle-collect=byExecute mscclpp-bench-nccl-call 1000
//   valgrind --tool=callgrind --toggle-collect=byNccl mscclpp-bench-nccl-call 1000
//
// of which callgrind_annotate --inclusive=yes says how many belong to the launch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "nccl/functions.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t count = 256;

double nanosecondsOf(int calls, void (*round)(int, void const*), void const* with, Stream const& stream) {
  double least = 1e9;
  for (int turn = 0; turn < 10; ++turn) {
    auto const begin = std::chrono::steady_clock::now();
    round(calls, with);
    std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - begin;
    stream.synchronize();
    least = std::min(least, took.count() / calls);
  }
  return least;
}

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
}

int main(int arguments, char** argument) {
  int const calls = arguments > 1 ? std::atoi(argument[1]) : 1000;
  Device const device{DeviceKind::sim, 0};
  Communicator const communicator(LocalBootstrap::create(1).front(), device);
  Stream const stream(device);
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) {
    std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
    return 1;
  }
  Calls const with{AlgorithmCollection::defaults(), communicator, stream, comm, GpuBuffer<float>(device, count)};
  with.execute();  // what the first of each makes
  with.nccl();
  auto const execute = nanosecondsOf(calls, &byExecute, &with, stream);
  auto const nccl = nanosecondsOf(calls, &byNccl, &with, stream);
  std::printf("execute %.0f ns, ncclAllReduce %.0f ns\n", execute, nccl);
  return ncclCommDestroy(comm) == ncclSuccess ? 0 : 1;
}

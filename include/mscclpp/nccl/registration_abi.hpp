// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a program tells libmscclpp_nccl.so, which is loaded beside it, of algorithms of its own: two shared objects that
// hide all else from each other, so plain C and no type of either. registration.hpp fills it in.
//
// The functions are found by name, in whatever the process has loaded. Numbers of types and operations are NCCL's.
// Structures begin with their size, as whoever fills them in was compiled, and only ever grow at their end.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A call of one rank, and what is known of its communicator. Texts live as long as the call.
struct MscclppNcclCall {
  std::size_t size;
  std::uint64_t communicator;  // no other of this process has had this number
  int isSimulated;
  int device;
  int rank;
  int ranks;
  char const* deviceName;   // empty where the ranks' differ
  char const* noMulticast;  // why there is none; empty where there is
  int wholeLines;
  unsigned maxBlocks;
  int ranksPerDevice;
  std::uint64_t hostLimitNs;    // how long ranks wait for each other
  std::uint64_t kernelLimitNs;  // in kernels; 0: for ever
  int isPlanned;                // addresses only tell how buffers lie to each other

  void const* in;
  void* out;
  std::size_t inBytes;
  std::size_t outBytes;
  int type;
  int operation;  // -1: none
  int root;
  int isSymmetric;

  // To run it: nothing of this is there while it is asked whether it can be done.
  void* stream;
  std::uint64_t queue;  // equal for streams whose work goes on one behind the other; no other one has had this number
  int isCaptured;
  // Collective over the ranks: `all` has a part of `bytes` for each, of which each fills its own. 0: done.
  int (*allGather)(void* exchange, void* all, std::size_t bytes);
  void* exchange;
};

// Each function writes why not into `why`, with a zero at the end. They are called from any thread, `run` by one at a
// time for each communicator.
struct MscclppNcclAlgorithm {
  std::size_t size;
  int version;  // mscclppNcclVersion
  char const* collective;
  char const* name;
  // An execution plan, which needs no more; null: the functions do it.
  char const* plan;
  void* state;
  // 0: it can do such a call. The same on all ranks.
  int (*refuse)(void* state, MscclppNcclCall const* call, char* why, std::size_t room);
  // Puts it into the stream: 0, or an ncclResult_t. At the first call of a communicator it may wait for other ranks.
  int (*run)(void* state, MscclppNcclCall const* call, char* why, std::size_t room);
  // Not 0: work of that communicator has failed.
  int (*fault)(void* state, std::uint64_t communicator, char* why, std::size_t room);
  // Ends its kernels' waits.
  void (*abort)(void* state, std::uint64_t communicator);
  // It is gone, on all ranks, and so is its work.
  void (*forget)(void* state, std::uint64_t communicator);
  // Once, behind everything else.
  void (*release)(void* state);
};

// Ahead of the library's own, behind those that were registered before, for communicators that are made from then on.
// 0: done, and `state` is the library's; else an ncclResult_t.
using MscclppNcclRegister = int(MscclppNcclAlgorithm const* algorithm, char* why, std::size_t room);
// Communicators that have it keep it.
using MscclppNcclUnregister = int(char const* collective, char const* name);
}

namespace mscclpp {
inline constexpr int mscclppNcclVersion = 1;
inline constexpr char ncclRegisterName[] = "mscclppNcclRegister";
inline constexpr char ncclUnregisterName[] = "mscclppNcclUnregister";
}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's own algorithm in the form that MSCCL++ has for it, so that sources which were written for that compile here:
//
//   std::make_shared<NativeAlgorithm>("mine", "allgather", initialize, run, makeContext, keyOf)
//
//   initialize(std::shared_ptr<Communicator>)
//   run(std::shared_ptr<void> context, void const* in, void* out, std::size_t inBytes, std::size_t outBytes, DataType,
//       ReduceOp, cudaStream_t, int blocks, int threads, Extras const&) -> CommResult
//   makeContext(std::shared_ptr<Communicator>, void const* in, void* out, std::size_t inBytes, std::size_t outBytes,
//               DataType) -> std::shared_ptr<void>
//   keyOf(void const* in, void* out, std::size_t inBytes, std::size_t outBytes, DataType, bool symmetric)
//       -> AlgorithmCtxKey
//
// The communicator is the caller's: the pointer to it does not keep it. A result other than CommSuccess is thrown as an
// Error. What is new is native_algorithm.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"

namespace mscclpp {

// Of the capsules in which Python modules hand over a std::shared_ptr<Algorithm>.
inline constexpr char const* ALGORITHM_NATIVE_CAPSULE_NAME = "mscclpp::AlgorithmPtr";

enum class CommResult : std::uint8_t {
  CommSuccess = 0,
  CommUnhandledCudaError = 1,
  CommSystemError = 2,
  CommInternalError = 3,
  CommInvalidArgument = 4,
  CommInvalidUsage = 5,
  CommRemoteError = 6,
  CommInProgress = 7,
  CommNumResults = 8,
};

struct AlgorithmCtxKey {
  void* baseSendBuff;
  void* baseRecvBuff;
  std::size_t baseSendSize;
  std::size_t baseRecvSize;
  int tag;
};

namespace impl {

// A stream as whichever pointer the callee takes it for.
struct NativeStream {
  void* native;
  template <class T>
  operator T*() const {
    return static_cast<T*>(native);
  }
};

inline std::shared_ptr<Communicator> borrowed(Communicator const& communicator) {
  return {std::shared_ptr<void>(), const_cast<Communicator*>(&communicator)};
}

inline Collective collectiveNamed(std::string const& algorithm, std::string_view name) {
  if (auto const found = collectiveByName(name)) return *found;
  std::string there;
  for (auto const collective : collectives) there += " " + std::string(nameOf(collective));
  throw Error(ErrorCode::invalidUsage, "NativeAlgorithm " + algorithm + ": there is no collective \"" +
                                           std::string(name) + "\"; there are" + there);
}

inline void requireSuccess(CommResult result) {
  if (result == CommResult::CommSuccess) return;
  auto code = ErrorCode::internalError;
  switch (result) {
    case CommResult::CommUnhandledCudaError:
      code = ErrorCode::deviceError;
      break;
    case CommResult::CommSystemError:
      code = ErrorCode::systemError;
      break;
    case CommResult::CommInvalidArgument:
    case CommResult::CommInvalidUsage:
      code = ErrorCode::invalidUsage;
      break;
    case CommResult::CommRemoteError:
      code = ErrorCode::remoteError;
      break;
    default:
      break;
  }
  throw Error(code, "a user's algorithm returned CommResult " + std::to_string(static_cast<int>(result)));
}

}  // namespace impl

template <class Initialize, class Run, class MakeContext, class KeyOf>
NativeAlgorithm::NativeAlgorithm(std::string name, std::string_view collective, Initialize initialize, Run run,
                                 MakeContext makeContext, KeyOf keyOf)
    : NativeAlgorithm(
          name, impl::collectiveNamed(name, collective),
          NativeFunctions{
              .initialize = [initialize = std::move(initialize)](
                                Communicator const& communicator) { initialize(impl::borrowed(communicator)); },
              .contextKey =
                  [keyOf = std::move(keyOf)](Communicator const&, CollectiveCall const& call) {
                    AlgorithmCtxKey const key =
                        keyOf(call.in, call.out, call.inBytes, call.outBytes, call.type, call.symmetric);
                    return ContextKey{key.baseSendBuff, key.baseRecvBuff, key.baseSendSize, key.baseRecvSize,
                                      static_cast<std::uint64_t>(key.tag)};
                  },
              .makeContext = [makeContext = std::move(makeContext)](
                                 Communicator const& communicator,
                                 CollectiveCall const& call) -> std::shared_ptr<void> {
                return makeContext(impl::borrowed(communicator), call.in, call.out, call.inBytes, call.outBytes,
                                   call.type);
              },
              .run =
                  [run = std::move(run)](std::shared_ptr<void> const& context, CollectiveCall const& call,
                                         Stream const& stream) {
                    impl::requireSuccess(run(context, call.in, call.out, call.inBytes, call.outBytes, call.type,
                                             call.op, impl::NativeStream{stream.native()}, call.blocks, call.threads,
                                             call.extras));
                  }}) {}

}  // namespace mscclpp

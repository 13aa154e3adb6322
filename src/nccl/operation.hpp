// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One call of a collective, or of a message, as a program made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"
#include "nccl/kernels/kernels.hpp"
#include "nccl/one_sided.hpp"

namespace mscclpp::nccl {

enum class Work : std::uint8_t { collective, send, recv };

struct Operation {
  Work work = Work::collective;
  Collective collective = Collective::sendRecv;
  void const* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // as the function counts: of the smaller buffer
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::none;
  std::optional<Factor> factor{};  // of the inputs, before they are summed
  int root = 0;                    // or the peer
  void* stream = nullptr;
};

// A put with its signal, a signal alone, or a wait for some.
struct OneSided {
  enum class Kind : std::uint8_t { put, signal, wait };
  Kind kind = Kind::signal;
  void const* in = nullptr;
  std::size_t bytes = 0;
  void* window = nullptr;  // as a communicator names it
  std::size_t offset = 0;
  Signals::Which signal{};
  std::uint64_t count = 0;  // of signals
  void* stream = nullptr;
};

// NCCL's numbers. Throws for one that there is not.
DataType typeOf(int number);
int numberOf(DataType type);
// Nothing for an operation of a communicator's own.
std::optional<ReduceOp> builtInOperation(int number);
int numberOf(ReduceOp op);

}  // namespace mscclpp::nccl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MSCCL++'s own DSL does with the operations of a block before it writes them. Rule by rule as there, where ours
// would merge more or sync otherwise.
#pragma once

#include <string_view>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// An operation of a plan: a step, or several in one, whose operands and objects lie in `step` one behind the other.
struct MscclppOp {
  std::string_view name;  // a move's, as plans have it
  Step step;
  unsigned syncs = 0;                 // around a signal, wait, flush, acquire or release; see below
  std::vector<MscclppOp> inner = {};  // of a loop
};
using MscclppOps = std::vector<MscclppOp>;

// Where a block meets itself around an operation.
inline constexpr unsigned syncAhead = 1, syncBehind = 2;

inline bool isLoop(MscclppOp const& op) { return op.step.kind == StepKind::loopBegin; }
// The block meets itself, be it along with others.
inline bool isMeeting(MscclppOp const& op) {
  return op.step.kind == StepKind::sync || op.step.kind == StepKind::barrier;
}
inline bool isOrder(MscclppOp const& op) { return !isLoop(op) && !isMeeting(op) && op.step.kind != StepKind::move; }
inline MscclppOp syncOp() { return {{}, {.kind = StepKind::sync}}; }

// Neighbours that are one, of a block of `rank`.
MscclppOps fused(MscclppOps ops, int rank);
// `syncs` as operations of their own.
MscclppOps withSyncsWritten(MscclppOps ops);
// With a sync ahead of what touches memory that an operation since the last sync has touched, unless both read. Only
// the last to touch a chunk is known.
MscclppOps withDependencies(MscclppOps ops, int rank);

}  // namespace mscclpp::dsl

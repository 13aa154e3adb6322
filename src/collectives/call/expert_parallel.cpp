// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/expert_parallel.hpp"

#include <utility>

#include "base/format.hpp"
#include "collectives/kernels/expert_kernels.hpp"
#include "collectives/kernels/on_machine.hpp"
#include "mscclpp/host/hierarchy.hpp"

namespace mscclpp {
namespace {

using namespace collectives_impl;

layout::ExpertLimits limitsOf(layout::ExpertLimits limits, int rank, DataType type, DataType wire) {
  if (!hasExpertKernels(type, wire)) {
    fail(ErrorCode::invalidUsage,
         "rank {}: ExpertParallel of {} that travels as {}; there are float32 as it is, float16 and bfloat16 as they "
         "are, as float8_e4m3 and as int8",
         rank, nameOf(type), nameOf(wire));
  }
  limits.elementBytes = static_cast<std::uint32_t>(bytesOf(type));
  limits.variant = 1 + static_cast<std::uint32_t>(type) * 256 + static_cast<std::uint32_t>(wire);
  return limits;
}

}  // namespace

ExpertParallel::ExpertParallel(Communicator const& communicator, layout::ExpertLimits limits, DataType type,
                               DataType wire, std::vector<int> ranks)
    : type_(type),
      wire_(wire),
      rank_(communicator.rank()),
      size_(communicator.size()),
      // A simulated GPU has its threads for a cost.
      shape_{.blocks = limits.blocks, .threads = communicator.device().kind == DeviceKind::sim ? 64u : 512u} {
  limits = limitsOf(limits, rank_, type, wire);
  if (ranks.empty() && nodesOf(hostsOf(communicator)).size() > 1) {
    nodes_.emplace(communicator, limits);
  } else {
    experts_.emplace(communicator, limits, std::move(ranks));
    rank_ = experts_->rank();
    size_ = experts_->size();
  }
}

layout::ExpertLimits const& ExpertParallel::limits() const noexcept {
  return nodes_ ? nodes_->limits() : experts_->limits();
}

std::size_t ExpertParallel::bytes() const noexcept { return nodes_ ? nodes_->bytes() : experts_->bytes(); }

layout::ExpertsHandle ExpertParallel::deviceHandle(std::int32_t const* failed) const {
  if (failed != nullptr && nodes_) {
    fail(ErrorCode::invalidUsage,
         "rank {}: ExpertParallel over several nodes without ranks that have failed; that there is within one node",
         rank());
  }
  return withinNode().deviceHandle(failed);
}

void ExpertParallel::check(char const* what, std::uint32_t tokens, void const* experts) const {
  if (tokens > limits().tokens) {
    fail(ErrorCode::invalidUsage, "rank {}: {} of {} tokens; ExpertParallel was made for at most {}", rank(), what,
         tokens, limits().tokens);
  }
  if (tokens != 0 && experts == nullptr) {
    fail(ErrorCode::invalidUsage, "rank {}: {} of {} tokens without a table of their experts", rank(), what, tokens);
  }
}

void ExpertParallel::dispatch(Stream const& stream, DispatchCall const& call) const {
  check("dispatch", call.tokens, call.experts);
  auto const refuse = [&](char const* missing) {
    fail(ErrorCode::invalidUsage, "rank {}: dispatch without {}", rank(), missing);
  };
  if (call.tokens != 0 && call.x == nullptr) refuse("the tokens' rows (x)");
  if (call.room != 0 && call.rows == nullptr) refuse("memory for the rows that come (rows)");
  if (wire_ != type_ && call.room != 0 && call.scales == nullptr) refuse("memory for the scales of quantised rows");
  if (call.order != ExpertOrder::byToken && call.orderRows == 0) refuse("orderRows, which is 1 at least");
  auto const handle = deviceHandle(call.failed);
  ExpertStart const start{stream, shape_, handle, nodes_ ? &nodes_->deviceHandle() : nullptr, type_, wire_};
  onMachine(stream.device().kind, "ExpertParallel", [&](auto machine) { startDispatch(start, call, machine); });
  weightsAreThere_ = call.weights != nullptr;
}

void ExpertParallel::combine(Stream const& stream, CombineCall const& call) const {
  check("combine", call.tokens, call.experts);
  auto const refuse = [&](char const* missing) {
    fail(ErrorCode::invalidUsage, "rank {}: combine without {}", rank(), missing);
  };
  if (call.rows != 0 && call.results == nullptr) refuse("the rows that go home (results)");
  if (call.tokens != 0 && call.y == nullptr) refuse("memory for the sums (y)");
  if (nodes_ && limits().partOfEach && call.tokens != 0 && call.weights != nullptr && !weightsAreThere_) {
    fail(
        ErrorCode::invalidUsage,
        "rank {}: combine by weights, of a dispatch without: over several nodes a node's parts are added there, by the "
        "weights that were dispatched",
        rank());
  }
  auto const handle = deviceHandle(call.failed);
  ExpertStart const start{stream, shape_, handle, nodes_ ? &nodes_->deviceHandle() : nullptr, type_, wire_};
  onMachine(stream.device().kind, "ExpertParallel", [&](auto machine) { startCombine(start, call, machine); });
}

}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to their experts and home by calls from the host, with kernels that the library has compiled. In kernels of
// one's own: algorithms/experts/dispatch.hpp, combine.hpp, whose contracts hold here.
//
//   ExpertParallel experts(communicator, {.experts = 256, .topK = 8, .tokens = 128, .hidden = 7168},
//                          DataType::bfloat16, DataType::float8E4M3);
//   experts.dispatch(stream, {.x = x, .experts = indices, .weights = weights, .tokens = 128, .rows = rows, ...});
//   ...                                       the experts' work, on the rows that came
//   experts.combine(stream, {.results = results, .rows = room, .experts = indices, .weights = weights, .tokens = 128,
//                            .y = y});
//
// Each call is a kernel in the stream. All ranks dispatch, then combine, in the same order, with the same order of
// rows; numbers of tokens may differ. Nothing waits for the host, and calls can be captured: a replay takes what its
// memory holds then. What `dispatch` has brought stays until the next one. Two batches on their way need two of these.
//
// Of all ranks of a communicator on several nodes rows go to each node once
// (algorithms/experts/hierarchical_dispatch.hpp): sources are counted rail by rail, and no ranks can be left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/fused/hierarchical_experts.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {

// How rows that come are laid out: one expert's behind the other's, `orderRows` rows for each, or one for each token.
enum class ExpertOrder : std::uint8_t { packed, padded, byToken };

// Memory of the device. What is null is not asked for, but for x, experts and rows.
struct DispatchCall {
  void const* x = nullptr;                // [tokens][hidden]
  std::int64_t const* experts = nullptr;  // [tokens][topK]; negative: none
  float const* weights = nullptr;         // [tokens][topK]; null: all are 1
  std::uint32_t tokens = 0;
  ExpertOrder order = ExpertOrder::packed;
  std::uint32_t orderRows = 1;  // packed: of which each expert's first row is a multiple; padded: rows of an expert
  void* rows = nullptr;         // [room][hidden], of the type on the way
  std::size_t room = 0;
  float* scales = nullptr;             // [room][ceil(hidden / 128)], where rows are quantised
  std::uint32_t* firsts = nullptr;     // [experts of this rank]; byToken: [ranks + 1], of this node
  std::uint32_t* counts = nullptr;     // [experts of this rank]
  std::uint32_t* origins = nullptr;    // [room]: source * limits.tokens + token
  float* rowWeights = nullptr;         // [room]; byToken: [room][limits.topK]
  std::int32_t* rowExperts = nullptr;  // byToken: [room][limits.topK]
  std::uint32_t* dropped = nullptr;    // is counted up; null: no room is an error of the launch
  // Ranks that have failed (host/fused/experts.hpp), and what is not sent to their experts.
  std::int32_t const* failed = nullptr;  // [ranks]: not 0: it has failed; null: none
  std::uint8_t* unsent = nullptr;        // [tokens][topK]: 1 or 0
  std::uint32_t* unsentCount = nullptr;  // is counted up
};

// Memory of the device. `results` lie as the rows that the dispatch before has brought.
struct CombineCall {
  void const* results = nullptr;  // [rows][hidden]
  std::size_t rows = 0;
  std::int64_t const* experts = nullptr;  // as dispatched
  // Of sums at home (limits.partOfEach); null: all are 1. Over several nodes those that were dispatched, since a node's
  // sums are made there.
  float const* weights = nullptr;
  std::uint32_t tokens = 0;
  void* y = nullptr;                     // [tokens][hidden]
  bool weighted = true;                  // by the weights that were dispatched, where the rows are added up
  std::int32_t const* failed = nullptr;  // as dispatched, or more
};

class ExpertParallel {
 public:
  // Collective over the ranks (empty: all). `type`: of tokens and results, float32, float16 or bfloat16. `wire`: of
  // rows on their way to experts, the same, float8E4M3 or int8. Limits'
  // elementBytes and variant are set here. Throws
  // invalidUsage where types or limits cannot be, or differ between ranks.
  ExpertParallel(Communicator const& communicator, layout::ExpertLimits limits, DataType type, DataType wire,
                 std::vector<int> ranks = {});

  // Throw invalidUsage for what cannot be, before anything is started.
  void dispatch(Stream const& stream, DispatchCall const& call) const;
  void combine(Stream const& stream, CombineCall const& call) const;

  // What it was made with. expertsOfRank() is rounded up, so that the last ranks may have fewer; bytes() is what rows,
  // scales and parts take of each rank's memory.
  layout::ExpertLimits const& limits() const noexcept;
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::uint32_t expertsOfRank() const noexcept { return deviceHandle().layout.perRank; }
  DataType type() const noexcept { return type_; }
  DataType wire() const noexcept { return wire_; }
  std::size_t bytes() const noexcept;
  // For kernels of one's own in between: of this rank's node, where there are several.
  layout::ExpertsHandle const& deviceHandle() const noexcept { return withinNode().deviceHandle(); }
  // Throws invalidUsage where ranks cannot be left out.
  layout::ExpertsHandle deviceHandle(std::int32_t const* failed) const;

 private:
  Experts const& withinNode() const noexcept { return nodes_ ? nodes_->withinNode() : *experts_; }
  void check(char const* what, std::uint32_t tokens, void const* experts) const;

  DataType type_;
  DataType wire_;
  std::optional<Experts> experts_;            // of one node,
  std::optional<HierarchicalExperts> nodes_;  // or of several
  int rank_;
  int size_;
  LaunchShape shape_;
  mutable bool weightsAreThere_ = false;  // of the last dispatch
};

}  // namespace mscclpp

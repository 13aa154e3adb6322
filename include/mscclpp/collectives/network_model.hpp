// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long collectives in two levels take (algorithms/collective/hierarchical.hpp, hierarchical_alltoall.hpp): nodes of
// GPUs that a MachineModel describes, and a network between them. For planning machines of any number of nodes.
// docs/cost_model.md has the formulas.
//
// All rails alike, each rank with an adapter of its own, and a network that carries what all adapters send.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/host/transport_set.hpp"
#include "mscclpp/layout/node_schedule.hpp"

namespace mscclpp {

// Times in seconds, bandwidths in bytes a second. mscclpp-bench --limits, on ranks of several hosts, measures them.
struct NetworkModel {
  double messageTime = 0;   // from a kernel's putWithSignal of few bytes until the peer's kernel has seen the signal
  double transferTime = 0;  // of each further transfer that a proxy starts
  double railRate = 0;      // out of one rank, and at the same time into it
  std::string transport{};  // by which it was measured, as nameOf(Transport) has it

  // What the network carries out of a rank in the time of one message, and of a further transfer, in bytes.
  std::uint64_t messageBytes() const;
  std::uint64_t transferBytes() const;

  // Measured by this transport, of the files that MSCCLPP_MODEL names; null where none of them is. Throws invalidUsage
  // where one cannot be used.
  static NetworkModel const* of(Transport transport);

  // As those of a MachineModel: {"version": 1, "network": "tcp", "parameters": {"message_us": 20, "transfer_us": 5,
  // "rail_gbps": 2.5}}. parse() and load() throw invalidUsage that names `source`, the parameter, what is there and
  // what is allowed; save() systemError.
  static NetworkModel parse(std::string_view json, std::string const& source);
  static NetworkModel load(std::string const& path);
  std::string json() const;
  void save(std::string const& path) const;
};

// One collective over nodes * rails ranks, of which the time is asked for, and the launch of its kernels.
struct TwoLevelQuery {
  int nodes = 1;
  int rails = 1;  // ranks of a node
  Collective collective = Collective::allReduce;
  std::uint64_t bytes = 0;  // the whole buffer, as in CostQuery
  unsigned blocks = 1;
  unsigned threads = 1;
  std::optional<NodeSchedule> schedule{};  // of all-reduce; nothing: the fastest
};

// What one call takes, in seconds.
struct TwoLevelTime {
  double seconds = 0;                      // from one call to the next
  double network = 0;                      // of which nothing but the network is at work
  std::optional<NodeSchedule> schedule{};  // of all-reduce
};

// Nothing for collectives that there are not in two levels. Throws invalidUsage where a figure cannot be.
std::optional<TwoLevelTime> predictTwoLevel(MachineModel const& machine, NetworkModel const& network,
                                            TwoLevelQuery const& query);

}  // namespace mscclpp

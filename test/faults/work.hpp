// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one rank does in a step, with data that no other step has, and whether what it got is right.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "faults/trial.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"

namespace faults {

// A result in device memory, and what it must be.
struct Awaited {
  mscclpp::GpuBuffer<std::byte> memory;
  std::vector<std::byte> expected;

  bool right() const;
};

class Ports;

// Of one communicator. What peers may still write to stays until it is destroyed.
class Workplace {
 public:
  // `members`: the ranks of the communicator, as the job numbers them.
  Workplace(Work work, mscclpp::Communicator& communicator, std::vector<int> members);
  ~Workplace();

  mscclpp::Communicator& communicator() const { return communicator_; }
  std::vector<int> const& members() const { return members_; }

  // Makes a step's buffers; then the step, which throws what it likes.
  void prepare(Step const& step);
  void perform();
  // Whether the step's results are right.
  bool right() const;

 private:
  void prepareCollective(Step const& step);
  void prepareMessages(Step const& step);

  Work work_;
  mscclpp::Communicator& communicator_;
  std::vector<int> members_;
  std::vector<std::unique_ptr<mscclpp::Stream>> streams_;
  mscclpp::AlgorithmCollection algorithms_ = mscclpp::AlgorithmCollection::defaults();
  std::vector<std::unique_ptr<mscclpp::PointToPoint>> links_;
  std::unique_ptr<Ports> ports_;
  std::vector<mscclpp::GpuBuffer<std::byte>> inputs_;
  std::vector<Awaited> awaited_;
  std::size_t firstAwaited_ = 0;  // of the step
  std::function<void()> start_;
};

// Element `index` of what rank `rank` of the job gives in a step. Small, so that sums are exact in every type.
int valueOf(Step const& step, int rank, std::size_t index);

}  // namespace faults

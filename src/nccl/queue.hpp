// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which a communicator's work runs, whatever streams its callers name: NCCL does not ask for streams that
// correspond between ranks, and a team serves one kernel at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "mscclpp/host/stream.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {

class Queue {
 public:
  Queue(Device device, bool captured) : device_(device), captured_(captured), id_(Stream::queueId()) {}

  // For work that goes into that stream, behind what was last put into another one.
  Stream const& in(void* native) {
    if (!last_ || last_->native() != native) {
      auto next = Stream::borrow(device_, native, id_, captured_);
      if (last_) {
        // What is captured cannot be waited for by what is not.
        if (last_->capture() != next.capture()) {
          refuse(ncclInvalidUsage,
                 "the stream of this communicator's last call is being captured; call on that stream, "
                 "or end the capture first");
        }
        next.runAfter(*last_);
      }
      last_.emplace(std::move(next));
    }
    return *last_;
  }
  // The stream that was last worked in, if any.
  std::optional<Stream> const& last() const { return last_; }
  // The first time that it is asked, and the first after renew().
  bool isNew() { return !std::exchange(asked_, true); }
  void renew() { asked_ = false; }

 private:
  Device device_;
  bool captured_;  // into one graph
  std::uint64_t id_;
  std::optional<Stream> last_;
  bool asked_ = false;
};

}  // namespace mscclpp::nccl

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an ncclComm_t points to. It is never freed, so that whoever calls with one that has been destroyed is told.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "nccl/comm.hpp"

namespace mscclpp::nccl {

class Handle {
 public:
  explicit Handle(Device device);

  // Throws for null, for what is none, and while or after it is usable.
  static Handle& of(ncclComm* communicator);
  ncclComm* name() noexcept { return reinterpret_cast<ncclComm*>(this); }
  Device device() const noexcept { return device_; }

  std::shared_ptr<Comm> comm() const;
  // The state of its making: ncclInProgress until made.
  ncclResult_t making() const;
  void made(std::shared_ptr<Comm> comm);
  void failed(ncclResult_t code, std::string words);
  // Why it could not be made, or has failed since; empty: neither is known. As long as the process.
  char const* words() const;
  // Takes it away; null where it was never made.
  std::shared_ptr<Comm> take();

 private:
  std::uint64_t magic_;
  pid_t process_;
  Device device_;
  mutable std::mutex mutex_;
  std::shared_ptr<Comm> comm_;
  ncclResult_t making_ = ncclInProgress;
  std::string words_;  // set once
  bool gone_ = false;
};

// Ends what was taken, beside the caller: when the work of its device is done, and the other ranks have come as far.
// `waits`: where it is the last of this process's ranks of its communicator, the caller waits for that, a while, since
// it may end the process, or reset the device, next.
void retire(std::shared_ptr<Comm> comm, bool waits);

}  // namespace mscclpp::nccl

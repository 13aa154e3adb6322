// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hands out file descriptors of this process (virtual memory, simulated device memory) to other processes of the same
// user on this host that know a descriptor's 128-bit key. One background thread per process, started at the first use;
// after fork() the child has a server of its own, with nothing published.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/file_handle.hpp"
#include "base/log_budget.hpp"
#include "base/random.hpp"

namespace mscclpp {

class DescriptorServer {
 public:
  static DescriptorServer& instance();

  // The key under which others can fetch it, until withdrawn.
  Key128 publish(FileHandle descriptor);
  // The same of what `make` returns to each who asks, on the server's thread, which it does not hold up; it throws
  // nothing, and may still run when it has been withdrawn.
  using Make = std::function<std::shared_ptr<FileHandle const>()>;
  Key128 publish(Make make);
  void withdraw(Key128 const& key) noexcept;

 private:
  explicit DescriptorServer(DescriptorServer* before);
  void run();
  struct Client;
  bool answer(Client& client);

  FileHandle listener_;
  LogBudget refusals_;
  std::mutex mutex_;
  std::map<Key128, Make> published_;
  DescriptorServer* before_;  // the parent's, before fork(): unusable, but kept so that no leak is seen
};

// From the process whose identity is `process` (processIdentity() there). `who` says in errors whose memory it is.
// Throws remoteError where the process has ended or has withdrawn the key, timeout past the limit.
FileHandle fetchDescriptor(Key128 const& process, Key128 const& key, std::string const& who,
                           std::chrono::nanoseconds limit);

}  // namespace mscclpp

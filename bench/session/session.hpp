// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks that take part, with their devices, buffers and team; runs cases on all of them together.
//
// Either this process is one rank of a job that a launcher started, or all ranks are threads of this process. After an
// error that run() throws nothing more can be run: ranks may have stopped at different points.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace mscclpp::bench {

struct CaseResult {
  // Per operation, the slowest rank's, by repetition; of LaunchMode::host a sample for each call, in ascending order.
  std::vector<double> seconds;
  std::optional<std::uint64_t> wrong;  // elements, of all ranks; nothing where not checked
  std::vector<double> bare{};          // likewise, of launches of an empty kernel, where there are such
};

class Session {
 public:
  // Joins the ranks. `digest` must be equal on all of them, as a sign that they were given the same arguments. Throws
  // UsageError where the options ask for what is not there.
  Session(Options const& options, std::uint64_t digest);
  ~Session();
  Session(Session const&) = delete;
  Session& operator=(Session const&) = delete;

  // Of rank 0.
  World const& world() const;
  std::string const& deviceName() const;
  // Whether several ranks have one device.
  bool shared() const;
  bool severalProcesses() const;
  // Whether this process holds rank 0, which speaks for all.
  bool leads() const;
  std::uint64_t seed() const;
  // "4 ranks, threads of one process, NVIDIA H200"
  std::string description() const;
  std::string note() const;
  // Version of NCCL, or why it is left out; empty where it was not asked for.
  std::string ncclVersion() const;
  Plan plan(Options options) const;
  // Whether the case can be run; every case of ours can, but NCCL may lack its type, or be left out.
  bool supports(Case const& item) const;

  // Collective, for what is no case: on every rank of this process, by a thread of its own.
  void onRanks(std::function<void(Communicator&)> const& work);

  // Once, before the first run(): makes what the cases need.
  void prepare(std::vector<Case> const& cases);
  CaseResult run(Case const& item);

  // Waits for the other processes, then frees everything.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp::bench

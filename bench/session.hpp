// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks that take part, with their devices, buffers and team; runs cases on all of them together.
//
// Either this process is one rank of a job that a launcher started, or all ranks are threads of this process. After an
// error that run() throws nothing more can be run: ranks may have stopped at different points.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan.hpp"

namespace mscclpp::bench {

struct CaseResult {
  std::vector<double> seconds;         // per operation, the slowest rank's, by repetition
  std::optional<std::uint64_t> wrong;  // elements, of all ranks; nothing where not checked
};

class Session {
 public:
  // Joins the ranks. `digest` must be equal on all of them, as a sign that they were given the same arguments. Throws
  // UsageError where the options ask for what is not there.
  Session(Options const& options, std::uint64_t digest);
  ~Session();
  Session(Session const&) = delete;
  Session& operator=(Session const&) = delete;

  WorldFacts const& facts() const;
  bool severalProcesses() const;
  // Whether this process holds rank 0, which speaks for all.
  bool leads() const;
  std::uint64_t seed() const;
  // "4 ranks, threads of one process, NVIDIA H200"
  std::string description() const;
  std::string note() const;
  // Version of NCCL; empty where it is not used.
  std::string ncclVersion() const;
  // Whether the case can be run; every case of ours can, but NCCL may lack its type.
  bool supports(Case const& item) const;

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

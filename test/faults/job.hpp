// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processes of a trial.
#pragma once

#include "faults/record.hpp"
#include "mscclpp/host/bootstrap/unique_id.hpp"

namespace faults {

struct Verdict {
  int right = 0;  // results
  int errors = 0;
  int hangs = 0;     // ranks
  int wrong = 0;     // results
  int culprits = 0;  // ranks that were told of the wrong one, or of none, or could not go on
  int crashes = 0;
  int milliseconds = 0;

  bool bad() const { return hangs + wrong + culprits + crashes > 0; }
};

// In a process without threads, which has not used the library yet: runs the job, does to it what is planned, and
// judges. Says what is wrong, or with `show` what there was, on stderr.
Verdict runJob(Plan const& plan, bool show);

// The process of one rank.
void runRank(Plan const& plan, int rank, mscclpp::UniqueId const& id, JobRecord& job);

// What is wrong with what the ranks tell; then all that they tell, where anything is, or with `show`. `ends`: what
// became of each process, as waitpid() says; -1: it hung.
Verdict judge(Plan const& plan, JobRecord const& job, std::array<int, mostRanks> const& ends, bool show,
              std::string& text);

}  // namespace faults

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What docs/failures.md promises of each fault, held to what the ranks tell.
#include <sys/wait.h>

#include <csignal>
#include <regex>

#include <fmt/format.h>

#include "faults/job.hpp"
#include "mscclpp/host/error.hpp"

namespace faults {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Whether the text names the rank: "rank 2", "ranks [1, 2]", "had not joined rank 0 at 127.0.0.1:4000: 1, 2".
bool names(std::string const& text, int rank) {
  constexpr auto pattern = "(ranks? \\[?|had not joined rank 0 at [0-9.]+:[0-9]+: )([0-9]+, )*{}(?![0-9])";
  return std::regex_search(text, std::regex(fmt::format(pattern, rank)));
}

class Judgement {
 public:
  Judgement(Plan const& plan, JobRecord const& job, std::array<int, mostRanks> const& ends, std::string& text)
      : plan_(plan), job_(job), ends_(ends), text_(text) {}

  Verdict run(bool show) {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      judgeEnd(rank);
      judgeOutcomes(rank);
    }
    // Of what hangs, is wrong or has crashed, nobody else need know the reason.
    if (!verdict_.bad()) judgeErrors();
    if (verdict_.bad() || show) tellAll();
    return verdict_;
  }

 private:
  bool isHealthy(int rank) const { return rank != plan_.victim || !plan_.ends(); }
  RankRecord const& of(int rank) const { return job_.rank[rank]; }
  int endOf(int rank) const { return ends_[static_cast<std::size_t>(rank)]; }

  void blame(int& count, std::string const& why) {
    ++count;
    text_ += why + "\n";
  }

  void judgeEnd(int rank) {
    int const status = endOf(rank);
    if (status == -1) {
      ++verdict_.hangs;
    } else if (WIFSIGNALED(status) && !(WTERMSIG(status) == SIGKILL && !isHealthy(rank))) {
      blame(verdict_.crashes, fmt::format("rank {} was ended by signal {}", rank, WTERMSIG(status)));
    } else if (!WIFSIGNALED(status) && WEXITSTATUS(status) != 0) {
      blame(verdict_.crashes, fmt::format("rank {} ended with status {}", rank, WEXITSTATUS(status)));
    }
  }

  void judgeOutcomes(int rank) {
    auto const& record = of(rank);
    for (int i = 0; i < record.outcomes; ++i) {
      auto const& outcome = record.outcome[i];
      if (outcome.result == Result::right) ++verdict_.right;
      if (outcome.result == Result::error) ++verdict_.errors;
      if (outcome.result == Result::wrong) {
        blame(verdict_.wrong, fmt::format("rank {} has a wrong result in step {}", rank, outcome.step));
      }
    }
  }

  struct Told {
    bool any = false;     // an error that is followed by something
    bool victim = false;  // one that names the victim
    bool inStep = false;  // one in the step of the fault
    bool differs = false;
    bool aborted = false;
  };
  Told told(int rank) const {
    Told told;
    auto const& record = of(rank);
    for (int i = 0; i < record.outcomes; ++i) {
      auto const& outcome = record.outcome[i];
      if (outcome.result != Result::error) continue;
      bool const victim = names(outcome.text, plan_.victim);
      told.any = told.any || outcome.step + 1 < static_cast<int>(plan_.steps.size());
      told.victim = told.victim || victim;
      told.aborted = told.aborted || has(outcome.text, "abort()");
      if (outcome.step != plan_.at) continue;
      told.inStep = true;
      told.differs = told.differs || (has(outcome.text, "the ranks' calls differ") && victim);
    }
    return told;
  }

  void judgeErrors() {
    bool any = false;
    bool victim = false;
    int inStep = 0;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      auto const heard = told(rank);
      any = any || (heard.any && isHealthy(rank));
      bool const leftOut = plan_.kind == Kind::stop && isHealthy(rank) && (of(rank).others >> plan_.victim & 1) == 0;
      victim = victim || leftOut || (heard.victim && (rank != plan_.victim || heard.aborted));
      inStep += heard.inStep ? 1 : 0;
      if (!isHealthy(rank)) continue;
      judgeRank(rank, heard);
    }
    // Those who wait for one that is late for less may not have given up yet where others do that wait for them.
    bool const brief = plan_.lasts.count() > 0 && plan_.lasts < plan_.kernelLimit + plan_.hostLimit;
    // It may have passed the step in which it was to happen.
    bool const struck = !plan_.ends() || !of(plan_.victim).finished;
    if (any && !victim && !brief && struck && !plan_.restarts() && plan_.at >= 0) {
      blame(verdict_.culprits, fmt::format("nobody names rank {}", plan_.victim));
    }
    if (plan_.kind == Kind::refuse && inStep != 0 && inStep != plan_.ranks) {
      blame(verdict_.culprits, fmt::format("{} of {} ranks fail where memory is refused", inStep, plan_.ranks));
    }
  }

  void judgeRank(int rank, Told const& heard) {
    auto const& record = of(rank);
    auto const wrongly = [&](std::string const& what) {
      blame(verdict_.culprits, fmt::format("rank {} {}", rank, what));
    };
    bool const joining = plan_.at < 0;
    bool const mayStay = plan_.kind == Kind::stop && plan_.ranks == 2 && plan_.victim == 0;  // the half without rank 0
    bool const wasAway = rank == plan_.victim && plan_.lasts > plan_.kernelLimit;
    if (plan_.harmless() && record.outcomes > 0 && heard.any) return wrongly("has an error where nothing has failed");
    // Others may be done then.
    auto const& last = record.outcome[std::max(record.outcomes - 1, 0)];
    bool const atEnd = last.step + 1 >= static_cast<int>(plan_.steps.size());
    if (!record.finished && !joining && !mayStay && !wasAway && !atEnd) return wrongly("could not go on");
    for (int other = 0; other < plan_.ranks; ++other) {
      bool const in = (record.others >> other & 1) != 0;
      if (!in && isHealthy(other) && !joining && !mayStay && !atEnd && other != plan_.victim) {
        return wrongly(fmt::format("has left out rank {}, which is well", other));
      }
    }
    for (int i = 0; i < record.outcomes; ++i) {
      std::string const text = record.outcome[i].text;
      bool const tells = has(text, "is gone") || has(text, "] have ended");
      if (tells && !names(text, plan_.victim) && !joining && !atEnd) {
        return wrongly("is told that another rank has ended");
      }
    }
    bool const without = (record.others >> plan_.victim & 1) == 0;
    if (plan_.ends() && heard.any && !heard.victim && !without && !joining) {
      return wrongly(fmt::format("is not told of rank {}", plan_.victim));
    }
    if (plan_.kind == Kind::mismatch && !plan_.restarts() && !heard.differs) {
      return wrongly("is not told that the calls differ");
    }
    if (plan_.kind == Kind::refuse && heard.inStep && !heard.victim && rank != plan_.victim) {
      wrongly("is not told whose memory was refused");
    }
  }

  void tellAll() {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      auto const& record = of(rank);
      text_ += fmt::format("  rank {}: {}{}, goes on with {:#b}\n", rank, record.doing,
                           record.lost ? ", could not go on" : "", record.others.load());
      for (int i = 0; i < record.outcomes; ++i) {
        auto const& outcome = record.outcome[i];
        constexpr std::array results{"right", "wrong", "error", "not judged"};
        text_ += fmt::format("    step {}, {} ms: {} {}\n", outcome.step, outcome.nanoseconds / 1000000,
                             results[static_cast<std::size_t>(outcome.result)], outcome.text);
      }
    }
  }

  Plan const& plan_;
  JobRecord const& job_;
  std::array<int, mostRanks> const& ends_;
  std::string& text_;
  Verdict verdict_;
};

}  // namespace

Verdict judge(Plan const& plan, JobRecord const& job, std::array<int, mostRanks> const& ends, bool show,
              std::string& text) {
  return Judgement(plan, job, ends, text).run(show);
}

}  // namespace faults

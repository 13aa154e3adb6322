// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One trial of the fault campaign: a job of processes that makes a script of calls, and what goes wrong in it. All of
// it follows from one number.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"

namespace faults {

enum class Kind : std::uint8_t { none, kill, stop, pause, delay, refuse, fork, mismatch, strangers, abort };
inline constexpr std::array<std::string_view, 10> kindNames{"none",   "kill", "stop",     "pause",     "delay",
                                                            "refuse", "fork", "mismatch", "strangers", "abort"};

// What the ranks do, and over what.
enum class Work : std::uint8_t { collectives, messages, memoryPorts, tcpPorts };
inline constexpr std::array<std::string_view, 4> workNames{"collectives", "messages", "ports, mapped memory",
                                                           "ports, TCP"};

// A defect of the ranks, which the campaign has to find.
enum class Plant : std::uint8_t {
  none,
  stale,    // what is in the buffer is the result, whatever the call has thrown
  misname,  // errors name another rank
  hang,     // after an error a rank waits without limit
  crash,    // after an error a rank reads what is not there
  ignore,   // an error is passed over
  leave,    // a rank ends where it should have stayed
};
inline constexpr std::array<std::string_view, 7> plantNames{"none",  "stale",  "misname", "hang",
                                                            "crash", "ignore", "leave"};

// In the order of the two: what a fork's child does, what a call has in place of what the others' have, how it aborts.
namespace way {
enum Fork { lives, exits, orphan };
enum Mismatch { size, type, operation, root, collective, leftOut };
enum Abort { ended, left };
}  // namespace way

struct Step {
  mscclpp::Collective collective = mscclpp::Collective::allReduce;
  mscclpp::DataType type = mscclpp::DataType::float32;
  mscclpp::ReduceOp op = mscclpp::ReduceOp::none;
  std::size_t count = 0;  // elements of a part
  int root = 0;           // taken modulo the ranks that are left
  bool symmetric = false;
  bool newStream = false;
  bool meets = false;      // every rank needs every other one
  std::uint64_t seed = 0;  // of the data
};

struct Plan {
  std::uint64_t seed = 0;
  Kind kind = Kind::none;
  Plant plant = Plant::none;
  int way = 0;
  Work work = Work::collectives;
  int ranks = 0;
  int victim = 0;                     // whom the fault hits
  int at = 0;                         // the step in which it does; -1: while the ranks join
  std::chrono::microseconds after{};  // since the victim has begun it
  std::chrono::milliseconds lasts{};  // of a pause or delay
  // After an error ranks find out who is left, and go on with a communicator of those. Else the next call goes on.
  bool shrinks = false;
  bool checksCalls = false;
  std::chrono::milliseconds kernelLimit{};
  std::chrono::milliseconds hostLimit{};
  std::vector<Step> steps;

  // Nobody may notice anything.
  bool harmless() const;
  // No limit may be waited for.
  bool atOnce() const;
  // The victim does not come back.
  bool ends() const;
  // The ranks count their calls anew behind the step: nothing is known of what they have done in it.
  bool restarts() const { return kind == Kind::mismatch && (!checksCalls || way == way::leftOut); }
  // What every rank must have ended within, from its start on.
  std::chrono::milliseconds bound() const;
  std::string text() const;
};

// How often survivors() and shrink() are tried.
inline constexpr int attempts = 3;

Plan makePlan(std::uint64_t seed, std::optional<Kind> kind, Plant plant);

}  // namespace faults

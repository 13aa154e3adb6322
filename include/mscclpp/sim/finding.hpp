// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the simulated machine found wrong with a program, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mscclpp::sim {

// nameOf() gives the enumerator's own word, as reports have it.
enum class FindingKind : std::uint8_t {
  race,               // two accesses that conflict, and nothing orders them
  narrowScope,        // the accesses would be ordered or atomic if their scope reached both threads
  missingProxyFence,  // ordered, but by different proxies with no proxy fence between
  tornLine,           // LL128 over a link that does not deliver lines whole
  deadLock,           // nobody can go on
  liveLock,           // threads run, and nothing changes any more
  gridNotResident,    // a grid barrier, and the device has no room for all its blocks
  lostSignal,         // a release that nobody ever looked at
  repeatedEpoch,      // a wait ended by a value that had already ended an earlier one
  bytesInFlight,      // a kernel ended before its asynchronous copies
  kernelFailure,      // trap, exception, bad address, misused barrier
  hostFailure,        // an exception of a rank's host code: a wrong result, an error of the library
  stepLimit,          // the run was cut off
  nothingChecked,     // no schedule had an access that the checker saw
};

std::string_view nameOf(FindingKind kind);

// One call of a stack: the function, and where in it.
struct SourceFrame {
  std::string function;
  std::string file;  // as the compiler saw it; empty: unknown
  int line = 0;
};

// One access of a finding, or the place where a thread waits.
struct AccessRecord {
  std::string what;  // "plain write of 4 bytes", "load<acquire, system> of 8 bytes"
  int rank = -1;
  bool host = false;  // the rank's host code; then block and thread mean nothing
  std::string kernel;
  unsigned block = 0;
  unsigned thread = 0;
  std::string memory;                 // "offset 128 of 4096 bytes on device 1"
  std::vector<std::uintptr_t> calls;  // code addresses, the access first, then its callers
  std::vector<SourceFrame> stack;     // the same in source terms, inlined calls included; filled by describe()
};

struct Finding {
  FindingKind kind = FindingKind::race;
  std::string summary;                 // one line
  std::string explanation;             // what is missing, and what to do
  std::vector<AccessRecord> accesses;  // race: the earlier, then the later
  std::vector<std::string> timeline;   // the last steps of each rank, oldest first
  std::vector<std::string> faults;     // of its schedule, that have struck (ExploreOptions::faults)
  std::uint64_t key = 0;               // equal for the same fault in other schedules
  std::uint64_t seed = 0;              // replays it
  std::string schedule;                // replays it too, and is short; see ExploreOptions::replay
  std::uint64_t seen = 1;              // schedules that showed it
};

}  // namespace mscclpp::sim

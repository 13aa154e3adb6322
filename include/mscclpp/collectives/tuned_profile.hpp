// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fastest algorithm and launch shape by size, as measured, for some kinds of GPU and numbers of ranks. mscclpp-tune
// writes them as JSON:
//
//   {"version": 1, "profiles": [{"device": "NVIDIA H200", "ranks": 4, "links": "whole_lines", "collectives":
//     {"allreduce": [{"bytes": 1024, "algorithm": "oneshot_ll16", "blocks": 2, "threads": 64, "time_us": 2.15},
//     ...]}}]}
//
// An entry with "symmetric": true is for calls whose buffers are; they take the others where there is none. `links`
// says whether all links deliver 128-byte lines whole ("whole_lines") or not ("torn_lines"); `bytes` is the whole
// buffer, as in SelectionRequest. Sizes in between take the entry that is nearest by ratio, smaller ones the first,
// and those of up to twice the last the last.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mscclpp/collectives/algorithm_collection.hpp"

namespace mscclpp {

// What was the fastest for one size, in which launch shape, and how long a call of it took.
struct TunedEntry {
  std::string algorithm;
  int blocks = 0;
  int threads = 0;
  double microseconds = 0;

  friend bool operator==(TunedEntry const&, TunedEntry const&) = default;
};

class TunedProfile {
 public:
  // Whom a table holds for: GPUs of one product name, so many of them, over links that deliver lines whole, or do not.
  struct Subject {
    std::string device;
    int ranks = 0;
    bool wholeLines = true;

    friend auto operator<=>(Subject const&, Subject const&) = default;
  };
  using Table = std::map<std::uint64_t, TunedEntry>;  // by bytes

  // Throw invalidUsage that names `source`, the place in it, what is there and what is allowed.
  static TunedProfile parse(std::string_view json, std::string const& source);
  static TunedProfile load(std::string const& path);
  // The files of MSCCLPP_PROFILE (paths of files or folders, separated by colons), else those that are installed with
  // the library in share/mscclpp/profiles; later ones go before earlier ones. Null where there are none.
  static std::shared_ptr<TunedProfile const> installed();

  // What parse() reads. save() throws systemError, and replaces a file as a whole.
  std::string json() const;
  void save(std::string const& path) const;

  // Null where nothing was measured.
  Table const* find(Subject const& subject, Collective collective, bool symmetric = false) const;
  TunedEntry const* nearest(SelectionRequest const& request) const;

  // Enters what is fastest for so many bytes, in place of what is here.
  void set(Subject const& subject, Collective collective, std::uint64_t bytes, TunedEntry entry,
           bool symmetric = false);
  // Takes over everything of `other`, also in place of what is here.
  void merge(TunedProfile const& other);
  bool empty() const noexcept { return tables_.empty(); }

 private:
  using Calls = std::pair<Collective, bool>;  // the second: symmetric
  std::map<Subject, std::map<Calls, Table>> tables_;
};

}  // namespace mscclpp

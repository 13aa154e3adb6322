// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What Arms have measured, as a file:
//
//   {"version": 1, "profiles": [{"device": "NVIDIA H200", "ranks": 4, "ranks_per_device": 1, "links": "whole_lines",
//     "operations": {"gemm_rs o_proj": [{"key": [16, 4096, 3584], "time_us": {"unfused": 8.1}, "refused": ["fused"]},
//     ...]}}]}
//
// `device` holds the product names of all devices, `links` is as in a TunedProfile. An entry names all arms that were
// there, the slowest rank's time of a call or that it was refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "mscclpp/host/fused/arms.hpp"

namespace mscclpp {

struct ArmsProfile {
  struct Subject {
    std::string device;
    int ranks = 0;
    int ranksPerDevice = 1;
    bool wholeLines = true;

    friend bool operator<(Subject const& one, Subject const& other) noexcept {
      return std::tie(one.device, one.ranks, one.ranksPerDevice, one.wholeLines) <
             std::tie(other.device, other.ranks, other.ranksPerDevice, other.wholeLines);
    }
  };
  using Seconds = std::map<std::string, std::optional<double>>;  // by arm; none: refused
  using Keys = std::map<ArmKey, Seconds>;

  // Throws invalidUsage that names `source`, the place in it, what is there and what is allowed.
  static ArmsProfile parse(std::string_view json, std::string const& source);
  std::string json() const;
  // Makes the folder where there is none. Nobody reads a file that is half written.
  void save(std::string const& path) const;

  std::map<Subject, std::map<std::string, Keys>> operations;
};

}  // namespace mscclpp

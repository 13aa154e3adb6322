// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of machines and networks in the files that MSCCLPP_MODEL names, and what both kinds of file have alike.
#pragma once

#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_place.hpp"
#include "mscclpp/collectives/network_model.hpp"

namespace mscclpp::collectives_impl {

inline constexpr double largestFigure = 1e9;
inline constexpr std::string_view howToMeasure = "mscclpp-bench --limits=FILE writes one";

inline std::string modelTitle(std::string const& source) { return fmt::format("model {}", source); }

// Four digits are more than was measured.
inline double writtenFigure(double value) { return std::stod(fmt::format("{:.4g}", value)); }

// Throws systemError.
inline void saveModel(std::string const& path, std::string const& json) {
  std::ofstream file(path, std::ios::binary);
  file << json;
  file.close();
  if (!file) throwSystemError(fmt::format("{}: it cannot be written", modelTitle(path)), errno);
}

// Later files stand before earlier ones.
struct UserModels {
  std::vector<MachineModel> machines;
  std::vector<NetworkModel> networks;

  // Read once in a process; throws invalidUsage for a file that is not there or cannot be right.
  static UserModels const& read();
};

}  // namespace mscclpp::collectives_impl

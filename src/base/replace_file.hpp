// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file written as a whole: nobody reads one that is half written, and an interrupted run leaves the old one.
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/format.hpp"

namespace mscclpp {

// `unfinished`: where it is written before it becomes `path`, in the same folder. Throws systemError that names `what`
// and the file, as "profile my.json".
inline void replaceFile(std::string const& path, std::string const& unfinished, std::string_view text,
                        std::string_view what) {
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << text;
    file.close();
    if (!file) throwSystemError(fmt::format("{} {}: it cannot be written", what, unfinished), errno);
  }
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) {
    throwSystemError(fmt::format("{} {}: it cannot be renamed to {}", what, unfinished, path), error.value());
  }
}

}  // namespace mscclpp

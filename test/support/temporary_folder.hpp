// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A folder of a test's own, which goes with it.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp_test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "mscclpp-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) mscclpp::throwSystemError("mkdtemp", errno);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;

  std::filesystem::path const& path() const { return path_; }
  std::string file(char const* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace mscclpp_test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A folder of this user's alone that goes with its contents, and files in it.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/format.hpp"
#include "jit/embedded.hpp"

namespace mscclpp::jit {

class WorkFolder {
 public:
  WorkFolder() {
    auto name = (std::filesystem::temp_directory_path() / "mscclpp_jit.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throwSystemError(fmt::format("make the folder {}", name), errno);
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(WorkFolder const&) = delete;
  WorkFolder& operator=(WorkFolder const&) = delete;

  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// Makes its folders, too.
inline void writeFile(std::filesystem::path const& path, std::string_view content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throwSystemError(fmt::format("write {}", path.string()), errno);
}

// The library's headers, for those who read files.
inline void writeHeaders(std::filesystem::path const& folder) {
  for (auto const& header : embeddedHeaders()) writeFile(folder / header.name, header.text);
}

}  // namespace mscclpp::jit

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has been compiled, on disk: the folder jit of the library's cache (env.hpp). Files are private to their user;
// one of another's, that others may write, or that is not whole is not taken, and made anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/random.hpp"

namespace mscclpp::jit {

struct CacheCounts {
  std::uint64_t found = 0;
  std::uint64_t made = 0;
};

class Cache {
 public:
  // Without a folder, or where it cannot be trusted, nothing is kept; that is logged once.
  explicit Cache(std::string folder, std::uint64_t mostBytes = std::uint64_t{1} << 30);
  // The process's.
  static Cache& instance();

  // What `make` returned, now or before. Of all processes of the host that ask for a key at once, one makes it.
  std::string get(Key128 const& key, std::function<std::string()> const& make);
  CacheCounts counts() const noexcept { return {found_.load(), made_.load()}; }

 private:
  bool prepare();
  std::string pathOf(Key128 const& key) const;
  bool read(std::string const& path, Key128 const& key, std::string& content) const;
  void write(std::string const& path, Key128 const& key, std::string const& content) const;
  void makeRoom() const;

  std::string folder_;
  std::uint64_t mostBytes_;
  bool usable_ = false;
  std::atomic<std::uint64_t> found_{0}, made_{0};
};

}  // namespace mscclpp::jit

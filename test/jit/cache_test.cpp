// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is kept on disk: found again, made by one, and taken from nobody else.
#include "jit/cache.hpp"

#include <doctest/doctest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/quiet_log.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp;
using namespace mscclpp_test;
namespace fs = std::filesystem;

namespace {

constexpr Key128 key{1, 2, 3};

// The one file of the cache that is no lock.
fs::path keptIn(fs::path const& folder) {
  fs::path found;
  for (auto const& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != "lock") found = entry.path();
  }
  return found;
}

// Whether a new cache of the folder has to make it.
bool isMade(std::string const& folder, std::string const& content = "what was compiled") {
  jit::Cache cache(folder);
  CHECK(cache.get(key, [&] { return content; }) == content);
  return cache.counts().made == 1;
}

}  // namespace

TEST_CASE("what was made is found, by its key") {
  TemporaryFolder const folder;
  auto const jit = folder.file("jit");
  CHECK(isMade(jit));
  CHECK(!isMade(jit));
  jit::Cache cache(jit);
  CHECK(cache.get({9}, [] { return std::string("other"); }) == "other");
  CHECK(cache.counts().made == 1);
  // One that cannot be made leaves nothing.
  CHECK_THROWS_AS(cache.get({8}, []() -> std::string { throw Error(ErrorCode::invalidUsage, "no"); }), Error);
  CHECK(cache.get({8}, [] { return std::string("now"); }) == "now");
}

TEST_CASE("what is cut short, changed, of another version, or writable by others is made anew") {
  TemporaryFolder const folder;
  auto const jit = folder.file("jit");
  CHECK(isMade(jit));
  auto const file = keptIn(jit);
  auto const change = [&](std::size_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put('#');
  };
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK(isMade(jit));
  CHECK(!isMade(jit));
  fs::resize_file(file, 5);
  CHECK(isMade(jit));
  change(fs::file_size(file) - 3);
  CHECK(isMade(jit));
  change(7);  // the version
  CHECK(isMade(jit));
  ::chmod(file.c_str(), 0620);
  CHECK(isMade(jit));
  CHECK(!isMade(jit));
  // A link to something else is nobody's file.
  auto const other = folder.file("other");
  fs::rename(file, other);
  fs::create_symlink(other, file);
  CHECK(isMade(jit));
  CHECK(!isMade(jit));
  if (::geteuid() == 0) {
    CHECK(::chown(file.c_str(), 65534, 65534) == 0);
    CHECK(isMade(jit));
  }
}

TEST_CASE("a folder that others may write, or that cannot be made, is not used") {
  TemporaryFolder const folder;
  auto const jit = folder.file("jit");
  CHECK(isMade(jit));
  ::chmod(jit.c_str(), 0777);
  CHECK(isMade(jit));
  ::chmod(jit.c_str(), 0700);
  CHECK(!isMade(jit));
  std::ofstream(folder.file("file")) << "no folder";
  CHECK(isMade(folder.file("file")));
  CHECK(isMade(folder.file("file") + "/jit"));
  CHECK(isMade(""));
}

TEST_CASE("the least recently used goes where there is too much") {
  TemporaryFolder const folder;
  std::string const content(1000, 'x');
  jit::Cache cache(folder.file("jit"), 3500);
  for (std::uint8_t i = 0; i < 6; ++i) {
    CHECK(cache.get({i}, [&] { return content; }) == content);
    CHECK(cache.get({0}, [&] { return content; }) == content);  // always in use
    ::usleep(20000);
  }
  CHECK(cache.counts().made == 6);
  cache.get({1}, [&] { return content; });
  CHECK(cache.counts().made == 7);
}

TEST_CASE("of 8 processes at once, one makes it") {
  TemporaryFolder const folder;
  auto const jit = folder.file("jit");
  auto const counted = folder.file("counted");
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    pid_t const child = ::fork();
    if (child == 0) {
      jit::Cache cache(jit);
      auto const got = cache.get(key, [&] {
        ::usleep(300000);
        std::ofstream(counted, std::ios::app) << "x";
        return std::string(100000, 'k');
      });
      ::_exit(got == std::string(100000, 'k') ? 0 : 1);
    }
    children.push_back(child);
  }
  for (auto const child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(fs::file_size(counted) == 1);
}

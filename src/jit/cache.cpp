// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file_handle.hpp"
#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp::jit {
namespace {

namespace fs = std::filesystem;

struct FileHead {
  std::array<char, 8> magic{'m', 's', 'c', 'c', 'l', 'j', 'i', '1'};
  Key128 key{};
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

std::uint64_t checksumOf(Key128 const& key, std::string const& content) {
  return keyedHash(key, std::as_bytes(std::span(content)));
}

bool readWhole(int file, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes != 0) {
    auto const got = ::read(file, at, bytes);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      return false;
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool writeWhole(int file, void const* from, std::size_t bytes) {
  auto const* at = static_cast<char const*>(from);
  while (bytes != 0) {
    auto const put = ::write(file, at, bytes);
    if (put < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

// Nobody else can have written it.
bool isPrivate(struct stat const& found) {
  return found.st_uid == ::geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

Cache::Cache(std::string folder, std::uint64_t mostBytes) : folder_(std::move(folder)), mostBytes_(mostBytes) {
  usable_ = prepare();
}

Cache& Cache::instance() {
  static Cache cache(cacheFolder().empty() ? std::string{} : cacheFolder() + "/jit");
  return cache;
}

bool Cache::prepare() {
  if (folder_.empty()) {
    log(LogLevel::info, "what is compiled at run time is not kept: neither MSCCLPP_CACHE_DIR nor HOME is set");
    return false;
  }
  std::error_code error;
  fs::create_directories(fs::path(folder_).parent_path(), error);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    log(LogLevel::warn, "what is compiled at run time is not kept: {} cannot be made: {}", folder_,
        std::strerror(errno));
    return false;
  }
  struct stat found {};
  if (::lstat(folder_.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || !isPrivate(found)) {
    log(LogLevel::warn,
        "what is compiled at run time is not kept: {} is not a folder of this user that nobody else may write",
        folder_);
    return false;
  }
  return true;
}

std::string Cache::pathOf(Key128 const& key) const {
  std::string name;
  for (auto const byte : key) name += fmt::format("{:02x}", byte);
  return folder_ + "/" + name;
}

bool Cache::read(std::string const& path, Key128 const& key, std::string& content) const {
  auto const file = FileHandle::own([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); });
  if (!file) return false;
  struct stat found {};
  FileHead head;
  FileHead const expected;
  bool good = ::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode) && isPrivate(found) &&
              readWhole(file.get(), &head, sizeof head) && head.magic == expected.magic && head.key == key &&
              head.bytes == static_cast<std::uint64_t>(found.st_size) - sizeof head;
  if (good) {
    content.resize(head.bytes);
    good = readWhole(file.get(), content.data(), content.size()) && checksumOf(key, content) == head.checksum;
  }
  if (!good) {
    log(LogLevel::warn, "{} is not what this library wrote, or another's; it is made anew", path);
    return false;
  }
  // The least recently used goes first.
  (void)::futimens(file.get(), nullptr);
  return true;
}

void Cache::write(std::string const& path, Key128 const& key, std::string const& content) const {
  auto const fresh = fmt::format("{}.{}", path, ::getpid());
  ::unlink(fresh.c_str());
  {
    auto const file =
        FileHandle::own([&] { return ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
    FileHead head;
    head.key = key;
    head.bytes = content.size();
    head.checksum = checksumOf(key, content);
    if (!file || !writeWhole(file.get(), &head, sizeof head) ||
        !writeWhole(file.get(), content.data(), content.size())) {
      log(LogLevel::warn, "what was compiled cannot be kept in {}: {}", fresh, std::strerror(errno));
      ::unlink(fresh.c_str());
      return;
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) ::unlink(fresh.c_str());
  makeRoom();
}

void Cache::makeRoom() const {
  struct Kept {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Kept> all;
  std::uint64_t sum = 0;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(folder_, error)) {
    std::error_code gone;
    auto const bytes = entry.file_size(gone);
    if (gone || entry.path().filename() == "lock") continue;
    all.push_back({entry.last_write_time(gone), bytes, entry.path()});
    sum += bytes;
  }
  std::ranges::sort(all, {}, &Kept::used);
  for (auto const& kept : all) {
    if (sum <= mostBytes_) return;
    if (fs::remove(kept.path, error)) sum -= kept.bytes;
  }
}

std::string Cache::get(Key128 const& key, std::function<std::string()> const& make) {
  std::string content;
  if (!usable_) {
    ++made_;
    return make();
  }
  auto const path = pathOf(key);
  if (read(path, key, content)) {
    ++found_;
    return content;
  }
  // One file for all keys, a byte of it for each: locks of processes that end are gone.
  auto const lock = FileHandle::own(
      [&] { return ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = key[0] | key[1] << 8 | key[2] << 16;
  range.l_len = 1;
  while (lock && ::fcntl(lock.get(), F_OFD_SETLKW, &range) != 0 && errno == EINTR) {
  }
  if (::access(path.c_str(), F_OK) == 0 && read(path, key, content)) {
    ++found_;
    return content;
  }
  content = make();
  ++made_;
  write(path, key, content);
  return content;
}

}  // namespace mscclpp::jit

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/memory/late_memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "host/memory/descriptor_server.hpp"
#include "host/memory/process_table.hpp"
#include "host/net/host_identity.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

struct LateMemory::Made {
  Made(int of, Device on, std::size_t most) : rank(of), device(on), bytes(most) {}

  RegisteredMemory get() {
    std::lock_guard const lock(mutex);
    if (!registered) {
      memory = DeviceMemory(device, bytes, MemoryKind::unfilled);
      registered = RegisteredMemory::own(rank, device, memory.data(), bytes);
    }
    return registered;
  }

  int const rank;
  Device const device;
  std::size_t const bytes;
  std::mutex mutex;
  DeviceMemory memory;
  RegisteredMemory registered;

  using Table = ProcessTable<Made>;
};

namespace {

enum class Outcome : std::uint8_t { failed, good };

// What others get for the key: a file with the outcome, and the memory's record or what went wrong.
std::shared_ptr<FileHandle const> answer(Outcome outcome, std::span<std::byte const> content) {
  auto file = FileHandle::own([] { return ::memfd_create("mscclpp-late", MFD_CLOEXEC); });
  std::vector<std::byte> all(content.size() + 1, static_cast<std::byte>(outcome));
  std::ranges::copy(content, all.begin() + 1);
  if (!file || ::pwrite(file.get(), all.data(), all.size(), 0) != static_cast<::ssize_t>(all.size())) return nullptr;
  return std::make_shared<FileHandle const>(std::move(file));
}

std::vector<std::byte> contentOf(FileHandle const& file) {
  struct ::stat about {};
  if (::fstat(file.get(), &about) != 0 || about.st_size < 1) return {};
  std::vector<std::byte> all(static_cast<std::size_t>(about.st_size));
  if (::pread(file.get(), all.data(), all.size(), 0) != static_cast<::ssize_t>(all.size())) return {};
  return all;
}

}  // namespace

LateMemory::LateMemory(int rank, Device device, std::size_t bytes, bool alone)
    : made_(std::make_shared<Made>(rank, device, bytes)), alone_(alone) {
  std::weak_ptr const held(made_);
  if (alone) {
    key_ = randomKey();
  } else {
    key_ = DescriptorServer::instance().publish([held]() -> std::shared_ptr<FileHandle const> {
      auto const made = held.lock();
      if (made == nullptr) return nullptr;
      try {
        return answer(Outcome::good, made->get().serialize());
      } catch (std::exception const& error) {
        return answer(Outcome::failed, std::as_bytes(std::span(std::string_view(error.what()))));
      }
    });
  }
  Made::Table::instance().add(key_, held);
}

LateMemory::~LateMemory() {
  if (!alone_) DescriptorServer::instance().withdraw(key_);
}

std::byte* LateMemory::data() const { return made_->get().data(); }

std::size_t LateMemory::bytes() const {
  std::lock_guard const lock(made_->mutex);
  return made_->memory.bytes();
}

RegisteredMemory LateMemory::map(Key128 const& process, Key128 const& key, Device device, std::string const& who) {
  if (process == processIdentity()) {
    auto const made = Made::Table::instance().find(key);
    if (made == nullptr) fail(ErrorCode::remoteError, "{}: its rank has given it up; let ranks end together", who);
    return RegisteredMemory::deserialize(made->get().serialize(false), device);
  }
  auto const content = contentOf(fetchDescriptor(process, key, who, environment().timeout));
  if (content.empty()) fail(ErrorCode::remoteError, "{}: its process answers with an empty file", who);
  auto const rest = std::span(content).subspan(1);
  if (content.front() != static_cast<std::byte>(Outcome::good)) {
    fail(ErrorCode::remoteError, "{}: its process cannot make it: {}", who,
         std::string_view(reinterpret_cast<char const*>(rest.data()), rest.size()));
  }
  return RegisteredMemory::deserialize(rest, device);
}

}  // namespace mscclpp

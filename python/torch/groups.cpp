// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "groups.hpp"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::torch {
namespace {

struct Entry {
  std::weak_ptr<Engine> engine;
  std::shared_ptr<Engine> kept;
  void* stream = nullptr;
};

struct Table {
  std::mutex mutex;
  std::array<std::map<std::string, Entry>, 2> byMachine;
  Groups::Resolver resolver;

  std::map<std::string, Entry>& of(DeviceKind machine) { return byMachine[machine == DeviceKind::cuda ? 0 : 1]; }
  std::optional<Group> look(std::string const& name, DeviceKind machine) {
    std::lock_guard const lock(mutex);
    auto const found = of(machine).find(name);
    if (found == of(machine).end()) return {};
    auto engine = found->second.engine.lock();
    if (engine == nullptr) {
      of(machine).erase(found);
      return {};
    }
    if (machine == DeviceKind::sim && found->second.stream == nullptr) found->second.stream = engine->makeStream();
    return Group{std::move(engine), found->second.stream};
  }
};

// Never destroyed: a program may end while its groups are in use.
Table& table() {
  static auto* const all = new Table;
  return *all;
}

}  // namespace

void Groups::add(std::string const& name, std::shared_ptr<Engine> const& engine) {
  std::lock_guard const lock(table().mutex);
  table().of(engine->device().kind)[name] = Entry{.engine = engine, .kept = nullptr};
}

void Groups::keep(std::string const& name, std::shared_ptr<Engine> engine) {
  std::lock_guard const lock(table().mutex);
  auto& entry = table().of(engine->device().kind)[name];
  if (!entry.engine.expired()) {
    fail(ErrorCode::invalidUsage, "there is a group named \"{}\" for {} tensors already; give this one another name",
         name, engine->device().kind == DeviceKind::cuda ? "CUDA" : "CPU");
  }
  entry = Entry{.engine = engine, .kept = engine};
}

void Groups::remove(Engine const& engine) {
  std::lock_guard const lock(table().mutex);
  for (auto& groups : table().byMachine) {
    std::erase_if(groups, [&](auto const& each) { return each.second.engine.lock().get() == &engine; });
  }
}

void Groups::remove(std::string const& name) {
  std::array<std::shared_ptr<Engine>, 2> gone;  // outside of the lock
  std::lock_guard const lock(table().mutex);
  std::size_t count = 0;
  for (auto& groups : table().byMachine) {
    auto const found = groups.find(name);
    if (found == groups.end() || found->second.kept == nullptr) continue;
    gone[count++] = std::move(found->second.kept);
    groups.erase(found);
  }
  if (count == 0) fail(ErrorCode::invalidUsage, "no group was registered by the name \"{}\"", name);
}

Group Groups::find(std::string const& name, DeviceKind machine) {
  if (auto group = table().look(name, machine)) return std::move(*group);
  Resolver resolver;
  {
    std::lock_guard const lock(table().mutex);
    resolver = table().resolver;
  }
  std::string const why = resolver ? resolver(name, machine) : std::string();
  if (auto group = table().look(name, machine)) return std::move(*group);
  fail(
      ErrorCode::invalidUsage,
      "there is no group named \"{}\" for {} tensors{}{}; name a process group of the backend mscclpp, or one that was "
      "given to mscclpp.ops.register_group()",
      name, machine == DeviceKind::cuda ? "CUDA" : "CPU", why.empty() ? "" : ": ", why);
}

void Groups::setResolver(Resolver resolver) {
  std::lock_guard const lock(table().mutex);
  table().resolver = std::move(resolver);
}

}  // namespace mscclpp::torch

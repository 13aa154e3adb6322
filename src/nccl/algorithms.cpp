// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/algorithms.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/log.hpp"
#include "nccl/machine.hpp"

namespace mscclpp::nccl {
namespace {

namespace fs = std::filesystem;

struct FilePlan {
  std::shared_ptr<Algorithm const> algorithm;
  std::string text;
  std::string file;
};

std::vector<FilePlan> readPlans() {
  std::vector<fs::path> files;
  std::error_code absent;
  for (auto const& entry : fs::directory_iterator(planFolder(), absent)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<FilePlan> plans;
  for (auto const& file : files) {
    try {
      auto text = readFile(file.string(), "plan");
      dsl::ExecutionPlan const plan(dsl::programFromJson(text, file.string()));
      plans.push_back({planAlgorithm(plan), std::move(text), file.string()});
      log(LogLevel::info, "plan {} of {} is taken for the calls that it is for", plan.program().name.str(),
          file.string());
    } catch (Error const& error) {
      log(LogLevel::warn, "{} is left out: {}", file.string(), error.what());
    }
  }
  return plans;
}

void addTo(std::uint64_t& mark, std::string_view text) {
  for (char const each : text) mark = (mark ^ static_cast<unsigned char>(each)) * 0x100000001b3u;
  mark = (mark + 1) * 0x9e3779b97f4a7c15u;
}

std::shared_ptr<Algorithms const> make(std::vector<FilePlan> const& plans, Registry const& registry) {
  auto made = std::make_shared<Algorithms>();
  for (auto const& one : registry.all) {
    made->collection.prefer(one.algorithm);
    addTo(made->mark, one.plan.empty() ? one.algorithm->name() : one.plan);
    if (auto outside = std::dynamic_pointer_cast<RegisteredAlgorithm const>(one.algorithm)) {
      made->registered.push_back(std::move(outside));
    }
  }
  for (auto const& plan : plans) {
    auto const& algorithm = *plan.algorithm;
    bool const taken = std::ranges::any_of(registry.all, [&](Registered const& one) {
      return one.algorithm->collective() == algorithm.collective() && one.algorithm->name() == algorithm.name();
    });
    if (taken) {
      log(LogLevel::info, "{} is left out, since {} \"{}\" is registered", plan.file, nameOf(algorithm.collective()),
          algorithm.name());
      continue;
    }
    made->collection.prefer(plan.algorithm);
    addTo(made->mark, plan.text);
  }
  return made;
}

}  // namespace

std::shared_ptr<Algorithms const> algorithms() {
  static std::mutex mutex;
  static std::uint64_t changes = 0;
  static std::shared_ptr<Algorithms const> made;
  static auto const plans = readPlans();
  auto const registered = registry();
  std::lock_guard const lock(mutex);
  if (made == nullptr || changes < registered.changes) {
    made = make(plans, registered);
    changes = registered.changes;
  }
  return made;
}

std::string planFolder() {
  auto const folder = cacheFolder();
  return folder.empty() ? folder : folder + "/default";
}

}  // namespace mscclpp::nccl

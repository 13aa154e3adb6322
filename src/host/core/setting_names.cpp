// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/core/setting_names.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

constexpr std::string_view prefix = "MSCCLPP_";

// Beside `settings`: those of parts that a program may be without.
constexpr auto ofParts = std::to_array<std::string_view>({
    "MSCCLPP_DEVICE",       // Python: cuda or sim
    "MSCCLPP_SIM_DEVICES",  // of the simulated machine
    "MSCCLPP_SIM_DEVICES_PER_NODE",
    "MSCCLPP_SIM_FABRIC",     // what joins hosts of it
    "MSCCLPP_SYMBOLIZER",     // of reports
    "MSCCLPP_COUNTS",         // of collectives (call_counts.hpp)
    "MSCCLPP_ROUND_BYTES",    // of those over several nodes
    "MSCCLPP_MESSAGE_BYTES",  // of their network
    "MSCCLPP_NODE_SCHEDULE",
    "MSCCLPP_NCCL_LIB_PATH",  // of NCCL's interface
    "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION",
    "MSCCLPP_PYTHON",  // of the examples
});

// Of the scripts, the tests and CMake, which a build leaves set.
constexpr auto ofBuilds = std::to_array<std::string_view>({
    "MSCCLPP_AS_GLOO",
    "MSCCLPP_BUILD_",
    "MSCCLPP_CHECK_SCHEDULES",
    "MSCCLPP_COMMIT",
    "MSCCLPP_CUDA_ARCHITECTURES",
    "MSCCLPP_CUTLASS",
    "MSCCLPP_DEPS_",
    "MSCCLPP_EXPECT_",
    "MSCCLPP_FORK",
    "MSCCLPP_FUZZ_",
    "MSCCLPP_HAS_",
    "MSCCLPP_PRETEND",
    "MSCCLPP_TEST_",
    "MSCCLPP_TORCH_PYTHON",
    "MSCCLPP_USE_",
    "MSCCLPP_WERROR",
});

// MSCCL++'s.
constexpr auto ofReference = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"MSCCLPP_DEBUG", "use MSCCLPP_LOG_LEVEL"},
    {"MSCCLPP_DEBUG_SUBSYS", "MSCCLPP_LOG_LEVEL is for all parts"},
    {"MSCCLPP_LOG_SUBSYS", "MSCCLPP_LOG_LEVEL is for all parts"},
    {"MSCCLPP_DEBUG_FILE", "use MSCCLPP_LOG_FILE"},
    {"MSCCLPP_HCA_DEVICES", "use MSCCLPP_IB_HCA"},
    {"MSCCLPP_IBV_SO", "libibverbs.so.1 is found by the system's loader; set LD_LIBRARY_PATH"},
    {"MSCCLPP_IBV_MODE", "signals go by atomics where the device has them; MSCCLPP_IB_ATOMICS=0 sends immediate data"},
    {"MSCCLPP_HOSTID", "hosts are told apart by what the kernel says of them"},
    {"MSCCLPP_SOCKET_FAMILY", "addresses of both families are used; name an interface in MSCCLPP_SOCKET_IFNAME"},
    {"MSCCLPP_EXECUTION_PLAN_DIR", "plans are asked first in the folder default of MSCCLPP_CACHE_DIR"},
    {"MSCCLPP_NPKIT_DUMP_DIR", "use MSCCLPP_TRACE, a file for a timeline"},
    {"MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM", "copies have streams of their own"},
    {"MSCCLPP_ENABLE_NCCL_FALLBACK", "MSCCLPP_NCCL_LIB_PATH alone is enough"},
    {"MSCCLPP_DISABLE_CHANNEL_CACHE", "contexts are kept by how buffers lie, which is always right"},
    {"MSCCLPP_DISABLE_NVLS", "use MSCCLPP_NVLS=0"},
    {"MSCCLPP_FORCE_DISABLE_NVLS", "use MSCCLPP_NVLS=0"},
    {"MSCCLPP_FORCE_DISABLE_GDR", "memory that a card cannot reach is staged by itself"},
    {"MSCCLPP_NCCL_SYMMETRIC_MEMORY", "register windows by ncclCommWindowRegister, or memory by symmetric_memory"},
    {"MSCCLPP_FIFO_USE_TAIL_REPLICA", "the queue of a proxy keeps one by itself"},
    {"MSCCLPP_HOME", "headers are found beside the library"},
});

// Letters to put in, take out or exchange, neighbours that change places counting once.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      auto const exchanged = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, exchanged});
      bool const crossed = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (crossed) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

bool isKnown(std::string_view name) {
  return std::ranges::find(settings, name, &Setting::name) != settings.end() ||
         std::ranges::find(ofParts, name) != ofParts.end() ||
         std::ranges::any_of(ofBuilds, [&](std::string_view begin) { return name.starts_with(begin); });
}

// The known name that is nearest; empty where none is near.
std::string_view nearest(std::string_view name) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, name.size() / 6) + 1;
  auto const look = [&](std::string_view known) {
    if (!known.starts_with(prefix)) return;
    if (auto const away = distance(name, known); away < least) {
      least = away;
      best = known;
    }
  };
  for (auto const& setting : settings) look(setting.name);
  for (auto const known : ofParts) look(known);
  return best;
}

// MSCCL_PP_..., MSCCLP_..., Mscclpp_...: nobody else's.
bool isNearlyPrefixed(std::string_view name) {
  auto const end = name.find('_', 5);
  return end != std::string_view::npos && end < prefix.size() + 2 && !name.starts_with(prefix) &&
         !name.starts_with("MSCCL_") && distance(name.substr(0, end + 1), prefix) <= 1;
}

}  // namespace

std::vector<NameRemark> remarksOnNames(std::span<std::string const> names) {
  std::vector<NameRemark> remarks;
  for (auto const& name : names) {
    if (!name.starts_with(prefix) && !isNearlyPrefixed(name)) continue;
    if (isKnown(name)) continue;
    auto const* const theirs =
        std::ranges::find(ofReference, name, &std::pair<std::string_view, std::string_view>::first);
    if (theirs != ofReference.end()) {
      remarks.push_back({name, fmt::format("{} is MSCCL++'s and has no effect here: {}", name, theirs->second)});
    } else if (auto const meant = nearest(name); !meant.empty()) {
      remarks.push_back({name, fmt::format("{} is not a setting and has no effect; is {} meant?", name, meant)});
    } else {
      remarks.push_back(
          {name, fmt::format("{} is not a setting and has no effect; mscclpp-doctor lists those that are", name)});
    }
  }
  std::ranges::sort(remarks, {}, &NameRemark::name);
  return remarks;
}

std::vector<std::string> variableNames() {
  std::vector<std::string> names;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    std::string_view const text = *each;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace mscclpp

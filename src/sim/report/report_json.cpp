// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The report as one JSON document; docs/checker_command.md names its fields.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mscclpp/sim/explore.hpp"
#include "mscclpp/version.hpp"

namespace mscclpp::sim {
namespace {

using Json = nlohmann::ordered_json;

Json json(AccessRecord const& access) {
  Json result = {{"what", access.what}, {"rank", access.rank}, {"host", access.host}};
  if (!access.host) {
    result["kernel"] = access.kernel;
    result["block"] = access.block;
    result["thread"] = access.thread;
  }
  result["memory"] = access.memory;
  auto& stack = result["stack"] = Json::array();
  for (auto const& frame : access.stack) {
    stack.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  }
  return result;
}

Json json(Finding const& finding) {
  Json result = {{"kind", nameOf(finding.kind)}, {"summary", finding.summary}, {"explanation", finding.explanation}};
  auto& accesses = result["accesses"] = Json::array();
  for (auto const& access : finding.accesses) accesses.push_back(json(access));
  result["timeline"] = finding.timeline;
  result["faults"] = finding.faults;
  result["key"] = fmt::format("{:016x}", finding.key);  // 64 bits do not survive as a number in every reader
  result["seed"] = finding.seed;
  result["schedule"] = finding.schedule;
  result["seen"] = finding.seen;
  return result;
}

}  // namespace

std::string toJson(ExploreResult const& result) {
  Json document = {{"version", versionText},
                   {"ok", result.ok()},
                   {"schedules", result.schedules},
                   {"complete", result.complete},
                   {"explored", result.explored},
                   {"seconds", result.seconds},
                   {"switches", result.switches},
                   {"memorySteps", result.memorySteps},
                   {"checkedAccesses", result.checkedAccesses},
                   {"forgottenAccesses", result.forgottenAccesses}};
  auto& findings = document["findings"] = Json::array();
  for (auto const& finding : result.findings) findings.push_back(json(finding));
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mscclpp::sim

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The report as SARIF 2.1.0: a rule for each kind of finding, a result for each finding, a code flow with one thread
// for each access.
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mscclpp/sim/explore.hpp"
#include "mscclpp/version.hpp"
#include "sim/report/frames.hpp"

namespace mscclpp::sim {
namespace {

using Json = nlohmann::ordered_json;

struct Rule {
  FindingKind kind;
  char const* title;
  char const* what;
  char const* help;
};

constexpr std::array rules{
    Rule{FindingKind::race, "Data race",
         "Two accesses of the same memory, one of them a write, and nothing orders them.",
         "Order them: a release by the first thread after its access and an acquire by the second before its own, with "
         "a "
         "scope that holds both; or a barrier of both."},
    Rule{FindingKind::narrowScope, "Scope too narrow",
         "Two accesses that would be ordered or atomic if the scope of an operation reached both threads.",
         "Widen the scope: block for threads of one block, device for one GPU, system for several."},
    Rule{FindingKind::missingProxyFence, "Missing proxy fence",
         "Two accesses that are ordered, but go different ways to memory.",
         "Put a proxy fence between the access and the order."},
    Rule{FindingKind::tornLine, "Torn line", "Lines of 128 bytes over a link that does not deliver them whole.",
         "Use LL16 or LL8 packets on this link."},
    Rule{FindingKind::deadLock, "Dead-lock", "Threads wait, and nobody is left who could end their wait.",
         "Look for the signal that was never sent, or the barrier that a thread never reaches."},
    Rule{FindingKind::liveLock, "Live-lock", "Threads run, and nothing changes any more.",
         "Look for the condition that each of them repeats its work for."},
    Rule{FindingKind::gridNotResident, "Grid not resident",
         "A barrier of a grid whose blocks do not all fit on the device at once.",
         "Launch no more blocks than fit, or do without the grid barrier."},
    Rule{FindingKind::lostSignal, "Lost signal", "A release that nobody ever looked at.",
         "Remove the signal, or add the wait that it is meant for."},
    Rule{FindingKind::repeatedEpoch, "Repeated epoch",
         "A wait was ended by a value that had already ended an earlier one.",
         "Advance the epoch for every use, or wait until all readers have left the last one."},
    Rule{FindingKind::bytesInFlight, "Bytes in flight", "A kernel ended before its asynchronous copies.",
         "Wait for the copies before the kernel's end."},
    Rule{FindingKind::kernelFailure, "Kernel failure", "A kernel ended with a trap, an exception, or a bad access.",
         "The message says which thread failed and why."},
    Rule{FindingKind::hostFailure, "Host failure", "The host code of a rank ended with an exception.",
         "The message is that of the exception."},
    Rule{FindingKind::stepLimit, "Step limit", "A run was cut off before its end.",
         "Raise the limit, or make the checked program smaller."},
    Rule{FindingKind::nothingChecked, "Nothing checked", "The checker has seen no access.",
         "Compile the kernels with the compiler's hooks: mscclpp_add_check() or mscclpp::check."},
};

constexpr bool rulesStandInOrder() {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (static_cast<std::size_t>(rules[i].kind) != i) return false;
  }
  return true;
}
static_assert(rulesStandInOrder(), "a rule's index is its kind");

char const* levelOf(FindingKind kind) { return kind == FindingKind::stepLimit ? "warning" : "error"; }
std::string ruleId(FindingKind kind) { return fmt::format("mscclpp/{}", nameOf(kind)); }
Json message(std::string_view text) { return {{"text", text}}; }

std::string escaped(std::string_view path) {
  std::string uri;
  for (char const c : path) {
    bool const plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~+").find(c) != std::string_view::npos;
    if (plain) {
      uri += c;
    } else {
      fmt::format_to(std::back_inserter(uri), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

class Document {
 public:
  explicit Document(std::string_view sourceRoot) {
    if (sourceRoot.empty()) return;
    root_ = std::filesystem::absolute(sourceRoot).lexically_normal().string();
    if (!root_.ends_with('/')) root_ += '/';
  }

  Json run(ExploreResult const& result) {
    Json run;
    run["tool"]["driver"] = {{"name", "mscclpp-check"}, {"version", versionText}, {"rules", ruleList()}};
    if (!root_.empty()) run["originalUriBaseIds"]["SRCROOT"] = {{"uri", "file://" + escaped(root_)}};
    run["invocations"] = Json::array({{{"executionSuccessful", true}}});
    run["columnKind"] = "utf16CodeUnits";
    run["results"] = Json::array();
    for (auto const& finding : result.findings) run["results"].push_back(resultOf(finding));
    run["properties"] = {{"schedules", result.schedules},
                         {"complete", result.complete},
                         {"checkedAccesses", result.checkedAccesses},
                         {"forgottenAccesses", result.forgottenAccesses}};
    return run;
  }

 private:
  static Json ruleList() {
    Json list = Json::array();
    for (auto const& rule : rules) {
      list.push_back({{"id", ruleId(rule.kind)},
                      {"name", rule.title},
                      {"shortDescription", message(rule.what)},
                      {"fullDescription", message(rule.what)},
                      {"help", message(rule.help)},
                      {"defaultConfiguration", {{"level", levelOf(rule.kind)}}}});
    }
    return list;
  }

  bool belowRoot(SourceFrame const& frame) const { return !root_.empty() && frame.file.starts_with(root_); }

  Json location(SourceFrame const& frame, std::string_view text) const {
    Json result = Json::object();
    if (!frame.file.empty()) {
      Json artifact;
      if (belowRoot(frame)) {
        artifact = {{"uri", escaped(std::string_view(frame.file).substr(root_.size()))}, {"uriBaseId", "SRCROOT"}};
      } else {
        artifact = {{"uri", (frame.file.starts_with('/') ? "file://" : "") + escaped(frame.file)}};
      }
      result["physicalLocation"]["artifactLocation"] = artifact;
      if (frame.line > 0) result["physicalLocation"]["region"] = {{"startLine", frame.line}};
    }
    if (!frame.function.empty()) {
      result["logicalLocations"] = Json::array({{{"fullyQualifiedName", frame.function}, {"kind", "function"}}});
    }
    if (!text.empty()) result["message"] = message(text);
    return result;
  }

  // Where a code view puts the finding: in the user's own source, if it can.
  SourceFrame const* shownPlace(AccessRecord const& access) const {
    for (auto const& frame : access.stack) {
      if (!isLibraryFrame(frame) && (root_.empty() || belowRoot(frame))) return &frame;
    }
    return placeOf(access);
  }

  static std::string describeAccess(AccessRecord const& access) {
    return fmt::format("{}: {}{}{}", whoIs(access), access.what, access.memory.empty() ? "" : ", ", access.memory);
  }

  // From the outermost call to the access.
  Json threadFlow(AccessRecord const& access) const {
    Json steps = Json::array();
    auto const depth = access.stack.size();
    for (std::size_t i = depth; i-- > 0;) {
      bool const last = i == 0;
      auto const text =
          last ? describeAccess(access) : fmt::format("calls {}", shortName(access.stack[i - 1].function));
      steps.push_back({{"location", location(access.stack[i], text)},
                       {"nestingLevel", depth - 1 - i},
                       {"importance", last ? "essential" : "important"}});
    }
    return {{"id", whoIs(access)}, {"message", message(describeAccess(access))}, {"locations", steps}};
  }

  Json resultOf(Finding const& finding) const {
    Json result = {{"ruleId", ruleId(finding.kind)},
                   {"ruleIndex", static_cast<std::size_t>(finding.kind)},
                   {"level", levelOf(finding.kind)}};
    auto text = finding.summary;
    if (!finding.explanation.empty()) text += "\n\n" + finding.explanation;
    for (auto const& fault : finding.faults) text += "\n\nFault of the schedule: " + fault;
    result["message"] = message(text);
    Json locations = Json::array();
    Json related = Json::array();
    Json flows = Json::array();
    // The later access is where the fault shows; a code view has one place for a result.
    for (std::size_t i = finding.accesses.size(); i-- > 0;) {
      auto const& access = finding.accesses[i];
      auto const* place = shownPlace(access);
      if (place == nullptr) continue;
      auto at = location(*place, describeAccess(access));
      if (locations.empty()) {
        locations.push_back(std::move(at));
      } else {
        at["id"] = related.size() + 1;
        related.push_back(std::move(at));
      }
    }
    for (auto const& access : finding.accesses) {
      if (!access.stack.empty()) flows.push_back(threadFlow(access));
    }
    result["locations"] = std::move(locations);
    if (!related.empty()) result["relatedLocations"] = std::move(related);
    if (!flows.empty()) result["codeFlows"] = Json::array({{{"threadFlows", std::move(flows)}}});
    result["occurrenceCount"] = finding.seen;
    result["partialFingerprints"] = {{"mscclppFinding/v1", fmt::format("{:016x}", finding.key)}};
    result["properties"] = {{"seed", finding.seed}, {"schedule", finding.schedule}, {"timeline", finding.timeline}};
    return result;
  }

  std::string root_;
};

}  // namespace

std::string toSarif(ExploreResult const& result, std::string const& sourceRoot) {
  Json const document = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                         {"version", "2.1.0"},
                         {"runs", Json::array({Document(sourceRoot).run(result)})}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mscclpp::sim

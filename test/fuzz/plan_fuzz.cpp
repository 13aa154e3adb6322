// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Execution plans that say something else in a few places: whatever it is, a plan is refused with its place, found
// wrong with a diagnostic, or right, and then it can be written again.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"
#include "fuzz.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace dsl_test;

namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> const& plans() {
  static std::vector<Json> const all = [] {
    std::vector<Json> result;
    for (auto const& text : {dsl::toJson<SimpleAllGather>(), dsl::toJson<RingAllGather<3>>(),
                             dsl::toJson<TwoShotPackets<2>>(), dsl::toJson<PullPushAllReduce<2>>(),
                             dsl::toJson<TwoLevelReduceScatter>(), dsl::toJson<PipelinedSendReceive>()}) {
      result.push_back(Json::parse(text));
    }
    return result;
  }();
  return all;
}

void addNodes(Json& node, std::vector<Json*>& all) {
  all.push_back(&node);
  if (!node.is_structured()) return;
  for (auto& child : node) addNodes(child, all);
}

// One change, as four bytes tell.
void change(Json& plan, std::uint8_t const* data) {
  std::vector<Json*> nodes;
  addNodes(plan, nodes);
  auto& node = *nodes[(data[0] * std::size_t{256} + data[1]) % nodes.size()];
  std::size_t const value = data[3];
  switch (data[2] % 7) {
    case 0:
      node = value;
      break;
    case 1:
      node = std::uint64_t{1} << value % 64;
      break;
    case 2:
      if (node.is_number()) node = -static_cast<std::int64_t>(value);
      break;
    case 3: {
      Json const other = *nodes[value * 7 % nodes.size()];
      node = other;
      break;
    }
    case 4:
      if (node.is_structured() && !node.empty())
        node.erase(std::next(node.begin(), static_cast<std::ptrdiff_t>(value % node.size())));
      break;
    case 5:
      if (node.is_array() && !node.empty()) {
        Json const twice = node[value % node.size()];
        node.push_back(twice);
      }
      break;
    default:
      if (node.is_array() && node.size() > 1) std::swap(node[value % node.size()], node[value / 16 % node.size()]);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) return 0;
  auto plan = plans()[data[0] % plans().size()];
  for (std::size_t at = 1; at + 4 <= std::min<std::size_t>(size, 33); at += 4) change(plan, data + at);
  attempt([&] {
    auto const program = dsl::programFromJson(plan.dump(-1, ' ', false, Json::error_handler_t::replace), "fuzz");
    auto const verdict = dsl::verify(program);
    if (!verdict.right()) return;
    require(dsl::verify(dsl::programFromJson(dsl::toJson(program), "again")).right(),
            "a right plan became wrong when written");
  });
  return 0;
}

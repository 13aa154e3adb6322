// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/plan_source.hpp"

#include <concepts>
#include <string>

#include "base/format.hpp"
#include "mscclpp/dsl/build.hpp"

namespace mscclpp::jit {
namespace {

// ---- values as C++ that makes them: braces around the members, each of which is named here, so that a new one is not
// forgotten -----------------------------------------------------------------------------------------------------------

template <std::integral T>
std::string print(T value) {
  return fmt::format("{}", +value);
}

std::string print(layout::RankNumber::Rule rule) {
  return fmt::format("mscclpp::layout::RankNumber::Rule({})", static_cast<int>(rule));
}
std::string print(layout::RankNumber const& number);
template <class... T>
std::string braces(T const&... members) {
  std::string all;
  ((all += (all.empty() ? "" : ",") + print(members)), ...);
  return "{" + all + "}";
}

std::string print(layout::RankNumber const& number) {
  auto const& [rule, unit, offset, perInstance, base] = number;
  return braces(rule, unit, offset, perInstance, base);
}
std::string print(layout::PlanOperand const& operand) {
  auto const& [rank, index, buffer, packets] = operand;
  return braces(rank, index, buffer, packets);
}
std::string print(layout::PlanStep const& step) {
  auto const& [kind, link, reduce, everybody, concludes, ahead, chunksAhead, chunks, part, parts, firstOperand, sources,
               targets, firstObject, objects, blocks, loopEnd, loopChunks, unitBytes] = step;
  return braces(kind, link, reduce, everybody, concludes, ahead, chunksAhead, chunks, part, parts, firstOperand,
                sources, targets, firstObject, objects, blocks, loopEnd, loopChunks, unitBytes);
}
std::string print(layout::PlanShape const& shape) {
  auto const& [ranks, blocks, inputSlices, inputPerSlice, outputSlices, outputPerSlice, longestOf, doubleScratch,
               needsEvenChunks, relaysPackets] = shape;
  return braces(ranks, blocks, inputSlices, inputPerSlice, outputSlices, outputPerSlice, longestOf, doubleScratch,
                needsEvenChunks, relaysPackets);
}
std::string print(dsl::detail::SliceRange const& range) {
  auto const& [rank, block, period, firstStep, steps, firstOperand, firstObject] = range;
  return braces(rank, block, period, firstStep, steps, firstOperand, firstObject);
}
std::string print(dsl::detail::ImageRoom const& room) {
  auto const& [slices, steps, operands, objects] = room;
  return braces(slices, steps, operands, objects);
}

// An array's.
class Items {
 public:
  template <class T>
  void add(T const& item) {
    text_ += print(item) + ",\n";
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace

std::optional<Source> planSource(dsl::ExecutionPlan const& plan, dsl::PlanPackets packets, int rank) {
  auto made = dsl::detail::lowered(plan.program(), plan.verdict());
  std::erase_if(made.slices, [&](dsl::Slice const& slice) { return slice.rank >= 0 && slice.rank != rank; });
  // They are of this rank only.
  for (auto& slice : made.slices) slice.rank = -1;
  if (!made.isCode()) return std::nullopt;
  Items slices, steps, operands, objects;
  for (auto const& range : made.ranges()) slices.add(range);
  for (auto const& slice : made.slices) {
    for (auto const& one : slice.steps) steps.add(one);
    for (auto const& one : slice.operands) operands.add(one);
    for (auto const& one : slice.objects) objects.add(one);
  }
  constexpr auto text = R"(#include "mscclpp/dsl/detail/run/compiled.hpp"
struct Code {{
  static constexpr mscclpp::dsl::detail::Image<mscclpp::dsl::detail::ImageRoom{sizes}> image{{
      .shape = {shape}, .isCode = true, .sizes = {sizes},
      .slices = {slices},
      .steps = {steps},
      .operands = {operands},
      .objects = {objects}}};
  static constexpr bool isCode = true;
}};
template <class T, class Op>
struct Program {{
  static constexpr unsigned maxThreads = {threads};
  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::uint64_t count,
                                 mscclpp::layout::PlanHandle const& plan, mscclpp::layout::WindowHandle const& inWindow,
                                 mscclpp::layout::WindowHandle const& outWindow) const {{
    mscclpp::dsl_impl::runProgram<Code, Op, mscclpp::{packets}>(in, out, count, plan, inWindow, outWindow);
  }}
}};
)";
  using namespace fmt::literals;
  return Source{fmt::format(text, "sizes"_a = print(made.sizes()), "shape"_a = print(made.shape),
                            "slices"_a = slices.text(), "steps"_a = steps.text(), "operands"_a = operands.text(),
                            "objects"_a = objects.text(), "threads"_a = plan.program().threads,
                            "packets"_a = packets == dsl::PlanPackets::ll8 ? "LL8" : "LL16"),
                fmt::format("plan '{}'", plan.program().name.str())};
}

}  // namespace mscclpp::jit

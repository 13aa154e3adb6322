// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan_diagram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "plan_steps.hpp"

namespace mscclpp::tools {
namespace {

using dsl::StepKind;

constexpr int columnWidth = 240, boxWidth = 196, rowHeight = 44, boxHeight = 32, margin = 24, head = 84;

std::string escaped(std::string_view text) {
  std::string result;
  for (char const c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

std::string shortened(std::string text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

// By what the step is for, the classes of the style sheet.
std::string_view classOf(dsl::Step const& step) {
  switch (step.kind) {
    case StepKind::move:
      return step.sources.size() > 1 ? "reduce" : "move";
    case StepKind::signal:
    case StepKind::release:
      return "give";
    case StepKind::wait:
    case StepKind::acquire:
    case StepKind::flush:
      return "take";
    default:
      return "order";
  }
}

std::string_view classOf(ArrowKind kind) {
  return kind == ArrowKind::signal ? "signal" : kind == ArrowKind::semaphore ? "semaphore" : "packets";
}

// The row of every step: below the one before it and below all that it waits for; blocks that meet share a row.
class Rows {
 public:
  Rows(dsl::Program const& program, std::vector<Arrow> const& arrows) {
    std::map<std::pair<int, int>, std::vector<Places>> meetings;  // rank, barrier: blocks by meeting
    for (int rank = 0; rank < program.size(); ++rank) {
      auto const& blocks = program.ranks[static_cast<std::size_t>(rank)].blocks;
      for (int block = 0; block < static_cast<int>(blocks.size()); ++block) {
        columns_.push_back({rank, block, 0});
        std::map<int, std::size_t> met;
        auto const steps = static_cast<int>(blocks[static_cast<std::size_t>(block)].steps.size());
        for (int step = 0; step < steps; ++step) {
          StepPlace const place{rank, block, step};
          rows_[place] = step;
          auto const& one = stepAt(program, place);
          if (one.kind != StepKind::barrier || one.objects.empty()) continue;
          auto& all = meetings[{rank, one.objects[0]}];
          auto const turn = met[one.objects[0]]++;
          if (all.size() <= turn) all.resize(turn + 1);
          all[turn].push_back(place);
        }
      }
    }
    // Each round moves steps downwards; what goes round in circles (a wrong program may) ends with the count.
    auto const rounds = rows_.size() + 1;
    bool moved = true;
    for (std::size_t round = 0; moved && round < rounds; ++round) {
      moved = false;
      auto const below = [&](StepPlace const& place, int row) {
        auto& at = rows_[place];
        if (at >= row) return;
        at = row;
        moved = true;
      };
      for (auto const& arrow : arrows) below(arrow.to, rows_[arrow.from] + 1);
      for (auto const& [barrier, all] : meetings) {
        for (auto const& places : all) {
          int row = 0;
          for (auto const& place : places) row = std::max(row, rows_[place]);
          for (auto const& place : places) below(place, row);
        }
      }
      for (auto const& [place, row] : rows_) {
        if (place.step > 0) below(place, rows_[{place.rank, place.block, place.step - 1}] + 1);
      }
      if (deepest() > 4 * static_cast<int>(rows_.size())) break;
    }
  }

  int of(StepPlace const& place) const { return rows_.at(place); }
  std::map<StepPlace, int> const& all() const { return rows_; }
  std::vector<StepPlace> const& columns() const { return columns_; }
  int columnOf(StepPlace const& place) const {
    auto const found = std::find(columns_.begin(), columns_.end(), StepPlace{place.rank, place.block, 0});
    return static_cast<int>(found - columns_.begin());
  }
  int deepest() const {
    int deepest = 0;
    for (auto const& [place, row] : rows_) deepest = std::max(deepest, row);
    return deepest;
  }

 private:
  using Places = std::vector<StepPlace>;
  std::map<StepPlace, int> rows_;
  std::vector<StepPlace> columns_;
};

int leftOf(int column) { return margin + column * columnWidth + (columnWidth - boxWidth) / 2; }
int topOf(int row) { return head + row * rowHeight; }

std::string boxOf(dsl::Program const& program, Rows const& rows, StepPlace const& place) {
  auto const& step = stepAt(program, place);
  int const x = leftOf(rows.columnOf(place)), y = topOf(rows.of(place));
  auto const name = nameOfStep(step, place.rank), detail = detailOfStep(program, place);
  return fmt::format(
      "<g><title>rank {} block {} step {}: {} {}</title>"
      "<rect class=\"{}{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>"
      "<text class=\"name\" x=\"{}\" y=\"{}\">{} {}</text><text class=\"detail\" x=\"{}\" y=\"{}\">{}</text></g>\n",
      place.rank, place.block, place.step, escaped(name), escaped(detail), classOf(step), step.written ? "" : " own", x,
      y, boxWidth, boxHeight, x + 6, y + 13, place.step, escaped(shortened(name, 26)), x + 6, y + 26,
      escaped(shortened(detail, 36)));
}

std::string loopsOf(dsl::Program const& program, Rows const& rows, StepPlace const& column) {
  std::string text;
  StepPlace begin = column;
  auto const& steps =
      program.ranks[static_cast<std::size_t>(column.rank)].blocks[static_cast<std::size_t>(column.block)].steps;
  for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
    StepPlace const place{column.rank, column.block, step};
    auto const kind = stepAt(program, place).kind;
    if (kind == StepKind::loopBegin) begin = place;
    if (kind != StepKind::loopEnd) continue;
    int const x = leftOf(rows.columnOf(column)) - 8, y = topOf(rows.of(begin)) - 5;
    text += fmt::format("<rect class=\"loop\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n", x, y,
                        boxWidth + 16, topOf(rows.of(place)) + boxHeight + 5 - y);
  }
  return text;
}

std::string arrowOf(Rows const& rows, Arrow const& arrow) {
  int const from = rows.columnOf(arrow.from), to = rows.columnOf(arrow.to);
  bool const right = from <= to;
  // Within a column on its right-hand side; else from side to side.
  int const x1 = leftOf(from) + (right ? boxWidth : 0), x2 = leftOf(to) + (right && from != to ? 0 : boxWidth);
  int const y1 = topOf(rows.of(arrow.from)) + boxHeight / 2, y2 = topOf(rows.of(arrow.to)) + boxHeight / 2;
  int const bend = 36;
  return fmt::format("<path class=\"{}\" d=\"M{} {}C{} {} {} {} {} {}\" marker-end=\"url(#end)\"/>\n",
                     classOf(arrow.kind), x1, y1, x1 + (right ? bend : -bend), y1,
                     x2 + (right && from != to ? -bend : bend), y2, x2, y2);
}

}  // namespace

std::string diagramOf(dsl::Program const& program) {
  auto const arrows = arrowsOf(program);
  Rows const rows(program, arrows);
  int const width = 2 * margin + columnWidth * std::max(static_cast<int>(rows.columns().size()), 2);
  int const height = topOf(rows.deepest() + 1) + margin;
  auto text =
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n",
                  width, height);
  text +=
      "<style>text{font-family:sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.summary,.head{font-size:"
      "12px}.name{font-size:11px;font-weight:bold}.detail{font-size:9.5px}rect{stroke:#888;stroke-width:1}.page{fill:"
      "#fff;stroke:none}.move{fill:#d6e6f7}.reduce{fill:#fbe0bd}.give{fill:#d5efd5}.take{fill:#f7d9d9}.order{fill:"
      "#ececec}.own{stroke-dasharray:3 2}.loop{fill:none;stroke:#555;stroke-dasharray:6 3}path{fill:none;stroke-width:"
      "1.3}.signal{stroke:#2a7a2a}.semaphore{stroke:#7a4ab0}.packets{stroke:#2a5fa5}</style>\n"
      "<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient="
      "\"auto\"><path d=\"M0 0L8 4L0 8z\" style=\"fill:#444\"/></marker></defs>\n";
  text += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", width, height);
  text += fmt::format("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", margin, escaped(program.name.view()));
  text += fmt::format("<text class=\"summary\" x=\"{}\" y=\"44\">{}</text>\n", margin, escaped(summaryOf(program)));
  for (auto const& column : rows.columns()) {
    text += fmt::format("<text class=\"head\" x=\"{}\" y=\"{}\">rank {} block {}</text>\n",
                        leftOf(rows.columnOf(column)), head - 12, column.rank, column.block);
    text += loopsOf(program, rows, column);
  }
  for (auto const& [place, row] : rows.all()) text += boxOf(program, rows, place);
  for (auto const& arrow : arrows) text += arrowOf(rows, arrow);
  return text + "</svg>\n";
}

}  // namespace mscclpp::tools

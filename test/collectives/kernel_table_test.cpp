// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the build's table holds, and how kernels are found in it.
#include "mscclpp/collectives/kernel_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/collectives/reduce_op_type.hpp"

using namespace mscclpp;

namespace {

void nothing(KernelCall const&) {}
void nothingForFour(KernelCall const&) {}

}  // namespace

static_assert(collectiveByName("reducescatter") == Collective::reduceScatter &&
              !collectiveByName("allreduce ").has_value());
static_assert(dataTypeByName("bfloat16") == DataType::bfloat16 && reduceOpByName("avg") == ReduceOp::avg);
static_assert(!reduceOpByName("none").has_value() && nameOf(ReduceOp::none) == "none");

TEST_CASE("names are distinct and found again") {
  std::set<std::string_view> seen;
  for (auto collective : collectives) {
    CHECK(seen.insert(nameOf(collective)).second);
    CHECK(collectiveByName(nameOf(collective)) == collective);
  }
  CHECK_THROWS_AS(withReduceOp(ReduceOp::none, [](auto) { return 0; }), std::invalid_argument);
}

TEST_CASE("every type has the sum, by every algorithm that can carry it") {
  auto const& table = KernelTable::instance();
  for (auto machine : {DeviceKind::sim, DeviceKind::cuda}) {
    if (!table.has(machine)) continue;
    for (auto type : dataTypes) {
      auto const found = table.algorithms(machine, Collective::allReduce, type, ReduceOp::sum);
      CAPTURE(nameOf(type));
      std::set<std::string> const names(found.begin(), found.end());
      CHECK(names.size() == found.size());
      Catalogue::forEachOf<Collective::allReduce>([&]<class C>() {
        if (throughSwitch<typename C::Transport>) return;
        bool const tooNarrow = bytesOf(type) > C::Transport::granule;
        CHECK_MESSAGE(names.contains(std::string(C::name)) == !tooNarrow, C::name);
      });
      for (auto const& name : names) {
        auto const* const kernel = table.find({machine, Collective::allReduce, name, type, ReduceOp::sum, 5});
        REQUIRE(kernel != nullptr);
        auto const shape = kernel->shape(5, 100000, 64);
        CHECK(shape.blocks <= 64);
        CHECK(shape.threads >= kernel->minThreads);
        auto const need = kernel->requirement(5, shape.blocks, shape.threads);
        CHECK(need.blocks >= shape.blocks);
        // What copies needs room for it, and says of which kind; what does not needs the peers' buffers.
        bool const direct = kernel->inputWindow || kernel->outputWindow;
        CHECK((direct || need.packetBytes + need.lineBytes + need.stageBytes > 0));
        CHECK(kernel->needsWholeLines == (need.lineBytes != 0));
        CHECK(kernel->packets == (need.packetBytes + need.lineBytes != 0));
      }
    }
  }
  CHECK((table.has(DeviceKind::sim) || table.has(DeviceKind::cuda)));
}

TEST_CASE("every type has every operation, from small to large") {
  auto const& table = KernelTable::instance();
  for (auto machine : {DeviceKind::sim, DeviceKind::cuda}) {
    if (!table.has(machine)) continue;
    for (auto collective : {Collective::allReduce, Collective::reduceScatter, Collective::reduce}) {
      for (auto type : dataTypes) {
        for (auto op : reduceOps) {
          CAPTURE(nameOf(collective));
          CAPTURE(nameOf(type));
          CAPTURE(nameOf(op));
          bool packets = false, staged = false;
          for (auto const& name : table.algorithms(machine, collective, type, op)) {
            auto const& kernel = *table.find({machine, collective, name, type, op, 3});
            if (kernel.needsWholeLines || kernel.multicast || kernel.inputWindow || kernel.outputWindow) continue;
            (kernel.packets ? packets : staged) = true;
          }
          CHECK(packets);
          CHECK(staged);
        }
      }
    }
  }
}

TEST_CASE("a kernel for the very number of ranks is preferred, and a program adds its own") {
  auto& table = KernelTable::instance();
  KernelKey key{DeviceKind::sim, Collective::sendRecv, "mine", DataType::float32, ReduceOp::none, 0};
  CHECK(table.find(key) == nullptr);
  CHECK(table.algorithms(DeviceKind::sim, Collective::sendRecv, DataType::float32, ReduceOp::none).empty());
  table.add(key, {.start = &nothing});
  key.ranks = 4;
  table.add(key, {.start = &nothingForFour});
  REQUIRE(table.find(key) != nullptr);
  CHECK((table.find(key)->start == &nothingForFour));
  key.ranks = 3;
  CHECK((table.find(key)->start == &nothing));
  CHECK(table.algorithms(DeviceKind::sim, Collective::sendRecv, DataType::float32, ReduceOp::none) ==
        std::vector<std::string>{"mine"});
  key.op = ReduceOp::sum;
  CHECK(table.find(key) == nullptr);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's program that calls everything of the library by its short name, as the pages do, and has names of its own,
// which must not meet the library's. A program through the switch has what no example has that is compiled so.
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/sim/run.hpp"

using namespace mscclpp;

namespace {

template <int Number>
struct Own {
  int value = Number;
};
using Ring = Own<1>;
using Push = Own<2>;
using Pull = Own<3>;
using Chain = Own<4>;
using Switch = Own<5>;
using Tree = Own<6>;
using Rank = Own<7>;
using Config = Own<8>;
using Options = Own<9>;
using Args = Own<10>;
using Params = Own<11>;
using Buffer = Own<12>;
using Queue = Own<13>;
using Task = Own<14>;
using Worker = Own<15>;
using Timer = Own<16>;
using Result = Own<17>;
using Status = Own<18>;
using State = Own<19>;
using Node = Own<20>;
using Graph = Own<21>;
using Event = Own<22>;
using Request = Own<23>;
using Message = Own<24>;
using Tensor = Own<25>;
using Matrix = Own<26>;
using Shape = Own<27>;
using Layout = Own<28>;
using Block = Own<29>;
using Thread = Own<30>;
using Warp = Own<31>;
using Grid = Own<32>;
using Peer = Own<33>;
using Channel = Own<34>;
using Slot = Own<35>;
using Flag = Own<36>;
using Counter = Own<37>;
using Gemm = Own<38>;
using Stage = Own<39>;
using Plan = Own<40>;

struct ThroughSwitch {
  static constexpr dsl::Spec spec{.name = "through_switch", .collective = dsl::allReduce(2), .inPlace = true};
  static constexpr void define(dsl::Builder& p) {
    auto const through = p.switchChannel({0, 1}, dsl::BufferKind::input);
    for (int rank = 0; rank < 2; ++rank) {
      auto channel = p.memoryChannel(1 - rank, rank);
      auto const meet = [&](bool relaxed) {
        channel.signal({.tb = 0, .relaxed = relaxed, .dataSync = dsl::before});
        channel.wait({.tb = 0, .relaxed = relaxed, .dataSync = dsl::after});
      };
      meet(true);
      through.atRank(rank).reduce(p.rank(rank).input()[rank], rank, 1);
      through.atRank(rank).broadcast(rank, p.rank(rank).input()[rank]);
      meet(false);
    }
  }
};
static_assert(dsl::verify<ThroughSwitch>());

template <class... T>
int sumOf(T... own) {
  return (own.value + ...);
}

}  // namespace

int main() {
  int const sum =
      sumOf(Ring{}, Push{}, Pull{}, Chain{}, Switch{}, Tree{}, Rank{}, Config{}, Options{}, Args{}, Params{}, Buffer{},
            Queue{}, Task{}, Worker{}, Timer{}, Result{}, Status{}, State{}, Node{}, Graph{}, Event{}, Request{},
            Message{}, Tensor{}, Matrix{}, Shape{}, Layout{}, Block{}, Thread{}, Warp{}, Grid{}, Peer{}, Channel{},
            Slot{}, Flag{}, Counter{}, Gemm{}, Stage{}, Plan{});
  return sum == 40 * 41 / 2 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <chrono>

#include "machine.hpp"
#include "mscclpp/sim/runtime.hpp"

namespace mscclpp::bench {
namespace {

class WallClockTimer final : public Timer {
 public:
  int leads() const override { return 0; }
  std::vector<double> measure(Repetition const& repetition, int replays) override {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    for (int replay = 0; replay < replays; ++replay) {
      repetition.restore();
      repetition.synchronize();
      repetition.together();
      auto const begin = Clock::now();
      for (int i = 0; i < repetition.operations; ++i) repetition.operate(i, i > 0);
      repetition.synchronize();
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / repetition.operations);
    }
    return seconds;
  }
};

class SimMachine final : public Machine {
 public:
  DeviceKind kind() const override { return DeviceKind::sim; }
  void prepare(int devices) override {
    if (Device::count(DeviceKind::sim) < devices) sim::install({.devices = devices});
  }
  int defaultRanks() const override { return 4; }
  // Threads are the cost here: as few as leave room for several blocks to get into each other's way.
  std::uint32_t maxBlocks(Device) const override { return 4; }
  void use(Device) override {}
  std::unique_ptr<Timer> makeTimer(Stream const&) const override { return std::make_unique<WallClockTimer>(); }
  std::chrono::seconds kernelLimit() const override { return std::chrono::seconds(60); }
  std::string note() const override {
    return "Times are those of the simulator on this machine's processor; they say nothing about a GPU.";
  }
};

bool const registered = registerMachine(std::make_unique<SimMachine>());

}  // namespace
}  // namespace mscclpp::bench

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <chrono>

#include "machine/machine.hpp"
#include "mscclpp/sim/runtime.hpp"

namespace mscclpp::bench {
namespace {

class SimMachine final : public Machine {
 public:
  DeviceKind kind() const override { return DeviceKind::sim; }
  void prepare(int devices) override {
    if (Device::count(DeviceKind::sim) < devices) sim::install({.devices = devices});
  }
  int defaultRanks() const override { return 4; }
  void use(Device) override {}
  std::unique_ptr<Timer> makeTimer(Stream const&, int) const override { return makeLoopTimer(warmUps()); }
  int warmUps() const override { return 0; }
  void start(Stream const& stream, PortProbe const& probe) const override {
    startPortProbe<DeviceKind::sim>(stream, probe);
  }
  std::chrono::seconds kernelLimit() const override { return std::chrono::seconds(60); }
  std::string note() const override {
    return "Times are those of the simulator on this machine's processor; they say nothing about a GPU.";
  }
};

bool const registered = registerMachine(std::make_unique<SimMachine>());

}  // namespace
}  // namespace mscclpp::bench

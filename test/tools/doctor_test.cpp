// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the doctor says of machines that are not this one.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "doctor/links.hpp"
#include "doctor/probes.hpp"
#include "doctor/topology.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp;
using namespace mscclpp::doctor;

namespace {

struct Machine {
  std::map<std::string, std::string> variables{};
  mscclpp_test::TemporaryFolder root{};

  Sources sources() const {
    Sources result;
    result.root = root.path().string();
    result.variable = [this](std::string const& name) -> std::optional<std::string> {
      auto const found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    for (auto const& each : variables) result.names.push_back(each.first);
    result.ask = [](std::string const&) { return std::string(); };
    return result;
  }
  void file(std::string const& path, std::string const& text) const {
    auto const whole = root.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
};

Gpus twoGpus(bool reached = true, bool atomics = true, int version = 13000) {
  Gpu const gpu{.name = "NVIDIA H200",
                .busId = "0000:17:00.0",
                .bytes = std::uint64_t{141} << 30,
                .multiprocessors = 132,
                .computeMajor = 9,
                .copyEngines = 3,
                .multicast = true,
                .links = 18,
                .reaches = {reached, reached},
                .atomics = {atomics, atomics}};
  return {.library = "libcuda.so.1", .version = version, .all = {gpu, gpu}};
}

bool says(Report const& report, Weight weight, std::string const& what, std::string const& mend = "") {
  return std::ranges::any_of(report.findings(), [&](Finding const& finding) {
    return finding.weight == weight && finding.what.find(what) != std::string::npos &&
           finding.mend.find(mend) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("two GPUs with NVLink have nothing wrong") {
  Machine const machine;
  Report report;
  addGpus(report, machine.sources(), twoGpus());
  addNetwork(report, machine.sources(), twoGpus());
  addLauncher(report, machine.sources(), twoGpus());
  addSettings(report, machine.sources());
  CHECK(report.findings().empty());
  CHECK(report.text().find("Nothing is wrong.") != std::string::npos);
  CHECK(report.text().find("0   NVIDIA H200 141 132 90 3            18 links yes       1") != std::string::npos);
}

TEST_CASE("GPUs that do not reach each other are broken, those without NVLink slow, and each pair is told of once") {
  Machine const machine;
  Report apart, slow;
  addGpus(apart, machine.sources(), twoGpus(false, false));
  CHECK(apart.isBroken());
  CHECK(says(apart, Weight::broken, "GPUs 0 and 1 do not reach each other's memory", "turn ACS off"));
  CHECK(apart.findings().size() == 1);
  addGpus(slow, machine.sources(), twoGpus(true, false));
  CHECK_FALSE(slow.isBroken());
  CHECK(says(slow, Weight::slow, "GPUs 0 and 1 are joined without NVLink"));
}

TEST_CASE("NVLink to other hosts: what joins them, and what it lacks") {
  Machine machine;
  auto gpus = twoGpus();
  auto const report = [&] {
    Report made;
    addGpus(made, machine.sources(), gpus);
    return made;
  };
  CHECK(report().text().find("fabric   nobody says") != std::string::npos);
  for (auto& gpu : gpus.all) {
    gpu.fabric = {.registration = FabricState::Registration::completed};
    gpu.fabricHandles = true;
  }
  CHECK(report().text().find("none: NVLink ends at this host") != std::string::npos);
  CHECK(report().findings().empty());
  for (auto& gpu : gpus.all) gpu.fabric.clique = {.cluster = {0xab, 1}, .clique = 6};
  CHECK(report().text().find("clique 6 of cluster ab010000") != std::string::npos);
  CHECK(says(report(), Weight::slow, "/dev/nvidia-caps-imex-channels", "nvidia-imex on all hosts"));
  machine.file("dev/nvidia-caps-imex-channels/channel0", "");
  CHECK(says(report(), Weight::note, "no nvidia-imex is seen here", "systemctl start nvidia-imex"));
  gpus.all[1].fabricHandles = false;
  CHECK(says(report(), Weight::slow, "not used by GPU 1: the driver has no fabric handles"));
  gpus.all[1].fabric.registration = FabricState::Registration::inProgress;
  CHECK(says(report(), Weight::slow, "GPU 1: its registration with the fabric has not ended"));
  gpus.all[1].fabric.status = 9;
  gpus.all[1].fabric.registration = FabricState::Registration::completed;
  CHECK(report().text().find("GPUs 1: its registration with the fabric has failed") != std::string::npos);
  machine.variables["MSCCLPP_FABRIC"] = "0";
  CHECK(says(report(), Weight::note, "turned off (MSCCLPP_FABRIC)"));
}

TEST_CASE("ranks that share GPUs without MPS are slow") {
  Machine machine{{{"MSCCLPP_RANK", "2"}, {"MSCCLPP_WORLD_SIZE", "4"}, {"MSCCLPP_MASTER_ADDR", "127.0.0.1"}}};
  Report alone, shared;
  addLauncher(alone, machine.sources(), twoGpus());
  CHECK(says(alone, Weight::slow, "3 ranks share 2 GPUs without MPS", "nvidia-cuda-mps-control -d"));
  machine.file("tmp/nvidia-mps/control", "");
  addLauncher(shared, machine.sources(), twoGpus());
  CHECK(shared.findings().empty());
}

TEST_CASE("a launcher whose variables contradict each other is broken") {
  Machine const machine{{{"MSCCLPP_RANK", "4"}, {"MSCCLPP_WORLD_SIZE", "4"}, {"MSCCLPP_MASTER_ADDR", "127.0.0.1"}}};
  Report report;
  addLauncher(report, machine.sources(), {});
  CHECK(says(report, Weight::broken, "MSCCLPP_RANK"));
}

TEST_CASE("drivers that are too old, and libraries that are none") {
  Machine const machine{{{"LD_LIBRARY_PATH", "/nowhere/lib"}}};
  Report old, stub, absent;
  addSoftware(old, machine.sources(), twoGpus(true, true, 11040));
  CHECK(old.isBroken());  // for this build's CUDA, or because it has no code for GPUs
  CHECK(says(old, Weight::note, "LD_LIBRARY_PATH names /nowhere/lib, which is no folder", "take it out"));
  addSoftware(stub, machine.sources(), {.library = "libcuda.so.1", .why = "the driver does not start"});
  CHECK(says(stub, Weight::broken, "the driver does not start"));
  addSoftware(absent, machine.sources(), {.why = "CUDA's driver cannot be loaded"});
  CHECK_FALSE(absent.isBroken());
  CHECK(says(absent, Weight::note, "there is no GPU here"));
  machine.file("dev/nvidia0", "");
  addSoftware(absent, machine.sources(), {.why = "CUDA's driver cannot be loaded"});
  CHECK(says(absent, Weight::broken, "CUDA's driver cannot be loaded", "ldconfig -p"));
}

TEST_CASE("cards are told with their state and the GPUs that they are near") {
  Machine const machine;
  std::string const ports = "sys/class/infiniband/mlx5_0/ports/";
  machine.file("sys/class/infiniband/mlx5_0/device/numa_node", "1");
  machine.file(ports + "1/state", "4: ACTIVE");
  machine.file(ports + "1/rate", "400 Gb/sec (4X NDR)");
  machine.file(ports + "2/state", "1: DOWN");
  machine.file("sys/bus/pci/devices/0000:17:00.0/numa_node", "1");
  Report report;
  addNetwork(report, machine.sources(), twoGpus());
  auto const& table = report.sections().front().table;
  REQUIRE(table.size() == 3);
  CHECK(table[1] == std::vector<std::string>{"mlx5_0", "1", "4: ACTIVE", "400 Gb/sec (4X NDR)", "1", "0 1"});
  CHECK(says(report, Weight::slow, "port 2 of mlx5_0 is not active (1: DOWN)", "MSCCLPP_IB_HCA"));
}

TEST_CASE("measured links are told by pair, and those that are slower than half of the best") {
  Report report, quick;
  Links const links{{{2000, 380, 150}, {379, 2000, 0}, {381, 0, 2000}}, {{0, 1.5, 1.6}, {1.5, 0, 0}, {1.6, 0, 0}}};
  addLinks(report, DeviceKind::cuda, links);
  REQUIRE(report.sections().size() == 2);
  CHECK(report.sections()[0].title == "copies, GB/s");
  CHECK(report.sections()[0].table[2] == std::vector<std::string>{"1", "379", "2000", "-"});
  CHECK(report.sections()[1].table[1] == std::vector<std::string>{"0", "-", "1.50", "1.60"});
  CHECK(report.findings().size() == 1);
  CHECK(says(report, Weight::slow, "copies from GPU 0 to 2 run at 150 GB/s, between others at 381", "nvlink --status"));
  addLinks(quick, DeviceKind::sim, {{{2000}}, {{0}}});
  CHECK(quick.findings().empty());
  CHECK(quick.text().find("by virtual time") != std::string::npos);
}

TEST_CASE("a topology has each pair that reaches the other, and the cards beside their GPUs") {
  Machine const machine;
  machine.file("sys/class/infiniband/mlx5_0/device/numa_node", "0");
  machine.file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  machine.file("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  machine.file("sys/bus/pci/devices/0000:17:00.0/numa_node", "0");
  Report report;
  addNetwork(report, machine.sources(), twoGpus());
  auto const plain = topologyOf(report, twoGpus(), std::nullopt);
  CHECK(plain.find("gpu1 [label=\"GPU 1\\nNVIDIA H200\"]") != std::string::npos);
  CHECK(plain.find("gpu0 -- gpu1 [label=\"NVLink\"]") != std::string::npos);
  CHECK(plain.find("\"mlx5_0 port 1\" -- gpu1") != std::string::npos);
  CHECK(topologyOf(report, twoGpus(true, false), std::nullopt).find("PCIe") != std::string::npos);
  CHECK(topologyOf(report, twoGpus(false), std::nullopt).find("gpu0 -- gpu1") == std::string::npos);
  Links const links{{{0, 380, 0}, {20, 0, 0}, {0, 0, 0}}, {}};
  auto const measured = topologyOf({}, {}, links);
  CHECK(measured.find("gpu0 -- gpu1 [label=\"380 / 20 GB/s\"]") != std::string::npos);
  CHECK(measured.find("gpu0 -- gpu2") == std::string::npos);
  CHECK(measured.find("GPU 2\\nsimulated") != std::string::npos);
}

TEST_CASE("settings are shown, wrong ones broken, misspelt ones noted, secrets kept") {
  Machine const machine{{{"MSCCLPP_TIMEOUT", "soon"}, {"MSCCLPP_TIEMOUT", "3"}, {"MSCCLPP_SECRET", "hidden-word"}}};
  Report report;
  addSettings(report, machine.sources());
  CHECK(says(report, Weight::broken, "MSCCLPP_TIMEOUT=\"soon\""));
  CHECK(says(report, Weight::note, "is MSCCLPP_TIMEOUT meant?"));
  CHECK(report.text().find("hidden-word") == std::string::npos);
  CHECK(report.findings().front().weight == Weight::broken);
}

TEST_CASE("choices are those of the library, for all sizes") {
  Report report;
  addChoices(report, {}, 4);
  auto const& table = report.sections().front().table;
  REQUIRE(table.size() == 7);
  for (auto const& row : table) {
    CHECK(row.size() == 7);
    CHECK(std::ranges::find(row, "-") == row.end());
  }
  CHECK(report.json().find("\"collective\": \"allreduce\"") != std::string::npos);
}

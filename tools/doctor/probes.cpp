// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "doctor/probes.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "host/core/setting_names.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"
#include "mscclpp/collectives/world.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/launcher.hpp"

namespace mscclpp::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kibi = 1024, mebi = kibi * kibi, gibi = mebi * kibi;

// "13.0" of 13000.
std::string versionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string firstLine(fs::path const& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> entriesOf(fs::path const& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    entries.push_back(each->path());
  }
  std::ranges::sort(entries);
  return entries;
}

std::vector<std::string> pieces(std::string const& text, char between) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one, between);) {
    if (!one.empty()) all.push_back(one);
  }
  return all;
}

std::string orNone(std::string const& text) { return text.empty() ? "none found" : text; }

// The library of that name as the program's loader finds it.
struct Loaded {
  explicit Loaded(char const* name) : handle(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  ~Loaded() {
    if (handle != nullptr) ::dlclose(handle);
  }
  Loaded(Loaded const&) = delete;
  Loaded& operator=(Loaded const&) = delete;
  std::string fileWith(char const* function) const {
    Dl_info info{};
    void* const address = handle == nullptr ? nullptr : ::dlsym(handle, function);
    return address != nullptr && ::dladdr(address, &info) != 0 ? info.dli_fname : "";
  }

  void* handle;
};

std::string ncclText() {
  Loaded const nccl("libnccl.so.2");
  auto const file = nccl.fileWith("ncclGetVersion");
  if (file.empty()) return "";
  int version = 0;
  auto* const ask = reinterpret_cast<int (*)(int*)>(::dlsym(nccl.handle, "ncclGetVersion"));
  (void)ask(&version);
  auto const* const whose = ::dlsym(nccl.handle, "mscclppNcclRegister") != nullptr ? "this library's, as " : "";
  return fmt::format("{}{}.{}.{}, {}", whose, version / 10000, version / 100 % 100, version % 100, file);
}

bool hasGpuFiles(Sources const& sources) { return fs::exists(sources.root + "/dev/nvidia0"); }

std::string nameOf(FabricClique const& of) {
  std::string cluster;
  for (auto const byte : of.cluster) cluster += fmt::format("{:02x}", byte);
  return fmt::format("clique {} of cluster {}", of.clique, cluster);
}

// NVLink between hosts: whether the GPUs are joined to other hosts', and what keeps the library from that.
void addFabric(Report& report, Section& section, Sources const& sources, Gpus const& gpus) {
  std::map<std::string, std::vector<std::size_t>> said, hindered;
  for (std::size_t i = 0; i < gpus.all.size(); ++i) {
    auto const& gpu = gpus.all[i];
    using Registration = FabricState::Registration;
    auto const registration = gpu.fabric.registration;
    bool const none = registration == Registration::unsupported ||
                      (registration == Registration::completed && gpu.fabric.status == 0 && !gpu.fabric.clique);
    auto const why = whyNoFabric(gpu.fabric, gpu.fabricHandles);
    said[none                                          ? "none: NVLink ends at this host"
         : registration == Registration::unknown       ? "nobody says whether NVLink goes to other hosts"
         : gpu.fabric.clique && gpu.fabric.status == 0 ? nameOf(gpu.fabric.clique)
                                                       : why]
        .push_back(i);
    if (!none && registration != Registration::unknown && !why.empty()) hindered[why].push_back(i);
  }
  std::vector<std::string> texts;
  texts.reserve(said.size());
  for (auto const& [text, which] : said) {
    texts.push_back(said.size() == 1 ? text : fmt::format("GPUs {}: {}", fmt::join(which, " "), text));
  }
  section.lines.emplace_back("fabric", fmt::format("{}", fmt::join(texts, "; ")));
  for (auto const& [why, which] : hindered) {
    report.find(Weight::slow,
                fmt::format("NVLink to other hosts is not used by GPU {}: {}", fmt::join(which, " "), why),
                "nvidia-smi -q tells of it under Fabric");
  }
  bool const usable =
      std::ranges::any_of(gpus.all, [](Gpu const& gpu) { return whyNoFabric(gpu.fabric, gpu.fabricHandles).empty(); });
  if (!usable) return;
  if (sources.variable("MSCCLPP_FABRIC").value_or("1") == "0") {
    report.find(Weight::note, "NVLink to other hosts is turned off (MSCCLPP_FABRIC)",
                "unset it on all ranks: kernels then use memory of all hosts of the clique");
  } else if (entriesOf(sources.root + fabricChannels).empty()) {
    report.find(Weight::slow,
                fmt::format("NVLink goes to other hosts, and nothing in {} lets this process use it: their memory is "
                            "reached over the network",
                            fabricChannels),
                "start the service nvidia-imex on all hosts of the clique, load the kernel's driver with "
                "NVreg_CreateImexChannel0=1 or have nvidia-modprobe make a channel, and pass that on to containers");
  } else if (sources.ask("pgrep -x nvidia-imex").empty()) {
    report.find(Weight::note,
                "NVLink goes to other hosts, and no nvidia-imex is seen here, without which it is not used",
                "systemctl start nvidia-imex, on all hosts of the clique; from a container it may not be seen");
  }
}

std::string sharing(Sources const& sources) {
  auto const pipe = sources.variable("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  return fs::exists(sources.root + pipe + "/control") ? pipe : "";
}

}  // namespace

Sources thisMachine() {
  Sources sources;
  sources.names = variableNames();
  sources.ask = [](std::string const& command) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> const pipe(::popen((command + " 2>/dev/null").c_str(), "r"),
                                                               &::pclose);
    std::array<char, 512> line{};
    if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return std::string();
    std::string text = line.data();
    return text.substr(0, text.find_last_not_of("\n ") + 1);
  };
  return sources;
}

void addSoftware(Report& report, Sources const& sources, Gpus const& gpus) {
  auto& section = report.section("software");
  auto const& table = KernelTable::instance();
  std::vector<std::string> machines;
  if (table.has(DeviceKind::cuda)) machines.push_back(fmt::format("GPUs, by CUDA {}", MSCCLPP_DOCTOR_CUDA_VERSION));
  if (table.has(DeviceKind::sim)) machines.emplace_back("simulated GPUs");
  section.lines.emplace_back("this library",
                             fmt::format("{}, for {}", MSCCLPP_DOCTOR_VERSION, fmt::join(machines, " and ")));
  auto const kernel = firstLine(sources.root + "/proc/driver/nvidia/version");
  section.lines.emplace_back(
      "driver", gpus.version == 0 ? "none" : fmt::format("CUDA {}, {}", versionText(gpus.version), gpus.library));
  if (!kernel.empty()) section.lines.emplace_back("kernel's driver", kernel);
  auto const nvcc = sources.variable("MSCCLPP_NVCC").value_or("");
  section.lines.emplace_back("nvcc", orNone(sources.ask((nvcc.empty() ? "nvcc" : nvcc) + " --version | grep release")));
  section.lines.emplace_back("compiler",
                             orNone(sources.ask(sources.variable("MSCCLPP_CXX").value_or("c++") + " --version")));
  section.lines.emplace_back("NCCL", orNone(ncclText()));
  section.lines.emplace_back(
      "PyTorch", orNone(sources.ask("python3 -c 'import importlib.metadata as m; print(m.version(\"torch\"))'")));

  for (auto const& folder : pieces(sources.variable("LD_LIBRARY_PATH").value_or(""), ':')) {
    if (!fs::is_directory(folder)) {
      report.find(Weight::note, fmt::format("LD_LIBRARY_PATH names {}, which is no folder", folder), "take it out");
    } else if (fs::path(folder).filename() == "stubs") {
      report.find(gpus.why.empty() ? Weight::note : Weight::broken,
                  fmt::format("LD_LIBRARY_PATH names {}, whose libraries are to link with only", folder),
                  "take it out");
    } else if (gpus.library.empty() && fs::exists(folder + "/libcuda.so.1")) {
      report.find(Weight::broken, fmt::format("LD_LIBRARY_PATH names {}: {}", folder, gpus.why),
                  "take it out, so that the driver's own libcuda.so.1 is found");
    }
  }
  bool const wantsGpus = hasGpuFiles(sources) || !gpus.library.empty();
  if (!gpus.why.empty() && wantsGpus) {
    report.find(Weight::broken, gpus.why,
                gpus.library.empty()
                    ? "find libcuda.so.1 (ldconfig -p | grep libcuda) and have its folder in LD_LIBRARY_PATH"
                    : "nvidia-smi tells whether the driver itself works");
  } else if (!gpus.why.empty()) {
    report.find(Weight::note, "there is no GPU here, so everything runs on simulated ones",
                "figures of time then come from virtual time: mscclpp-bench-virtual");
  }
  std::string const built = MSCCLPP_DOCTOR_CUDA_VERSION;
  if (gpus.version == 0) return;
  if (!table.has(DeviceKind::cuda)) {
    report.find(Weight::broken, "there are GPUs, and this build has no code for them",
                "configure it with -DMSCCLPP_USE_CUDA=ON and nvcc on the PATH");
  } else if (std::stoi(built) > gpus.version / 1000) {
    report.find(
        Weight::broken,
        fmt::format("the driver is for CUDA {}, and this library was built with {}", versionText(gpus.version), built),
        fmt::format("install a driver for CUDA {}, or build with nvcc {}", pieces(built, '.')[0], gpus.version / 1000));
  }
}

void addGpus(Report& report, Sources const& sources, Gpus const& gpus) {
  if (gpus.all.empty()) return;
  auto& section = report.section("GPUs");
  section.table.push_back({"gpu", "name", "GiB", "SMs", "sm", "copy engines", "NVLink", "multicast", "reaches"});
  bool const multicastOff = sources.variable("MSCCLPP_NVLS").value_or("1") == "0" ||
                            sources.variable("NCCL_NVLS_ENABLE").value_or("1") == "0";
  for (std::size_t i = 0; i < gpus.all.size(); ++i) {
    auto const& gpu = gpus.all[i];
    std::vector<std::size_t> reached;
    for (std::size_t k = 0; k < gpu.reaches.size(); ++k) {
      if (k == i) continue;
      if (gpu.reaches[k]) reached.push_back(k);
      if (k < i) continue;  // told once for a pair
      if (!gpu.reaches[k]) {
        report.find(Weight::broken, fmt::format("GPUs {} and {} do not reach each other's memory", i, k),
                    "ranks on them can only use port channels over the network; under virtual machines, pass the GPUs "
                    "of one NVLink group through together; with PCIe, turn ACS off");
      } else if (!gpu.atomics[k]) {
        report.find(
            Weight::slow,
            fmt::format(
                "GPUs {} and {} are joined without NVLink: atomic operations do not go there, and lines may be torn", i,
                k),
            "nothing to do where the board has no NVLink; packets of 8 and 16 bytes are chosen");
      }
    }
    section.table.push_back(
        {fmt::format("{}", i), gpu.name, fmt::format("{:.0f}", static_cast<double>(gpu.bytes) / gibi),
         fmt::format("{}", gpu.multiprocessors), fmt::format("{}{}", gpu.computeMajor, gpu.computeMinor),
         fmt::format("{}", gpu.copyEngines), gpu.links < 0 ? "?" : fmt::format("{} links", gpu.links),
         !gpu.multicast ? "no"
         : multicastOff ? "off"
                        : "yes",
         reached.empty() ? "-" : fmt::format("{}", fmt::join(reached, " "))});
    if (gpu.computeMajor < 8) {
      report.find(Weight::broken,
                  fmt::format("GPU {} ({}) is of sm_{}{}; the library's kernels are for sm_80 and newer", i, gpu.name,
                              gpu.computeMajor, gpu.computeMinor));
    }
  }
  if (multicastOff && std::ranges::any_of(gpus.all, &Gpu::multicast)) {
    report.find(Weight::note, "multicast by the switch is turned off (MSCCLPP_NVLS or NCCL_NVLS_ENABLE)",
                "where nobody forbids it, unset both: large all-reduces get faster");
  }
  addFabric(report, section, sources, gpus);
  auto const pipe = sharing(sources);
  section.lines.emplace_back("sharing",
                             pipe.empty() ? "no MPS: ranks that share a GPU take turns" : "MPS runs, at " + pipe);
}

void addNetwork(Report& report, Sources const& sources, Gpus const& gpus) {
  auto& section = report.section("network");
  auto const nodeOf = [&](fs::path const& device) {
    auto const text = firstLine(device / "numa_node");
    return text.empty() || text == "-1" ? std::string("?") : text;
  };
  section.table.push_back({"device", "port", "state", "rate", "node", "near GPUs"});
  for (auto const& card : entriesOf(sources.root + "/sys/class/infiniband")) {
    auto const node = nodeOf(card / "device");
    std::vector<std::size_t> near;
    for (std::size_t i = 0; i < gpus.all.size(); ++i) {
      if (node != "?" && nodeOf(sources.root + "/sys/bus/pci/devices/" + gpus.all[i].busId) == node) near.push_back(i);
    }
    for (auto const& port : entriesOf(card / "ports")) {
      auto const state = firstLine(port / "state");
      section.table.push_back({card.filename(), port.filename(), state, firstLine(port / "rate"), node,
                               near.empty() ? "-" : fmt::format("{}", fmt::join(near, " "))});
      if (state.find("ACTIVE") == std::string::npos) {
        report.find(
            Weight::slow,
            fmt::format("port {} of {} is not active ({})", port.filename().string(), card.filename().string(), state),
            "look at its cable and switch, or name others in MSCCLPP_IB_HCA");
      }
    }
  }
  bool const hasCards = section.table.size() > 1;
  if (!hasCards) section.table.clear();
  section.lines.emplace_back("InfiniBand, RoCE", hasCards ? "below" : "none: several hosts talk by TCP");
  if (hasCards && Loaded("libibverbs.so.1").handle == nullptr) {
    report.find(Weight::slow,
                "there are InfiniBand or RoCE devices, and libibverbs.so.1 cannot be loaded, so that hosts talk by TCP",
                "install it: apt-get install libibverbs1 ibverbs-providers");
  }
}

void addLauncher(Report& report, Sources const& sources, Gpus const& gpus) {
  auto& section = report.section("launcher");
  try {
    auto const launch = detectLaunch(sources.variable);
    section.lines.emplace_back("found", launch.launcher);
    section.lines.emplace_back("rank",
                               fmt::format("{} of {}, {} on this host", launch.rank, launch.size, launch.localRank));
    if (!launch.address.empty()) section.lines.emplace_back("rank 0 listens at", launch.address);
    auto const here = static_cast<std::size_t>(launch.localRank) + 1;
    if (!gpus.all.empty() && here > gpus.all.size() && sharing(sources).empty()) {
      report.find(Weight::slow,
                  fmt::format("at least {} ranks share {} GPUs without MPS: each round trip between them takes "
                              "milliseconds, since their kernels take turns",
                              here, gpus.all.size()),
                  "nvidia-cuda-mps-control -d, before the ranks start");
    }
  } catch (Error const& error) {
    report.find(Weight::broken, error.what());
  }
}

void addSettings(Report& report, Sources const& sources) {
  auto& section = report.section("settings");
  for (auto const& setting : settings) {
    auto const value = sources.variable(std::string(setting.name));
    if (!value || value->empty()) continue;
    auto const shown = setting.name == "MSCCLPP_SECRET" ? std::string("(not shown)") : *value;
    section.lines.emplace_back(setting.name, fmt::format("{} ({})", shown, setting.meaning));
  }
  if (section.lines.empty()) section.lines.emplace_back("none", "all as they are by themselves");
  try {
    (void)readEnvironment(sources.variable);
  } catch (Error const& error) {
    report.find(Weight::broken, error.what());
  }
  for (auto const& remark : remarksOnNames(sources.names)) report.find(Weight::note, remark.text);
}

void addChoices(Report& report, Gpus const& gpus, int ranks) {
  auto const& table = KernelTable::instance();
  World world{.machine = !gpus.all.empty() && table.has(DeviceKind::cuda) ? DeviceKind::cuda : DeviceKind::sim,
              .ranks = ranks};
  bool const real = world.machine == DeviceKind::cuda;
  if (!table.has(world.machine)) return;
  auto const perDevice = real ? (static_cast<unsigned>(ranks) + static_cast<unsigned>(gpus.all.size()) - 1) /
                                    static_cast<unsigned>(gpus.all.size())
                              : 1;
  world.ranksPerDevice = static_cast<int>(perDevice);
  world.maxBlocks = World::mostBlocks(real ? static_cast<unsigned>(gpus.all[0].multiprocessors) : 132, perDevice);
  world.planned = true;
  world.noMulticast = "the doctor chooses without it";
  if (real && perDevice == 1) world.device = gpus.all[0].name;
  if (real)
    world.wholeLines = std::ranges::all_of(
        gpus.all, [](Gpu const& gpu) { return std::ranges::all_of(gpu.atomics, [](bool each) { return each; }); });

  auto& section = report.section("choices");
  auto const profile = TunedProfile::installed();
  bool const tuned =
      profile != nullptr && profile->find({world.device, ranks, world.wholeLines}, Collective::allReduce) != nullptr;
  section.lines.emplace_back(
      "ranks", fmt::format("{} {}", ranks, real ? gpus.all[0].name : "simulated GPUs, whose times mean nothing"));
  section.lines.emplace_back("profile", tuned ? "measured on such GPUs" : "none for these: the model of costs chooses");
  if (real && !tuned && perDevice == 1 && ranks > 1) {
    report.find(
        Weight::slow,
        fmt::format("nothing was measured on {} {}, so that algorithms are chosen by a model", ranks, world.device),
        "mscclpp-tune --output=profile.json, and name the file in MSCCLPP_PROFILE: some minutes, once");
  }
  auto algorithms = AlgorithmCollection::defaults();
  algorithms.setProfile(profile);
  constexpr std::array sizes{kibi, 16 * kibi, 256 * kibi, 4 * mebi, 64 * mebi, gibi};
  section.table.push_back({"collective", "1 KiB", "16 KiB", "256 KiB", "4 MiB", "64 MiB", "1 GiB"});
  for (auto const collective : {Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                Collective::allToAll, Collective::broadcast, Collective::reduce}) {
    auto const& traits = traitsOf(collective);
    std::vector<std::string> row{std::string(nameOf(collective))};
    for (auto const bytes : sizes) {
      auto const parts = static_cast<std::size_t>(ranks);
      auto const most = std::max(traits.in.partsOf(parts), traits.out.partsOf(parts));
      auto const part = bytes / most / 16 * 16;
      CollectiveCall call{.in = reinterpret_cast<void const*>(mebi),
                          .out = reinterpret_cast<void*>(gibi * 4),
                          .inBytes = part * traits.in.partsOf(parts),
                          .outBytes = part * traits.out.partsOf(parts),
                          .type = DataType::bfloat16};
      if (traits.reduces) call.op = ReduceOp::sum;
      try {
        row.push_back(algorithms.resolve(collective, world, call).algorithm->name());
      } catch (Error const& error) {
        row.emplace_back("-");
        report.find(Weight::note, fmt::format("no {} of {} bytes: {}", nameOf(collective), bytes, error.what()));
      }
    }
    section.table.push_back(std::move(row));
  }
}

}  // namespace mscclpp::doctor

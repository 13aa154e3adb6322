// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/launcher.hpp"

#include <atomic>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/bootstrap/rendezvous.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

namespace mscclpp {
namespace {

// torchrun's own store listens on MASTER_PORT for the whole job.
constexpr int torchPortOffset = 117;
// Below the ports that systems hand out by themselves.
constexpr int slurmFirstPort = 20000;
constexpr int slurmPorts = 10000;

class Variables {
 public:
  explicit Variables(VariableLookup const& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(std::string const& name) const {
    auto value = lookup_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  std::optional<int> number(std::string const& name) const {
    auto const value = text(name);
    if (!value) return {};
    return static_cast<int>(parseInteger(name, *value, 0, 1 << 24));
  }
  std::string firstOf(std::initializer_list<char const*> names) const {
    for (char const* name : names) {
      if (auto const value = text(name)) return *value;
    }
    return {};
  }

 private:
  VariableLookup const& lookup_;
};

std::string endpointText(std::string const& host, int port) {
  // An IPv6 address holds colons of its own.
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

void checkRank(LaunchInfo const& info, char const* rankName, char const* sizeName) {
  if (info.size < 1 || info.rank >= info.size) {
    fail(ErrorCode::invalidUsage, "{}={} and {}={} contradict each other: ranks are 0 to size - 1", rankName, info.rank,
         sizeName, info.size);
  }
}

std::optional<LaunchInfo> fromMscclpp(Variables const& variables) {
  auto const rank = variables.number("MSCCLPP_RANK");
  auto const size = variables.number("MSCCLPP_WORLD_SIZE");
  if (!rank && !size) return {};
  if (!rank || !size) {
    fail(ErrorCode::invalidUsage, "{} is set, but {} is not; set both, or neither",
         rank ? "MSCCLPP_RANK" : "MSCCLPP_WORLD_SIZE", rank ? "MSCCLPP_WORLD_SIZE" : "MSCCLPP_RANK");
  }
  LaunchInfo info{"mscclpp", *rank, *size, variables.number("MSCCLPP_LOCAL_RANK").value_or(*rank), {}, {}};
  checkRank(info, "MSCCLPP_RANK", "MSCCLPP_WORLD_SIZE");
  return info;
}

std::optional<LaunchInfo> fromTorchrun(Variables const& variables) {
  // Other programs set one of the two for their own ends.
  if (!variables.text("RANK") || !variables.text("WORLD_SIZE")) return {};
  LaunchInfo info{"torchrun",
                  *variables.number("RANK"),
                  *variables.number("WORLD_SIZE"),
                  variables.number("LOCAL_RANK").value_or(0),
                  {},
                  {}};
  checkRank(info, "RANK", "WORLD_SIZE");
  auto const master = variables.text("MASTER_ADDR");
  auto const port = variables.text("MASTER_PORT");
  if (variables.number("LOCAL_WORLD_SIZE") == info.size) {
    info.rendezvousKey =
        fmt::format("torchrun {}:{} {} {}", master.value_or(""), port.value_or(""),
                    variables.firstOf({"TORCHELASTIC_RUN_ID"}), variables.firstOf({"TORCHELASTIC_RESTART_COUNT"}));
  } else if (master && port) {
    auto const base = static_cast<int>(parseInteger("MASTER_PORT", *port, 1, 65535));
    int const derived = base + torchPortOffset <= 65535 ? base + torchPortOffset : base - torchPortOffset;
    info.address = endpointText(*master, variables.number("MSCCLPP_MASTER_PORT").value_or(derived));
  }
  return info;
}

std::optional<LaunchInfo> fromOpenMpi(Variables const& variables) {
  auto const rank = variables.number("OMPI_COMM_WORLD_RANK");
  auto const size = variables.number("OMPI_COMM_WORLD_SIZE");
  if (!rank || !size) return {};
  LaunchInfo info{"openmpi", *rank, *size, variables.number("OMPI_COMM_WORLD_LOCAL_RANK").value_or(0), {}, {}};
  checkRank(info, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  std::string const job = variables.firstOf({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (variables.number("OMPI_COMM_WORLD_LOCAL_SIZE") == info.size && !job.empty()) {
    info.rendezvousKey = "openmpi " + job;
  }
  return info;
}

std::optional<LaunchInfo> fromSlurm(Variables const& variables) {
  auto const rank = variables.number("SLURM_PROCID");
  auto size = variables.number("SLURM_STEP_NUM_TASKS");
  if (!size) size = variables.number("SLURM_NTASKS");
  if (!rank || !size) return {};
  LaunchInfo info{"slurm", *rank, *size, variables.number("SLURM_LOCALID").value_or(0), {}, {}};
  checkRank(info, "SLURM_PROCID", "SLURM_NTASKS");
  std::string const job = variables.firstOf({"SLURM_JOB_ID", "SLURM_JOBID"});
  std::string const step = variables.firstOf({"SLURM_STEP_ID", "SLURM_STEPID"});
  std::string const nodes = variables.firstOf({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  std::string const count = variables.firstOf({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (count == "1" && !job.empty()) {
    info.rendezvousKey = fmt::format("slurm {}.{}", job, step);
  } else if (!nodes.empty()) {
    // Jobs that share a node should differ in port, and all ranks of one must agree on it.
    auto const jobNumber = job.empty() ? 0 : parseInteger("SLURM_JOB_ID", job, 0, std::int64_t{1} << 40);
    auto const stepNumber = step.empty() ? 0 : parseInteger("SLURM_STEP_ID", step, 0, std::int64_t{1} << 40);
    auto const derived = static_cast<int>(slurmFirstPort + (jobNumber * 31 + stepNumber * 7) % slurmPorts);
    info.address = endpointText(firstHostOf(nodes), variables.number("MSCCLPP_MASTER_PORT").value_or(derived));
  }
  return info;
}

// `port` as well as those after it are used when a program makes several bootstraps.
std::string addressOf(LaunchInfo const& launch, int sequence) {
  Endpoint const endpoint = parseEndpoint(launch.address);
  int const port = endpoint.port + sequence;
  if (port > 65535) {
    fail(ErrorCode::invalidUsage,
         "rank {}: bootstrap number {} of this process would need port {} (from address {}); "
         "start at a lower port",
         launch.rank, sequence + 1, port, launch.address);
  }
  std::string const text = endpointText(endpoint.host, port);
  return endpoint.interfaceName.empty() ? text : endpoint.interfaceName + ":" + text;
}

}  // namespace

std::string firstHostOf(std::string const& slurmNodeList) {
  std::string host;
  bool inBrackets = false;
  bool taken = false;  // the first alternative of the present brackets is complete
  for (char c : slurmNodeList) {
    if (c == '[') {
      if (inBrackets) fail(ErrorCode::invalidUsage, "SLURM node list \"{}\": brackets within brackets", slurmNodeList);
      inBrackets = true;
      taken = false;
    } else if (c == ']') {
      inBrackets = false;
    } else if (inBrackets) {
      if (c == '-' || c == ',') taken = true;
      if (!taken) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  if (inBrackets || host.empty()) {
    fail(ErrorCode::invalidUsage, "SLURM node list \"{}\" names no first host; set MSCCLPP_MASTER_ADDR", slurmNodeList);
  }
  return host;
}

LaunchInfo detectLaunch(VariableLookup const& lookup) {
  Variables const variables(lookup);
  std::optional<LaunchInfo> found;
  for (auto const source : {fromMscclpp, fromTorchrun, fromOpenMpi, fromSlurm}) {
    if ((found = source(variables))) break;
  }
  if (!found) return {};
  LaunchInfo& info = *found;
  // What the user says goes before what the launcher implies.
  if (auto const id = variables.text("MSCCLPP_COMM_ID")) {
    info.address = *id;
  } else if (auto const master = variables.text("MSCCLPP_MASTER_ADDR")) {
    auto const port = variables.text("MSCCLPP_MASTER_PORT");
    info.address = endpointText(
        *master, port ? static_cast<int>(parseInteger("MSCCLPP_MASTER_PORT", *port, 1, 65535)) : defaultMasterPort);
  }
  if (info.size == 1) {
    info.address.clear();
    info.rendezvousKey.clear();
  } else if (!info.address.empty()) {
    info.rendezvousKey.clear();
    parseEndpoint(info.address);  // a mistake shows here, on every rank
  } else if (info.rendezvousKey.empty()) {
    fail(ErrorCode::invalidUsage,
         "rank {} of {}, started by {}: nothing says where rank 0 listens; set MSCCLPP_COMM_ID=ip:port (or "
         "MSCCLPP_MASTER_ADDR) to the same value on every rank, with mpirun by -x",
         info.rank, info.size, info.launcher);
  }
  return info;
}

LaunchInfo launchFromEnvironment() { return detectLaunch(processVariable); }

std::shared_ptr<Bootstrap> bootstrapFor(LaunchInfo const& launch, int sequence,
                                        std::optional<std::chrono::nanoseconds> timeout) {
  auto const limit = timeout.value_or(environment().timeout);
  if (launch.size == 1) return LocalBootstrap::create(1, limit).front();
  auto bootstrap = std::make_shared<TcpBootstrap>(launch.rank, launch.size);
  if (!launch.address.empty()) {
    bootstrap->initialize(addressOf(launch, sequence), limit);
    return bootstrap;
  }
  std::string const key = fmt::format("{} #{}", launch.rendezvousKey, sequence);
  UniqueId id;
  if (launch.rank == 0) {
    // All ranks are on this host: nothing outside needs to see the port.
    id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    handOut(id, key, launch.size, limit);
  } else {
    id = fetchUniqueId(key, launch.rank, launch.size, limit);
  }
  bootstrap->initialize(id, limit);
  return bootstrap;
}

std::shared_ptr<Bootstrap> bootstrapFromEnvironment(std::optional<std::chrono::nanoseconds> timeout) {
  static std::atomic<int> calls{0};
  LaunchInfo const launch = launchFromEnvironment();
  setLogRank(launch.rank);
  return bootstrapFor(launch, calls++, timeout);
}

}  // namespace mscclpp

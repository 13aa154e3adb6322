// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The settings that the library takes from environment variables. `settings` is the one list of their names, defaults
// and meanings; docs/host.md prints it and a test compares the two. A value that cannot be used throws invalidUsage
// naming the variable, the value and what is allowed.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "mscclpp/host/transport_set.hpp"

namespace mscclpp {

// A level logs what is of its own kind or of a graver one, `off` nothing.
enum class LogLevel : std::uint8_t { trace, debug, info, warn, error, off };

// A variable, what holds where it is not set, and what it is for.
struct Setting {
  std::string_view name;
  std::string_view defaultValue;
  std::string_view meaning;
};

inline constexpr std::array settings{
    Setting{"MSCCLPP_LOG_LEVEL", "warn", "Least level that is logged: trace, debug, info, warn, error or off."},
    Setting{"MSCCLPP_LOG_FILE", "",
            "File that log lines are appended to, %p stands for the process id; empty: stderr."},
    Setting{"MSCCLPP_COMM_ID", "", "Where rank 0 listens, as ip:port, [ipv6]:port or interface:ip:port."},
    Setting{"MSCCLPP_SECRET", "",
            "Random text, the same on all ranks, that who joins by an address must know; empty: that of Open MPI 4."},
    Setting{"MSCCLPP_SOCKET_IFNAME", "", "Network interface whose address this process listens on; empty: chosen."},
    Setting{"MSCCLPP_TIMEOUT", "30", "Seconds that a bootstrap operation or another wait on the host may take."},
    Setting{"MSCCLPP_KERNEL_TIMEOUT", "10", "Seconds that one wait inside a kernel may take; 0: no limit."},
    Setting{"MSCCLPP_MASTER_ADDR", "", "Host or address of rank 0, for launchers that give only ranks."},
    Setting{"MSCCLPP_MASTER_PORT", "29720", "Port of rank 0 on MSCCLPP_MASTER_ADDR, or in place of the launcher's."},
    Setting{"MSCCLPP_RANK", "", "Rank of this process, where no known launcher gives it."},
    Setting{"MSCCLPP_WORLD_SIZE", "", "Number of ranks, with MSCCLPP_RANK."},
    Setting{"MSCCLPP_LOCAL_RANK", "", "Rank among the processes of this host, with MSCCLPP_RANK; empty: the rank."},
    Setting{"MSCCLPP_TRANSPORT", "auto",
            "How proxies move data: memory, ib or tcp; auto: mapped memory within a host, else ib, else tcp."},
    Setting{"MSCCLPP_TCP_SOCKETS", "1", "Sockets that a TCP connection uses in each direction, 1 to 16."},
    Setting{"MSCCLPP_TCP_ZEROCOPY", "1", "0: TCP never sends from the caller's pages."},
    Setting{"MSCCLPP_IB_HCA", "",
            "InfiniBand or RoCE devices to use together, as mlx5_0,mlx5_1:2 (name:port); empty: the nearest."},
    Setting{"MSCCLPP_IB_RAILS", "1", "How many devices one connection uses where MSCCLPP_IB_HCA does not say, 1 to 8."},
    Setting{"MSCCLPP_IB_GID_INDEX", "", "GID of the port that peers reach; empty: chosen, IPv4 over RoCE v2 first."},
    Setting{"MSCCLPP_IB_ATOMICS", "1", "0: InfiniBand signals by immediate data, as where the device has no atomics."},
    Setting{"MSCCLPP_CHECK_CALLS", "0",
            "1: ranks compare each collective call before it starts, and throw on all where they differ; slow."},
    Setting{
        "MSCCLPP_TRACE", "",
        "File for a timeline of triggers, transfers, waits and kernels, %p stands for the process id; empty: none."},
    Setting{"MSCCLPP_PROFILE", "",
            "Tuned profiles, as files or folders with colons between them; empty: those that are installed."},
    Setting{"MSCCLPP_ARMS", "",
            "Arms that operations take without measuring, as operation=arm with commas between; * for all operations."},
    Setting{"MSCCLPP_MODEL", "",
            "Figures of GPUs and networks for the cost model, as files with colons between them; those built in are "
            "used where it is empty or names no such GPU."},
    Setting{"MSCCLPP_CACHE_DIR", "",
            "Folder of plans that are asked first (default) and of what was compiled at run time (jit); empty: "
            "~/.cache/mscclpp."},
    Setting{
        "MSCCLPP_JIT", "off",
        "Compile plans at run time: on, in the first call of a kind, or background, after some calls, by a thread."},
    Setting{"MSCCLPP_NVRTC", "", "NVIDIA's libnvrtc.so, which compiles kernels at run time; empty: looked for."},
    Setting{"MSCCLPP_NVCC", "", "The nvcc that compiles kernels at run time in its place; empty: where there is none."},
    Setting{"MSCCLPP_CXX", "c++", "The compiler of kernels for the simulated machine at run time."},
    Setting{"MSCCLPP_FABRIC", "1",
            "0: kernels use memory of their own host only, also where NVLink joins several hosts."},
    Setting{"MSCCLPP_NVLS", "1", "0: never use NVLink multicast."},
    Setting{"NCCL_NVLS_ENABLE", "1", "0: never use NVLink multicast; the same switch as NCCL's."},
};

// The values of those settings that are read together; the others are read by whoever uses them.
struct Environment {
  LogLevel logLevel = LogLevel::warn;
  std::string logFile;
  std::string commId;
  std::string secret;  // empty: none
  std::string socketInterface;
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds kernelTimeout{};  // 0: no limit
  std::string masterAddress;
  std::optional<std::uint16_t> masterPort;  // empty where not set: launchers differ in what they do then
  bool multicast = true;
  std::optional<Transport> transport;  // empty: chosen by where the peer is
  int tcpSockets = 1;
  bool tcpZeroCopy = true;
  std::string ibDevices;
  int ibRails = 1;
  std::optional<int> ibGidIndex;  // empty: chosen
  bool ibAtomics = true;
  bool checkCalls = false;
  bool fabric = true;
};

// The port that is used with MSCCLPP_MASTER_ADDR where MSCCLPP_MASTER_PORT is not set.
inline constexpr std::uint16_t defaultMasterPort = 29720;

// Value of a variable, or nothing where it is not set. Lets parsing be tested without changing the process.
using VariableLookup = std::function<std::optional<std::string>(std::string const& name)>;

// Reads the process's own environment.
std::optional<std::string> processVariable(std::string const& name);

// MSCCLPP_CACHE_DIR, else .cache/mscclpp at home; empty where neither is set. Read afresh.
std::string cacheFolder();

// Reads afresh.
Environment readEnvironment(VariableLookup const& lookup = processVariable);

// As it was at the first call in this process.
Environment const& environment();

// "1.5" and the like, to a duration; throws invalidUsage naming `variable`.
std::chrono::nanoseconds parseSeconds(std::string const& variable, std::string const& text);
// A whole number from `least` to `most`; throws invalidUsage naming `variable`.
std::int64_t parseInteger(std::string const& variable, std::string const& text, std::int64_t least, std::int64_t most);

}  // namespace mscclpp

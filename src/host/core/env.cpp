// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/env.hpp"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/format.hpp"
#include "host/core/setting_names.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp {
namespace {

// An empty value counts as not set, which is how most launchers treat it.
std::optional<std::string> valueOf(VariableLookup const& lookup, std::string const& name) {
  auto value = lookup(name);
  if (value && value->empty()) value.reset();
  return value;
}

LogLevel parseLevel(std::string const& variable, std::string const& text) {
  constexpr std::array<std::pair<std::string_view, LogLevel>, 6> names{{{"trace", LogLevel::trace},
                                                                        {"debug", LogLevel::debug},
                                                                        {"info", LogLevel::info},
                                                                        {"warn", LogLevel::warn},
                                                                        {"error", LogLevel::error},
                                                                        {"off", LogLevel::off}}};
  std::string lower;
  for (char c : text) lower += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  for (auto const& [name, level] : names) {
    if (lower == name) return level;
  }
  fail(ErrorCode::invalidUsage, "{}=\"{}\" is not a log level: use trace, debug, info, warn, error or off", variable,
       text);
}

Transport parseTransport(std::string const& variable, std::string const& text) {
  for (auto const transport : allTransports) {
    if (text == nameOf(transport)) return transport;
  }
  fail(ErrorCode::invalidUsage, "{}=\"{}\" is no transport: use auto, memory, ib or tcp", variable, text);
}

bool parseSwitch(std::string const& variable, std::string const& text) {
  if (text == "1" || text == "true" || text == "on") return true;
  if (text == "0" || text == "false" || text == "off") return false;
  fail(ErrorCode::invalidUsage, "{}=\"{}\" is not a switch: use 0 or 1", variable, text);
}

// NCCL's own variable: NCCL takes any integer, so what is not "0" leaves multicast on.
bool ncclAllowsMulticast(VariableLookup const& lookup) {
  auto const value = valueOf(lookup, "NCCL_NVLS_ENABLE");
  return !value || *value != "0";
}

std::chrono::nanoseconds secondsOf(VariableLookup const& lookup, std::string const& name, std::string const& fallback) {
  return parseSeconds(name, valueOf(lookup, name).value_or(fallback));
}

std::string defaultOf(std::string_view name) {
  for (auto const& setting : settings) {
    if (setting.name == name) return std::string(setting.defaultValue);
  }
  fail(ErrorCode::internalError, "no setting {}", name);
}

}  // namespace

std::chrono::nanoseconds parseSeconds(std::string const& variable, std::string const& text) {
  double seconds = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr double most = 1e9;  // about 30 years: still far from overflowing nanoseconds
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds >= 0) || seconds > most) {
    fail(ErrorCode::invalidUsage, "{}=\"{}\" is not a time: use seconds from 0 to 1e9, such as 30 or 0.5", variable,
         text);
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::int64_t parseInteger(std::string const& variable, std::string const& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    fail(ErrorCode::invalidUsage, "{}=\"{}\" is not a whole number from {} to {}", variable, text, least, most);
  }
  return value;
}

std::optional<std::string> processVariable(std::string const& name) {
  char const* value = std::getenv(name.c_str());
  if (value == nullptr) return {};
  return std::string(value);
}

std::string cacheFolder() {
  if (auto named = processVariable("MSCCLPP_CACHE_DIR").value_or(""); !named.empty()) return named;
  auto const home = processVariable("HOME").value_or("");
  return home.empty() ? home : home + "/.cache/mscclpp";
}

Environment readEnvironment(VariableLookup const& lookup) {
  Environment result;
  result.logLevel =
      parseLevel("MSCCLPP_LOG_LEVEL", valueOf(lookup, "MSCCLPP_LOG_LEVEL").value_or(defaultOf("MSCCLPP_LOG_LEVEL")));
  result.logFile = valueOf(lookup, "MSCCLPP_LOG_FILE").value_or("");
  result.commId = valueOf(lookup, "MSCCLPP_COMM_ID").value_or("");
  // Open MPI 4 makes 128 random bits for each job.
  result.secret =
      valueOf(lookup, "MSCCLPP_SECRET").value_or(valueOf(lookup, "OMPI_MCA_orte_precondition_transports").value_or(""));
  result.socketInterface = valueOf(lookup, "MSCCLPP_SOCKET_IFNAME").value_or("");
  result.timeout = secondsOf(lookup, "MSCCLPP_TIMEOUT", defaultOf("MSCCLPP_TIMEOUT"));
  if (result.timeout == std::chrono::nanoseconds::zero()) {
    fail(ErrorCode::invalidUsage, "MSCCLPP_TIMEOUT=\"{}\" leaves no time: use more than 0 seconds",
         valueOf(lookup, "MSCCLPP_TIMEOUT").value_or(""));
  }
  result.kernelTimeout = secondsOf(lookup, "MSCCLPP_KERNEL_TIMEOUT", defaultOf("MSCCLPP_KERNEL_TIMEOUT"));
  result.masterAddress = valueOf(lookup, "MSCCLPP_MASTER_ADDR").value_or("");
  if (auto const port = valueOf(lookup, "MSCCLPP_MASTER_PORT")) {
    result.masterPort = static_cast<std::uint16_t>(parseInteger("MSCCLPP_MASTER_PORT", *port, 1, 65535));
  }
  result.multicast = parseSwitch("MSCCLPP_NVLS", valueOf(lookup, "MSCCLPP_NVLS").value_or(defaultOf("MSCCLPP_NVLS"))) &&
                     ncclAllowsMulticast(lookup);
  result.fabric =
      parseSwitch("MSCCLPP_FABRIC", valueOf(lookup, "MSCCLPP_FABRIC").value_or(defaultOf("MSCCLPP_FABRIC")));
  auto const transport = valueOf(lookup, "MSCCLPP_TRANSPORT").value_or(defaultOf("MSCCLPP_TRANSPORT"));
  if (transport != defaultOf("MSCCLPP_TRANSPORT")) result.transport = parseTransport("MSCCLPP_TRANSPORT", transport);
  auto const integer = [&](std::string const& name, std::int64_t least, std::int64_t most) {
    return static_cast<int>(parseInteger(name, valueOf(lookup, name).value_or(defaultOf(name)), least, most));
  };
  auto const on = [&](std::string const& name) {
    return parseSwitch(name, valueOf(lookup, name).value_or(defaultOf(name)));
  };
  result.tcpSockets = integer("MSCCLPP_TCP_SOCKETS", 1, 16);
  result.tcpZeroCopy = on("MSCCLPP_TCP_ZEROCOPY");
  result.ibDevices = valueOf(lookup, "MSCCLPP_IB_HCA").value_or("");
  result.ibRails = integer("MSCCLPP_IB_RAILS", 1, 8);
  if (auto const index = valueOf(lookup, "MSCCLPP_IB_GID_INDEX")) {
    result.ibGidIndex = static_cast<int>(parseInteger("MSCCLPP_IB_GID_INDEX", *index, 0, 65535));
  }
  result.ibAtomics = on("MSCCLPP_IB_ATOMICS");
  result.checkCalls = on("MSCCLPP_CHECK_CALLS");
  return result;
}

Environment const& environment() {
  static Environment const instance = readEnvironment();
  // The log asks for its settings here.
  static std::atomic<bool> told{false};
  if (!told.load(std::memory_order_relaxed) && !told.exchange(true)) {
    for (auto const& remark : remarksOnNames(variableNames())) log(LogLevel::warn, "{}", remark.text);
  }
  return instance;
}

}  // namespace mscclpp

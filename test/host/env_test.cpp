// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/env.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/read_file.hpp"
#include "host/core/setting_names.hpp"
#include "host/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

VariableLookup lookupIn(std::map<std::string, std::string> variables) {
  return [variables](std::string const& name) -> std::optional<std::string> {
    auto const found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  };
}

// What is said of one name.
std::string textOn(std::string const& name) {
  auto const remarks = remarksOnNames(std::array{name});
  return remarks.empty() ? "" : remarks.front().text;
}

std::string meant(std::string const& name, std::string const& right) {
  return name + " is not a setting and has no effect; is " + right + " meant?";
}

}  // namespace

TEST_CASE("nothing set gives the defaults of the table") {
  Environment const env = readEnvironment(lookupIn({}));
  CHECK(env.logLevel == LogLevel::warn);
  CHECK(env.logFile.empty());
  CHECK(env.timeout == 30s);
  CHECK(env.kernelTimeout == 10s);
  CHECK(env.multicast);
  CHECK_FALSE(env.masterPort.has_value());
  for (auto const& setting : settings) {
    if (setting.name == "MSCCLPP_MASTER_PORT") CHECK(setting.defaultValue == std::to_string(defaultMasterPort));
  }
}

TEST_CASE("values are read, and an empty value counts as not set") {
  Environment const env = readEnvironment(lookupIn({{"MSCCLPP_LOG_LEVEL", "Debug"},
                                                    {"MSCCLPP_LOG_FILE", "out.%p"},
                                                    {"MSCCLPP_TIMEOUT", "0.25"},
                                                    {"MSCCLPP_KERNEL_TIMEOUT", "0"},
                                                    {"MSCCLPP_COMM_ID", "10.0.0.1:99"},
                                                    {"MSCCLPP_SOCKET_IFNAME", ""},
                                                    {"MSCCLPP_MASTER_ADDR", "node"},
                                                    {"MSCCLPP_MASTER_PORT", "4000"}}));
  CHECK(env.logLevel == LogLevel::debug);
  CHECK(env.logFile == "out.%p");
  CHECK(env.timeout == 250ms);
  CHECK(env.kernelTimeout == 0s);
  CHECK(env.commId == "10.0.0.1:99");
  CHECK(env.socketInterface.empty());
  CHECK(env.masterAddress == "node");
  CHECK(env.masterPort == 4000);
}

TEST_CASE("the settings of the networks are read") {
  Environment const unset = readEnvironment(lookupIn({}));
  CHECK(unset.tcpSockets == 1);
  CHECK(unset.tcpZeroCopy);
  CHECK(unset.ibDevices.empty());
  CHECK(unset.ibRails == 1);
  CHECK_FALSE(unset.ibGidIndex);
  CHECK(unset.ibAtomics);
  CHECK_FALSE(unset.checkCalls);
  Environment const env = readEnvironment(lookupIn({{"MSCCLPP_TCP_SOCKETS", "16"},
                                                    {"MSCCLPP_TCP_ZEROCOPY", "0"},
                                                    {"MSCCLPP_IB_HCA", "mlx5_0:1,mlx5_3"},
                                                    {"MSCCLPP_IB_RAILS", "2"},
                                                    {"MSCCLPP_IB_GID_INDEX", "0"},
                                                    {"MSCCLPP_IB_ATOMICS", "off"},
                                                    {"MSCCLPP_CHECK_CALLS", "1"}}));
  CHECK(env.tcpSockets == 16);
  CHECK_FALSE(env.tcpZeroCopy);
  CHECK(env.ibDevices == "mlx5_0:1,mlx5_3");
  CHECK(env.ibRails == 2);
  CHECK(env.ibGidIndex == 0);
  CHECK_FALSE(env.ibAtomics);
  CHECK(env.checkCalls);
}

TEST_CASE("a transport is chosen by name, or not at all") {
  CHECK_FALSE(readEnvironment(lookupIn({})).transport.has_value());
  CHECK_FALSE(readEnvironment(lookupIn({{"MSCCLPP_TRANSPORT", "auto"}})).transport.has_value());
  for (auto const transport : allTransports) {
    CHECK(readEnvironment(lookupIn({{"MSCCLPP_TRANSPORT", std::string(nameOf(transport))}})).transport == transport);
  }
}

TEST_CASE("either switch turns multicast off") {
  CHECK_FALSE(readEnvironment(lookupIn({{"NCCL_NVLS_ENABLE", "0"}})).multicast);
  CHECK_FALSE(readEnvironment(lookupIn({{"MSCCLPP_NVLS", "0"}})).multicast);
  CHECK(readEnvironment(lookupIn({{"NCCL_NVLS_ENABLE", "2"}, {"MSCCLPP_NVLS", "1"}})).multicast);
}

TEST_CASE("a value that cannot be used is named, with what is allowed") {
  struct Case {
    char const* name;
    char const* value;
  };
  for (auto const& bad :
       {Case{"MSCCLPP_LOG_LEVEL", "loud"}, Case{"MSCCLPP_TIMEOUT", "soon"}, Case{"MSCCLPP_TIMEOUT", "-1"},
        Case{"MSCCLPP_TIMEOUT", "0"}, Case{"MSCCLPP_TIMEOUT", "nan"}, Case{"MSCCLPP_TIMEOUT", "1e99"},
        Case{"MSCCLPP_KERNEL_TIMEOUT", "10s"}, Case{"MSCCLPP_NVLS", "maybe"}, Case{"MSCCLPP_MASTER_PORT", "65536"},
        Case{"MSCCLPP_MASTER_PORT", "0"}, Case{"MSCCLPP_TCP_SOCKETS", "0"}, Case{"MSCCLPP_TCP_SOCKETS", "17"},
        Case{"MSCCLPP_TCP_ZEROCOPY", "perhaps"}, Case{"MSCCLPP_IB_RAILS", "9"}, Case{"MSCCLPP_IB_GID_INDEX", "-1"},
        Case{"MSCCLPP_IB_GID_INDEX", "first"}, Case{"MSCCLPP_IB_ATOMICS", "2"}, Case{"MSCCLPP_TRANSPORT", "pigeon"}}) {
    CAPTURE(bad.name);
    CAPTURE(bad.value);
    auto const error = errorOf([&] { readEnvironment(lookupIn({{bad.name, bad.value}})); });
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::invalidUsage);
    CHECK_MESSAGE(mentions(error, bad.name), error->what());
    CHECK_MESSAGE(mentions(error, bad.value), error->what());
  }
}

TEST_CASE("whole numbers") {
  CHECK(parseInteger("N", "12", 0, 12) == 12);
  for (char const* text : {"", "13", "-1", "1.5", " 1", "1x", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(mentions(errorOf([&] { parseInteger("N", text, 0, 12); }), "from 0 to 12"));
  }
}

TEST_CASE("the documentation's table is the table of the source") {
  auto const path = std::filesystem::path(__FILE__).parent_path() / ".." / ".." / "docs" / "host.md";
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path.string());
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `MSCCLPP_") || line.starts_with("| `NCCL_")) documented.insert(line);
  }
  CHECK(documented.size() == settings.size());
  for (auto const& setting : settings) {
    std::ostringstream row;
    row << "| `" << setting.name << "` | " << setting.defaultValue << (setting.defaultValue.empty() ? "| " : " | ")
        << setting.meaning << " |";
    CHECK_MESSAGE(documented.count(row.str()) == 1, row.str());
  }
}

// ---- names without effect

TEST_CASE("names that mean something, and those of others, are left alone") {
  for (auto const& setting : settings) CHECK(textOn(std::string(setting.name)).empty());
  for (auto const* name : {"MSCCLPP_NCCL_LIB_PATH", "MSCCLPP_SIM_DEVICES", "MSCCLPP_TEST_DEVICE", "MSCCLPP_BUILD_TESTS",
                           "MSCCLPP_USE_CUDA", "PATH", "NCCL_DEBUG", "MSCCL_ALGO", "MSC_HOME", "_", "M", ""}) {
    CAPTURE(name);
    CHECK(textOn(name).empty());
  }
}

TEST_CASE("misspelt names are told with what is meant") {
  for (auto const& [wrong, right] :
       std::vector<std::pair<std::string, std::string>>{{"MSCCLPP_TIMEOUTS", "MSCCLPP_TIMEOUT"},
                                                        {"MSCCLPP_TIEMOUT", "MSCCLPP_TIMEOUT"},
                                                        {"MSCCLPP_KERNEL_TIME_OUT", "MSCCLPP_KERNEL_TIMEOUT"},
                                                        {"MSCCLPP_LOGLEVEL", "MSCCLPP_LOG_LEVEL"},
                                                        {"MSCCLPP_IB_HCAS", "MSCCLPP_IB_HCA"},
                                                        {"MSCCLP_LOG_LEVEL", "MSCCLPP_LOG_LEVEL"},
                                                        {"MSCLPP_NVLS", "MSCCLPP_NVLS"},
                                                        {"MSCCLPPP_RANK", "MSCCLPP_RANK"}}) {
    CAPTURE(wrong);
    CHECK(textOn(wrong) == meant(wrong, right));
  }
  CHECK(textOn("MSCCLPP_SOMETHING_ELSE").find("mscclpp-doctor lists those that are") != std::string::npos);
}

TEST_CASE("MSCCL++'s are told with what to use") {
  CHECK(textOn("MSCCLPP_DEBUG") == "MSCCLPP_DEBUG is MSCCL++'s and has no effect here: use MSCCLPP_LOG_LEVEL");
  CHECK(textOn("MSCCLPP_HCA_DEVICES").find("use MSCCLPP_IB_HCA") != std::string::npos);
}

TEST_CASE("several are told in the order of their names") {
  auto const remarks =
      remarksOnNames(std::array<std::string, 4>{"MSCCLPP_RANKS", "HOME", "MSCCLPP_DEBUG", "MSCCLPP_RANK"});
  REQUIRE(remarks.size() == 2);
  CHECK(remarks[0].name == "MSCCLPP_DEBUG");
  CHECK(remarks[1].name == "MSCCLPP_RANKS");
}

TEST_CASE("the library warns of each once in a process") {
  mscclpp_test::TemporaryFolder const folder;
  auto const file = folder.file("log");
  auto const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("MSCCLPP_TIEMOUT", "5", 1);
    ::setenv("MSCCLPP_LOG_FILE", file.c_str(), 1);
    (void)environment();
    (void)environment();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  auto const said = readFile(file, "the log");
  auto const words = meant("MSCCLPP_TIEMOUT", "MSCCLPP_TIMEOUT");
  CHECK(said.find(words) != std::string::npos);
  CHECK(said.find(words) == said.rfind(words));
}

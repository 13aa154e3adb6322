// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/log.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("levels") {
  setLogLevel(LogLevel::warn);
  CHECK_FALSE(logEnabled(LogLevel::info));
  CHECK(logEnabled(LogLevel::warn));
  CHECK(logEnabled(LogLevel::error));
  setLogLevel(LogLevel::off);
  CHECK_FALSE(logEnabled(LogLevel::error));
  CHECK_FALSE(logEnabled(LogLevel::off));
}

TEST_CASE("lines go to the file of MSCCLPP_LOG_FILE with level, process and rank") {
  auto const folder = std::filesystem::temp_directory_path() / ("mscclpp_log_test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  // The environment is read once per process, so the look at it is taken by a fresh one.
  auto const texts = runProcesses(1, [&](int) -> std::string {
    ::setenv("MSCCLPP_LOG_FILE", (folder / "log.%p").c_str(), 1);
    ::setenv("MSCCLPP_LOG_LEVEL", "info", 1);
    if (processVariable("MSCCLPP_LOG_LEVEL") != "info") return "variable not set";
    setLogLevel(LogLevel::info);
    setLogRank(3);
    writeLog(LogLevel::info, "first");
    writeLog(LogLevel::error, "second");
    std::ifstream file(folder / ("log." + std::to_string(::getpid())));
    std::stringstream content;
    content << file.rdbuf();
    std::string const text = content.str();
    std::string const who = "[" + std::to_string(::getpid()) + " rank 3]";
    if (text.find("info " + who + " first\n") == std::string::npos) return "no first line in: " + text;
    if (text.find("error " + who + " second\n") == std::string::npos) return "no second line in: " + text;
    return "";
  });
  std::filesystem::remove_all(folder);
  CHECK(texts[0] == "");
}

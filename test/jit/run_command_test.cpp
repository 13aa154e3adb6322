// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "base/run_command.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;

namespace {

CommandResult shell(std::string const& text, CommandErrors errors = CommandErrors::kept) {
  return runCommand({"sh", "-c", text}, errors);
}

}  // namespace

TEST_CASE("arguments come as they are, and nothing is there to be read") {
  auto const result = runCommand({"printf", "%s|%s|", "two words", "$HOME; exit 3"});
  CHECK(result.status == 0);
  CHECK(result.said == "two words|$HOME; exit 3|");
  CHECK(shell("cat; echo end").said == "end\n");
}

TEST_CASE("what is printed as an error is kept with the rest, or dropped") {
  std::string const both = "echo out; echo wrong >&2";
  CHECK(shell(both).said == "out\nwrong\n");
  CHECK(shell(both, CommandErrors::dropped).said == "out\n");
}

TEST_CASE("the status says how a command ended, or that there is none") {
  CHECK(shell("exit 3").status == 3);
  CHECK(shell("kill -9 $$").status == 128 + 9);
  CHECK(runCommand({"mscclpp-there-is-no-such-program"}).status == 127);
}

TEST_CASE("more than a pipe holds is read") {
  auto const result = shell("head -c 300000 /dev/zero | tr '\\0' x; exit 4");
  CHECK(result.status == 4);
  CHECK(result.said == std::string(300000, 'x'));
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "check_source.hpp"

#include <sstream>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "jit/command.hpp"
#include "jit/host_compiler.hpp"
#include "jit/request.hpp"

namespace mscclpp::tools {
namespace {

// The options of mscclpp_add_check(), with spaces between them.
std::vector<std::string> split(std::string const& options) {
  std::istringstream words(options);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

}  // namespace

bool isSource(std::string const& path) {
  auto const extension = std::filesystem::path(path).extension();
  return extension == ".cpp" || extension == ".cc" || extension == ".cxx" || extension == ".cu";
}

std::string compileChecked(std::string const& source, std::vector<std::string> const& definitions,
                           std::vector<std::string> const& folders, std::filesystem::path const& into) {
  if (!std::filesystem::exists(source)) fail(ErrorCode::invalidUsage, "there is no file {}", source);
  auto const headers = into / "include";
  jit::writeHeaders(headers);
  auto const object = (into / "object.so").string();
  auto const run = [&](std::vector<std::string> const& command) {
    auto const output = into / "messages.txt";
    if (jit::runCommand(command, output) == 0) return;
    fail(ErrorCode::invalidUsage, "{} does not compile:{}", source,
         jit::firstErrors(readFile(output.string(), "the compiler's messages")));
  };
  auto const add = [](std::vector<std::string>& to, std::vector<std::string> const& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  auto const compiler = jit::hostCompilerName();
  auto const unit = (into / "object.o").string();
  std::vector<std::string> compile{compiler, "-std=c++20", "-O1", "-fPIC", "-w"};
  add(compile, split(MSCCLPP_CHECK_FLAGS));
  bool const isClang = jit::hostCompiler().find("clang") != std::string::npos;
  add(compile, split(isClang ? MSCCLPP_CHECK_FLAGS_CLANG : MSCCLPP_CHECK_FLAGS_GNU));
  add(compile, {"-DMSCCLPP_HAS_SIM=1", "-I" + headers.string()});
  for (auto const& definition : definitions) compile.push_back("-D" + definition);
  for (auto const& folder : folders) compile.push_back("-I" + folder);
  add(compile, {"-x", "c++", "-c", source, "-o", unit});
  run(compile);
  // Apart, since a link with the hooks' option would bring the sanitizer's own library.
  std::vector<std::string> link{compiler, "-shared", "-o", object, unit};
  add(link, split(MSCCLPP_CHECK_LINK_FLAGS));
  run(link);
  return object;
}

}  // namespace mscclpp::tools

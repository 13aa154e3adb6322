// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/nvcc.hpp"

#include <vector>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "base/run_command.hpp"
#include "jit/work_folder.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::jit {
namespace {

std::vector<std::string> commands() {
  if (auto const named = processVariable("MSCCLPP_NVCC").value_or(""); !named.empty()) return {named};
  std::vector<std::string> all{"nvcc", "/usr/local/cuda/bin/nvcc"};
  auto const home = processVariable("CUDA_HOME").value_or("");
  if (!home.empty()) all.insert(all.begin(), home + "/bin/nvcc");
  return all;
}

// A function's code is a section of the image, ".text." and its name.
std::string entryOf(std::string const& image) {
  constexpr std::string_view code = ".text.";
  for (auto at = image.find(code); at != std::string::npos; at = image.find(code, at + 1)) {
    std::string const name = image.c_str() + at + code.size();
    if (name.find("lateEntry") != std::string::npos) return name;
  }
  fail(ErrorCode::internalError, "nvcc: the kernel is not in what it made");
}

}  // namespace

Nvcc const& Nvcc::instance() {
  static Nvcc const made;
  return made;
}

Nvcc::Nvcc() {
  auto const names = commands();
  for (auto const& name : names) {
    auto const result = runCommand({name, "--version"});
    if (result.status != 0) continue;
    path_ = name;
    version_ = name + "\n" + result.said;
    return;
  }
  fail(ErrorCode::unsupported, "no nvcc runs as {}; name it in MSCCLPP_NVCC", fmt::join(names, ", or as "));
}

CudaCompiler::Image Nvcc::compile(Request const& request, int architecture) const {
  WorkFolder const work;
  auto const headers = work.path() / "include";
  writeHeaders(headers);
  auto const source = work.path() / "kernel.cu";
  writeFile(source, fmt::format("#line 1 \"{}\"\n{}\n{}", request.source.name, request.text(), request.instance()));
  auto const image = work.path() / "kernel.cubin";
  std::vector<std::string> command{path_, "-std=c++20",           "-cubin", fmt::format("-arch=sm_{}", architecture),
                                   "-w",  "-I" + headers.string()};
  appendOptions(command, request.options);
  command.insert(command.end(), {"-o", image.string(), source.string()});
  if (auto const result = runCommand(command); result.status != 0) {
    failToCompile(request.describe(fmt::format("sm_{}", architecture)), result.said);
  }
  auto bytes = readFile(image.string(), "a compiled kernel");
  auto entry = entryOf(bytes);
  return {std::move(bytes), std::move(entry)};
}

}  // namespace mscclpp::jit

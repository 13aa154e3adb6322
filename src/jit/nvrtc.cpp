// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/nvrtc.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "jit/background.hpp"
#include "jit/embedded.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::jit {
namespace {

namespace fs = std::filesystem;

// NVRTC has no standard library: the toolkit's own for kernels stands in, under the names that the headers have for it.
std::vector<std::pair<std::string, std::string>> const& standardHeaders() {
  static std::vector<std::pair<std::string, std::string>> const all = [] {
    std::vector<std::pair<std::string, std::string>> result;
    for (std::string const name :
         {"array", "bit", "cmath", "concepts", "cstddef", "cstdint", "cstring", "initializer_list", "limits",
          "optional", "span", "tuple", "type_traits", "utility"}) {
      result.emplace_back(
          name, "#pragma once\n#include <cuda/std/" + name + ">\nnamespace std { using namespace cuda::std; }\n");
    }
    result.emplace_back("algorithm", R"(#pragma once
#if __has_include(<cuda/std/algorithm>)
#include <cuda/std/algorithm>
#else
#include <cuda/std/__algorithm_>
#endif
namespace std { using namespace cuda::std; }
)");
    // What the headers use of it; CUDA 13.0 has none.
    result.emplace_back("string_view", R"(#pragma once
#include <cuda/std/cstddef>
#if __has_include(<cuda/std/string_view>)
#include <cuda/std/string_view>
namespace std { using namespace cuda::std; }
#else
namespace std {
using namespace cuda::std;
class string_view {
 public:
  constexpr string_view() = default;
  constexpr string_view(char const* text) : text_(text) { while (text[size_] != '\0') ++size_; }
  constexpr string_view(char const* text, size_t size) : text_(text), size_(size) {}
  constexpr char const* data() const { return text_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr char const* begin() const { return text_; }
  constexpr char const* end() const { return text_ + size_; }
  constexpr char operator[](size_t i) const { return text_[i]; }
  friend constexpr bool operator==(string_view a, string_view b) {
    bool same = a.size_ == b.size_;
    for (size_t i = 0; same && i < a.size_; ++i) same = a.text_[i] == b.text_[i];
    return same;
  }
 private:
  char const* text_ = nullptr;
  size_t size_ = 0;
};
}  // namespace std
#endif
)");
    return result;
  }();
  return all;
}

std::vector<std::string> libraries() {
  if (auto const named = processVariable("MSCCLPP_NVRTC").value_or(""); !named.empty()) return {named};
  std::vector<std::string> all{"libnvrtc.so.13", "libnvrtc.so.12"};
  for (auto const& folder : {processVariable("CUDA_HOME").value_or(""), std::string("/usr/local/cuda")}) {
    if (!folder.empty()) all.push_back(folder + "/lib64/libnvrtc.so");
  }
  return all;
}

// Where <cuda/std/cstdint> is: beside the library, in CUDA 13 one folder deeper.
std::string standardFolder(std::string const& library) {
  std::error_code none;
  auto const root = fs::canonical(library, none).parent_path().parent_path();
  for (auto const& folder : {root / "include" / "cccl", root / "include"}) {
    if (fs::exists(folder / "cuda" / "std" / "cstdint", none)) return folder.string();
  }
  return {};
}

}  // namespace

Nvrtc const& Nvrtc::instance() {
  static Nvrtc const made;
  return made;
}

template <class Function>
void Nvrtc::find(char const* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library_, name));
  if (function == nullptr) fail(ErrorCode::unsupported, "the NVRTC that was found has no {}; give a newer one", name);
}

Nvrtc::Nvrtc() {
  std::string tried;
  for (auto const& name : libraries()) {
    library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      tried += fmt::format("\n{}", ::dlerror());
      continue;
    }
    find("nvrtcCreateProgram", create_);
    Dl_info where{};
    if (::dladdr(reinterpret_cast<void*>(create_), &where) != 0) standard_ = standardFolder(where.dli_fname);
    if (!standard_.empty()) break;
    // As the one that PyTorch brings, which the loader knows by its name once it is there.
    tried += fmt::format("\n{}: no <cuda/std/cstdint> in ../include; CCCL, which CUDA's toolkit has, is not there",
                         where.dli_fname);
  }
  if (standard_.empty()) {
    fail(ErrorCode::unsupported,
         "kernels are compiled at run time by NVRTC with CCCL's headers beside it, which is not here; install CUDA's "
         "toolkit, and name its NVRTC in MSCCLPP_NVRTC:{}",
         tried);
  }
  find("nvrtcVersion", getVersion_);
  find("nvrtcDestroyProgram", destroy_);
  find("nvrtcAddNameExpression", addName_);
  find("nvrtcCompileProgram", compile_);
  find("nvrtcGetProgramLogSize", logSize_);
  find("nvrtcGetProgramLog", log_);
  find("nvrtcGetCUBINSize", cubinSize_);
  find("nvrtcGetCUBIN", cubin_);
  find("nvrtcGetLoweredName", loweredName_);
  find("nvrtcGetErrorString", errorString_);
  setFlowCallback_ = reinterpret_cast<decltype(setFlowCallback_)>(::dlsym(library_, "nvrtcSetFlowCallback"));
  int major = 0;
  int minor = 0;
  (void)getVersion_(&major, &minor);
  version_ = fmt::format("NVRTC {}.{} {}", major, minor, standard_);
}

CudaCompiler::Image Nvrtc::compile(Request const& request, int architecture) const {
  auto const check = [&](int code, char const* what) {
    if (code != 0) fail(ErrorCode::internalError, "NVRTC: {}: {}", what, errorString_(code));
  };
  std::vector<char const*> names;
  std::vector<char const*> texts;
  for (auto const& [name, text] : standardHeaders()) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  for (auto const& header : embeddedHeaders()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  Program* made = nullptr;
  check(create_(&made, request.text().c_str(), request.source.name.c_str(), static_cast<int>(names.size()),
                texts.data(), names.data()),
        "make a program");
  auto const release = [this](Program* old) { (void)destroy_(&old); };
  std::unique_ptr<Program, decltype(release)> const program(made, release);
  // The end of the process does not wait for it.
  if (setFlowCallback_ != nullptr) {
    (void)setFlowCallback_(
        program.get(), [](void*, void*) { return isEnding() ? 1 : 0; }, nullptr);
  }
  auto const entry = "&" + request.entry();
  check(addName_(program.get(), entry.c_str()), "name the kernel");
  // CCCL's own choice for nvcc; its larger one for others costs NVRTC 0.3 s in whatever includes <type_traits>.
  std::vector<std::string> arguments{"-std=c++20",
                                     "-default-device",
                                     "-D_CCCL_META_UNROLL_LIMIT=10",
                                     fmt::format("-arch=sm_{}", architecture),
                                     "-I" + standard_,
                                     "-I" + fs::path(standard_).parent_path().string()};
  // What nvcc and host compilers have, and NVRTC has by other names only.
  arguments.insert(arguments.end(),
                   {"-D__builtin_memcpy=memcpy", "-D__builtin_huge_valf()=__int_as_float(0x7f800000)"});
  appendOptions(arguments, request.options);
  std::vector<char const*> pointers;
  for (auto const& argument : arguments) pointers.push_back(argument.c_str());
  if (compile_(program.get(), static_cast<int>(pointers.size()), pointers.data()) != 0) {
    std::size_t bytes = 0;
    check(logSize_(program.get(), &bytes), "ask for the messages");
    std::string messages(bytes, '\0');
    check(log_(program.get(), messages.data()), "read the messages");
    while (!messages.empty() && messages.back() == '\0') messages.pop_back();
    failToCompile(request.describe(fmt::format("sm_{}", architecture)), messages);
  }
  Image image;
  std::size_t bytes = 0;
  check(cubinSize_(program.get(), &bytes), "ask for the kernel");
  image.bytes.resize(bytes);
  check(cubin_(program.get(), image.bytes.data()), "read the kernel");
  char const* lowered = nullptr;
  check(loweredName_(program.get(), entry.c_str(), &lowered), "ask for the kernel's name");
  image.entry = lowered;
  return image;
}

}  // namespace mscclpp::jit

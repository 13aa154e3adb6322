// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/format.hpp"
#include "jit/host_compiler.hpp"
#include "jit/machine.hpp"
#include "jit/work_folder.hpp"

namespace mscclpp::jit {
namespace {

struct SharedObject final : AnyKernel::Loaded {
  using Function = void (*)(Stream const&, LaunchShape const&, void const*);

  explicit SharedObject(Function function) : function_(function) {}
  void launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const override {
    function_(stream, shape, arguments);
  }

 private:
  Function function_;
};

class SimMachine final : public Machine {
 public:
  Target targetOf(Device) override { return {DeviceKind::sim}; }
  std::string compiler(Target const&) override { return hostCompiler(); }
  std::string compile(Request const& request, Target const&) override { return compileForHost(request); }
  std::shared_ptr<AnyKernel::Loaded const> load(std::string const& compiled, Device, std::string const& type) override {
    // A file of its own: the loader takes one of the same name for the same. It stays loaded, since work of it may be
    // in a stream, and there until the process ends: reports take lines from it.
    static std::mutex mutex;
    static std::vector<std::unique_ptr<WorkFolder const>> kept;
    std::lock_guard const lock(mutex);
    auto const& work = *kept.emplace_back(std::make_unique<WorkFolder const>());
    auto const file = work.path() / "kernel.so";
    writeFile(file, compiled);
    void* const object = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
      fail(ErrorCode::unsupported,
           "kernel {} cannot be loaded: {}; a program that compiles kernels for the simulated machine shows them its "
           "symbols: link it with mscclpp::jit",
           type, ::dlerror());
    }
    auto const function = reinterpret_cast<SharedObject::Function>(::dlsym(object, lateFunction));
    if (function == nullptr) fail(ErrorCode::internalError, "kernel {} has no {}", type, lateFunction);
    return std::make_shared<SharedObject>(function);
  }
};

}  // namespace

Machine& simMachine() {
  static SimMachine machine;
  return machine;
}

}  // namespace mscclpp::jit

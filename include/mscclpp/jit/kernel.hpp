// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel that is compiled while the program runs, for a GPU or for the simulated machine.
//
//   jit::Source const source{R"(
//     #include "mscclpp/mscclpp.hpp"
//     struct Scale {
//       MSCCLPP_DEVICE void operator()(float* data, std::uint32_t count, float by) const { ... }
//     };)"};
//   jit::Kernel<void(float*, std::uint32_t, float)> const scale(device, source, "Scale");
//   scale.launch(stream, {.blocks = 4, .threads = 256}, data, count, 2.0f);
//
// The kernel is a type with a device operator() const, as for mscclpp::launch(), that has a default constructor;
// "Type<4>" names an instance of a template. On GPUs NVRTC compiles it, or nvcc where that is not there, and finds the
// library's headers in the library; on the simulated machine the host's compiler does, and the program has to show its
// symbols (link mscclpp::jit). What has been compiled is kept on disk (MSCCLPP_CACHE_DIR) and in memory: the same
// source costs its time once. Of the processes of a host that ask for the same, one compiles while the others wait.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/jit/source.hpp"
#include "mscclpp/launch/argument_list.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp::jit {

// Of one parameter of a kernel.
struct Extent {
  std::size_t bytes;
  std::size_t alignment;
};

// What is compiled for.
struct Target {
  DeviceKind kind;
  int architecture = 0;  // of a GPU: 90 for 9.0
};
// Throws unsupported where this build compiles no kernels for such devices.
Target targetOf(Device device);
// Compiles a kernel where that has not been done, and keeps it for processes to come. Needs no device of that kind.
// Returns whether it was there. Throws as AnyKernel does.
bool prepareKernel(Target const& target, Source const& source, std::string const& type,
                   std::span<Extent const> parameters, Options const& options = {});

// One that is compiled and loaded, whatever its parameters.
class AnyKernel {
 public:
  // Throws invalidUsage with the compiler's messages where the source does not compile or its parameters are longer or
  // shorter than these, unsupported where there is no compiler, deviceError where the device does not take it.
  AnyKernel(Device device, Source const& source, std::string const& type, std::span<Extent const> parameters,
            Options const& options = {});

  // `arguments`: the bytes of an ArgumentList. Throws as mscclpp::launch() does.
  void launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const;

  struct Loaded;

 private:
  std::shared_ptr<Loaded const> loaded_;
};

template <class Signature>
class Kernel;
template <class... P>
class Kernel<void(P...)> {
  static_assert((std::is_trivially_copyable_v<P> && ...), "jit::Kernel: parameters are copied to the device as bytes");

 public:
  Kernel(Device device, Source const& source, std::string const& type, Options const& options = {})
      : kernel_(device, source, type, extents, options) {}
  static bool prepare(Target const& target, Source const& source, std::string const& type,
                      Options const& options = {}) {
    return prepareKernel(target, source, type, extents, options);
  }

  void launch(Stream const& stream, LaunchShape const& shape, P const&... arguments) const {
    auto const list = arch::ArgumentList<P...>::of(arguments...);
    kernel_.launch(stream, shape, &list);
  }

 private:
  static constexpr std::array<Extent, sizeof...(P)> extents{Extent{sizeof(P), alignof(P)}...};

  AnyKernel kernel_;
};

}  // namespace mscclpp::jit

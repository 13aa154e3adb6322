// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of channels_test.py: each takes a handle that was made in Python, as bytes, and numbers.
#include <cstdint>
#include <cstring>
#include <mscclpp/launch/launch.hpp>
#include <mscclpp/mscclpp.hpp>
#include <stdexcept>
#include <string>

#include <pybind11/pybind11.h>

using namespace mscclpp;

namespace {

using Argument = std::uint64_t;

template <class T>
MSCCLPP_DEVICE T* at(Argument address) {
  return reinterpret_cast<T*>(address);
}

struct PutByThreads {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, Argument dst, Argument src,
                                 Argument bytes) const {
    auto const block = thisBlock();
    channel.put(block, dst, src, bytes);
    block.sync();
    if (block.rank() != 0) return;
    channel.signal();
    channel.wait();
  }
};

// From the begin of the own memory; what comes goes behind that.
struct PutPackets {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, Argument bytes) const {
    auto const block = thisBlock();
    channel.putPackets<LL16>(block, /*targetOffset=*/0, /*originOffset=*/0, bytes, /*flag=*/1);
    channel.unpackPackets<LL16>(block, /*packetOffset=*/0, /*targetOffset=*/bytes, bytes, /*flag=*/1);
  }
};

struct PutByProxy {
  MSCCLPP_DEVICE void operator()(DeviceHandle<PortChannel> const& channel, Argument dst, Argument src,
                                 Argument bytes) const {
    auto const block = thisBlock();
    channel.putWithSignal(block, dst, src, bytes);
    channel.wait(block);
    channel.flush(block);
  }
};

// Between memories that are named by their numbers.
struct PutNamed {
  MSCCLPP_DEVICE void operator()(DeviceHandle<BasePortChannel> const& channel, Argument target, Argument source,
                                 Argument dst, Argument bytes) const {
    auto const block = thisBlock();
    channel.putWithSignal(block, static_cast<std::uint32_t>(target), dst, static_cast<std::uint32_t>(source), 0, bytes);
    channel.wait(block);
    channel.flush(block);
  }
};

struct SignalOnce {
  MSCCLPP_DEVICE void operator()(DeviceHandle<BaseMemoryChannel> const& channel) const {
    if (thisBlock().rank() == 0) channel.signal();
  }
};

struct WaitOnce {
  MSCCLPP_DEVICE void operator()(DeviceHandle<BaseMemoryChannel> const& channel) const {
    if (thisBlock().rank() == 0) channel.wait();
  }
};

// The numbers from `first` on.
struct Push {
  MSCCLPP_DEVICE void operator()(DeviceHandle<Fifo> const& fifo, Argument first, Argument count) const {
    if (thisBlock().rank() != 0) return;
    for (Argument i = 0; i < count; ++i) fifo.push({.fst = first + i, .snd = 7});
  }
};

// The first int of each rank's memory.
struct Collect {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, Argument out) const {
    if (thisBlock().rank() != 0) return;
    SymmetricView<std::int32_t> const view(window, 0, 1);
    for (int rank = 0; rank < window.size; ++rank) at<std::int32_t>(out)[rank] = *view.at(rank);
  }
};

struct SumInTeam {
  MSCCLPP_DEVICE void operator()(DeviceHandle<Team> const& team, Argument values, Argument count) const {
    View<float> const all{at<float>(values), count};
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), all, all);
  }
};

// The first four floats.
struct SumBySwitch {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, Argument out) const {
    if (thisBlock().rank() != 0) return;
    channel.signal();
    channel.wait();
    *at<f32x4>(out) = channel.reduce<f32x4>(0);
  }
};

// binding.name(handle, device, stream, arguments...)
template <class Kernel, class Handle, class... Arguments>
void define(pybind11::module_& binding, char const* name) {
  binding.def(name, [](std::string const& raw, int device, std::uintptr_t stream, Arguments... arguments) {
    Handle handle;
    if (raw.size() != sizeof handle) throw std::invalid_argument("the bytes of another handle");
    std::memcpy(static_cast<void*>(&handle), raw.data(), sizeof handle);
    auto const queue = Stream::borrow({kernelDevice, device}, reinterpret_cast<void*>(stream));
    launch(queue, {.blocks = 1, .threads = 64}, Kernel{}, handle, arguments...);
  });
}

}  // namespace

PYBIND11_MODULE(channel_kernels, binding) {
  define<PutByThreads, DeviceHandle<MemoryChannel>, Argument, Argument, Argument>(binding, "put_by_threads");
  define<PutPackets, DeviceHandle<MemoryChannel>, Argument>(binding, "put_packets");
  define<PutByProxy, DeviceHandle<PortChannel>, Argument, Argument, Argument>(binding, "put_by_proxy");
  define<PutNamed, DeviceHandle<BasePortChannel>, Argument, Argument, Argument, Argument>(binding, "put_named");
  define<SignalOnce, DeviceHandle<BaseMemoryChannel>>(binding, "signal");
  define<WaitOnce, DeviceHandle<BaseMemoryChannel>>(binding, "wait");
  define<Push, DeviceHandle<Fifo>, Argument, Argument>(binding, "push");
  define<Collect, layout::WindowHandle, Argument>(binding, "collect");
  define<SumInTeam, DeviceHandle<Team>, Argument, Argument>(binding, "sum_in_team");
  define<SumBySwitch, DeviceHandle<SwitchChannel>, Argument>(binding, "sum_by_switch");
}

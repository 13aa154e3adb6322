// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DeviceHandle<C>: what a kernel gets of host class C. `channel.deviceHandle()` converts to it.
#pragma once

#include "mscclpp/device/memory_channel.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/device/team.hpp"

namespace mscclpp {

class BaseMemoryChannel;
class MemoryChannel;
class MemoryDevice2DeviceSemaphore;
class Team;

inline namespace MSCCLPP_BACKEND {

namespace impl {

template <class C>
struct DeviceHandleOf;
template <>
struct DeviceHandleOf<MemoryChannel> {
  using type = MemoryChannelDeviceHandle;
};
template <>
struct DeviceHandleOf<BaseMemoryChannel> {
  using type = BaseMemoryChannelDeviceHandle;
};
template <>
struct DeviceHandleOf<MemoryDevice2DeviceSemaphore> {
  using type = MemoryDevice2DeviceSemaphoreDeviceHandle;
};
template <>
struct DeviceHandleOf<Team> {
  using type = DeviceTeam;
};

}  // namespace impl

template <class C>
using DeviceHandle = typename impl::DeviceHandleOf<C>::type;

// Names of the older documents.
using SmChannel = MemoryChannel;
using SmChannelDeviceHandle = MemoryChannelDeviceHandle;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

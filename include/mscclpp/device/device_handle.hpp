// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DeviceHandle<C>: what a kernel gets of host class C. `channel.deviceHandle()` converts to it.
#pragma once

#include <type_traits>

#include "mscclpp/device/memory_channel.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/device/switch_channel.hpp"
#include "mscclpp/device/team.hpp"

namespace mscclpp {

class BaseMemoryChannel;
class BasePortChannel;
class Fifo;
class MemoryChannel;
class MemoryDevice2DeviceSemaphore;
class PortChannel;
class SwitchChannel;
class Team;

inline namespace MSCCLPP_BACKEND {

namespace impl {

template <class C>
struct DeviceHandleOf;
template <>
struct DeviceHandleOf<MemoryChannel> : std::type_identity<MemoryChannelDeviceHandle> {};
template <>
struct DeviceHandleOf<BaseMemoryChannel> : std::type_identity<BaseMemoryChannelDeviceHandle> {};
template <>
struct DeviceHandleOf<MemoryDevice2DeviceSemaphore> : std::type_identity<MemoryDevice2DeviceSemaphoreDeviceHandle> {};
template <>
struct DeviceHandleOf<SwitchChannel> : std::type_identity<SwitchChannelDeviceHandle> {};
template <>
struct DeviceHandleOf<PortChannel> : std::type_identity<PortChannelDeviceHandle> {};
template <>
struct DeviceHandleOf<BasePortChannel> : std::type_identity<BasePortChannelDeviceHandle> {};
template <>
struct DeviceHandleOf<Fifo> : std::type_identity<FifoDeviceHandle> {};
template <>
struct DeviceHandleOf<Team> : std::type_identity<DeviceTeam> {};

}  // namespace impl

template <class C>
using DeviceHandle = typename impl::DeviceHandleOf<C>::type;

// Names of the older documents.
using SmChannel = MemoryChannel;
using SmChannelDeviceHandle = MemoryChannelDeviceHandle;
using BaseProxyChannel = BasePortChannel;
using BaseProxyChannelDeviceHandle = BasePortChannelDeviceHandle;
using ProxyChannel = PortChannel;
using ProxyChannelDeviceHandle = PortChannelDeviceHandle;
using SimpleProxyChannel = PortChannel;
using SimpleProxyChannelDeviceHandle = PortChannelDeviceHandle;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host helper in one header, under the name that MSCCL++ has for it: bootstraps, communicator, memory, channels and
// what kernels get of them.
#pragma once

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/switch_channel.hpp"

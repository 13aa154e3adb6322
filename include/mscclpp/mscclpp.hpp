// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What most kernels need: the device layer and the collectives. A fused kernel adds tiles.hpp,
// algorithms/rows/all_reduce_rows.hpp or algorithms/experts/{dispatch,combine}.hpp, whose time to compile others need
// not spend; host code adds the headers of host/ that it uses.
#pragma once

#include "mscclpp/algorithms/collective/agree.hpp"
#include "mscclpp/algorithms/collective/allgather.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/collective/alltoall.hpp"
#include "mscclpp/algorithms/collective/reduce_scatter.hpp"
#include "mscclpp/algorithms/collective/rooted.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/kernels.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/packet_channel.hpp"
#include "mscclpp/device/symmetric_view.hpp"

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory operations whose order and scope stand at the call: `load<Order::acquire, Scope::system>(p)`.
//
// They work on plain words of 4 or 8 bytes in global memory, so the same words can be seen by a NIC, a proxy or a host
// thread. A `release` makes everything this thread wrote before it, and everything it learned of by barriers and
// acquires, visible to whoever reads the value with `acquire` in the same scope; `relaxed` orders nothing.
//   load, store, fetchAdd, reduceAdd, exchange, compareExchange, fence   4 and 8 bytes
//   reduceAdd, relaxed, of 4 bytes in the scope of a block               in block-shared memory, too
//   loadWords2/storeWords2, loadWords4/storeWords4                       relaxed, system; whole per 8 bytes
//   storeReleaseWords4                                   release, system; whoever acquires its second half sees all
//   loadLines/storeLines                                                 by a whole warp, whole per 128 bytes where the
//                                                                        link delivers lines whole
#pragma once

#include "mscclpp/base/order.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/memory.hpp"
#else
#include "mscclpp/device/arch/sim/memory.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

using arch::compareExchange;
using arch::exchange;
using arch::fence;
using arch::fetchAdd;
using arch::load;
using arch::loadLines;
using arch::loadWords2;
using arch::loadWords4;
using arch::reduceAdd;
using arch::store;
using arch::storeLines;
using arch::storeReleaseWords4;
using arch::storeWords2;
using arch::storeWords4;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

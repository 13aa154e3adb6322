// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: quantise: a block has 1, 2, 4, 8, 16 or 32 payloads of the transport
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
inline constexpr unsigned block = 24;  // three payloads
#else
inline constexpr unsigned block = 32;
#endif

struct Kernel {
  MSCCLPP_DEVICE void operator()(bf16 const* x, std::int8_t* q, float* scale, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
    AllReduceRows<RowOneShot, PacketTransport<LL128>, Sum>{team}(
        thisGrid(), MatrixView{x, rows, columns}, [&](auto& row) {
          row.template quantise<block>(MatrixView{q, rows, columns}, MatrixView{scale, rows, columns / block});
        });
  }
};

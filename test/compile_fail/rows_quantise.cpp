// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: quantise: into Float8E4M3, Float8E5M2 or int8
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
using Quantised = std::int16_t;
#else
using Quantised = std::int8_t;
#endif

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* x, Quantised* q, float* scale, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
    AllReduceRows<RowOneShot, PacketTransport<LL16>, Sum>{team}(
        thisGrid(), MatrixView{x, rows, columns}, [&](auto& row) {
          row.quantise(MatrixView{q, rows, columns}, MatrixView{scale, rows, 1});
        });
  }
};

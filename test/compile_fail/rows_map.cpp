// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: map: the callable takes the value, an element of each operand
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* x, float const* residual, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    auto const epilogue = [](auto& row, auto const& r) { row.map([](float v) { return v; }, r); };
#else
    auto const epilogue = [](auto& row, auto const& r) { row.map([](float v, float a) { return v + a; }, r); };
#endif
    AllReduceRows<RowOneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), MatrixView{x, rows, columns}, epilogue,
                                                                MatrixView{residual, rows, columns});
  }
};

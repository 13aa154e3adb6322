// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix in device memory, row behind row, and one that lies at the same place in every rank's symmetric memory.
//
//   MatrixView{x, rows, columns}              rows without gaps
//   MatrixView{x, rows, columns, stride}      `stride` elements from the begin of a row to that of the next
//   matrix.row(i), matrix.part(row, column, rows, columns)
//   SymmetricMatrix<T>(window, offset, rows, columns)
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

template <class T>
struct MatrixView {
  using Element = std::remove_const_t<T>;
  T* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;

  MSCCLPP_HOST_DEVICE constexpr MatrixView(T* first, std::size_t rowCount, std::size_t columnCount)
      : MatrixView(first, rowCount, columnCount, columnCount) {}
  MSCCLPP_HOST_DEVICE constexpr MatrixView(T* first, std::size_t rowCount, std::size_t columnCount,
                                           std::size_t rowStride)
      : data(first), rows(rowCount), columns(columnCount), stride(rowStride) {}

  MSCCLPP_HOST_DEVICE constexpr T* at(std::size_t row, std::size_t column) const {
    return data + (row * stride + column);
  }
  MSCCLPP_HOST_DEVICE constexpr View<T> row(std::size_t row) const { return {at(row, 0), columns}; }
  MSCCLPP_HOST_DEVICE constexpr MatrixView part(std::size_t row, std::size_t column, std::size_t rowCount,
                                                std::size_t columnCount) const {
    return {at(row, column), rowCount, columnCount, stride};
  }
};

inline namespace MSCCLPP_BACKEND {

// Refers to the handle that the kernel got, as SymmetricView does.
template <class T>
class SymmetricMatrix {
 public:
  using Element = T;

  // `offset` bytes from the start of the window, a multiple of the element's size.
  MSCCLPP_DEVICE SymmetricMatrix(layout::WindowHandle const& window, std::uint64_t offset, std::size_t rows,
                                 std::size_t columns)
      : view_(window, offset, rows * columns), rows_(rows), columns_(columns) {}

  // The matrix of `rank`, as mapped here, and this rank's own.
  MSCCLPP_DEVICE MatrixView<T> of(int rank) const { return {view_.at(rank), rows_, columns_}; }
  MSCCLPP_DEVICE MatrixView<T> own() const {
    auto const view = view_.own();
    return {view.data, rows_, columns_};
  }
  MSCCLPP_DEVICE std::size_t rows() const { return rows_; }
  MSCCLPP_DEVICE std::size_t columns() const { return columns_; }

  // Refuses the launch where the matrix ends past the window, or the window is another team's.
  MSCCLPP_DEVICE void check(layout::Watch* watch, int teamSize) const { view_.check(watch, teamSize); }

 private:
  SymmetricView<T> view_;
  std::size_t rows_;
  std::size_t columns_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

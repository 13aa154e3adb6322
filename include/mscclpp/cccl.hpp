// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CCCL's views of memory as this library's, and back, for kernels whose authors have cuda::std::span and mdspan:
//
//   viewOf(span), spanOf(view)            View and cuda::std::span
//   matrixOf(mdspan), mdspanOf(matrix)    MatrixView and cuda::std::mdspan of two dimensions, by rows
//
// The same memory, no copies; for kernels and the host. A stream needs no more: Stream::borrow(device, stream.get()) of
// a cuda::stream_ref. Needs CCCL's headers, which nvcc finds by itself, and nothing else here includes this.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda/std/array>
#include <cuda/std/mdspan>
#include <cuda/std/span>

#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

template <class T, std::size_t Extent>
MSCCLPP_HOST_DEVICE constexpr View<T> viewOf(cuda::std::span<T, Extent> const& span) {
  return {span.data(), span.size()};
}
template <class T>
MSCCLPP_HOST_DEVICE constexpr cuda::std::span<T> spanOf(View<T> const& view) {
  return {view.data, view.count};
}

template <class T, class Extents, class Layout>
MSCCLPP_HOST_DEVICE constexpr MatrixView<T> matrixOf(cuda::std::mdspan<T, Extents, Layout> const& matrix) {
  static_assert(Extents::rank() == 2, "matrixOf: an mdspan of two dimensions");
  static_assert(
      std::is_same_v<Layout, cuda::std::layout_right>,
      "matrixOf: rows behind each other (layout_right); of another layout name MatrixView{data, rows, columns, "
      "stride}");
  return {matrix.data_handle(), static_cast<std::size_t>(matrix.extent(0)), static_cast<std::size_t>(matrix.extent(1))};
}
// The distance between rows may be larger than a row, so it is a layout_stride.
template <class T>
MSCCLPP_HOST_DEVICE constexpr auto mdspanOf(MatrixView<T> const& matrix) {
  using Extents = cuda::std::dextents<std::size_t, 2>;
  using Mapping = cuda::std::layout_stride::mapping<Extents>;
  cuda::std::array<std::size_t, 2> const strides{matrix.stride, 1};
  return cuda::std::mdspan<T, Extents, cuda::std::layout_stride>(
      matrix.data, Mapping(Extents(matrix.rows, matrix.columns), strides));
}

}  // namespace mscclpp

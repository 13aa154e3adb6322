// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "product/product_bench.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "mscclpp/device/tiles/tile_product.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/launch/launch.hpp"
#include "product/blas.hpp"
#include "product/sample.hpp"

namespace product_bench {
namespace {

using namespace mscclpp;

template <unsigned Columns>
struct Product {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;

  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& x, MatrixView<bf16 const> const& w,
                                 MatrixView<bf16> const& y) const {
    TileGrid const grid{static_cast<std::uint32_t>(y.rows), static_cast<std::uint32_t>(y.columns),
                        TileProduct<Columns>::tileRows, Columns, 1};
    TileProduct<Columns> product(nullptr);
    product(
        x, w, tilesOf<OwnOnly<16>>(grid, 0, thisGrid()), [](TileAt const&) {},
        [&](TileAt const& tile, auto const& sums, auto const&) {
          sums.store(y.part(tile.row, tile.column, tile.rows, tile.columns));
        });
  }
};

class Events {
 public:
  Events() {
    check(cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess, "cudaEventCreate");
  }
  ~Events() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Events(Events const&) = delete;
  Events& operator=(Events const&) = delete;

  template <class F>
  double microseconds(cudaStream_t stream, F const& work) {
    float milliseconds = 0;
    check(cudaEventRecord(begin_, stream) == cudaSuccess, "cudaEventRecord");
    work();
    check(cudaEventRecord(end_, stream) == cudaSuccess && cudaEventSynchronize(end_) == cudaSuccess &&
              cudaEventElapsedTime(&milliseconds, begin_, end_) == cudaSuccess,
          "a product failed");
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t begin_{}, end_{};
};

class Bench {
 public:
  explicit Bench(Options const& options)
      : options_(options),
        stream_(device_),
        x_(randomNumbers(device_, std::size_t{options.rows} * options.inner, 1)),
        w_(randomNumbers(device_, std::size_t{options.columns} * options.inner, 2)),
        y_(device_, std::size_t{options.rows} * options.columns),
        blas_(stream_) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_.ordinal) == cudaSuccess, "cudaGetDeviceProperties");
    check(properties.major == 9, "a product of warpgroups needs a GPU of compute capability 9.0");
    blocks_ = static_cast<unsigned>(properties.multiProcessorCount);
  }

  std::vector<Line> all() {
    std::vector<Line> lines;
    lines.push_back(measure("cuBLAS", [&] {
      blas_.multiply(x_.data(), w_.data(), y_.data(), {options_.rows, options_.columns, options_.inner});
    }));
    reference_ = copyToHost(y_);
    lines.push_back(measure("tiles of 128 x 256", [&] { multiply<256>(); }));
    lines.push_back(measure("tiles of 128 x 128", [&] { multiply<128>(); }));
    return lines;
  }

 private:
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream_.native()); }

  template <unsigned Columns>
  void multiply() const {
    using Tiles = TileProduct<Columns>;
    launch(stream_, {.blocks = blocks_, .threads = Tiles::threads, .dynamicShared = Tiles::dynamicShared},
           Product<Columns>{}, MatrixView<bf16 const>{x_.data(), options_.rows, options_.inner},
           MatrixView<bf16 const>{w_.data(), options_.columns, options_.inner},
           MatrixView<bf16>{y_.data(), options_.rows, options_.columns});
  }

  template <class F>
  Line measure(char const* form, F const& product) {
    y_.fill(0xff);
    Events events;
    std::vector<double> times;
    for (int sample = -1; sample < options_.samples; ++sample) {  // the first is to warm up
      auto const time = events.microseconds(native(), [&] {
        for (int call = 0; call < options_.calls; ++call) product();
      });
      if (sample >= 0) times.push_back(time / options_.calls);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    auto const median = times[times.size() / 2];
    auto const operations = 2.0 * options_.rows * options_.columns * options_.inner;
    return {form, median, operations / median / 1e6, wrong()};
  }

  std::uint64_t wrong() const {
    return reference_.empty() ? 0 : wrongElements(copyToHost(y_), reference_, options_.inner);
  }

  Options const& options_;
  Device device_{DeviceKind::cuda, 0};
  Stream stream_;
  GpuBuffer<bf16> x_, w_, y_;
  Blas blas_;
  std::vector<bf16> reference_;
  unsigned blocks_ = 0;
};

}  // namespace

std::vector<Line> measure(Options const& options) { return Bench(options).all(); }

}  // namespace product_bench

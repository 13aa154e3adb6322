// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer's product and its collective beside each other, with no kernel of one's own: the collective goes by pieces of
// each rank's rows, in a second stream. While other ranks' rows come, own rows are multiplied; while a piece of a
// product is summed over ranks, the next is multiplied. The product may be anybody's, such as cuBLAS's: here it is a
// plain loop.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t share = 8, inner = 16, columns = 12;  // rows of a rank; of the product

// y = x times w's rows.
struct Multiply {
  MSCCLPP_DEVICE void operator()(float const* x, float const* w, float* y, std::size_t rows) const {
    auto const grid = thisGrid();
    for (auto i = static_cast<std::size_t>(grid.rank()); i < rows * columns;
         i += static_cast<std::size_t>(grid.size())) {
      float sum = 0;
      for (std::size_t k = 0; k < inner; ++k) sum += x[i / columns * inner + k] * w[i % columns * inner + k];
      y[i] = sum;
    }
  }
};

void multiply(Stream const& stream, float const* x, float const* w, float* y, std::size_t rows) {
  launch(stream, {.blocks = 4, .threads = 64}, Multiply{}, x, w, y, rows);
}

class Layer {
 public:
  explicit Layer(Communicator& communicator)
      : communicator_(communicator),
        ranks_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        side_(communicator.device()) {
    for (std::size_t i = 0; i < mostPieces; ++i) marks_.emplace_back(communicator.device());
  }

  // y = (all ranks' x, below each other) times w. `gathered` has room for all rows, piece behind piece.
  void gatherAndMultiply(Stream const& stream, float const* x, float const* w, float* gathered, float* y,
                         std::size_t pieces) {
    auto const chunk = share / pieces;  // of each rank's rows
    side_.runAfter(stream);
    for (std::size_t i = 0; i < pieces; ++i) {
      collective(Collective::allGather, x + i * chunk * inner, gathered + i * ranks_ * chunk * inner, chunk * inner);
      marks_[i].runAfter(side_);  // done when this piece has come
    }
    multiply(stream, x, w, y + rank_ * share * columns, share);
    for (std::size_t i = 0; i < pieces; ++i) {
      stream.runAfter(marks_[i]);
      for (std::size_t from = 0; from < ranks_; ++from) {  // cuBLAS takes them as one batch
        if (from == rank_) continue;
        multiply(stream, gathered + (i * ranks_ + from) * chunk * inner, w, y + (from * share + i * chunk) * columns,
                 chunk);
      }
    }
  }

  // y = own rows of the sum over ranks of x times w. `products` has room for all rows, piece behind piece.
  void multiplyAndScatter(Stream const& stream, float const* x, float const* w, float* products, float* y,
                          std::size_t pieces) {
    auto const chunk = share / pieces;
    for (std::size_t i = 0; i < pieces; ++i) {
      float* const piece = products + i * ranks_ * chunk * columns;
      for (std::size_t to = 0; to < ranks_; ++to) {
        multiply(stream, x + (to * share + i * chunk) * inner, w, piece + to * chunk * columns, chunk);
      }
      side_.runAfter(stream);
      collective(Collective::reduceScatter, piece, y + i * chunk * columns, chunk * columns);
    }
    stream.runAfter(side_);
  }

 private:
  static constexpr std::size_t mostPieces = 4;

  // Of `count` elements of each rank, in the second stream.
  void collective(Collective which, float const* in, float* out, std::size_t count) {
    bool const gathers = which == Collective::allGather;
    auto const one = count * sizeof(float), all = ranks_ * one;
    algorithms_.execute(which, communicator_, side_,
                        {.in = in,
                         .out = out,
                         .inBytes = gathers ? one : all,
                         .outBytes = gathers ? all : one,
                         .type = DataType::float32,
                         .op = gathers ? ReduceOp::none : ReduceOp::sum});
  }

  Communicator& communicator_;
  std::size_t ranks_, rank_;
  Stream side_;
  std::vector<Stream> marks_;
  AlgorithmCollection algorithms_ = AlgorithmCollection::defaults();
};

// ---- its check ------------------------------------------------------------------------------------------------------

// Small whole numbers, of which sums are the same in any order.
float number(std::size_t seed, std::size_t i) { return static_cast<float>((i * 7 + seed * 5 + i / 13) % 5) - 2; }

std::vector<float> numbers(std::size_t seed, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = number(seed, i);
  return result;
}

// Of row `row` of the matrix that `seedOfX` makes.
float product(std::size_t seedOfX, std::size_t row, std::size_t seedOfW, std::size_t column) {
  float sum = 0;
  for (std::size_t k = 0; k < inner; ++k) sum += number(seedOfX, row * inner + k) * number(seedOfW, column * inner + k);
  return sum;
}

template <class ValueAt>
void check(char const* what, int rank, GpuBuffer<float> const& y, ValueAt&& valueAt) {
  auto const found = copyToHost(y);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == valueAt(i / columns, i % columns)) continue;
    throw Error(ErrorCode::internalError, "rank " + std::to_string(rank) + ": " + what + ": row " +
                                              std::to_string(i / columns) + ", column " + std::to_string(i % columns) +
                                              " is wrong");
  }
}

void runRank(Communicator& communicator) {
  auto const device = communicator.device();
  auto const ranks = static_cast<std::size_t>(communicator.size()),
             rank = static_cast<std::size_t>(communicator.rank());
  auto const weightsOf = [&](std::size_t of) { return 100 + of; };
  GpuBuffer<float> const own(device, share * inner), whole(device, ranks * share * inner), w(device, columns * inner);
  GpuBuffer<float> const gathered(device, ranks * share * inner), products(device, ranks * share * columns);
  GpuBuffer<float> const all(device, ranks * share * columns), scattered(device, share * columns);
  copyToDevice(own, std::span<float const>(numbers(rank, own.size())));
  copyToDevice(whole, std::span<float const>(numbers(rank, whole.size())));
  copyToDevice(w, std::span<float const>(numbers(weightsOf(rank), w.size())));
  Stream const stream(device);
  Layer layer(communicator);
  for (std::size_t const pieces : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
    all.fill(0x5a);
    scattered.fill(0x5a);
    layer.gatherAndMultiply(stream, own.data(), w.data(), gathered.data(), all.data(), pieces);
    layer.multiplyAndScatter(stream, whole.data(), w.data(), products.data(), scattered.data(), pieces);
    communicator.synchronize(stream);
    check("gathered", communicator.rank(), all, [&](std::size_t row, std::size_t column) {
      return product(row / share, row % share, weightsOf(rank), column);
    });
    check("scattered", communicator.rank(), scattered, [&](std::size_t row, std::size_t column) {
      float sum = 0;
      for (std::size_t of = 0; of < ranks; ++of) sum += product(of, rank * share + row, weightsOf(of), column);
      return sum;
    });
  }
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("products in 1, 2 and 4 pieces, beside their collectives: right\n");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-hooks: what the parts of mscclpp/cutlass.hpp take from a kernel of CUTLASS where nothing has to be
// waited for, on one Hopper GPU: a gate that is open, and an epilogue that stores into the slots of an owner, this
// rank, and tells it. Beside the same kernel without them, and cuBLAS. Fails where results differ.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

#include <examples/cutlass/products.hpp>

#include <CLI/CLI.hpp>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "product/blas.hpp"
#include "product/sample.hpp"

namespace {

using namespace mscclpp;
using namespace cutlass_products;
using product_bench::Blas;
using product_bench::check;

template <class ItsMainloop, class ItsEpilogue, class Scheduler>
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<Problem, ItsMainloop, ItsEpilogue, Scheduler>>;
using Plain = Gemm<Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>;
using GateOpen = Gemm<Gated<Mainloop>, Epilogue, OwnFirst<>>;
using OwnSlots = Gemm<Mainloop, PeerEpilogue<Epilogue, 1>, PeersFirst<>>;
using Both = Gemm<Gated<Mainloop>, PeerEpilogue<Epilogue, 1>, OwnFirst<>>;

struct Options {
  std::vector<int> rows{512, 2048, 4096, 8192};
  int columns = 8192, inner = 2048;
  int calls = 200;
};

// Opens the gate: every row of tiles has come.
struct Open {
  std::uint32_t gates;

  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags) const {
    auto const round = flags.begin(thisGrid());
    for (auto gate = static_cast<std::uint32_t>(thisGrid().rank()); gate < gates;
         gate += static_cast<std::uint32_t>(thisGrid().size())) {
      round.arrive(0, gate);
    }
  }
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_) == cudaSuccess, "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;

  void record(Stream const& stream) const {
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream.native())) == cudaSuccess, "cudaEventRecord");
  }
  double microsecondsSince(Event const& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_) == cudaSuccess, "a product failed");
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_{};
};

// One product of so many rows.
class Shape {
 public:
  Shape(Communicator& communicator, Options const& options, int rows)
      : options_(options),
        rows_(rows),
        communicator_(communicator),
        stream_(communicator.device()),
        blas_(stream_),
        x_(randomMatrix(rows, 1)),
        w_(randomMatrix(options.columns, 2)),
        y_(communicator.device(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(options.columns)),
        slots_(communicator, y_.data(), y_.bytes()),
        gates_(communicator, {.tiles = gateCount(), .blocks = 264}),
        tiles_(communicator, {.tiles = grid().count(), .blocks = 264}) {}

  // A line of the table; how many elements were wrong.
  std::size_t print() {
    auto const unsignedOf = [](int value) { return static_cast<std::uint32_t>(value); };
    auto const blas = time([&] {
      blas_.multiply(x_.data(), w_.data(), y_.data(),
                     {unsignedOf(rows_), unsignedOf(options_.columns), unsignedOf(options_.inner)});
    });
    reference_ = copyToHost(y_);
    std::size_t wrong = 0;
    auto const of = [&](auto const& arguments, auto gemm) {
      y_.fill(0xff);
      auto const median = time([&] { start<decltype(gemm)>(arguments, stream_); });
      wrong += product_bench::wrongElements(copyToHost(y_), reference_, unsignedOf(options_.inner));
      return median;
    };
    // Each is made of the same arguments; slots of one owner are y.
    auto const argumentsFor = [&]<class G>(G) {
      return argumentsOf<G>(gates_, communicator_.device(), 1, rows_, options_.columns, options_.inner, x_.data(),
                            w_.data(), y_.data());
    };
    auto const plain = argumentsFor(Plain{});
    auto open = argumentsFor(GateOpen{});
    open.mainloop.await(gates_.deviceHandle());
    auto own = argumentsFor(OwnSlots{});
    own.epilogue.to(slots_.deviceHandle(), tiles_.deviceHandle());
    auto both = argumentsFor(Both{});
    both.mainloop.await(gates_.deviceHandle());
    both.epilogue.to(slots_.deviceHandle(), tiles_.deviceHandle());
    auto const before = of(plain, Plain{}), gated = of(open, GateOpen{}), stored = of(own, OwnSlots{}),
               hooked = of(both, Both{});
    std::printf("| %d x %d x %d | %.1f | %.1f | %.2f | %.1f | %.1f | %.1f | %.1f %% | %zu |\n", rows_, options_.columns,
                options_.inner, blas, before, blas / before, gated, stored, hooked, 100 * (hooked / before - 1), wrong);
    return wrong;
  }

 private:
  TileGrid grid() const { return tileGrid(rows_, options_.columns, 1); }
  GpuBuffer<bf16> randomMatrix(int rows, unsigned seed) const {
    return product_bench::randomNumbers(
        communicator_.device(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(options_.inner), seed);
  }
  std::uint32_t gateCount() const { return grid().down(); }

  // Median of the products alone, each between a kernel that opens its round and two that end it.
  double time(std::function<void()> const& product) {
    std::vector<Event> begins(static_cast<std::size_t>(options_.calls)), ends(begins.size());
    for (std::size_t i = 0; i < begins.size(); ++i) {
      launch(stream_, {.blocks = 1, .threads = 128}, Open{gateCount()}, gates_.deviceHandle());
      begins[i].record(stream_);
      product();
      ends[i].record(stream_);
      launch(stream_, {.blocks = 1, .threads = 128}, EndRound{}, gates_.deviceHandle());
      launch(stream_, {.blocks = 1, .threads = 128}, EndRound{}, tiles_.deviceHandle());
    }
    communicator_.synchronize(stream_, std::chrono::minutes(1));
    std::vector<double> times;
    for (std::size_t i = begins.size() / 10; i < begins.size(); ++i) {  // the first ones warm up
      times.push_back(ends[i].microsecondsSince(begins[i]));
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  Options const& options_;
  int rows_;
  Communicator& communicator_;
  Stream stream_;
  Blas blas_;
  GpuBuffer<bf16> x_, w_, y_;
  MemoryWindow slots_;
  TileFlags gates_, tiles_;
  std::vector<bf16> reference_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures what gates and owners' slots take from CUTLASS's kernels."};
  app.add_option("--rows", options.rows, "Rows of x and y, multiples of 256; each number in turn")->delimiter(',');
  app.add_option("--columns", options.columns, "Rows of the weights, columns of y")->check(CLI::Range(256, 1 << 20));
  app.add_option("--inner", options.inner, "Columns of x and of the weights")->check(CLI::Range(64, 1 << 20));
  app.add_option("--calls", options.calls, "Of which the median counts")->check(CLI::Range(10, 10000));
  CLI11_PARSE(app, argc, argv);
  try {
    std::size_t wrong = 0;
    runRanks(devicesInTurn(DeviceKind::cuda, 1), [&](Communicator& communicator) {
      std::printf(
          "us of a product between two events, median of %d.\n\n| rows x columns x inner | cuBLAS | CUTLASS | of "
          "cuBLAS | "
          "gate open | own slots | both | tax | wrong |\n|---|---|---|---|---|---|---|---|---|\n",
          options.calls);
      for (auto const rows : options.rows) wrong += Shape(communicator, options, rows).print();
    });
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

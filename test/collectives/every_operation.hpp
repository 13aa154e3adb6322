// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every operation over every type, by every algorithm that is built for it and by the choice, started from the host,
// bit for bit; on either machine.
#pragma once

#include <string>
#include <vector>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/reduce_op_type.hpp"
#include "mscclpp/host/multicast.hpp"
#include "support/reference.hpp"

namespace mscclpp_test {

template <class T, class Op>
void checkOperation(Communicator const& communicator, Stream const& stream, AlgorithmCollection const& algorithms,
                    Collective collective, std::size_t count) {
  auto const ranks = static_cast<std::size_t>(communicator.size());
  auto const rank = static_cast<std::size_t>(communicator.rank());
  bool const splits = traitsOf(collective).hasParts();
  std::size_t const inCount = splits ? count * ranks : count;
  std::vector<std::vector<T>> inputs;
  for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(randomInput<T>(count + ranks, static_cast<int>(r), inCount));
  std::vector<T> expected;
  for (auto const& total : reduceInRankOrder<DefaultAccumulator<T>, Op>(inputs)) {
    expected.push_back(convertNumber<T>(total));
  }
  if (splits) {
    auto const first = expected.begin() + static_cast<std::ptrdiff_t>(rank * count);
    expected = std::vector<T>(first, first + static_cast<std::ptrdiff_t>(count));
  }

  auto const kind =
      isNvlsSupported(communicator.device()) ? MemoryKind::shareable : MemoryKind::standard;  // for the switch
  GpuBuffer<T> const in(communicator.device(), inCount, kind), out(communicator.device(), count, kind);
  copyToDevice(in, std::span<T const>(inputs[rank]));
  CollectiveCall const call{.in = in.data(),
                            .out = out.data(),
                            .inBytes = in.bytes(),
                            .outBytes = out.bytes(),
                            .type = dataTypeOf<T>(),
                            .op = reduceOpOf<Op>(),
                            .symmetric = true,
                            .rankOrder = !std::is_integral_v<T>};
  auto names = algorithms.names(collective);
  names.emplace_back();  // the choice
  int ran = 0;
  for (auto const& name : names) {
    if (!name.empty() && !algorithms.at(collective, name)->refusal(communicator, call).empty()) continue;
    ++ran;
    out.fill(0x5a);
    meetOnGpus(communicator);
    if (name.empty()) {
      algorithms.execute(collective, communicator, stream, call);
    } else {
      algorithms.at(collective, name)->execute(communicator, stream, call);
    }
    communicator.synchronize(stream);
    if (collective != Collective::reduce || rank == 0) {
      CHECK_MESSAGE(countDifferent(copyToHost(out), expected) == 0, nameOf(collective), " ", nameOf(call.op), " of ",
                    nameOf(call.type), " by ", name.empty() ? "the choice" : name, " count ", count);
    }
    communicator.bootstrap()->barrier();
  }
  CHECK(ran >= (ranks == 1 ? 2 : 3));
}

inline void checkEveryOperation(DeviceKind kind, int ranks, std::vector<std::size_t> const& counts) {
  forEachRankOn(kind, ranks, [&](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream const stream(communicator.device());
    for (auto collective : {Collective::allReduce, Collective::reduceScatter, Collective::reduce}) {
      for (auto type : dataTypes) {
        for (auto op : reduceOps) {
          withDataType(type, [&]<class T>(std::type_identity<T>) {
            withReduceOp(op, [&]<class Op>(std::type_identity<Op>) {
              for (auto count : counts) checkOperation<T, Op>(communicator, stream, algorithms, collective, count);
            });
          });
        }
      }
    }
  });
}

}  // namespace mscclpp_test

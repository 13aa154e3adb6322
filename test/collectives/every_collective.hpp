// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every collective by every algorithm that the build has, started from the host, with every element compared; on either
// machine.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/host/multicast.hpp"
#include "support/reference.hpp"

namespace mscclpp_test {

// One rank's buffers for a collective of `count` float32 for each rank, and what must be in the output.
class Exchange {
 public:
  using T = float;

  // `separate`: not in place. All ranks' buffers are of one size, as `symmetric` asks. `inTurn`: a reduction adds from
  // the root's successor to the root. `together`: so many ranks' contributions are added up first.
  Exchange(Communicator const& communicator, Collective collective, std::size_t count, int root, bool separate,
           std::uint64_t seed, bool inTurn, std::size_t together = 1)
      : rank_(static_cast<std::size_t>(communicator.rank())), together_(together) {
    auto const ranks = static_cast<std::size_t>(communicator.size());
    bool const gathers = collective == Collective::allGather || collective == Collective::gather;
    bool const splits = collective == Collective::reduceScatter || collective == Collective::scatter;
    bool const wholes = collective == Collective::allToAll;
    inCount_ = splits || wholes ? count * ranks : count;
    outCount_ = gathers || wholes ? count * ranks : count;
    std::vector<std::vector<T>> inputs;
    for (std::size_t r = 0; r < ranks; ++r) inputs.push_back(randomInput<T>(seed, static_cast<int>(r), inCount_));
    // Of a kind that the switch can be bound to, where there is one.
    memory_ = GpuBuffer<T>(communicator.device(), inCount_ + outCount_ + 16,
                           isNvlsSupported(communicator.device()) ? MemoryKind::shareable : MemoryKind::standard);
    memory_.fill(0x5a);
    std::size_t const larger = std::max(inCount_, outCount_);
    out_ = 8;
    in_ = out_ + outCount_;
    if (!separate) {
      // The smaller buffer is this rank's part of the larger one.
      in_ = 8 + (gathers ? rank_ * count : 0);
      out_ = 8 + (splits ? rank_ * count : 0);
    }
    last_ = separate ? in_ + inCount_ : 8 + larger;
    copyToDevice(memory_, std::span<T const>(inputs[rank_]), in_);
    if (inTurn) std::rotate(inputs.begin(), inputs.begin() + (root + 1) % communicator.size(), inputs.end());
    expected_ = expectedOf(collective, inputs, count, root);
    call_ = {.in = memory_.data() + in_,
             .out = memory_.data() + out_,
             .inBytes = inCount_ * sizeof(T),
             .outBytes = outCount_ * sizeof(T),
             .type = DataType::float32,
             .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
             .root = hasRoot(collective) ? root : 0};
  }

  CollectiveCall call(bool symmetric) const {
    auto result = call_;
    result.symmetric = symmetric;
    return result;
  }

  // Elements of the output that are wrong, and of what lies around both buffers.
  std::size_t wrong() const {
    auto const all = copyToHost(memory_);
    auto const at = [&](std::size_t index) { return all.begin() + static_cast<std::ptrdiff_t>(index); };
    std::size_t result = 0;
    if (!expected_.empty()) {
      result += countDifferent(std::vector<T>(at(out_), at(out_ + outCount_)), expected_);
    }
    T guard;
    std::memset(&guard, 0x5a, sizeof guard);
    std::vector<T> around(at(0), at(8));
    around.insert(around.end(), at(last_), all.end());
    return result + countDifferent(around, std::vector<T>(around.size(), guard));
  }

 private:
  // Empty where this rank gets nothing.
  std::vector<T> expectedOf(Collective collective, std::vector<std::vector<T>> const& inputs, std::size_t count,
                            int root) const {
    auto const part = [&](std::vector<T> const& of, std::size_t which) {
      auto const first = of.begin() + static_cast<std::ptrdiff_t>(which * count);
      return std::vector<T>(first, first + static_cast<std::ptrdiff_t>(count));
    };
    auto const join = [&](auto&& pick) {
      std::vector<T> all;
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        auto const one = pick(r);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    };
    auto const sum = [&] {
      std::vector<std::vector<T>> sums;
      for (auto first = inputs.begin(); first != inputs.end(); first += static_cast<std::ptrdiff_t>(together_)) {
        sums.push_back(
            reduceInRankOrder<float, Sum>(std::vector(first, first + static_cast<std::ptrdiff_t>(together_))));
      }
      return reduceInRankOrder<float, Sum>(sums);
    };
    bool const atRoot = static_cast<std::size_t>(root) == rank_;
    auto const source = static_cast<std::size_t>(root);
    switch (collective) {
      case Collective::allReduce:
        return sum();
      case Collective::reduce:
        return atRoot ? sum() : std::vector<T>();
      case Collective::reduceScatter:
        return part(sum(), rank_);
      case Collective::allGather:
        return join([&](std::size_t r) { return inputs[r]; });
      case Collective::gather:
        return atRoot ? join([&](std::size_t r) { return inputs[r]; }) : std::vector<T>();
      case Collective::allToAll:
        return join([&](std::size_t r) { return part(inputs[r], rank_); });
      case Collective::broadcast:
        return inputs[source];
      case Collective::scatter:
        return part(inputs[source], rank_);
      case Collective::sendRecv:
        return inputs[(rank_ + inputs.size() - 1) % inputs.size()];
      default:
        return {};
    }
  }

  std::size_t rank_;
  std::size_t together_;
  std::size_t inCount_ = 0;
  std::size_t outCount_ = 0;
  std::size_t in_ = 0;
  std::size_t out_ = 0;
  std::size_t last_ = 0;
  GpuBuffer<T> memory_;
  std::vector<T> expected_;
  CollectiveCall call_;
};

inline void checkEveryCollective(DeviceKind kind, int ranks, std::vector<std::size_t> const& counts) {
  forEachRankOn(kind, ranks, [&](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    std::uint64_t seed = 0;
    std::set<std::string> ran;
    for (auto collective : collectives) {
      if (algorithms.names(collective).empty() || collective == Collective::barrier) continue;
      for (auto const count : counts) {
        for (bool separate : {true, false}) {
          for (bool symmetric : {false, true}) {
            auto names = algorithms.names(collective);
            names.emplace_back();  // the choice
            for (auto const& name : names) {
              // A real switch adds floats in an order of its own.
              bool const inAnyOrder = reduces(collective) && name.starts_with("nvls") && name != "nvls_packet";
              if (kind == DeviceKind::cuda && inAnyOrder) continue;
              int const root = static_cast<int>(++seed % static_cast<std::uint64_t>(ranks));
              // The in-place form of a rooted collective lies elsewhere on each rank.
              if (hasRoot(collective) && symmetric && !separate) continue;
              // A message has buffers of its own.
              if (collective == Collective::sendRecv && !separate) continue;
              bool const inTurn = collective == Collective::reduce && name == "chain";
              Exchange const exchange(communicator, collective, count, root, separate, seed, inTurn);
              auto const call = exchange.call(symmetric);
              if (!name.empty() && !algorithms.at(collective, name)->refusal(communicator, call).empty()) continue;
              meetOnGpus(communicator);
              if (name.empty()) {
                algorithms.execute(collective, communicator, stream, call);
              } else {
                algorithms.at(collective, name)->execute(communicator, stream, call);
              }
              communicator.synchronize(stream);
              CHECK_MESSAGE(exchange.wrong() == 0, nameOf(collective), " ", name.empty() ? "chosen" : name, " count ",
                            count, separate ? " apart" : " in place", " root ", root);
              ran.insert(std::string(nameOf(collective)) + "/" + name);
              communicator.bootstrap()->barrier();
            }
          }
        }
      }
      for (auto const& name : algorithms.names(collective)) {
        if (name.starts_with("nvls") && !isNvlsSupported(communicator.device())) continue;
        if (name == "copy" && ranks != 1) continue;  // for teams of one
        if (name == "two_level") continue;           // for several nodes
        CHECK_MESSAGE(ran.contains(std::string(nameOf(collective)) + "/" + name), nameOf(collective), " ", name,
                      " never ran");
      }
    }
    CHECK(ran.size() >= 8 * 5);
  });
}

}  // namespace mscclpp_test

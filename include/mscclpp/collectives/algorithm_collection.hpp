// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithms by collective and name, and the choice between them.
//
//   auto algorithms = AlgorithmCollection::defaults();
//   algorithms.execute(Collective::allReduce, communicator, stream, {.in = x, .out = y, ...});    chosen
//   algorithms.at(Collective::allReduce, "twoshot_ll128")->execute(...);                          named
//
// The choice asks, in this order, the user's selector, the algorithms that are preferred, the tuned profile, and the
// library's own rule; each may have none (selection.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/collectives/selection.hpp"

namespace mscclpp {

class TunedProfile;

// What a call comes to.
struct Resolution {
  std::shared_ptr<Algorithm const> algorithm;
  int blocks = 0;                        // as asked for by the call, else by whoever chose; 0: the algorithm's own
  int threads = 0;                       // likewise
  std::optional<KernelLaunch> launch{};  // nothing where the algorithm starts its kernel by itself
};

class AlgorithmCollection {
 public:
  // Everything that this build has, also under the names that MSCCL++ gives to what is the same.
  static AlgorithmCollection defaults();

  // Takes the place of one of the same collective and name. Throws invalidUsage for a null pointer.
  void add(std::shared_ptr<Algorithm const> algorithm);
  // Adds it, and has it make every call that it does not refuse, behind those that were preferred before.
  void prefer(std::shared_ptr<Algorithm const> algorithm);
  // A second name; throws invalidUsage where `name` is not there.
  void addAlias(Collective collective, std::string alias, std::string_view name);

  // Null where there is none.
  std::shared_ptr<Algorithm const> find(Collective collective, std::string_view name) const;
  // Throws invalidUsage that lists what there is.
  std::shared_ptr<Algorithm const> at(Collective collective, std::string_view name) const;
  // Without aliases, in the order of addition.
  std::vector<std::shared_ptr<Algorithm const>> const& algorithms() const noexcept { return algorithms_; }
  std::vector<std::string> names(Collective collective) const;
  std::vector<std::pair<Collective, std::string>> aliases() const;

  // Empty: none. A choice that names no algorithm of this collection, or one that refuses the call, is an error. Asked
  // once for equal requests, so that it must not change its mind; setting it again forgets what it said.
  void setSelector(Selector selector);
  // Null: none. Choices of it that are not here or refuse the call are passed over.
  void setProfile(std::shared_ptr<TunedProfile const> profile);

  // Throws invalidUsage for a call that cannot be right, unsupported, with each algorithm's reason, where none can do
  // it. What execute() does is this, determined at the first of equal calls of a communicator and stream.
  Resolution resolve(Collective collective, World const& world, CollectiveCall const& call) const;
  // The same by name. Collective at the first call with the communicator.
  Selection choose(Collective collective, Communicator const& communicator, CollectiveCall const& call) const;
  void execute(Collective collective, Communicator const& communicator, Stream const& stream,
               CollectiveCall const& call) const;
  // Collective. Has memory for whatever these calls choose in that stream, of up to `bytes` from each rank for each, so
  // that the first of each kind need not wait for the other ranks to make theirs. Those with windows, users' own,
  // and all over several nodes still do.
  void prepare(Communicator const& communicator, Stream const& stream, std::size_t bytes) const;
  // Whether execute() would now only launch, as it does for a call that was made before. Where it would not, it may
  // wait for the other ranks to make theirs.
  bool startsAtOnce(Collective collective, Communicator const& communicator, Stream const& stream,
                    CollectiveCall const& call) const;

 private:
  Resolution resolved(Collective collective, World const& world, CollectiveCall const& call,
                      Selection const& choice) const;
  void changed();

  std::vector<std::shared_ptr<Algorithm const>> algorithms_;
  std::map<std::pair<Collective, std::string>, std::shared_ptr<Algorithm const>, std::less<>> byName_;
  std::vector<std::shared_ptr<Algorithm const>> preferred_;
  Selector selector_;
  std::shared_ptr<TunedProfile const> profile_;
  std::uint64_t state_ = 0;  // equal only where choices are: copies share it until one is changed
};

}  // namespace mscclpp

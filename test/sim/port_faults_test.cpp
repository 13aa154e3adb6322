// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults at random points of collectives through port channels: whatever happens, every rank ends, no wrong result
// passes for a right one, every error says who waited for whom, and those that are left go on.
//
// MSCCLPP_FAULT_POINTS=10000 makes it the long run.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"

using namespace mscclpp;

namespace {

constexpr int ranks = 4;
constexpr unsigned elements = 48;  // to each rank
constexpr int rounds = 2;

enum class Kind : std::uint8_t { none, kill, cut, delay, drop, raise };
constexpr char const* kindNames[] = {"none", "kill", "cut", "delay", "drop", "throw"};

enum class Operation : std::uint8_t { allReduce, allToAll, barrier };

struct Plan {
  Kind kind = Kind::none;
  Operation operation = Operation::allReduce;
  int rank = 0;          // whose posts are hit
  std::uint64_t at = 0;  // the post of that rank before which it happens
  std::uint64_t seed = 1;
};

// The faults of one rank, shared by its connections.
struct Faults {
  Plan plan;
  int rank = 0;
  std::uint64_t posts = 0;
  bool killed = false;
  std::function<void()> die;

  // Whether it happens at this post.
  bool strikes() { return plan.kind != Kind::none && rank == plan.rank && posts++ == plan.at; }
};

// A connection that goes wrong as planned. What it swallows is never complete, so neither is what comes after it.
class FaultyConnection final : public Connection {
 public:
  FaultyConnection(std::shared_ptr<Connection> inner, Faults& faults) : inner_(std::move(inner)), faults_(faults) {}

  Transport transport() const noexcept override { return inner_->transport(); }
  int peer() const noexcept override { return inner_->peer(); }
  void write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src, std::uint64_t srcOffset,
             std::uint64_t bytes) override {
    if (passes("write")) inner_->write(dst, dstOffset, src, srcOffset, bytes);
  }
  void signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) override {
    if (passes("signal")) inner_->signal(dst, dstOffset, count);
  }
  std::uint64_t posted() const noexcept override { return inner_->posted() + swallowed_; }
  std::uint64_t progress() override {
    if (faults_.killed) return before_;
    if (held_ != 0) {
      --held_;
      return before_;
    }
    before_ = std::max(before_, inner_->progress());
    return before_;
  }
  void abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept override {
    if (!faults_.killed && !cut_) inner_->abandon(dst, dstOffset);
  }

 private:
  bool passes(char const* operation) {
    if (faults_.strikes()) {
      switch (faults_.plan.kind) {
        case Kind::none:
          break;
        case Kind::kill:
          faults_.killed = true;
          faults_.die();
          break;
        case Kind::cut:
        case Kind::drop:  // a link that delivers in order has nothing to deliver after a loss
          cut_ = true;
          break;
        case Kind::delay:
          held_ = 100;
          break;
        case Kind::raise:
          throw Error(ErrorCode::remoteError, std::string("rank ") + std::to_string(faults_.rank) + ": " + operation +
                                                  " to rank " + std::to_string(peer()) + ": the link is down");
      }
    }
    if (!faults_.killed && !cut_) return true;
    ++swallowed_;
    return false;
  }

  std::shared_ptr<Connection> inner_;
  Faults& faults_;
  std::uint64_t swallowed_ = 0;
  std::uint64_t before_ = 0;
  unsigned held_ = 0;
  bool cut_ = false;
};

// One block; channel c is that to the c-th peer. Slot r of `inbox` is rank r's.
struct Collective {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const* channels, int rank, int size, int operation,
                                 std::uint32_t const* input, std::uint32_t* inbox, std::uint32_t* output) const {
    auto const block = thisBlock();
    bool const apart = operation == static_cast<int>(Operation::allToAll);
    constexpr std::uint64_t bytes = elements * sizeof(std::uint32_t);
    for (int c = 0; c < size - 1; ++c) {
      int const peer = c < rank ? c : c + 1;
      if (operation == static_cast<int>(Operation::barrier)) {
        channels[c].signal(block);
      } else {
        channels[c].putWithSignal(block, static_cast<std::uint64_t>(rank) * bytes,
                                  apart ? static_cast<std::uint64_t>(peer) * bytes : 0, bytes);
      }
    }
    for (int c = 0; c < size - 1; ++c) channels[c].wait(block);
    for (unsigned i = block.rank(); i < elements; i += block.size()) {
      if (operation == static_cast<int>(Operation::allReduce)) {
        std::uint32_t sum = input[i];
        for (int r = 0; r < size; ++r) sum += r == rank ? 0 : inbox[static_cast<unsigned>(r) * elements + i];
        output[i] = sum;
      } else if (apart) {
        for (int r = 0; r < size; ++r) {
          auto const at = static_cast<unsigned>(r) * elements + i;
          output[at] = r == rank ? input[at] : inbox[at];
        }
      }
    }
    // Sources and inboxes are used again by the next round.
    for (int c = 0; c < size - 1; ++c) channels[c].flush(block);
    for (int c = 0; c < size - 1; ++c) channels[c].signal(block);
    for (int c = 0; c < size - 1; ++c) channels[c].wait(block);
  }
};

std::uint32_t valueOf(int rank, unsigned index, int round) {
  return static_cast<std::uint32_t>(rank * 1000 + round * 100000) + index;
}

// What rank `self` of `members` (ranks of the first communicator) must have.
std::vector<std::uint32_t> expected(Operation operation, int self, std::vector<int> const& members, int round) {
  std::vector<std::uint32_t> result(elements * members.size(), 0);
  if (operation == Operation::barrier) return result;
  for (unsigned i = 0; i < elements; ++i) {
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (operation == Operation::allReduce) {
        result[i] += valueOf(members[r], i, round);
      } else {
        result[r * elements + i] = valueOf(members[r], static_cast<unsigned>(self) * elements + i, round);
      }
    }
  }
  return result;
}

// Runs the operation a few times; false where a result is wrong. Throws what goes wrong.
bool runOperation(Communicator& communicator, Operation operation, std::vector<int> const& members, Faults* faults) {
  int const rank = communicator.rank();
  int const size = communicator.size();
  auto const total = elements * static_cast<std::size_t>(size);
  auto const device = communicator.device();
  GpuBuffer<std::uint32_t> const input(device, total), inbox(device, total), output(device, total);
  auto const all = communicator.exchangeMemory(communicator.registerMemory(inbox.data(), inbox.bytes()));
  ProxyService service(communicator, {.proxies = 2, .fifoSize = 4});
  auto const source = service.addMemory(communicator.registerMemory(input.data(), input.bytes()));
  std::vector<PortChannelDeviceHandle> handles;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    auto connection = communicator.connect(peer);
    if (faults != nullptr) connection = std::make_shared<FaultyConnection>(connection, *faults);
    auto const semaphore = service.buildAndAddSemaphore(connection);
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    handles.emplace_back(service.portChannel(semaphore, target, source).deviceHandle());
  }
  GpuBuffer<PortChannelDeviceHandle> const channels(device, handles.size());
  copyToDevice(channels, std::span<PortChannelDeviceHandle const>(handles));
  Stream const stream(device);
  communicator.bootstrap()->barrier();
  service.startProxy();
  bool right = true;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::uint32_t> values(total);
    for (unsigned i = 0; i < total; ++i) values[i] = valueOf(members[static_cast<std::size_t>(rank)], i, round);
    copyToDevice(input, std::span<std::uint32_t const>(values));
    launch(stream, {.blocks = 1, .threads = 32}, Collective{}, channels.data(), rank, size, static_cast<int>(operation),
           input.data(), inbox.data(), output.data());
    communicator.synchronize(stream);
    right = right && copyToHost(output) == expected(operation, rank, members, round);
  }
  return right;
}

struct Outcome {
  bool right = false;
  bool killed = false;
  std::string error;  // empty: none
  std::vector<int> survivors;
  bool goesOn = false;  // the survivors' collective was right
  std::string errorAfter;
};

std::vector<Outcome> runWith(Plan const& plan) {
  std::vector<Outcome> outcomes(ranks);
  sim::run({.ranks = ranks, .seed = plan.seed, .waitsExpire = true}, [&](sim::RankContext& context) {
    auto& outcome = outcomes[static_cast<std::size_t>(context.rank())];
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    std::vector<int> everyone(ranks);
    for (int r = 0; r < ranks; ++r) everyone[static_cast<std::size_t>(r)] = r;
    Faults faults;
    faults.plan = plan;
    faults.rank = context.rank();
    faults.die = [&] { communicator.abort(); };
    try {
      outcome.right = runOperation(communicator, plan.operation, everyone, &faults);
    } catch (Error const& error) {
      outcome.error = error.what();
    }
    outcome.killed = faults.killed;
    if (outcome.killed) return;
    try {
      outcome.survivors = communicator.survivors();
      if (outcome.survivors.size() < 2) return;
      auto const left = communicator.shrink(outcome.survivors);
      outcome.goesOn = runOperation(*left, Operation::allReduce, outcome.survivors, nullptr);
      left->bootstrap()->barrier();
    } catch (Error const& error) {
      outcome.errorAfter = error.what();
    }
  });
  return outcomes;
}

bool says(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

int faultPoints() {
  char const* const text = std::getenv("MSCCLPP_FAULT_POINTS");
  return text == nullptr ? 150 : std::atoi(text);
}

}  // namespace

TEST_CASE("without a fault every rank has the right result, and goes on alike") {
  for (auto const operation : {Operation::allReduce, Operation::allToAll, Operation::barrier}) {
    for (auto const& outcome : runWith({.operation = operation})) {
      CHECK_MESSAGE(outcome.error.empty(), outcome.error);
      CHECK(outcome.right);
      CHECK(outcome.survivors == std::vector<int>{0, 1, 2, 3});
      CHECK_MESSAGE(outcome.goesOn, outcome.errorAfter);
    }
  }
}

TEST_CASE("faults at random points: nobody hangs, nothing wrong passes for right, every error names its cause") {
  std::mt19937_64 random(20);
  std::map<std::string, int> ends;
  int failed = 0, wrong = 0, silent = 0;
  int const points = faultPoints();
  REQUIRE(points > 0);
  for (int point = 0; point < points; ++point) {
    Plan plan;
    plan.kind = static_cast<Kind>(1 + random() % 5);
    plan.operation = static_cast<Operation>(random() % 3);
    plan.rank = static_cast<int>(random() % ranks);
    // A rank posts 3 puts, 3 signals with them and 3 acknowledgements a round.
    plan.at = random() % (plan.operation == Operation::barrier ? 12 : 18);
    plan.seed = random();
    CAPTURE(point);
    CAPTURE(kindNames[static_cast<int>(plan.kind)]);
    CAPTURE(static_cast<int>(plan.operation));
    CAPTURE(plan.rank);
    CAPTURE(plan.at);
    CAPTURE(plan.seed);
    std::vector<Outcome> outcomes;
    try {
      outcomes = runWith(plan);  // throws where nobody can go on
    } catch (std::exception const& error) {
      FAIL_CHECK(error.what());
      continue;
    }
    std::vector<int> left;
    for (int rank = 0; rank < ranks; ++rank) {
      if (!outcomes[static_cast<std::size_t>(rank)].killed) left.push_back(rank);
    }
    std::string all;
    for (int rank = 0; rank < ranks; ++rank) {
      auto const& outcome = outcomes[static_cast<std::size_t>(rank)];
      if (outcome.killed) continue;
      all += outcome.error + "\n";
      CAPTURE(rank);
      if (outcome.error.empty()) {
        if (!outcome.right) ++wrong;
        CHECK(outcome.right);
      } else {
        ++failed;
        INFO(outcome.error);
        CHECK(says(outcome.error, "rank " + std::to_string(rank)));
        bool const names =
            says(outcome.error, "channel") && (says(outcome.error, "of rank") || says(outcome.error, "to rank"));
        if (!names) ++silent;
        CHECK(names);
      }
      CHECK(outcome.survivors == left);
      CHECK_MESSAGE(outcome.goesOn, outcome.errorAfter);
    }
    auto const name = std::string(kindNames[static_cast<int>(plan.kind)]);
    if (plan.kind == Kind::delay) {
      CHECK_MESSAGE(all == std::string(ranks, '\n'), all);
    } else {
      // Whoever waited for the rank that was hit, or that rank itself, says so.
      CHECK_MESSAGE(says(all, "rank " + std::to_string(plan.rank)), all);
      if (plan.kind == Kind::raise) CHECK_MESSAGE(says(all, "the link is down"), all);
    }
    ++ends[name];
  }
  std::string counts;
  for (auto const& [name, count] : ends) counts += " " + name + " " + std::to_string(count);
  MESSAGE(points, " fault points:", counts, "; errors ", failed, ", wrong ", wrong, ", without a cause ", silent);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "machine.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/host/runtime.hpp"
#include "mscclpp/sim/backend/launch.hpp"

namespace litmus {
namespace {

using namespace mscclpp;

using Word = std::uint32_t;
constexpr unsigned wordsApart = 4;  // no two locations share 8 bytes

// Calls `act` with the value as a constant of the compiler.
template <auto... Values, class Act>
auto with(auto value, Act&& act) {
  using Result = std::common_type_t<decltype(act(std::integral_constant<decltype(Values), Values>{}))...>;
  if constexpr (std::is_void_v<Result>) {
    if (!((value == Values && (act(std::integral_constant<decltype(Values), Values>{}), true)) || ...)) {
      throw std::invalid_argument("a litmus test has an order or scope that its operation cannot have");
    }
  } else {
    Result result{};
    if (!((value == Values && (result = act(std::integral_constant<decltype(Values), Values>{}), true)) || ...)) {
      throw std::invalid_argument("a litmus test has an order or scope that its operation cannot have");
    }
    return result;
  }
}

template <Order... Orders, class Act>
auto ordered(Instruction const& instruction, Act&& act) {
  auto const order = static_cast<Order>(static_cast<int>(instruction.strength) - static_cast<int>(Strength::relaxed));
  return with<Orders...>(order, [&](auto o) {
    return with<Scope::block, Scope::device, Scope::system>(instruction.scope, [&](auto s) { return act(o, s); });
  });
}
static_assert(static_cast<int>(Strength::sequential) - static_cast<int>(Strength::relaxed) ==
              static_cast<int>(Order::sequential));

// A program laid out on devices and blocks.
class Layout {
 public:
  explicit Layout(Program const& program) : program_(program) {
    for (auto const& thread : program.threads) {
      devices_ = std::max(devices_, thread.place.device + 1);
      for (auto const& instruction : thread.code) {
        if (instruction.operation == Operation::barrier && instruction.barrier != 0) lanesEach_ = arch::warpSize;
      }
    }
  }

  Program const& program() const { return program_; }
  int devices() const { return devices_; }

  // The grid of a device; no blocks: it takes no part. With numbered barriers, which count whole warps, each thread has
  // a warp to itself.
  LaunchShape grid(int device) const {
    LaunchShape shape{.blocks = 0, .threads = 1};
    for (auto const& thread : program_.threads) {
      if (thread.place.device != device) continue;
      shape.blocks = std::max(shape.blocks, thread.place.block + 1u);
      shape.threads = std::max(shape.threads, (threadsOf(thread.place) - 1) * lanesEach_ + 1);
    }
    return shape;
  }

  // The program's thread that the calling GPU thread of `device` is; -1: none.
  int self(int device) const {
    if (arch::threadIndex() % lanesEach_ != 0) return -1;
    auto position = arch::threadIndex() / lanesEach_;
    for (int t = 0; t < static_cast<int>(program_.threads.size()); ++t) {
      auto const& place = program_.threads[t].place;
      if (place.device == device && place.block == arch::blockIndex() && position-- == 0) return t;
    }
    return -1;
  }

  // How many GPU threads the barrier counts.
  unsigned members(Place place, unsigned barrier) const {
    unsigned count = 0;
    for (auto const& thread : program_.threads) {
      count += thread.place == place && std::ranges::any_of(thread.code, [&](Instruction const& i) {
                 return i.operation == Operation::barrier && i.barrier == barrier;
               });
    }
    return count * lanesEach_;
  }

 private:
  unsigned threadsOf(Place place) const {
    return static_cast<unsigned>(
        std::ranges::count_if(program_.threads, [&](Thread const& t) { return t.place == place; }));
  }

  Program const& program_;
  int devices_ = 1;
  unsigned lanesEach_ = 1;
};

// One thread of the program, in a kernel.
class Interpreter {
 public:
  Interpreter(Layout const& layout, int thread, Word* memory)
      : layout_(layout), thread_(layout.program().threads[thread]), memory_(memory) {}

  void run() {
    for (auto const& instruction : thread_.code) {
      if (done(instruction.guard)) step(instruction);
    }
  }

  Word registerValue(int number) const { return registers_[number]; }

 private:
  Word value(Value const& v) const {
    return (v.base.none() ? 0 : registers_[v.base.number]) + static_cast<Word>(v.plus);
  }

  bool done(Guard const& guard) const {
    if (guard.kind == Guard::Kind::always) return true;
    return (registers_[guard.left.number] == value(guard.right)) == (guard.kind == Guard::Kind::equal);
  }

  void step(Instruction const& instruction) {
    Word* const word = memory_ + static_cast<unsigned>(instruction.location) * wordsApart;
    bool const isWeak = instruction.strength == Strength::weak;
    Word const operand = value(instruction.value);
    Word found = 0;
    switch (instruction.operation) {
      case Operation::load:
        found = isWeak ? *word : ordered<Order::relaxed, Order::acquire>(instruction, [&](auto order, auto scope) {
          return mscclpp::load<order(), scope()>(word);
        });
        break;
      case Operation::store:
        if (isWeak) {
          *word = operand;
        } else {
          ordered<Order::relaxed, Order::release>(
              instruction, [&](auto order, auto scope) { mscclpp::store<order(), scope()>(word, operand); });
        }
        break;
      case Operation::add:
        found = addTo(word, operand, instruction);
        break;
      case Operation::exchange:
        found = ordered<Order::relaxed, Order::acquire, Order::release, Order::acquireRelease>(
            instruction, [&](auto order, auto scope) { return mscclpp::exchange<order(), scope()>(word, operand); });
        break;
      case Operation::compareExchange:
        found = static_cast<Word>(instruction.expected);
        ordered<Order::relaxed, Order::acquire, Order::release, Order::acquireRelease>(
            instruction,
            [&](auto order, auto scope) { mscclpp::compareExchange<order(), scope()>(word, found, operand); });
        break;
      case Operation::fence:
        ordered<Order::acquireRelease, Order::sequential>(
            instruction, [](auto order, auto scope) { mscclpp::fence<order(), scope()>(); });
        break;
      case Operation::barrier:
        if (instruction.barrier == 0) {
          arch::syncBlock();
        } else {
          arch::syncBarrier(instruction.barrier, layout_.members(thread_.place, instruction.barrier));
        }
        break;
    }
    if (!instruction.result.none()) registers_[instruction.result.number] = found;
  }

  Word addTo(Word* word, Word operand, Instruction const& instruction) {
    bool const isReduction = instruction.result.none() &&
                             (instruction.strength == Strength::relaxed || instruction.strength == Strength::release);
    if (isReduction) {
      ordered<Order::relaxed, Order::release>(
          instruction, [&](auto order, auto scope) { reduceAdd<order(), scope()>(word, operand); });
      return 0;
    }
    return ordered<Order::relaxed, Order::acquire, Order::release, Order::acquireRelease>(
        instruction, [&](auto order, auto scope) { return fetchAdd<order(), scope()>(word, operand); });
  }

  Layout const& layout_;
  Thread const& thread_;
  Word* memory_;
  Word registers_[maxRegisters] = {};
};

// What a run uses of the machine. Given back also where the exploration cuts the run off by an exception.
class Resources {
 public:
  Resources() : machine_(runtime(DeviceKind::sim)) {
    memory_ = static_cast<Word*>(machine_.allocate(0, maxLocations * wordsApart * sizeof(Word), MemoryKind::standard));
  }
  ~Resources() {
    for (void* const stream : streams_) machine_.destroyStream(stream);
    machine_.release(memory_);
  }
  Resources(Resources const&) = delete;
  Resources& operator=(Resources const&) = delete;

  Word* memory() const { return memory_; }
  Word& at(Location location) const { return memory_[static_cast<unsigned>(location) * wordsApart]; }

  void launch(int device, LaunchShape const& grid, std::function<void()> perThread) {
    if (device != 0) machine_.enablePeer(device, machine_.allocationOf(memory_));
    streams_.push_back(machine_.createStream(device));
    sim::enqueueKernel(streams_.back(), grid, "litmus", std::move(perThread));
  }
  void synchronize() {
    for (void* const stream : streams_) machine_.synchronize(stream, std::chrono::seconds(20));
  }

 private:
  Runtime& machine_;
  Word* memory_;
  std::vector<void*> streams_;
};

// The host code of one run.
Outcome runOnce(Layout const& layout) {
  Outcome outcome;
  Resources resources;
  for (auto const& initial : layout.program().initial) {
    resources.at(initial.location) = static_cast<Word>(initial.value);
  }
  for (int device = 0; device < layout.devices(); ++device) {
    auto const grid = layout.grid(device);
    if (grid.blocks == 0) continue;
    resources.launch(device, grid, [&layout, &outcome, device, memory = resources.memory()] {
      int const self = layout.self(device);
      if (self < 0) return;
      Interpreter interpreter(layout, self, memory);
      interpreter.run();
      for (int r = 0; r < maxRegisters; ++r) {
        outcome.registers[self][r] = static_cast<std::uint8_t>(interpreter.registerValue(r));
      }
    });
  }
  resources.synchronize();
  for (int l = 0; l < maxLocations; ++l) {
    outcome.memory[l] = static_cast<std::uint8_t>(resources.at(static_cast<Location>(l)));
  }
  return outcome;
}

}  // namespace

Observed observe(Program const& program, sim::ExploreOptions options) {
  Layout const layout(program);
  options.findLostSignals = false;
  options.shrink = false;
  options.maxFindings = std::numeric_limits<int>::max();
  Observed observed;
  auto const result = sim::explore(
      {.ranks = 1, .machine = {.devices = layout.devices(), .memoryBytes = std::size_t{1} << 24}},
      [&](sim::RankContext&) { observed.outcomes.insert(runOnce(layout)); }, options);
  observed.complete = result.complete;
  observed.schedules = result.schedules;
  for (auto const& finding : result.findings) {
    if (finding.kind == sim::FindingKind::race || finding.kind == sim::FindingKind::narrowScope) {
      observed.racy = true;
    } else if (observed.other.empty()) {
      observed.other = finding.summary + "\n" + finding.explanation;
    }
  }
  return observed;
}

}  // namespace litmus

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/host/copy_engine.hpp"
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
  Layout(Program const& program, Host host) : program_(program), host_(host) {
    for (auto const& thread : program_.threads) {
      if (isHost(thread)) continue;
      devices_ = std::max(devices_, thread.place.device + 1);
      for (auto const& instruction : thread.code) {
        if (instruction.operation == Operation::barrier && instruction.barrier != 0) lanesEach_ = arch::warpSize;
      }
    }
  }

  Program const& program() const { return program_; }
  Host host() const { return host_; }
  bool isHost(Thread const& thread) const {
    return host_.kind != Host::Kind::none && &thread == &program_.threads[static_cast<std::size_t>(host_.thread)];
  }
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

  Program const program_;
  Host const host_;
  int devices_ = 1;
  unsigned lanesEach_ = 1;
};

std::memory_order orderOf(Strength strength) {
  switch (strength) {
    case Strength::acquire:
      return std::memory_order_acquire;
    case Strength::release:
      return std::memory_order_release;
    case Strength::acquireRelease:
      return std::memory_order_acq_rel;
    case Strength::sequential:
      return std::memory_order_seq_cst;
    default:
      return std::memory_order_relaxed;
  }
}

// One thread of the program, in a kernel or as host code.
class Interpreter {
 public:
  Interpreter(Layout const& layout, int thread, Word* memory)
      : layout_(layout), thread_(layout.program().threads[thread]), memory_(memory) {}

  void run() {
    for (auto const& instruction : thread_.code) {
      if (!done(instruction.guard)) continue;
      layout_.isHost(thread_) ? hostStep(instruction) : step(instruction);
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

  void hostStep(Instruction const& instruction) {
    Word& plain = memory_[static_cast<unsigned>(instruction.location) * wordsApart];
    std::atomic_ref<Word> const word(plain);
    bool const isWeak = instruction.strength == Strength::weak;
    auto const order = layout_.host().sequential ? std::memory_order_seq_cst : orderOf(instruction.strength);
    Word const operand = value(instruction.value);
    Word found = 0;
    switch (instruction.operation) {
      case Operation::load:
        found = isWeak ? plain : word.load(order);
        break;
      case Operation::store:
        isWeak ? static_cast<void>(plain = operand) : word.store(operand, order);
        break;
      case Operation::add:
        found = word.fetch_add(operand, order);
        break;
      case Operation::exchange:
        found = word.exchange(operand, order);
        break;
      case Operation::compareExchange:
        found = static_cast<Word>(instruction.expected);
        word.compare_exchange_strong(found, operand, order);
        break;
      case Operation::fence:
        std::atomic_thread_fence(orderOf(instruction.strength));
        break;
      case Operation::barrier:
        throw std::invalid_argument("host code has no barrier of a block");
    }
    if (!instruction.result.none()) registers_[instruction.result.number] = found;
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
  void startThread(std::function<void()> main) { thread_ = machine_.startThread(0, "background", std::move(main)); }
  void synchronize() {
    thread_.reset();
    for (void* const stream : streams_) machine_.synchronize(stream, std::chrono::seconds(20));
  }

 private:
  Runtime& machine_;
  Word* memory_;
  std::vector<void*> streams_;
  std::unique_ptr<HostThread> thread_;
};

// The host code of one run.
Outcome runOnce(Layout const& layout) {
  Outcome outcome;
  Resources resources;
  for (auto const& initial : layout.program().initial) {
    resources.at(initial.location) = static_cast<Word>(initial.value);
  }
  auto const runThread = [&layout, &outcome, memory = resources.memory()](int self) {
    Interpreter interpreter(layout, self, memory);
    interpreter.run();
    for (int r = 0; r < maxRegisters; ++r) {
      outcome.registers[self][r] = static_cast<std::uint8_t>(interpreter.registerValue(r));
    }
  };
  for (int device = 0; device < layout.devices(); ++device) {
    auto const grid = layout.grid(device);
    if (grid.blocks == 0) continue;
    resources.launch(device, grid, [&layout, runThread, device] {
      if (int const self = layout.self(device); self >= 0) runThread(self);
    });
  }
  auto const runHost = [&layout, runThread] { runThread(layout.host().thread); };
  if (layout.host().kind == Host::Kind::background) resources.startThread(runHost);
  if (layout.host().kind == Host::Kind::rank) runHost();
  resources.synchronize();
  for (int l = 0; l < maxLocations; ++l) {
    outcome.memory[l] = static_cast<std::uint8_t>(resources.at(static_cast<Location>(l)));
  }
  return outcome;
}

}  // namespace

std::optional<Program> asHost(Program const& program, int thread, bool fences) {
  Place host;
  for (auto const& other : program.threads) host.device = std::max(host.device, other.place.device);
  ++host.device;
  Program made{{}, program.initial};
  for (auto const& old : program.threads) {
    bool const isHost = &old == &program.threads[static_cast<std::size_t>(thread)];
    Thread copy{isHost ? host : old.place, {}};
    for (auto instruction : old.code) {
      bool const ordered = instruction.operation != Operation::fence && instruction.strength != Strength::weak;
      bool const fenced = isHost && fences && ordered;
      if (isHost && instruction.operation == Operation::barrier) return {};
      if (copy.code.size() + (fenced ? 2 : 1) > decltype(copy.code)::capacity) return {};
      if (fenced) {
        auto before = fence(sc, sys);
        before.guard = instruction.guard;
        copy.code.add(before);
      }
      if (isHost) instruction.scope = sys;
      if (fenced && instruction.operation == Operation::load) instruction.strength = acq;
      if (fenced && instruction.operation == Operation::store) instruction.strength = rel;
      if (fenced && instruction.updates()) instruction.strength = acqRel;
      copy.code.add(instruction);
    }
    made.threads.add(copy);
  }
  return made;
}

Observed observe(Program const& program, sim::ExploreOptions options, Host host) {
  Layout const layout(program, host);
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

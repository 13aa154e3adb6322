// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "faults/work.hpp"

#include <algorithm>
#include <cstring>

#include "faults/ports.hpp"

namespace faults {
namespace {

using namespace mscclpp;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
  return a ^ (a >> 31);
}

// `count` numbers as elements of `type`.
std::vector<std::byte> elements(DataType type, std::size_t count, auto const& number) {
  return withDataType(type, [&]<class T>(std::type_identity<T>) {
    std::vector<std::byte> bytes(count * sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      T element;
      if constexpr (std::is_integral_v<T>) {
        element = static_cast<T>(number(i));
      } else {
        element = convertNumber<T>(static_cast<float>(number(i)));
      }
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

int combine(ReduceOp op, int a, int b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

GpuBuffer<std::byte> bufferOf(Device device, std::vector<std::byte> const& bytes) {
  GpuBuffer<std::byte> buffer(device, std::max<std::size_t>(bytes.size(), 1));
  copyToDevice(buffer, std::span<std::byte const>(bytes));
  return buffer;
}

// To be overwritten.
GpuBuffer<std::byte> blankBuffer(Device device, std::size_t bytes) {
  GpuBuffer<std::byte> buffer(device, std::max<std::size_t>(bytes, 1));
  buffer.fill(0x5a);
  return buffer;
}

// Bytes of the step's message between two ranks; nothing: there is none.
std::optional<std::size_t> messageBytes(Step const& step, int from, int to) {
  constexpr std::array<std::size_t, 6> sizes{0, 1, 17, 300, 1000, 5000};
  auto const chosen = mix(mix(step.seed, static_cast<std::uint64_t>(from)), static_cast<std::uint64_t>(to) + 100);
  if (chosen % 3 == 0 && !step.meets) return {};
  return sizes[chosen / 3 % sizes.size()];
}

}  // namespace

int valueOf(Step const& step, int rank, std::size_t index) {
  auto const value = mix(mix(step.seed, static_cast<std::uint64_t>(rank)), index) >> 20;
  return static_cast<int>(step.op == ReduceOp::prod ? 1 + value % 2 : value % 16);
}

bool Awaited::right() const {
  std::vector<std::byte> got(expected.size());
  copyToHost(memory.device(), std::span<std::byte>(got), memory.data());
  return got == expected;
}

Workplace::Workplace(Work work, Communicator& communicator, std::vector<int> members)
    : work_(work), communicator_(communicator), members_(std::move(members)) {
  streams_.push_back(std::make_unique<Stream>(communicator.device()));
}
Workplace::~Workplace() = default;

void Workplace::prepare(Step const& step) {
  firstAwaited_ = awaited_.size();
  if (step.newStream) streams_.push_back(std::make_unique<Stream>(communicator_.device()));
  if (work_ == Work::collectives) return prepareCollective(step);
  if (work_ == Work::messages) return prepareMessages(step);
  auto const size = members_.size();
  auto const self = static_cast<std::size_t>(communicator_.rank());
  std::vector<std::uint32_t> words;
  std::vector<std::uint32_t> expected;
  auto const word = [&](std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<std::uint32_t>(mix(mix(step.seed + from, to), i));
  };
  for (std::size_t peer = 0; peer < size; ++peer) {
    for (std::size_t i = 0; i < Ports::part; ++i) {
      auto const me = static_cast<std::size_t>(members_[self]);
      auto const other = static_cast<std::size_t>(members_[peer]);
      words.push_back(word(me, other, i));
      expected.push_back(word(other, me, i));
    }
  }
  auto const bytes = std::as_bytes(std::span(expected));
  awaited_.push_back({blankBuffer(communicator_.device(), bytes.size()), {bytes.begin(), bytes.end()}});
  auto* const out = reinterpret_cast<std::uint32_t*>(awaited_.back().memory.data());
  start_ = [this, words, out] {
    if (ports_ == nullptr) {
      ports_ = std::make_unique<Ports>(communicator_, work_ == Work::tcpPorts ? Transport::tcp : Transport::memory);
    }
    ports_->start(*streams_.back(), words, out);
  };
}

void Workplace::prepareCollective(Step const& step) {
  auto const& traits = traitsOf(step.collective);
  auto const size = members_.size();
  auto const self = static_cast<std::size_t>(communicator_.rank());
  auto const root = static_cast<std::size_t>(step.root) % size;
  auto const inCount = step.count * traits.in.partsOf(size);
  auto const outCount = step.count * traits.out.partsOf(size);
  auto const given = [&](std::size_t place, std::size_t i) { return valueOf(step, members_[place], i); };
  bool const rowed = step.collective == Collective::allGather || step.collective == Collective::gather ||
                     step.collective == Collective::allToAll;
  bool const mine = traits.in.extent == Extent::partPerRank;  // of every input the part of this rank
  auto const expected = [&](std::size_t i) {
    auto const part = rowed ? i / step.count : 0;
    auto const index = (mine ? self * step.count : 0) + (rowed ? i % step.count : i);
    if (!traits.reduces) {
      auto const previous = (self + size - 1) % size;
      return given(rowed ? part : step.collective == Collective::sendRecv ? previous : root, index);
    }
    int total = given(0, index);
    for (std::size_t place = 1; place < size; ++place) total = combine(step.op, total, given(place, index));
    return total;
  };
  auto const in = elements(step.type, inCount, [&](std::size_t i) { return given(self, i); });
  auto out = elements(step.type, outCount, expected);
  auto const device = communicator_.device();
  inputs_.push_back(bufferOf(device, in));
  auto result = blankBuffer(device, out.size());
  CollectiveCall const call{.in = inputs_.back().data(),
                            .out = result.data(),
                            .inBytes = in.size(),
                            .outBytes = out.size(),
                            .type = step.type,
                            .op = step.op,
                            .blocks = 0,
                            .threads = 0,
                            .symmetric = step.symmetric,
                            .root = traits.hasRoot() ? static_cast<int>(root) : 0};
  if (!traits.out.isUsed(self == root)) out.clear();
  awaited_.push_back({std::move(result), std::move(out)});
  start_ = [this, call, collective = step.collective] {
    algorithms_.execute(collective, communicator_, *streams_.back(), call);
  };
}

void Workplace::prepareMessages(Step const& step) {
  auto const self = members_[static_cast<std::size_t>(communicator_.rank())];
  auto const content = [&](int from, int to, std::size_t bytes) {
    auto const pair = from * 1000 + to;
    return elements(DataType::uint8, bytes, [&](std::size_t i) { return valueOf(step, pair, i); });
  };
  struct Message {
    bool sent;
    std::byte* data;
    std::size_t bytes;
    int peer;
  };
  std::vector<Message> messages;
  for (std::size_t place = 0; place < members_.size(); ++place) {
    int const peer = members_[place];
    if (auto const bytes = messageBytes(step, self, peer)) {
      inputs_.push_back(bufferOf(communicator_.device(), content(self, peer, *bytes)));
      messages.push_back({true, inputs_.back().data(), *bytes, static_cast<int>(place)});
    }
    if (auto const bytes = messageBytes(step, peer, self)) {
      awaited_.push_back({blankBuffer(communicator_.device(), *bytes), content(peer, self, *bytes)});
      messages.push_back({false, awaited_.back().memory.data(), *bytes, static_cast<int>(place)});
    }
  }
  start_ = [this, messages, anew = step.newStream] {
    if (links_.empty() || anew) {
      links_.push_back(std::make_unique<PointToPoint>(
          communicator_, layout::PointToPointRequirement{
                             .lanes = 2, .slots = 2, .stageBytes = 4096, .packetBytes = 1920, .packetLimit = 2000}));
    }
    MessageGroup group(*links_.back(), *streams_.back());
    for (auto const& message : messages) {
      if (message.sent) {
        group.send(message.data, message.bytes, message.peer);
      } else {
        group.recv(message.data, message.bytes, message.peer);
      }
    }
    group.start();
  };
}

void Workplace::perform() {
  try {
    start_();
    communicator_.synchronize(*streams_.back());
  } catch (Error const&) {
    // Reports that are left would fail the next call as well.
    try {
      communicator_.synchronize(*streams_.back());
    } catch (Error const&) {
    }
    throw;
  }
}

bool Workplace::right() const {
  return std::all_of(awaited_.begin() + static_cast<std::ptrdiff_t>(firstAwaited_), awaited_.end(),
                     [](Awaited const& one) { return one.right(); });
}

}  // namespace faults

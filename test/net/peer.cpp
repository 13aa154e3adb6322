// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, for the tests that start hosts: network namespaces (namespaces.py) and guests
// with software RDMA devices (test/softroce). Its memory is that of a machine without kernels.
//
//   exchange   every rank writes to every other, in rounds of random sizes, and compares what it got
//   stream     rank 0 writes to rank 1 for some seconds and prints the bytes per second that were complete
//   echo       ranks 0 and 1 write to each other in turn, in rounds; prints the median of the round trips
//
// Ends with 0 where all was well; else prints what was thrown and ends with 1.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../host/fake_runtime.hpp"
#include "../host/random_bytes.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::test;
using Clock = std::chrono::steady_clock;

constexpr Device device{DeviceKind::sim, 0};

struct Arguments {
  int rank = 0;
  int ranks = 2;
  std::string address;
  std::string action = "exchange";
  int rounds = 20;
  double seconds = 3;
  std::size_t bytes = std::size_t{1} << 20;  // of a write: the largest, or each one's
};

struct Buffer {
  Buffer(Communicator const& communicator, std::size_t size)
      : base(static_cast<std::byte*>(FakeRuntime::instance().allocate(0, size, MemoryKind::standard))),
        bytes(size),
        memory(communicator.registerMemory(base, size, communicator.transports())) {}
  std::byte* base;
  std::size_t bytes;
  RegisteredMemory memory;
};

// What rank `from` sends to `to` in a round.
void fill(std::span<std::byte> bytes, int round, int from, int to) {
  fillRandom(bytes, static_cast<std::uint64_t>(round) * 1000003 + static_cast<std::uint64_t>(from * 1009 + to));
}
std::size_t sizeOf(Arguments const& arguments, int round, int from, int to) {
  std::mt19937_64 random(static_cast<std::uint64_t>(round * 7919 + from * 31 + to));
  return 1 + random() % (std::size_t{1} << random() % 30) % arguments.bytes;
}

class Job {
 public:
  Job(Arguments const& arguments, Communicator const& communicator)
      : arguments_(arguments),
        communicator_(communicator),
        source_(communicator, arguments.bytes * ranks()),
        target_(communicator, arguments.bytes * ranks()),
        words_(communicator, 8 * ranks()) {
    targets_ = communicator.exchangeMemory(target_.memory);
    peerWords_ = communicator.exchangeMemory(words_.memory);
    for (int peer = 0; peer < communicator.size(); ++peer) {
      connections_.push_back(peer == communicator.rank() ? nullptr : communicator.connect(peer));
      if (connections_.back()) transport_ = nameOf(connections_.back()->transport());
    }
  }

  std::string_view transport() const { return transport_; }

  void exchange() {
    auto const self = communicator_.rank();
    for (int round = 0; round < arguments_.rounds; ++round) {
      for (int peer = 0; peer < communicator_.size(); ++peer) {
        if (peer == self) continue;
        auto const size = sizeOf(arguments_, round, self, peer);
        auto const from = arguments_.bytes * at(peer);
        fill({source_.base + from, size}, round, self, peer);
        connections_[at(peer)]->write(targets_[at(peer)], arguments_.bytes * at(self), source_.memory, from, size);
        connections_[at(peer)]->signal(peerWords_[at(peer)], 8 * at(self), at(round + 1));
      }
      for (int peer = 0; peer < communicator_.size(); ++peer) {
        if (peer != self) receive(round, peer);
      }
      complete();
      communicator_.bootstrap()->barrier();
    }
  }

  void stream() {
    auto const& bootstrap = communicator_.bootstrap();
    bootstrap->barrier();
    if (communicator_.rank() == 0) {
      auto& connection = *connections_[1];
      fill({source_.base, arguments_.bytes}, 0, 0, 1);
      auto const start = Clock::now();
      auto const end = start + std::chrono::duration<double>(arguments_.seconds);
      std::uint64_t done = 0;
      while (Clock::now() < end) {
        while (connection.posted() - done < 64) connection.write(targets_[1], 0, source_.memory, 0, arguments_.bytes);
        done = connection.progress();
        rest(connection);
      }
      while (connection.progress() < connection.posted()) rest(connection);
      auto const seconds = std::chrono::duration<double>(Clock::now() - start).count();
      std::printf("%s %.0f bytes/s\n", std::string(transport_).c_str(),
                  static_cast<double>(connection.posted() * arguments_.bytes) / seconds);
      connection.signal(peerWords_[1], 0, 1);
      complete();
    } else {
      // One that only receives looks rarely, as a proxy without work does.
      while (std::atomic_ref(*reinterpret_cast<std::uint64_t*>(words_.base)).load(std::memory_order_acquire) == 0) {
        connections_[0]->progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    bootstrap->barrier();
  }

  void echo() {
    bool const asks = communicator_.rank() == 0;
    auto const peer = at(asks ? 1 : 0);
    auto& connection = *connections_[peer];
    std::vector<double> microseconds;
    communicator_.bootstrap()->barrier();
    for (int round = 1; round <= arguments_.rounds; ++round) {
      auto const send = [&] {
        connection.write(targets_[peer], 0, source_.memory, 0, arguments_.bytes);
        connection.signal(peerWords_[peer], 0, at(round));
        connection.progress();
      };
      auto const start = Clock::now();
      if (asks) send();
      while (std::atomic_ref(*reinterpret_cast<std::uint64_t*>(words_.base)).load(std::memory_order_acquire) <
             at(round)) {
        connection.progress();
        if (!rest(connection)) std::this_thread::yield();
      }
      if (!asks) send();
      microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    complete();
    auto const middle = microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2);
    std::nth_element(microseconds.begin(), middle, microseconds.end());
    if (asks) std::printf("%s %.1f us\n", std::string(transport_).c_str(), *middle);
    communicator_.bootstrap()->barrier();
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::size_t ranks() const { return at(communicator_.size()); }

  static bool rest(Connection const& connection) {
    std::array const alone{&connection};
    return restUntilReady(alone, std::chrono::microseconds(100));
  }
  void step() {
    for (auto const& connection : connections_) {
      if (connection) connection->progress();
    }
  }
  void complete() {
    for (auto const& connection : connections_) {
      while (connection && connection->progress() < connection->posted()) step();
    }
  }
  void receive(int round, int peer) {
    auto& word = *reinterpret_cast<std::uint64_t*>(words_.base + 8 * at(peer));
    while (std::atomic_ref(word).load(std::memory_order_acquire) < at(round + 1)) step();
    auto const size = sizeOf(arguments_, round, peer, communicator_.rank());
    std::vector<std::byte> expected(size);
    fill(expected, round, peer, communicator_.rank());
    if (std::memcmp(expected.data(), target_.base + arguments_.bytes * at(peer), size) != 0) {
      throw Error(ErrorCode::internalError, "round " + std::to_string(round) + ": wrong bytes from rank " +
                                                std::to_string(peer) + " to " + std::to_string(communicator_.rank()));
    }
  }

  Arguments const& arguments_;
  Communicator const& communicator_;
  Buffer source_;
  Buffer target_;
  Buffer words_;
  std::vector<RegisteredMemory> targets_;
  std::vector<RegisteredMemory> peerWords_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::string_view transport_;
};

}  // namespace

int main(int count, char** values) {
  Arguments arguments;
  CLI::App app("One rank of a job over several hosts");
  app.add_option("--rank", arguments.rank)->required();
  app.add_option("--ranks", arguments.ranks);
  app.add_option("--address", arguments.address)->required();
  app.add_option("--action", arguments.action)->check(CLI::IsMember({"exchange", "stream", "echo"}));
  app.add_option("--rounds", arguments.rounds);
  app.add_option("--seconds", arguments.seconds);
  app.add_option("--bytes", arguments.bytes)->transform(CLI::AsSizeValue(false));
  CLI11_PARSE(app, count, values);
  try {
    FakeRuntime::instance();
    auto const bootstrap = std::make_shared<TcpBootstrap>(arguments.rank, arguments.ranks);
    bootstrap->initialize(arguments.address);
    Communicator const communicator(bootstrap, device);
    Job job(arguments, communicator);
    std::printf("rank %d uses %s\n", arguments.rank, std::string(job.transport()).c_str());
    std::fflush(stdout);
    arguments.action == "stream" ? job.stream() : arguments.action == "echo" ? job.echo() : job.exchange();
    std::printf("rank %d is done\n", arguments.rank);
  } catch (Error const& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", std::string(nameOf(error.code())).c_str(), error.what());
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/port_channel.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/proxy/growing_list.hpp"
#include "host/proxy/host_word.hpp"
#include "mscclpp/host/trace.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {
namespace {

constexpr std::chrono::milliseconds abandonTime{500};  // to tell the peers of a failure
constexpr std::chrono::microseconds restTime{100};     // that a new trigger may wait while connections are full

struct Flush {
  std::uint64_t posts;     // of the connection that must be complete
  std::uint64_t position;  // in the FIFO
};

// A trigger that is under way, for the timeline.
struct Traced {
  std::uint64_t posts;
  std::uint64_t begin;
  std::uint32_t channel;
  layout::TriggerFields fields;
};

struct Link {
  std::shared_ptr<Connection> connection;
  std::size_t proxy;
  std::uint64_t done;  // posts
  std::deque<Traced> traced;

  Link(std::shared_ptr<Connection> with, std::size_t by)
      : connection(std::move(with)), proxy(by), done(connection->posted()) {}
};

struct Channel {
  Host2DeviceSemaphore semaphore;
  Link& link;  // its connection
  HostWord flushed;
  std::deque<Flush> flushes;  // not complete yet

  Channel(Host2DeviceSemaphore with, Link& over, Runtime& machine)
      : semaphore(std::move(with)), link(over), flushed(machine) {}
};

char const* operationOf(std::uint32_t type) {
  bool const data = (type & layout::triggerData) != 0;
  bool const flag = (type & layout::triggerFlag) != 0;
  if ((type & layout::triggerSync) == 0) return data ? (flag ? "putWithSignal" : "put") : "signal";
  return data ? (flag ? "putWithSignalAndFlush" : "put and flush") : (flag ? "signal and flush" : "flush");
}

}  // namespace

struct ProxyService::Impl {
  std::shared_ptr<CommunicatorImpl> communicator;
  std::mutex adding;  // to the lists below, which the proxies read without it
  GrowingList<Link, layout::maxTriggerSemaphores> links;
  GrowingList<Channel, layout::maxTriggerSemaphores> channels;
  GrowingList<RegisteredMemory, layout::maxTriggerMemories> memories;
  std::vector<std::unique_ptr<Proxy>> proxies;
  Communicator const& owner;

  Impl(Communicator const& of, std::shared_ptr<CommunicatorImpl> with) : communicator(std::move(with)), owner(of) {}

  int rank() const { return communicator->rank(); }

  Channel& channelOf(std::uint32_t id) {
    if (id >= channels.size()) {
      fail(ErrorCode::invalidUsage, "there is no semaphore {} in this service, which has {}; use its ids and handles",
           id, channels.size());
    }
    return channels[id];
  }
  RegisteredMemory const& memoryOf(std::uint32_t id, char const* which) {
    if (id >= memories.size()) {
      fail(ErrorCode::invalidUsage, "it names memory {} as its {}, but there are {}; give ids that addMemory returned",
           id, which, memories.size());
    }
    return memories[id];
  }

  ProxyAction handle(layout::Trigger const& trigger, std::uint64_t position) {
    auto const f = layout::decode(trigger);
    auto& channel = channelOf(f.semaphore);
    // Names the operation in what goes wrong.
    inContext(channel, f.semaphore, operationOf(f.type), [&] {
      if (f.type == 0) {
        fail(ErrorCode::invalidUsage, "a trigger of type 0; triggers of one's own need a Proxy with a handler");
      }
      auto& connection = *channel.link.connection;
      if ((f.type & layout::triggerData) != 0) {
        connection.write(memoryOf(f.dstMemory, "target"), f.dstOffset, memoryOf(f.srcMemory, "source"), f.srcOffset,
                         f.bytes);
      }
      if ((f.type & layout::triggerFlag) != 0) channel.semaphore.signal();
      if ((f.type & layout::triggerSync) != 0) channel.flushes.push_back({connection.posted(), position});
    });
    if (Trace::on()) trace(channel.link, f, position);
    return ProxyAction::goOn;
  }

  void trace(Link& link, layout::TriggerFields const& f, std::uint64_t position) {
    Trace::instant(rank(), static_cast<int>(link.proxy), fmt::format("trigger: {}", operationOf(f.type)),
                   {{"position", static_cast<std::int64_t>(position)},
                    {"peer", link.connection->peer()},
                    {"channel", f.semaphore},
                    {"bytes", static_cast<std::int64_t>(f.bytes)}});
    link.traced.push_back({link.connection->posted(), Trace::now(), f.semaphore, f});
  }
  void traceEnded(Link& link) {
    for (; !link.traced.empty() && link.traced.front().posts <= link.done; link.traced.pop_front()) {
      auto const& t = link.traced.front();
      if (!Trace::on()) continue;
      Trace::span(rank(), static_cast<int>(link.proxy), operationOf(t.fields.type), t.begin,
                  {{"peer", link.connection->peer()},
                   {"channel", t.channel},
                   {"bytes", static_cast<std::int64_t>(t.fields.bytes)}});
    }
  }

  bool step(std::size_t proxy) {
    bool any = false;
    for (auto const& link : links.all()) {
      if (link->proxy != proxy) continue;
      std::uint64_t done = 0;
      try {
        done = link->connection->progress();
      } catch (Error const& error) {
        failed(*link, error);
      }
      any = any || done != link->done;
      link->done = done;
      if (!link->traced.empty()) traceEnded(*link);
    }
    for (auto const& channel : channels.all()) {
      auto& flushes = channel->flushes;
      if (channel->link.proxy != proxy || flushes.empty()) continue;
      std::uint64_t complete = 0;
      for (; !flushes.empty() && flushes.front().posts <= channel->link.done; flushes.pop_front()) {
        complete = flushes.front().position + 1;
      }
      if (complete == 0) continue;
      storeShared(channel->flushed.get(), complete);
      any = true;
    }
    return any;
  }

  bool busy(std::size_t proxy) {
    for (auto const& link : links.all()) {
      if (link->proxy == proxy && link->done != link->connection->posted()) return true;
    }
    return false;
  }

  bool rest(std::size_t proxy) {
    std::vector<Connection const*> connections;
    for (auto const& link : links.all()) {
      if (link->proxy == proxy) connections.push_back(link->connection.get());
    }
    return restUntilReady(connections, restTime);
  }

  // Whoever waits for this rank on a channel of the proxy waits for nothing. All are told before any is waited for, so
  // that a peer which has stopped keeps the news from nobody.
  void abandon(std::size_t proxy) noexcept {
    std::vector<Connection*> telling;
    for (auto const& channel : channels.all()) {
      if (channel->link.proxy == proxy) channel->semaphore.abandon();
    }
    for (auto const& link : links.all()) {
      if (link->proxy == proxy) telling.push_back(link->connection.get());
    }
    Deadline const deadline(abandonTime);
    while (!telling.empty() && !deadline.expired()) {
      std::erase_if(telling, [this](Connection* connection) {
        try {
          return connection->progress() == connection->posted();
        } catch (std::exception const& error) {
          log(LogLevel::debug, "rank {}: {}", rank(), error.what());
          return true;
        }
      });
    }
  }

  template <class Act>
  void inContext(Channel const& channel, std::uint32_t id, char const* operation, Act&& act) {
    try {
      act();
    } catch (Error const& error) {
      fail(error.code(), "{} to rank {} on channel {}: {}", operation, channel.semaphore.peer(), id, error.what());
    }
  }

  [[noreturn]] void failed(Link const& link, Error const& error) {
    std::vector<std::size_t> ids;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      if (&channels[i].link == &link) ids.push_back(i);
    }
    fail(error.code(), "transfers to rank {} on channel{} {}: {}", link.connection->peer(), ids.size() == 1 ? "" : "s",
         fmt::join(ids, ", "), error.what());
  }

  void requireRoom(std::uint32_t count) {
    if (memories.size() + count <= memories.most) return;
    fail(ErrorCode::invalidUsage,
         "rank {}: {} more memories: the service has {}, and a trigger can name {}; register larger memories, or use a "
         "second service",
         rank(), count, memories.size(), memories.most);
  }
};

ProxyService::ProxyService(Communicator const& communicator) : ProxyService(communicator, Options()) {}

ProxyService::ProxyService(Communicator const& communicator, Options const& options)
    : impl_(std::make_shared<Impl>(communicator, CommunicatorImpl::of(communicator))) {
  if (options.proxies < 1) {
    fail(ErrorCode::invalidUsage, "rank {}: a ProxyService with {} proxies; it needs at least 1", communicator.rank(),
         options.proxies);
  }
  for (int i = 0; i < options.proxies; ++i) {
    auto const at = static_cast<std::size_t>(i);
    auto& impl = *impl_;
    impl.proxies.push_back(std::make_unique<Proxy>(
        communicator,
        [&impl](layout::Trigger const& trigger, std::uint64_t position) { return impl.handle(trigger, position); },
        ProxyOptions{.fifoSize = options.fifoSize, .id = static_cast<std::uint32_t>(i)},
        Proxy::Background{.step = [&impl, at] { return impl.step(at); },
                          .busy = [&impl, at] { return impl.busy(at); },
                          .rest = [&impl, at] { return impl.rest(at); },
                          .failed = [&impl, at] { impl.abandon(at); }}));
  }
}

ProxyService::~ProxyService() { stopProxy(); }

SemaphoreId ProxyService::addSemaphore(Host2DeviceSemaphore const& semaphore) {
  auto& impl = *impl_;
  std::lock_guard const lock(impl.adding);
  auto const id = impl.channels.size();
  if (id == impl.channels.most) {
    fail(ErrorCode::invalidUsage, "rank {}: addSemaphore: the service has {} semaphores, a trigger can name no more",
         impl.rank(), id);
  }
  auto const links = impl.links.all();
  auto const known = std::find_if(links.begin(), links.end(),
                                  [&](auto const& link) { return link->connection == semaphore.connection(); });
  auto& link =
      known != links.end() ? **known : impl.links.add(semaphore.connection(), links.size() % impl.proxies.size());
  impl.channels.add(semaphore, link, impl.communicator->machine);
  return static_cast<SemaphoreId>(id);
}

SemaphoreId ProxyService::buildAndAddSemaphore(std::shared_ptr<Connection> connection, int tag) {
  return addSemaphore(Host2DeviceSemaphore(impl_->owner, std::move(connection), tag));
}

MemoryId ProxyService::nextMemoryId(std::uint32_t count) const {
  impl_->requireRoom(count);
  return static_cast<MemoryId>(impl_->memories.size());
}

MemoryId ProxyService::addMemory(RegisteredMemory const& memory) {
  auto& impl = *impl_;
  if (!memory) fail(ErrorCode::invalidUsage, "rank {}: addMemory of an empty RegisteredMemory", impl.rank());
  std::lock_guard const lock(impl.adding);
  auto const id = nextMemoryId();
  impl.memories.add(memory);
  return id;
}

BasePortChannel ProxyService::basePortChannel(SemaphoreId semaphore) const {
  auto& channel = impl_->channelOf(semaphore);
  BasePortChannel result;
  result.keepAlive_ = impl_;
  result.handle_ = {.fifo = impl_->proxies[channel.link.proxy]->fifo().deviceHandle(),
                    .inbound = channel.semaphore.inbound(),
                    .expected = channel.semaphore.expected(),
                    .flushed = channel.flushed.get(),
                    .peer = channel.semaphore.peer(),
                    .semaphore = semaphore};
  return result;
}

PortChannel ProxyService::portChannel(SemaphoreId semaphore, MemoryId dst, MemoryId src) const {
  auto& channel = impl_->channelOf(semaphore);
  auto const& target = impl_->memoryOf(dst, "target");
  auto const& source = impl_->memoryOf(src, "source");
  impl_->inContext(channel, semaphore, "portChannel",
                   [&] { checkWrite(*channel.link.connection, target, 0, source, 0, 0); });
  PortChannel result;
  result.keepAlive_ = impl_;
  result.handle_ = {.base = basePortChannel(semaphore).deviceHandle(),
                    .dstMemory = dst,
                    .srcMemory = src,
                    .dstBytes = target.size(),
                    .srcBytes = source.size()};
  return result;
}

void ProxyService::startProxy() {
  for (auto const& proxy : impl_->proxies) proxy->start();
}

void ProxyService::stopProxy() noexcept {
  for (auto const& proxy : impl_->proxies) proxy->requestStop();
  for (auto const& proxy : impl_->proxies) proxy->stop();
}

bool ProxyService::progress(int proxy) {
  if (proxy < 0 || static_cast<std::size_t>(proxy) >= impl_->proxies.size()) {
    fail(ErrorCode::invalidUsage, "rank {}: progress of proxy {}; the service has {}, numbered from 0", impl_->rank(),
         proxy, impl_->proxies.size());
  }
  return impl_->proxies[static_cast<std::size_t>(proxy)]->progress();
}

}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/proxy.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/proxy/host_word.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {

namespace {

// Of the exception that is being handled, whatever it is: handlers are code of the user.
std::string whatWasThrown() {
  try {
    throw;
  } catch (std::exception const& error) {
    return error.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace

struct Proxy::Impl {
  std::shared_ptr<CommunicatorImpl> communicator;
  Handler handler;
  Background background;
  ProxyOptions options;
  Fifo fifo;
  HostWord stopWord;  // in memory of the machine, so that its scheduler sees who waits for it
  std::atomic<bool> failed{false};
  bool stopped = false;  // by its handler

  Impl(std::shared_ptr<CommunicatorImpl> with, Handler handle, ProxyOptions const& how, Background beside)
      : communicator(std::move(with)),
        handler(std::move(handle)),
        background(std::move(beside)),
        options(how),
        fifo(communicator->device, how.fifoSize, communicator->watch, how.id),
        stopWord(communicator->machine) {
    options.batch = std::clamp(options.batch, 1u, std::max(1u, fifo.size() / 2));
  }

  bool toStop() const { return loadShared(stopWord.get()) != 0; }
  bool busy() const { return background.busy && background.busy(); }
  bool rest() const { return background.rest && background.rest(); }

  bool progress() {
    std::uint32_t taken = 0;
    while (taken < options.batch && !stopped) {
      auto const trigger = fifo.poll();
      if (!trigger) break;
      auto const action = handler(*trigger, fifo.position());
      fifo.pop();
      ++taken;
      if (action == ProxyAction::stop) stopped = true;
    }
    fifo.publish();
    bool const stepped = background.step && background.step();
    return taken != 0 || stepped;
  }

  // No error may leave it: it is the frame of a thread.
  void main() {
    try {
      guarded([this] { untilStopped(); });
    } catch (HostThreadEnds const&) {
      throw;
    } catch (...) {
      log(LogLevel::error, "rank {}: proxy {}: {}", communicator->rank(), options.id, whatWasThrown());
    }
  }

  // What `act` throws becomes an error of the communicator.
  template <class Act>
  void guarded(Act&& act) {
    try {
      return act();
    } catch (Error const& error) {
      fault(error.code(), error.what());
    } catch (HostThreadEnds const&) {
      throw;
    } catch (...) {
      fault(ErrorCode::internalError, fmt::format("its handler threw: {}", whatWasThrown()));
    }
  }

  void fault(ErrorCode code, std::string const& what) {
    failed = true;
    communicator->reportFault(code, fmt::format("rank {}: proxy {} has failed at trigger {}: {}", communicator->rank(),
                                                options.id, fifo.position(), what));
    if (background.failed) background.failed();
  }

  void untilStopped() {
    unsigned rounds = 0;
    while (!stopped) {
      if (progress()) {
        rounds = 0;
        continue;
      }
      if (toStop()) break;
      bool const isBusy = busy();
      if (isBusy && rest()) continue;
      hostIdle([this] { return fifo.poll().has_value() || toStop(); }, isBusy, options.id, fifo.position(), rounds++);
    }
    finish();
  }

  // What is under way is brought to its end.
  void finish() {
    auto const limit = communicator->bootstrap->timeout();
    Deadline const deadline(limit);
    for (unsigned rounds = 0; progress() || busy(); ++rounds) {
      bool const hopeless = hostMostRounds() != 0 && rounds > hostMostRounds();
      if (hopeless || deadline.expired()) {
        fail(ErrorCode::timeout, "it was stopped, and what it had begun has not ended within {}", describe(limit));
      }
      rest();
    }
  }

  std::unique_ptr<HostThread> thread;
};

Proxy::Proxy(Communicator const& communicator, Handler handler, ProxyOptions const& options)
    : Proxy(communicator, std::move(handler), options, {}) {}

Proxy::Proxy(Communicator const& communicator, Handler handler, ProxyOptions const& options, Background background) {
  if (!handler) fail(ErrorCode::invalidUsage, "rank {}: a Proxy needs a handler", communicator.rank());
  impl_ =
      std::make_shared<Impl>(CommunicatorImpl::of(communicator), std::move(handler), options, std::move(background));
}

Proxy::~Proxy() { stop(); }

Fifo& Proxy::fifo() noexcept { return impl_->fifo; }
bool Proxy::running() const noexcept { return impl_->thread != nullptr; }

void Proxy::start() {
  auto& impl = *impl_;
  int const rank = impl.communicator->rank();
  if (impl.thread != nullptr) {
    fail(ErrorCode::invalidUsage, "rank {}: proxy {} is started already; stop it first", rank, impl.options.id);
  }
  if (impl.failed) {
    fail(ErrorCode::invalidUsage, "rank {}: proxy {} has failed and cannot be started again; make a new one", rank,
         impl.options.id);
  }
  impl.stopped = false;
  storeShared(impl.stopWord.get(), 0);
  impl.thread = impl.communicator->machine.startThread(
      impl.communicator->device.ordinal, fmt::format("proxy {}", impl.options.id), [&impl] { impl.main(); });
}

void Proxy::requestStop() noexcept {
  if (running()) storeShared(impl_->stopWord.get(), 1);
}

void Proxy::stop() noexcept {
  requestStop();
  impl_->thread.reset();
}

bool Proxy::progress() {
  auto& impl = *impl_;
  if (impl.thread != nullptr) {
    fail(ErrorCode::invalidUsage, "rank {}: progress() of proxy {}, which has a thread of its own",
         impl.communicator->rank(), impl.options.id);
  }
  bool any = false;
  impl.guarded([&] { any = impl.progress(); });
  return any;
}

}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/message_group.hpp"

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "collectives/call/call_check.hpp"
#include "collectives/call/call_record.hpp"
#include "collectives/call/message_ring.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"

namespace mscclpp {
namespace {

std::uint64_t bytesSent(std::vector<layout::Messages> const& rounds, int ranks) {
  std::uint64_t bytes = 0;
  for (auto const& round : rounds) {
    for (int peer = 0; peer < ranks; ++peer) bytes += round.hasSend(peer) ? round.send[peer].bytes : 0;
  }
  return bytes;
}

}  // namespace

MessageGroup::MessageGroup(PointToPoint const& links, Stream const& stream, std::uint32_t maxBlocks)
    : links_(links), stream_(stream), maxBlocks_(maxBlocks) {
  if (stream.device() == links.device()) return;
  fail(ErrorCode::invalidUsage, "rank {}: MessageGroup: the stream belongs to {} device {}, the links to {} device {}",
       links.rank(), nameOf(stream.device().kind), stream.device().ordinal, nameOf(links.device().kind),
       links.device().ordinal);
}

void MessageGroup::check(char const* what, void const* data, std::size_t bytes, int peer) const {
  if (peer < 0 || peer >= links_.size()) {
    fail(ErrorCode::invalidUsage, "rank {}: MessageGroup::{} of {} bytes with rank {}; there are ranks 0 to {}",
         links_.rank(), what, bytes, peer, links_.size() - 1);
  }
  if (data == nullptr && bytes != 0) {
    fail(ErrorCode::invalidUsage, "rank {}: MessageGroup::{} of {} bytes with rank {}: the buffer is a null pointer",
         links_.rank(), what, bytes, peer);
  }
}

MessageGroup& MessageGroup::send(void const* data, std::size_t bytes, int peer) {
  check("send", data, bytes, peer);
  auto const round = sends_[peer]++;
  if (round >= rounds_.size()) rounds_.resize(round + 1);
  rounds_[round].addSend(peer, data, bytes);
  return *this;
}

MessageGroup& MessageGroup::recv(void* data, std::size_t bytes, int peer) {
  check("recv", data, bytes, peer);
  auto const round = recvs_[peer]++;
  if (round >= rounds_.size()) rounds_.resize(round + 1);
  rounds_[round].addRecv(peer, data, bytes);
  return *this;
}

void MessageGroup::start(int blocks, int threads) {
  auto const& layout = links_.deviceHandle().layout;
  int const rank = links_.rank();
  auto const rounds = std::exchange(rounds_, {});
  sends_.clear();
  recvs_.clear();
  for (auto const& round : rounds) {
    bool const sends = round.hasSend(rank);
    bool const recvs = round.hasRecv(rank);
    if (sends != recvs) {
      fail(ErrorCode::invalidUsage,
           "rank {}: MessageGroup::start: a {} with the own rank, and no {} that meets it in the group", rank,
           sends ? "send" : "recv", sends ? "recv" : "send");
    }
    if (sends && round.send[rank].bytes != round.recv[rank].bytes) {
      fail(ErrorCode::invalidUsage,
           "rank {}: MessageGroup::start: {} bytes sent to the own rank, where {} are to be received", rank,
           round.send[rank].bytes, round.recv[rank].bytes);
    }
  }
  if (blocks < 0 || threads < 0 || (blocks != 0 && static_cast<std::uint32_t>(blocks) < layout::leastMessageBlocks)) {
    fail(ErrorCode::invalidUsage,
         "rank {}: MessageGroup::start with {} blocks of {} threads; "
         "give at least {} blocks, one that sends and one that receives, or 0",
         rank, blocks, threads, layout::leastMessageBlocks);
  }
  auto const* const kernel =
      KernelTable::instance().find({links_.device().kind, Collective::sendRecv, layout.lines != 0 ? "ll128" : "ll16",
                                    DataType::uint8, ReduceOp::none, links_.size()});
  if (kernel == nullptr) {
    fail(ErrorCode::unsupported,
         "rank {}: MessageGroup::start: this build of the library has no kernels for {} devices", rank,
         nameOf(links_.device().kind));
  }
  if (threads != 0 && (static_cast<unsigned>(threads) % kernel->minThreads != 0 ||
                       static_cast<unsigned>(threads) > kernel->maxThreads)) {
    fail(ErrorCode::invalidUsage,
         "rank {}: MessageGroup::start with blocks of {} threads; a multiple of {} up to {} is possible", rank, threads,
         kernel->minThreads, kernel->maxThreads);
  }
  auto* const record =
      collectives_impl::RecordedCall::on() ? &collectives_impl::recordOf(Collective::sendRecv, "messages") : nullptr;
  collectives_impl::RecordedCall const recorded(record, record != nullptr ? bytesSent(rounds, links_.size()) : 0);
  auto room = static_cast<std::uint32_t>(links_.device().properties().multiprocessors / links_.ranksPerDevice());
  if (maxBlocks_ != 0) room = std::min(room, maxBlocks_);
  for (auto const& round : rounds) {
    std::uint64_t largest = 0;
    std::uint32_t sends = 0;
    std::uint32_t recvs = 0;
    for (int peer = 0; peer < links_.size(); ++peer) {
      if (round.hasSend(peer)) largest = std::max(largest, round.send[peer].bytes);
      if (round.hasRecv(peer)) largest = std::max(largest, round.recv[peer].bytes);
      sends += round.hasSend(peer) ? 1 : 0;
      recvs += round.hasRecv(peer) ? 1 : 0;
    }
    auto shape = messageLaunchShape(*kernel, std::max(sends, recvs), layout.lanes, largest, room);
    if (blocks != 0) shape.blocks = static_cast<unsigned>(blocks);
    if (threads != 0) shape.threads = static_cast<unsigned>(threads);
    shape.overlapPrevious = kernel->overlaps && links_.ranksPerDevice() == 1;
    layout::TeamHandle const none{};
    kernel->start(
        {.stream = stream_, .team = none, .shape = shape, .links = &links_.handleFor(round), .messages = &round});
  }
}

LaunchShape messageLaunchShape(Kernel const& kernel, std::uint32_t peers, std::uint32_t lanes, std::uint64_t bytes,
                               std::uint32_t maxBlocks) {
  auto shape = kernel.shape(peers, std::min(bytes, layout::messagePart(lanes, bytes)), maxBlocks);
  auto const ends = 2 * std::max(peers, 1u) * layout::messageLanes(lanes, bytes);
  shape.blocks = std::max(std::min(shape.blocks, ends), layout::leastMessageBlocks);
  return shape;
}

std::shared_ptr<Algorithm> collectives_impl::messageRing() {
  static auto const ring = std::make_shared<NativeAlgorithm>(
      "messages", Collective::sendRecv,
      NativeFunctions{
          .initialize = {},
          .contextKey = {},
          .makeContext = [](Communicator const& communicator, CollectiveCall const&) -> std::shared_ptr<void> {
            return std::make_shared<PointToPoint>(communicator);
          },
          .run =
              [](std::shared_ptr<void> const& context, CollectiveCall const& call, Stream const& stream) {
                auto const& links = *static_cast<PointToPoint const*>(context.get());
                auto const ahead = (links.rank() + 1) % links.size();
                auto const behind = (links.rank() + links.size() - 1) % links.size();
                MessageGroup(links, stream)
                    .send(call.in, call.inBytes, ahead)
                    .recv(call.out, call.outBytes, behind)
                    .start(call.blocks, call.threads);
              },
          .refusal = [](World const& world, CollectiveCall const& call) -> std::string {
            checkCall(world, Collective::sendRecv, call);
            if (world.nodes != 1) {
              return "on several nodes two_level sends round the ring, in memory that all collectives share; choose it";
            }
            if (call.in == call.out && world.ranks > 1 && call.inBytes != 0) {
              return "it does not work in place; give an output of its own";
            }
            constexpr int least = layout::leastMessageBlocks;
            if (call.blocks != 0 && call.blocks < least) {
              return fmt::format("{} block; give at least {}, one that sends and one that receives, or 0", call.blocks,
                                 least);
            }
            return {};
          },
      });
  return ring;
}

}  // namespace mscclpp

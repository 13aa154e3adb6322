// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/verbs/verbs_queue.hpp"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/random.hpp"

namespace mscclpp {
namespace {

constexpr std::uint32_t deepest = 512;
// A completion per so many requests frees their places while later ones are on the way.
constexpr std::uint64_t completionInterval = 16;
// Devices reach their rate with less, and a lossy link would answer nothing for long about more.
constexpr std::uint64_t longest = std::uint64_t{1} << 20;
// Software devices take this as for ever. They count every lost packet up to the next acknowledgement, so with less a
// write of 1 MiB fails where some percent are lost. The connection has its own limit on silence.
constexpr int retries = 7;
constexpr std::uint8_t endlessReadyRetries = 7;  // the peer's receives are refilled

std::string_view nameOf(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_RDMA_WRITE:
      return "write";
    case IBV_WC_RDMA_READ:
      return "read";
    case IBV_WC_FETCH_ADD:
      return "atomic add";
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return "receive";
    default:
      return "request";
  }
}

std::string_view adviceFor(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer does not answer: its process has ended, its queue pair failed, or the link is cut";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the peer's memory is not registered there, or no longer: keep its RegisteredMemory as long as peers "
             "write "
             "it";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
      return "the source is not registered, or no longer: keep its RegisteredMemory until the post is complete";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair failed before this request was served";
    default:
      return "look at the device's counters and the kernel's log on both hosts";
  }
}

}  // namespace

VerbsQueue::VerbsQueue(std::shared_ptr<VerbsDevice> device, bool withReceives)
    : verbs_(Verbs::get()), device_(std::move(device)) {
  auto const& attributes = device_->attributes();
  depth_ = std::min<std::uint32_t>({deepest, static_cast<std::uint32_t>(std::max(attributes.max_qp_wr, 1)),
                                    static_cast<std::uint32_t>(std::max(attributes.max_cqe, 1))});
  auto const port = device_->portAttributes();
  longestMessage_ = std::min<std::uint64_t>(port.max_msg_sz == 0 ? longest : port.max_msg_sz, longest);
  try {
    sendCompletions_ = verbs_.createCq(device_->context(), static_cast<int>(depth_), nullptr, nullptr, 0);
    receiveCompletions_ = verbs_.createCq(device_->context(), receives, nullptr, nullptr, 0);
    if (sendCompletions_ == nullptr || receiveCompletions_ == nullptr) {
      throwSystemError(
          fmt::format("InfiniBand: make a completion queue of {} entries on {}", depth_, device_->describe()), errno);
    }
    ibv_qp_init_attr init{};
    init.send_cq = sendCompletions_;
    init.recv_cq = receiveCompletions_;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = static_cast<std::uint32_t>(depth_);
    init.cap.max_recv_wr = withReceives ? receives : 1;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = inlineBytes;
    pair_ = verbs_.createQp(device_->domain(), &init);
    if (pair_ == nullptr) {
      throwSystemError(
          fmt::format(
              "InfiniBand: make a queue pair of {} requests on {}; raise the limit on locked memory (ulimit -l)",
              depth_, device_->describe()),
          errno);
    }
    inlines_ = init.cap.max_inline_data >= inlineBytes;
    auto const key = randomKey();
    std::memcpy(&firstPacket_, key.data(), sizeof firstPacket_);
    firstPacket_ &= 0xffffff;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = 0;
    attr.port_num = static_cast<std::uint8_t>(device_->port());
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           (device_->atomics() ? IBV_ACCESS_REMOTE_ATOMIC : 0);
    modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "initialised");
  } catch (...) {
    destroy();
    throw;
  }
}

VerbsQueue::~VerbsQueue() { destroy(); }

void VerbsQueue::destroy() noexcept {
  if (pair_ != nullptr) verbs_.destroyQp(pair_);
  if (sendCompletions_ != nullptr) verbs_.destroyCq(sendCompletions_);
  if (receiveCompletions_ != nullptr) verbs_.destroyCq(receiveCompletions_);
}

std::string VerbsQueue::describe() const {
  return fmt::format("{}, {}, queue pair {}", who_, device_->describe(), pair_->qp_num);
}

VerbsQueueAddress VerbsQueue::address() const {
  VerbsQueueAddress address{};
  address.queuePair = pair_->qp_num;
  address.firstPacket = firstPacket_;
  std::memcpy(address.gid.data(), device_->gid().raw, address.gid.size());
  address.lid = device_->portAttributes().lid;
  address.mtu = static_cast<std::uint8_t>(device_->portAttributes().active_mtu);
  address.ethernet = device_->ethernet() ? 1 : 0;
  address.responderReads = static_cast<std::uint8_t>(std::clamp(device_->attributes().max_qp_rd_atom, 0, 255));
  return address;
}

void VerbsQueue::modify(ibv_qp_attr& attributes, int mask, char const* state) {
  if (int const error = verbs_.modifyQp(pair_, &attributes, mask); error != 0) {
    throwSystemError(fmt::format("{}: the queue pair cannot be {}; check that both ports are in one network and that "
                                 "the GID (index {}) fits the peer's (MSCCLPP_IB_GID_INDEX)",
                                 describe(), state, device_->gidIndex()),
                     error);
  }
}

void VerbsQueue::connect(std::string who, VerbsQueueAddress const& peer, std::chrono::nanoseconds limit) {
  who_ = std::move(who);
  auto const own = address();
  if (peer.ethernet != own.ethernet) {
    fail(ErrorCode::unsupported, "{}: this port is {}, the peer's is {}; choose devices of one kind (MSCCLPP_IB_HCA)",
         describe(), own.ethernet != 0 ? "Ethernet" : "InfiniBand", peer.ethernet != 0 ? "Ethernet" : "InfiniBand");
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu =
      static_cast<ibv_mtu>(std::clamp<std::uint8_t>(std::min(own.mtu, peer.mtu), IBV_MTU_256, IBV_MTU_4096));
  attr.dest_qp_num = peer.queuePair;
  attr.rq_psn = peer.firstPacket;
  attr.max_dest_rd_atomic = own.responderReads;
  attr.min_rnr_timer = 12;  // 0.64 ms
  attr.ah_attr.port_num = static_cast<std::uint8_t>(device_->port());
  attr.ah_attr.dlid = peer.lid;
  if (device_->ethernet() || peer.lid == 0) {
    attr.ah_attr.is_global = 1;
    std::memcpy(attr.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_->gidIndex());
    attr.ah_attr.grh.hop_limit = 64;
  }
  modify(attr,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "made ready to receive");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = own.firstPacket;
  // One attempt lasts 4.096 us times 2 to this power, and devices may take four times as long; all attempts together
  // shall not pass the limit.
  auto const units = static_cast<std::uint64_t>(limit / std::chrono::nanoseconds(4096)) / (4 * (retries + 1));
  attr.timeout = static_cast<std::uint8_t>(std::clamp<int>(static_cast<int>(std::bit_width(units)) - 1, 8, 18));
  attr.retry_cnt = retries;
  attr.rnr_retry = endlessReadyRetries;
  attr.max_rd_atomic = static_cast<std::uint8_t>(
      std::clamp<int>(std::min<int>(device_->attributes().max_qp_init_rd_atom, peer.responderReads), 1, 255));
  modify(attr,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
         "made ready to send");
}

void VerbsQueue::add(VerbsRequest const& request) {
  if (batch_.capacity() == 0) {
    batch_.reserve(batchSize);  // the requests point at each other and at their pieces
    pieces_.reserve(batchSize);
  }
  if (batch_.size() == batchSize) flush();
  pieces_.push_back({request.local, request.bytes, request.localKey});
  auto& work = batch_.emplace_back();
  work = {};
  work.wr_id = ++queued_;
  work.opcode = request.opcode;
  work.sg_list = request.bytes == 0 ? nullptr : &pieces_.back();
  work.num_sge = request.bytes == 0 ? 0 : 1;
  if (queued_ % completionInterval == 0) work.send_flags |= IBV_SEND_SIGNALED;
  if (request.inlined) work.send_flags |= IBV_SEND_INLINE;
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    work.wr.atomic.remote_addr = request.remote;
    work.wr.atomic.rkey = request.remoteKey;
    work.wr.atomic.compare_add = request.add;
  } else {
    work.wr.rdma.remote_addr = request.remote;
    work.wr.rdma.rkey = request.remoteKey;
    work.imm_data = htobe32(request.immediate);
  }
}

void VerbsQueue::flush() {
  if (batch_.empty()) return;
  for (std::size_t i = 0; i + 1 < batch_.size(); ++i) batch_[i].next = &batch_[i + 1];
  batch_.back().send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  int const error = ::ibv_post_send(pair_, batch_.data(), &refused);
  auto const count = batch_.size();
  batch_.clear();
  pieces_.clear();
  if (error != 0) {
    throwSystemError(
        fmt::format("{}: post {} requests ({} of {} outstanding)", describe(), count, queued_ - done_, depth_), error);
  }
}

void VerbsQueue::failCompletion(ibv_wc const& completion) const {
  fail(ErrorCode::remoteError, "{}: {} {} failed: {} (status {}, vendor {:#x}); {}", describe(),
       nameOf(completion.opcode), completion.wr_id, verbs_.wcStatusStr(completion.status),
       static_cast<int>(completion.status), completion.vendor_err, adviceFor(completion.status));
}

void VerbsQueue::poll() {
  if (done_ == queued_) return;
  std::array<ibv_wc, 32> completions;
  for (;;) {
    int const count = ::ibv_poll_cq(sendCompletions_, static_cast<int>(completions.size()), completions.data());
    if (count < 0) throwSystemError(fmt::format("{}: poll for completions", describe()), errno);
    for (int i = 0; i < count; ++i) {
      auto const& completion = completions[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) failCompletion(completion);
      done_ = completion.wr_id;  // a queue pair completes in order
    }
    if (count < static_cast<int>(completions.size())) return;
  }
}

void VerbsQueue::addReceive() {
  ibv_recv_wr work{};
  ibv_recv_wr* refused = nullptr;
  if (int const error = ::ibv_post_recv(pair_, &work, &refused); error != 0) {
    throwSystemError(fmt::format("{}: post a receive", describe()), error);
  }
}

std::vector<std::uint32_t> const& VerbsQueue::pollReceives() {
  immediates_.clear();
  std::array<ibv_wc, receives> completions;
  int const count = ::ibv_poll_cq(receiveCompletions_, static_cast<int>(completions.size()), completions.data());
  if (count < 0) throwSystemError(fmt::format("{}: poll for receives", describe()), errno);
  for (int i = 0; i < count; ++i) {
    auto const& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) {
      poll();  // the request that made the queue pair fail says more than a receive that went with it
      failCompletion(completion);
    }
    immediates_.push_back(be32toh(completion.imm_data));
  }
  return immediates_;
}

}  // namespace mscclpp

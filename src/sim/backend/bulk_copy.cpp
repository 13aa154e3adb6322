// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/bulk_copy.hpp"

#include "sim/machine/bulk_copies.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"

namespace mscclpp::sim {
namespace {

GpuThread& running(char const* operation) {
  auto& self = currentGpuThread(operation);
  if (self.cancelled) throw Unwind{};
  return self;
}

}  // namespace

void bulkStore(void* dst, void const* src, std::size_t bytes) {
  auto& self = running("bulkStore");
  self.block->bulkCopies().store(self, dst, src, bytes, {}, __builtin_return_address(0));
}

void bulkReduce(void* dst, void const* src, std::size_t bytes, unsigned unit,
                std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand)) {
  auto& self = running("bulkReduceAdd");
  self.block->bulkCopies().store(self, dst, src, bytes, {unit, combine}, __builtin_return_address(0));
}

void bulkCommit() {
  auto& self = running("bulkCommit");
  self.block->bulkCopies().commit(self);
}

void bulkWait(unsigned newest) {
  auto& self = running("bulkWait");
  self.block->bulkCopies().wait(self, newest, false);
}

void bulkWaitRead(unsigned newest) {
  auto& self = running("bulkWaitRead");
  self.block->bulkCopies().wait(self, newest, true);
}

void bulkFence() {
  auto& self = running("bulkFence");
  auto& machine = self.block->kernel().machine();
  machine.scheduler().memoryStep(self, {.kind = AccessKind::fence, .scope = Scope::block});
  if (self.agent != nullptr) machine.observer()->proxyFence(*self.agent);
}

void bulkLoad(void* dst, void const* src, std::size_t bytes, std::uint64_t* barrier) {
  auto& self = running("bulkLoad");
  self.block->bulkCopies().load(self, dst, src, bytes, barrier, __builtin_return_address(0));
}

void putCounted(void* dst, void const* value, std::size_t bytes, std::uint64_t* barrier) {
  auto& self = running("putCounted");
  self.block->bulkCopies().put(self, dst, value, bytes, barrier, __builtin_return_address(0));
}

void initBarrier(std::uint64_t* barrier, unsigned count) {
  auto& self = running("BulkBarrier::init");
  self.block->bulkCopies().initBarrier(self, barrier, count, __builtin_return_address(0));
}

void invalidateBarrier(std::uint64_t* barrier) {
  auto& self = running("BulkBarrier::invalidate");
  self.block->bulkCopies().invalidateBarrier(self, barrier, __builtin_return_address(0));
}

void arriveBarrier(std::uint64_t* barrier, unsigned expectedBytes) {
  auto& self = running("BulkBarrier::arrive");
  self.block->bulkCopies().arrive(self, barrier, expectedBytes, __builtin_return_address(0));
}

bool testBarrier(std::uint64_t* barrier, unsigned parity) {
  auto& self = running("BulkBarrier::wait");
  return self.block->bulkCopies().test(self, barrier, parity, __builtin_return_address(0));
}

std::uint32_t sharedOffset(void const* address) {
  return static_cast<std::uint32_t>(currentGpuThread("a shared address").block->sharedOffset(address));
}

}  // namespace mscclpp::sim

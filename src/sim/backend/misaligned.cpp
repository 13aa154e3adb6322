// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/misaligned.hpp"

#include <cstdint>

#include <fmt/format.h>

#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

// As GCC and Clang lay it out.
struct TypeName {
  std::uint16_t kind, info;
  char text[1];  // more of it follows; in quotation marks
};
struct MisalignedAccess {
  char const* file;
  std::uint32_t line, column;
  TypeName const* type;
  unsigned char alignmentBits;
  unsigned char kind;
};

}  // namespace

void misaligned(void const* access, void const* address) noexcept {
  auto* const task = currentTask();
  if (task == nullptr || !task->isGpuThread()) return;
  auto& self = static_cast<GpuThread&>(*task);
  if (self.ofHost) return;
  auto const& what = *static_cast<MisalignedAccess const*>(access);
  auto& kernel = self.block->kernel();
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  kernel.fail(fmt::format("block {} thread {}: {}:{} accesses {} at {}, which is not aligned to {}", self.context.block,
                          self.context.thread, what.file, what.line, what.type->text, kernel.machine().placeOf(where),
                          1u << what.alignmentBits));
  // The compiler expects no exception here.
  self.abandon();
}

}  // namespace mscclpp::sim

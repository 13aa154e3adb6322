// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/memory/access.hpp"

namespace mscclpp::sim {

bool WordUpdate::apply(std::uint64_t found, unsigned bytes, std::uint64_t& value) const {
  switch (kind) {
    case UpdateKind::add:
      value = found + operand;
      break;
    case UpdateKind::compareExchange:
      if (found != expected) return false;
      [[fallthrough]];
    case UpdateKind::exchange:
      value = operand;
      break;
    case UpdateKind::bitAnd:
      value = found & operand;
      break;
    case UpdateKind::bitOr:
      value = found | operand;
      break;
    case UpdateKind::bitXor:
      value = found ^ operand;
      break;
    case UpdateKind::bitNand:
      value = ~(found & operand);
      break;
    case UpdateKind::combine:
      value = combine(found, operand);
      break;
  }
  if (bytes < 8) value &= (std::uint64_t{1} << bytes * 8) - 1;
  return true;
}

}  // namespace mscclpp::sim

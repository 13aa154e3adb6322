// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What operators whose kernels are compiled at run time share: a call of their algorithms that brings what the operator
// says besides, and costs no allocation; and how kernels name their types.
#pragma once

#include <string>

#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/jit/source.hpp"

namespace mscclpp::torch {

template <class Details>
struct DetailedCall : CollectiveCall {
  Details const& details;

  // Of a call that was made as this; algorithms get it by reference.
  static Details const& of(CollectiveCall const& call) { return static_cast<DetailedCall const&>(call).details; }
};

inline std::string elementName(DataType type) {
  auto const instance = jit::instanceName("", type);  // "<float>"
  return instance.substr(1, instance.size() - 2);
}

}  // namespace mscclpp::torch

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <string>

#include "bindings.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::python {
namespace {

constexpr std::array codes{ErrorCode::invalidUsage, ErrorCode::systemError,  ErrorCode::deviceError,
                           ErrorCode::remoteError,  ErrorCode::timeout,      ErrorCode::aborted,
                           ErrorCode::unsupported,  ErrorCode::internalError};

// By code; of mscclpp/errors.py.
std::array<PyObject*, codes.size()> types{};

}  // namespace

void bindErrors(nb::module_& module) {
  module.def(
      "register_errors",
      [](nb::dict const& byName) {
        for (auto const code : codes) {
          nb::object const type = byName[std::string(nameOf(code)).c_str()];
          types[static_cast<std::size_t>(code)] = type.inc_ref().ptr();
        }
      },
      nb::arg("by_name"));
  nb::register_exception_translator([](std::exception_ptr const& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (Error const& error) {
      auto* const type = types[static_cast<std::size_t>(error.code())];
      PyErr_SetString(type == nullptr ? PyExc_RuntimeError : type, error.what());
    }
  });
}

}  // namespace mscclpp::python

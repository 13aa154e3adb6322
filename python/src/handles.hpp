// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Classes of Python for what kernels take by value: its bytes, and its members by name.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <type_traits>

namespace mscclpp::python {

namespace nb = nanobind;

template <class Handle>
class HandleClass {
  static_assert(std::is_trivially_copyable_v<Handle>);

 public:
  HandleClass(nb::module_& module, char const* name, char const* doc) : class_(module, name, doc) {
    class_.def_prop_ro(
        "raw", [](Handle const& self) { return nb::bytes(reinterpret_cast<char const*>(&self), sizeof self); },
        "The bytes that a kernel takes by value, or reads in memory of its device.");
  }
  // A member; pointers as numbers.
  template <auto Member>
  HandleClass& with(char const* name, char const* doc = "") {
    class_.def_prop_ro(
        name,
        [](Handle const& self) {
          auto const& value = self.*Member;
          if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>) {
            return reinterpret_cast<std::uintptr_t>(value);
          } else {
            return value;
          }
        },
        doc);
    return *this;
  }
  // A table of addresses, by rank.
  template <auto Table>
  HandleClass& withTable(char const* name, char const* doc) {
    class_.def_prop_ro(
        name,
        [](Handle const& self) {
          nb::typed<nb::list, std::uintptr_t> addresses;
          for (int i = 0; i < self.size; ++i) addresses.append(reinterpret_cast<std::uintptr_t>((self.*Table)[i]));
          return addresses;
        },
        doc);
    return *this;
  }

 private:
  nb::class_<Handle> class_;
};

}  // namespace mscclpp::python

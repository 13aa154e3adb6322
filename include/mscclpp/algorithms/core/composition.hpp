// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compositions with a name, as a list that is walked when the program is compiled: what a build offers of a collective
// is data, and tables of kernels, of names and of tests follow from it.
//
//   using AllReduceCompositions = CompositionList<Composition<"oneshot_ll8", OneShot, PacketTransport<LL8>>, ...>;
//   AllReduceCompositions::forEach([]<class C>() { ... C::name, typename C::Schedule, typename C::Transport ... });
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>

namespace mscclpp {

// A string literal as a template argument.
template <std::size_t Size>
struct FixedName {
  char text[Size]{};

  consteval FixedName(char const (&literal)[Size]) {
    for (std::size_t i = 0; i < Size; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return {text, Size - 1}; }
};

template <FixedName Name, class S, class T>
struct Composition {
  static constexpr std::string_view name = Name.view();
  using Schedule = S;
  using Transport = T;
};

template <class... C>
struct CompositionList {
  static constexpr std::size_t size = sizeof...(C);
  static constexpr std::array<std::string_view, size> names{C::name...};

  template <std::size_t Index>
  using At = std::tuple_element_t<Index, std::tuple<C...>>;

  // Calls f.template operator()<C>() for each.
  template <class F>
  static constexpr void forEach(F&& f) {
    (f.template operator()<C>(), ...);
  }

  static constexpr std::optional<std::size_t> indexOf(std::string_view wanted) {
    for (std::size_t i = 0; i < size; ++i) {
      if (names[i] == wanted) return i;
    }
    return std::nullopt;
  }
};

}  // namespace mscclpp

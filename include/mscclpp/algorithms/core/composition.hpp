// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compositions with a name and the collectives that they are for, as a list that is walked when the program is
// compiled: what a build offers is data, and tables of kernels, of names, of times and of tests follow from it.
//
//   using List = CompositionList<Composition<"oneshot_ll8", OneShot, PacketTransport<LL8>, For<allReduce>>, ...>;
//   List::forEach([]<class C>() { C::name, C::isFor(collective), typename C::Schedule, typename C::Transport });
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>

#include "mscclpp/algorithms/core/traits.hpp"

namespace mscclpp {

// A string literal as a template argument.
struct FixedName {
  static constexpr std::size_t room = 32;
  char text[room]{};

  template <std::size_t Size>
  consteval FixedName(char const (&literal)[Size]) {
    static_assert(Size <= room, "a name has at most 31 letters");
    for (std::size_t i = 0; i < Size; ++i) text[i] = literal[i];
  }
  // The letters, up to the first zero.
  constexpr std::string_view view() const { return text; }
};

// The collectives that a composition is for, as a type; has() tells whether one is among them.
template <Collective... C>
struct For {
  static constexpr bool has(Collective collective) { return ((collective == C) || ...); }
};

template <FixedName Name, class S, class T, class Collectives>
struct Composition {
  static constexpr std::string_view name = Name.view();
  using Schedule = S;
  using Transport = T;

  static constexpr bool isFor(Collective collective) { return Collectives::has(collective); }
};

template <class... C>
struct CompositionList {
  static constexpr std::size_t size = sizeof...(C);

  template <std::size_t Index>
  using At = std::tuple_element_t<Index, std::tuple<C...>>;

  // Calls f.template operator()<C>() for each.
  template <class F>
  static constexpr void forEach(F&& f) {
    (f.template operator()<C>(), ...);
  }
  // For those of a collective.
  template <Collective Of, class F>
  static constexpr void forEachOf(F&& f) {
    forEach([&]<class Each>() {
      if constexpr (Each::isFor(Of)) f.template operator()<Each>();
    });
  }
  // For the one of that collective and name; false where there is none.
  template <Collective Of, class F>
  static constexpr bool with(std::string_view name, F&& f) {
    bool found = false;
    forEachOf<Of>([&]<class Each>() {
      if (Each::name != name) return;
      f.template operator()<Each>();
      found = true;
    });
    return found;
  }

  // Where in the list, for At<>, the composition of that collective and name stands; nullopt where there is none.
  static constexpr std::optional<std::size_t> indexOf(Collective of, std::string_view name) {
    std::optional<std::size_t> result;
    std::size_t index = 0;
    forEach([&]<class Each>() {
      if (Each::isFor(of) && Each::name == name) result = index;
      ++index;
    });
    return result;
  }
};

}  // namespace mscclpp

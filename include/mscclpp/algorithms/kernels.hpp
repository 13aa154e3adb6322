// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each collective as a kernel of its own, called alike.
//
//   launch(stream, shape, CollectiveKernel<AllGather<OneExchange, PacketTransport<LL16>>, T>{},
//          in, out, count, root, team)
//   launch(stream, shape, DirectKernel<AllGather<PushSchedule, PeerMemory<>>, T>{},
//          in, out, count, root, team, inWindow, outWindow)
//
// `count` is the number of elements of the smaller buffer: of one rank's part where one buffer holds a part for every
// rank. `root` matters where there is one. DirectKernel's windows are symmetric memory in which `in` and `out` lie, at
// the same place on every rank; those that the collective does not need (needsInWindow, needsOutWindow) may be empty.
// With LaunchShape::overlapPrevious consecutive launches overlap their starts. Collectives over BulkMemory are launched
// with as much dynamic shared memory as it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/collective/allgather.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/collective/alltoall.hpp"
#include "mscclpp/algorithms/collective/reduce_scatter.hpp"
#include "mscclpp/algorithms/collective/rooted.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// A collective by what it is composed of.
template <Collective Of, class S, class Tr, class Op, int Ranks, class Acc>
struct CollectiveTemplate;
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::allReduce, S, Tr, Op, R, A> : std::type_identity<AllReduce<S, Tr, Op, R, A>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::reduceScatter, S, Tr, Op, R, A>
    : std::type_identity<ReduceScatter<S, Tr, Op, R, A>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::reduce, S, Tr, Op, R, A> : std::type_identity<Reduce<S, Tr, Op, R, A>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::allGather, S, Tr, Op, R, A> : std::type_identity<AllGather<S, Tr, R>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::allToAll, S, Tr, Op, R, A> : std::type_identity<AllToAll<S, Tr, R>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::broadcast, S, Tr, Op, R, A> : std::type_identity<Broadcast<S, Tr, R>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::scatter, S, Tr, Op, R, A> : std::type_identity<Scatter<S, Tr, R>> {};
template <class S, class Tr, class Op, int R, class A>
struct CollectiveTemplate<Collective::gather, S, Tr, Op, R, A> : std::type_identity<Gather<S, Tr, R>> {};

// Those that only move data take no notice of Op and Acc.
template <Collective Of, class S, class Tr, class Op = Sum, int Ranks = 0, class Acc = void>
using CollectiveOf = typename CollectiveTemplate<Of, S, Tr, Op, Ranks, Acc>::type;

// Whether a collective needs its input, its output in symmetric memory.
template <class C>
inline constexpr bool needsInWindow = windowsOf<typename C::Schedule, typename C::Transport>(C::collective).in;
template <class C>
inline constexpr bool needsOutWindow = windowsOf<typename C::Schedule, typename C::Transport>(C::collective).out;

namespace impl {

// What a kernel was given, as collective C takes it: a view, one of symmetric memory where it needs that, or just the
// address of a buffer with a part for each rank or a result, which only the root has.
template <class C, class T>
struct Operands {
  static constexpr BufferTraits inTraits = traitsOf(C::collective).in;
  static constexpr BufferTraits outTraits = traitsOf(C::collective).out;

  T const* in;
  T* out;
  std::size_t count;
  std::size_t ranks;

  MSCCLPP_DEVICE std::size_t elements(Extent extent) const {
    return extent == Extent::partPerRank ? count * ranks : count;
  }
  template <class... Window>
  MSCCLPP_DEVICE auto input(Window const&... window) const {
    if constexpr (needsInWindow<C>) {
      // Views are of T, though nobody writes to the input.
      return symmetric(in, elements(inTraits.extent), window...);
    } else if constexpr (inTraits.rootOnly && inTraits.extent == Extent::partPerRank) {
      return in;
    } else {
      return View<T const>{in, elements(inTraits.extent)};
    }
  }
  template <class... Window>
  MSCCLPP_DEVICE auto output(Window const&... window) const {
    if constexpr (needsOutWindow<C>) {
      return symmetric(out, elements(outTraits.extent), window...);
    } else if constexpr (outTraits.rootOnly) {
      return out;
    } else {
      return View<T>{out, elements(outTraits.extent)};
    }
  }

 private:
  // An address outside of the window gives an offset that the view's check refuses.
  MSCCLPP_DEVICE static SymmetricView<T> symmetric(T const* address, std::size_t elements,
                                                   layout::WindowHandle const& window) {
    auto const offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(window.bases[window.rank]);
    return {window, offset, elements};
  }
};

template <class C>
inline constexpr bool isRooted = traitsOf(C::collective).hasRoot();

template <class C, class In, class Out>
MSCCLPP_DEVICE void callOnGrid(DeviceTeam const& team, In const& in, Out const& out, [[maybe_unused]] int root) {
  if constexpr (isRooted<C>) {
    C{team}(thisGrid(), in, out, root);
  } else {
    C{team}(thisGrid(), in, out);
  }
}

}  // namespace impl

template <class Collective, class T>
struct CollectiveKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::size_t count, int root, DeviceTeam const& team) const {
    allowNextKernel();
    impl::Operands<Collective, T> const with{in, out, count, static_cast<std::size_t>(team.size)};
    impl::callOnGrid<Collective>(team, with.input(), with.output(), root);
    // The collective has waited, unless there was nothing to do; a kernel must not end before the one ahead of it.
    waitForPreviousKernel();
  }
};

template <class Collective, class T>
struct DirectKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::size_t count, int root, DeviceTeam const& team,
                                 layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) const {
    allowNextKernel();
    impl::Operands<Collective, T> const with{in, out, count, static_cast<std::size_t>(team.size)};
    impl::callOnGrid<Collective>(team, with.input(inWindow), with.output(outWindow), root);
    waitForPreviousKernel();
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

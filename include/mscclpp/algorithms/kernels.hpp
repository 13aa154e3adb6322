// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each collective as a kernel of its own, called alike.
//
//   launch(stream, shape, CollectiveKernel<AllGather<OneExchange, PacketTransport<LL16>>, T>{},
//          in, out, count, root, team)
//   launch(stream, shape, DirectKernel<AllGather<Push, PeerMemory<>>, T>{},
//          in, out, count, root, team, inWindow, outWindow)
//
// `count` is the number of elements of the smaller buffer: of one rank's part where one buffer holds a part for every
// rank. `root` matters where there is one. DirectKernel's windows are symmetric memory in which `in` and `out` lie, at
// the same place on every rank; those that the collective does not need (needsInWindow, needsOutWindow) may be empty.
// With LaunchShape::overlapPrevious consecutive launches overlap their starts. Collectives over BulkMemory are launched
// with as much dynamic shared memory as it says.
#pragma once

#include <cstddef>

#include "mscclpp/algorithms/collective/allgather.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/collective/alltoall.hpp"
#include "mscclpp/algorithms/collective/reduce_scatter.hpp"
#include "mscclpp/algorithms/collective/rooted.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Whether a collective needs its input, its output in symmetric memory.
template <class Collective>
inline constexpr bool needsInWindow = false;
template <class Collective>
inline constexpr bool needsOutWindow = false;
template <class S, class Tr, class Op, int R, class A>
inline constexpr bool needsInWindow<AllReduce<S, Tr, Op, R, A>> = DirectTransport<Tr>;
template <class S, class Tr, class Op, int R, class A>
inline constexpr bool needsOutWindow<AllReduce<S, Tr, Op, R, A>> =
    DirectTransport<Tr> || StagePieceTransport<Tr> || std::same_as<S, TwoShotPush>;
template <class S, class Tr, class Op, int R, class A>
inline constexpr bool needsInWindow<ReduceScatter<S, Tr, Op, R, A>> = DirectTransport<Tr>;
template <class S, class Tr, class Op, int R, class A>
inline constexpr bool needsInWindow<Reduce<S, Tr, Op, R, A>> = DirectTransport<Tr>;
template <class S, class Tr, class Op, int R, class A>
inline constexpr bool needsOutWindow<Reduce<S, Tr, Op, R, A>> = DirectTransport<Tr> || std::same_as<S, TwoShotPush>;
template <class S, class Tr, int R>
inline constexpr bool needsInWindow<Broadcast<S, Tr, R>> = DirectTransport<Tr> && !std::same_as<S, Chain>;
template <class S, class Tr, int R>
inline constexpr bool needsOutWindow<Broadcast<S, Tr, R>> = DirectTransport<Tr>;
template <class S, class Tr, int R>
inline constexpr bool needsOutWindow<AllGather<S, Tr, R>> = DirectTransport<Tr>;
template <class S, class Tr, int R>
inline constexpr bool needsOutWindow<AllToAll<S, Tr, R>> = DirectTransport<Tr>;
template <class S, class Tr, int R>
inline constexpr bool needsOutWindow<Scatter<S, Tr, R>> = DirectTransport<Tr>;
template <class S, class Tr, int R>
inline constexpr bool needsOutWindow<Gather<S, Tr, R>> = DirectTransport<Tr>;

namespace impl {

// What a kernel was given, as the collectives take it.
template <class T>
struct Operands {
  T const* in;
  T* out;
  std::size_t count;
  int root;
  std::size_t ranks;

  MSCCLPP_DEVICE View<T const> inPart() const { return {in, count}; }
  MSCCLPP_DEVICE View<T> outPart() const { return {out, count}; }
  MSCCLPP_DEVICE View<T const> inWhole() const { return {in, count * ranks}; }
  MSCCLPP_DEVICE View<T> outWhole() const { return {out, count * ranks}; }
};

template <class T>
struct DirectOperands : Operands<T> {
  layout::WindowHandle const& inWindow;
  layout::WindowHandle const& outWindow;

  MSCCLPP_DEVICE SymmetricView<T> symmetricIn(std::size_t elements) const {
    // Views are of T, though nobody writes to the input.
    return {inWindow, offsetIn(inWindow, this->in), elements};
  }
  MSCCLPP_DEVICE SymmetricView<T> symmetricOut(std::size_t elements) const {
    return {outWindow, offsetIn(outWindow, this->out), elements};
  }
  // An address outside of the window gives an offset that the view's check refuses.
  MSCCLPP_DEVICE static std::uint64_t offsetIn(layout::WindowHandle const& window, T const* address) {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(window.bases[window.rank]);
  }
};

// invoke(): calls a collective with what a kernel was given.
template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllReduce<S, Tr, Op, R, A> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inPart(), with.outPart());
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllGather<S, Tr, R> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inPart(), with.outWhole());
}
template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(ReduceScatter<S, Tr, Op, R, A> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inWhole(), with.outPart());
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllToAll<S, Tr, R> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inWhole(), with.outWhole());
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Broadcast<S, Tr, R> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inPart(), with.outPart(), with.root);
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Scatter<S, Tr, R> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.in, with.outPart(), with.root);
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Gather<S, Tr, R> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inPart(), with.out, with.root);
}
template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Reduce<S, Tr, Op, R, A> const& call, B const& blocks, Operands<T> const& with) {
  call(blocks, with.inPart(), with.out, with.root);
}

// This rank's part of the input, in symmetric memory where the collective needs it there.
template <class Collective, class T>
MSCCLPP_DEVICE auto partFor(DirectOperands<T> const& with) {
  if constexpr (needsInWindow<Collective>) {
    return with.symmetricIn(with.count);
  } else {
    return with.inPart();
  }
}

template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllReduce<S, Tr, Op, R, A> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, partFor<AllReduce<S, Tr, Op, R, A>>(with), with.symmetricOut(with.count));
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllGather<S, Tr, R> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, with.inPart(), with.symmetricOut(with.count * with.ranks));
}
template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(ReduceScatter<S, Tr, Op, R, A> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, with.symmetricIn(with.count * with.ranks), with.outPart());
}
template <class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(AllToAll<Push, Tr, R> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, with.inWhole(), with.symmetricOut(with.count * with.ranks));
}
template <class S, class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Broadcast<S, Tr, R> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, partFor<Broadcast<S, Tr, R>>(with), with.symmetricOut(with.count), with.root);
}
template <class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Scatter<Push, Tr, R> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, with.in, with.symmetricOut(with.count), with.root);
}
template <class Tr, int R, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Gather<Push, Tr, R> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, with.inPart(), with.symmetricOut(with.count * with.ranks), with.root);
}
template <class S, class Tr, class Op, int R, class A, BlockSet B, class T>
MSCCLPP_DEVICE void invoke(Reduce<S, Tr, Op, R, A> const& call, B const& blocks, DirectOperands<T> const& with) {
  call(blocks, partFor<Reduce<S, Tr, Op, R, A>>(with), with.symmetricOut(with.count), with.root);
}

}  // namespace impl

// Whether it goes through the switch, so that team and windows need multicast addresses.
template <class Tr>
inline constexpr bool throughSwitch = Tr::requirement(1, 1, 1).multicast != 0;

template <class Collective, class T>
struct CollectiveKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::size_t count, int root, DeviceTeam const& team) const {
    allowNextKernel();
    impl::invoke(Collective{team}, thisGrid(),
                 impl::Operands<T>{in, out, count, root, static_cast<std::size_t>(team.size)});
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
    impl::invoke(
        Collective{team}, thisGrid(),
        impl::DirectOperands<T>{{in, out, count, root, static_cast<std::size_t>(team.size)}, inWindow, outWindow});
    waitForPreviousKernel();
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a collective is composed of. An algorithm names a schedule, a transport, a reduction and an epilogue; each is a
// type that meets one of these concepts, and a user's own fits in beside ours.
//
// A transport moves payloads between the workspaces of a team. Its `Session` is made by every thread of the blocks that
// take part and addresses slots in rows: row r, slot s of a rank's workspace, written by one rank per round. The
// constructor touches no memory, so that whatever can be computed beforehand is, while the kernel ahead still runs.
//   open()                                   waits for that kernel, and begins to load the epoch. Called in the first
//                                            round, behind all that can be known without it
// A call of a collective goes through one or more rounds; in each:
//   beginRound()                             first use of the epoch
//   put(to, row, slot, payload, active)      writes a slot of the peer whose workspace that is
//   commit()                                 in the last round, once the puts are on their way: stores the epoch
//   exchange(phase)                          between the puts of a phase and the reads of what the peers put in it
//   receive(sources, values)                 reads own slots, waiting for those that need it
//   endRound()                               before the next round
// In every round each block receives at least one active slot from every peer: who writes a half of the workspace again
// must have heard from all that read it (device/epoch.hpp). Where a pair has nothing to exchange, a packet without
// data still goes both ways; `active` is for threads without data, not for peers without. The simulated machine refuses
// the next round with 'received nothing from rank'.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// A slot to receive: what `peer` put into it in this round. Where it is inactive, what becomes of its value is open.
struct Source {
  std::int32_t peer;
  std::uint32_t row;
  std::uint32_t slot;
  bool active;
};

// The calls above, of payloads of `Words` 32-bit words. rowSlots(): slots of a row in this block's part of a workspace.
// threads(): how many threads of the block, from the first on, move payloads.
template <class S, unsigned Words>
concept TransportSession = requires(S session, std::byte* to, Payload<Words> payload, Source (&sources)[2],
                                    Payload<Words> (&values)[2]) {
  { session.rowSlots() } -> std::same_as<std::uint32_t>;
  { session.threads() } -> std::same_as<std::uint32_t>;
  session.open();
  session.beginRound();
  session.put(to, 0u, 0u, payload, true);
  session.commit();
  session.exchange(0u);
  session.receive(sources, values);
  session.endRound();
};

// A type with a Session, and what schedules cut messages by:
//   words           of 32 bits, of a payload in registers
//   granule         bytes of one access to the user's buffers; elements are no larger
//   slotBytes       of a slot in the workspace; slotsFor(bytes) hold so much data
//   slotsPerGroup   slots that are exchanged together
//   unroll, batch   payloads of a thread in a round, and how many of them are folded at once, a divisor
//   signals         exchange() tells of whatever was stored before it, in the peers' own buffers too
template <class T>
concept SessionTransport = TransportSession<typename T::template Session<GridGroup>, T::words> && requires {
  { T::words } -> std::convertible_to<unsigned>;
  { T::granule } -> std::convertible_to<unsigned>;
  { T::slotBytes } -> std::convertible_to<unsigned>;
  { T::slotsPerGroup } -> std::convertible_to<unsigned>;
  { T::unroll } -> std::convertible_to<unsigned>;
  { T::batch } -> std::convertible_to<unsigned>;
  { T::signals } -> std::convertible_to<bool>;
  { T::slotsFor(std::uint64_t{}) } -> std::same_as<std::uint64_t>;
};

// A transport with one put for all ranks, putToAll(row, slot, payload, active), the own included: for schedules that
// send the same to all. They receive their own, too, so that nothing is on its way when a round ends.
template <class T>
inline constexpr bool putsToAll = false;
template <class T>
requires(T::toAll) inline constexpr bool putsToAll<T> = true;

// Peers whose payloads are in registers together; it pays to begin all reads before the first store.
template <class Tr, int Ranks>
inline constexpr int peersTogether = Ranks > 1 && (Ranks - 1) * static_cast<int>(Tr::unroll) <= 8 ? Ranks - 1 : 1;

// The epilogue that changes nothing.
struct Identity {};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

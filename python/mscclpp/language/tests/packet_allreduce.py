# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce of small messages in place, in two steps of packets: python packet_allreduce.py [RANKS] > plan.json."""

import sys

from mscclpp.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank


def packet_allreduce(name: str, ranks: int) -> str:
    """The plan. Each rank sums one part of the message and sends it to all. Packets tell by themselves when they are
    there, so nobody signals."""
    with CollectiveProgram(
        name,
        AllReduce(ranks, 1, inplace=True),
        ranks,
        protocol="LL",
        use_double_scratch_buffer=True,  # a call may begin while the other ranks still read what the one before sent
        max_message_size=2**20,
    ) as program:
        everyone = range(ranks)
        others = {rank: [peer for peer in everyone if peer != rank] for rank in everyone}
        parts = {rank: Buffer(rank, ranks) for rank in everyone}  # each peer's contribution
        sums = {rank: Buffer(rank, ranks) for rank in everyone}  # each peer's result
        channels = {(to, of): MemoryChannel(to, of) for of in everyone for to in others[of]}
        for rank in everyone:
            at, data = Rank(rank), Rank(rank).get_input_buffer()
            for peer in others[rank]:
                channels[peer, rank].put_packets(parts[peer][rank : rank + 1], data[peer : peer + 1], tb=0)
            own = data[rank : rank + 1]
            at.reduce(own, [parts[rank][peer : peer + 1] for peer in others[rank]], tb=0, packet=True)
            for peer in others[rank]:
                channels[peer, rank].put_packets(sums[peer][rank : rank + 1], own, tb=0)
            for peer in others[rank]:
                at.unpack_packets(data[peer : peer + 1], sums[rank][peer : peer + 1], tb=0)
        return program.to_json()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(packet_allreduce(f"packet_allreduce_{count}", count))

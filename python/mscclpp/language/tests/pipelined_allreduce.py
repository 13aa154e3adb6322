# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce of large messages in place, by two blocks in a pipeline: pipelined_allreduce.py [RANKS] > plan.json."""

import sys

from mscclpp.language import (
    AllReduce,
    Buffer,
    CollectiveProgram,
    LoopIterationContext,
    MemoryChannel,
    Rank,
    Semaphore,
    SyncType,
)


def pipelined_allreduce(name: str, ranks: int) -> str:
    """The plan. A loop takes a piece of each chunk at a time: block 0 sends it to the ranks that sum it, while block 1
    sums the piece before, and sends the sum to all."""
    with CollectiveProgram(name, AllReduce(ranks, 1, inplace=True), ranks) as program:
        everyone = range(ranks)
        others = {rank: [peer for peer in everyone if peer != rank] for rank in everyone}
        parts = {rank: Buffer(rank, ranks) for rank in everyone}  # each peer's contribution to this rank's sum
        give = {(to, of): MemoryChannel(to, of) for of in everyone for to in others[of]}  # of block 0
        back = {(to, of): MemoryChannel(to, of) for of in everyone for to in others[of]}  # of block 1
        sent = {rank: Semaphore(rank, 0) for rank in everyone}
        for rank in everyone:
            at, data = Rank(rank), Rank(rank).get_input_buffer()
            own = data[rank : rank + 1]
            for peer in others[rank]:
                give[peer, rank].signal(tb=0, relaxed=True)  # the call has begun here: you may write
            for peer in others[rank]:
                give[peer, rank].wait(tb=0, relaxed=True, data_sync=SyncType.after)
            with LoopIterationContext(unit=2**16, num_chunks=1):
                for peer in others[rank]:
                    give[peer, rank].put(parts[peer][rank : rank + 1], data[peer : peer + 1], tb=0)
                    give[peer, rank].signal(tb=0, data_sync=SyncType.before)
                for peer in others[rank]:
                    give[peer, rank].wait(tb=0, data_sync=SyncType.after)
                sent[rank].release(tb=0)
                sent[rank].acquire(tb=1, data_sync=SyncType.after)
                at.reduce(own, [parts[rank][peer : peer + 1] for peer in others[rank]], tb=1)
                for peer in others[rank]:
                    back[peer, rank].put(Rank(peer).get_input_buffer()[rank : rank + 1], own, tb=1)
            for peer in others[rank]:
                back[peer, rank].signal(tb=1, data_sync=SyncType.before)
            for peer in others[rank]:
                back[peer, rank].wait(tb=1, data_sync=SyncType.after)
        return program.to_json()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    print(pipelined_allreduce(f"pipelined_allreduce_{count}", count))

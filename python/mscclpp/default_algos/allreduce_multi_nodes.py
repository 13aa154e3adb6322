# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-reduce of small messages over several nodes, in place, by packets."""

from __future__ import annotations

from ..language import (
    AlgoSpec,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
    ThreadBlockGroup,
)
from ..errors import InvalidUsage

__all__ = ["allreduce_multi_nodes"]


def allreduce_multi_nodes(spec: AlgoSpec, thread_block_group_size: int = 1) -> CollectiveProgram:
    """Each rank combines one part of its node's messages, exchanges it with the ranks of its place on the other nodes,
    and hands the result to its node. `thread_block_group_size`: blocks that share what one does with one rank.

    A message is cut into a part for each rank of a node: spec.collective is AllReduce(spec.nranks_per_node, 1, True).
    """
    local, nodes = spec.nranks_per_node, spec.world_size // spec.nranks_per_node
    if local < 2 or nodes < 2 or local * nodes != spec.world_size:
        raise InvalidUsage(f"allreduce_multi_nodes: {spec.world_size} ranks on nodes of {local}; 2 nodes of 2 at least")
    parts = range(local)

    def team(index: int) -> ThreadBlockGroup:
        first = index * thread_block_group_size
        return ThreadBlockGroup(list(range(first, first + thread_block_group_size)))

    with CollectiveProgram.from_spec(spec) as program:
        ranks = range(spec.world_size)
        mine = lambda rank: rank % local  # noqa: E731  the part that a rank combines
        neighbours = {rank: [rank - mine(rank) + part for part in parts if part != mine(rank)] for rank in ranks}
        partners = {rank: [node * local + mine(rank) for node in range(nodes) if node != rank // local] for rank in ranks}
        # Of each rank: a slot for each neighbour's packets, one to send to partners from, one for each of theirs, and one
        # for each neighbour's result.
        gathered = {rank: Buffer(rank, local) for rank in ranks}
        own = {rank: Buffer(rank, 1) for rank in ranks}
        exchanged = {rank: Buffer(rank, nodes) for rank in ranks}
        results = {rank: Buffer(rank, local) for rank in ranks}
        memory = {(to, of): MemoryChannel(to, of) for of in ranks for to in neighbours[of]}
        ports = {(to, of): PortChannel(to, of) for of in ranks for to in partners[of]}
        combine = team(local - 1)

        for rank in ranks:
            at, part, node = Rank(rank), mine(rank), rank // local
            data = at.get_input_buffer()
            for block, peer in enumerate(neighbours[rank]):
                theirs = data[mine(peer) : mine(peer) + 1]
                memory[peer, rank].put_packets(gathered[peer][part : part + 1], theirs, tb_group=team(block))
            slots = [gathered[rank][mine(peer) : mine(peer) + 1] for peer in neighbours[rank]]
            here = data[part : part + 1]
            at.reduce(here, slots, tb_group=combine, packet=True)
            at.copy_packets(own[rank][0:1], here, tb_group=combine)
            at.barrier(combine.tb_list)
            for peer in partners[rank]:
                to = exchanged[peer][node : node + 1]
                ports[peer, rank].put_packets(to, own[rank][0:1], tb=combine.tb_list[0])
            slots = [exchanged[rank][peer // local : peer // local + 1] for peer in partners[rank]]
            at.reduce(here, slots, tb_group=combine, packet=True)
            for peer in neighbours[rank]:
                memory[peer, rank].put_packets(results[peer][part : part + 1], here, tb_group=combine)
            for block, peer in enumerate(neighbours[rank]):
                slot = results[rank][mine(peer) : mine(peer) + 1]
                at.unpack_packets(data[mine(peer) : mine(peer) + 1], slot, tb_group=team(block))
    return program

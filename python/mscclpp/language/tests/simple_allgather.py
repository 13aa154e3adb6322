# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from mscclpp.language import *


def simple_allgather(name):
    """
    A simple AllGather implementation using the MSCCL++ DSL.

    This example demonstrates a 2-GPU AllGather where each GPU sends
    its data to all other GPUs, so all GPUs end up with everyone's data.

    Args:
        name: Algorithm name for identification
    """
    num_gpus = 2
    chunk_factor = 1  # Split data into num_gpus chunks

    # Define the collective operation
    collective = AllGather(num_gpus, chunk_factor, inplace=True)

    # Create the program context
    with CollectiveProgram(
        name,
        collective,
        num_gpus,
        protocol="Simple",  # Use Simple protocol (vs "LL" for low-latency)
        min_message_size=0,
        max_message_size=2**30  # 1GB
    ):
        # Loop over each source GPU rank
        for src_rank in range(num_gpus):
            # Create a Rank object for the source GPU
            rank = Rank(src_rank)
            # Get the output buffer where the data is stored
            src_buffer = rank.get_output_buffer()
            # Take a slice corresponding to this rank's data
            src_chunk = src_buffer[src_rank:src_rank + 1]

            # Loop over each destination GPU rank
            for dst_rank in range(num_gpus):
                # Skip sending from a rank to itself
                if src_rank != dst_rank:
                    # Create a Rank object for the destination GPU
                    dst_rank_obj = Rank(dst_rank)
                    # Get the destination buffer where data will be sent
                    dst_buffer = dst_rank_obj.get_output_buffer()
                    # Take a slice where the data will be placed
                    dst_chunk = dst_buffer[src_rank:src_rank + 1]

                    # Define a channel from src_rank → dst_rank
                    channel = MemoryChannel(dst_rank, src_rank)

                    # Step 1: Source signals it is ready to send data
                    channel.signal(tb=0, relaxed=True)

                    # Step 2: Wait for destination to be ready
                    channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)

                    # Step 3: Source rank sends data to destination rank
                    channel.put(dst_chunk, src_chunk, tb=0)

                    # Step 4: Signal that put operation is complete
                    channel.signal(tb=0, data_sync=SyncType.before)

                    # Step 5: Wait for acknowledgment
                    channel.wait(tb=0, data_sync=SyncType.after)

        print(JSON())


simple_allgather("simple_allgather_2gpus")

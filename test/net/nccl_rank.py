#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One rank of an NCCL communicator over several hosts, with a simulated GPU: collectives and messages through NCCL's
# functions, against what must come out. Ends with 0 where all was well, else prints what was not and ends with 1.
#
#   nccl_rank.py LIBRARY id                            prints an id, on the host of rank 0
#   nccl_rank.py LIBRARY ID RANK RANKS DEVICE [loop]   `loop`: messages until something fails, which it prints
"""A rank that speaks NCCL."""

import ctypes
import sys

INT32, FLOAT32 = 2, 7
SUM = 0
COUNT = 20000


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Rank:
    def __init__(self, library, identity, rank, ranks, device):
        self.library, self.rank, self.ranks = library, rank, ranks
        library.mscclppNcclSimSetDevice(device)
        self.comm = ctypes.c_void_p()
        self.call("CommInitRank", ctypes.byref(self.comm), ctypes.c_int(ranks), identity, ctypes.c_int(rank))
        self.stream = ctypes.c_void_p(library.mscclppNcclSimCreateStream())

    def call(self, name, *arguments):
        if getattr(self.library, f"nccl{name}")(*arguments) != 0:
            raise RuntimeError(f"nccl{name}: {self.library.ncclGetLastError(None).decode()}")

    def buffer(self, values):
        """Of the simulated device, whose memory is the host's, too."""
        place = ctypes.c_void_p()
        self.call("MemAlloc", ctypes.byref(place), ctypes.c_size_t(4 * max(len(values), 1)))
        memory = (ctypes.c_int32 * len(values)).from_address(place.value)
        memory[:] = values
        return memory

    def values(self, rank, count):
        return [rank * 1000 + i % 997 for i in range(count)]

    def wait(self):
        self.library.mscclppNcclSimSynchronizeStream(self.stream)
        error = ctypes.c_int()
        self.call("CommGetAsyncError", self.comm, ctypes.byref(error))
        if error.value != 0:
            raise RuntimeError(f"error {error.value}: {self.library.ncclGetLastError(self.comm).decode()}")

    def all_reduce(self, count):
        data = self.buffer(self.values(self.rank, count))
        self.call("AllReduce", data, data, ctypes.c_size_t(count), INT32, SUM, self.comm, self.stream)
        self.wait()
        return list(data) == [sum(rank * 1000 + i % 997 for rank in range(self.ranks)) for i in range(count)]

    def all_gather(self, count):
        data, everything = self.buffer(self.values(self.rank, count)), self.buffer([0] * count * self.ranks)
        self.call("AllGather", data, everything, ctypes.c_size_t(count), INT32, self.comm, self.stream)
        self.wait()
        return list(everything) == [value for rank in range(self.ranks) for value in self.values(rank, count)]

    def messages(self, count):
        """Every rank to every rank, itself included, each pair with a count of its own."""
        counts = [[(count + 7 * source + 3 * target) % (count + 1) for target in range(self.ranks)]
                  for source in range(self.ranks)]
        out = [self.buffer(self.values(self.rank + target, counts[self.rank][target])) for target in range(self.ranks)]
        into = [self.buffer([0] * counts[source][self.rank]) for source in range(self.ranks)]
        self.call("GroupStart")
        for peer in range(self.ranks):
            for name, buffer in (("Send", out[peer]), ("Recv", into[peer])):
                self.call(name, buffer, ctypes.c_size_t(len(buffer)), INT32, peer, self.comm, self.stream)
        self.call("GroupEnd")
        self.wait()
        return all(list(into[source]) == self.values(source + self.rank, counts[source][self.rank])
                   for source in range(self.ranks))

    def run(self):
        wrong = 0
        for count in (1, 1001, COUNT):
            for what in (self.all_reduce, self.all_gather, self.messages):
                if not what(count):
                    print(f"{what.__name__} of {count} is wrong", flush=True)
                    wrong += 1
        self.call("CommDestroy", self.comm)
        print(f"rank {self.rank}: 9 calls, {wrong} wrong")
        return 0 if wrong == 0 else 1

    def loop(self):
        print("begins", flush=True)
        while self.messages(COUNT):
            pass
        return 1


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.mscclppNcclSimCreateStream.restype = ctypes.c_void_p
    library.mscclppNcclSimSynchronizeStream.argtypes = [ctypes.c_void_p]
    library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclGetLastError.argtypes = [ctypes.c_void_p]
    library.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
    identity = Id()
    if sys.argv[2] == "id":
        if library.ncclGetUniqueId(ctypes.byref(identity)) != 0:
            sys.exit(library.ncclGetLastError(None).decode())
        print(bytes(identity).hex())
        return 0
    ctypes.memmove(ctypes.byref(identity), bytes.fromhex(sys.argv[2]), 128)
    rank, ranks, device = (int(text) for text in sys.argv[3:6])
    try:
        job = Rank(library, identity, rank, ranks, device)
        return job.loop() if sys.argv[6:] == ["loop"] else job.run()
    except RuntimeError as error:
        print(error, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())

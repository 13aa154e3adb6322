# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank's group of ranks: collectives of whole arrays over it, and channels for kernels of users."""

from __future__ import annotations

import threading
from typing import Any, Callable, Collection, Mapping, Optional, Union

from . import _mscclpp
from ._mscclpp import (
    AlgorithmCollection,
    Bootstrap,
    Communicator,
    Connection,
    DataType,
    Device,
    Host2DeviceSemaphore,
    MemoryChannel,
    PortChannel,
    ProxyService,
    ReduceOp,
    RegisteredMemory,
    Transport,
)
from .errors import Aborted, InvalidUsage, RemoteError


def _device_of(device: Union[Device, str, None]) -> Device:
    if device is None:
        return Device.current()
    return Device(device) if isinstance(device, str) else device


def _join_torch(group: Any) -> Bootstrap:
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    ids = [_mscclpp.create_unique_id() if dist.get_rank(group) == 0 else None]
    dist.broadcast_object_list(ids, src=dist.get_global_rank(group, 0), group=group)
    return _mscclpp.join_by_id(dist.get_rank(group), dist.get_world_size(group), ids[0])


class CommGroup:
    """The ranks that work together, from one of them.

    Without arguments: the ranks that torchrun, mpirun or srun has started. Else `mpi_comm` of mpi4py, `torch_group` of
    torch.distributed, or an address where rank 0 listens, as interface:ip:port, ip:port or [ipv6]:port, with this rank
    and the number of ranks. `device`: 'cuda:1', 'sim', ...; left out: Device.current().

    Making one is collective. `communicator` is what algorithms and executors take.
    """

    def __init__(
        self,
        mpi_comm: Any = None,
        torch_group: Any = None,
        interfaceIpPortTrio: str = "",  # pylint: disable=invalid-name
        rank: Optional[int] = None,
        size: Optional[int] = None,
        device: Union[Device, str, None] = None,
        timeout: Optional[float] = None,
    ):
        if interfaceIpPortTrio:
            if rank is None or size is None:
                raise InvalidUsage("CommGroup: an address needs `rank` and `size` beside it")
            bootstrap = _mscclpp.join(rank, size, interfaceIpPortTrio, timeout)
        elif mpi_comm is not None:
            own = mpi_comm.Get_rank()
            identity = mpi_comm.bcast(_mscclpp.create_unique_id() if own == 0 else None, 0)
            bootstrap = _mscclpp.join_by_id(own, mpi_comm.Get_size(), identity, timeout)
        elif torch_group is not None:
            bootstrap = _join_torch(torch_group)
        else:
            bootstrap = _mscclpp.join_launched(timeout)
        self._start(Communicator(bootstrap, _device_of(device)))

    @classmethod
    def of(cls, communicator: Communicator) -> CommGroup:
        """The group of a communicator that is there."""
        group = cls.__new__(cls)
        group._start(communicator)
        return group

    def _start(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.bootstrap = communicator.bootstrap
        self.my_rank = communicator.rank
        self.nranks = communicator.size
        self.nranks_per_node = self.bootstrap.ranks_per_node
        self.algorithms = AlgorithmCollection.defaults()

    @property
    def device(self) -> Device:
        """Where this rank's kernels run."""
        return self.communicator.device

    def barrier(self) -> None:
        """Returns when all ranks have called it. Does not wait for streams."""
        self.bootstrap.barrier()

    def send(self, data: bytes, peer: int, tag: int = 0) -> None:
        """Sends bytes of the host to another rank's recv()."""
        self.bootstrap.send(bytes(data), peer, tag)

    def recv(self, peer: int, tag: int = 0) -> bytes:
        """The bytes that `peer` sent with this tag."""
        return self.bootstrap.recv(peer, tag)

    def synchronize(self, stream: int = 0) -> None:
        """Waits for a stream and raises what this rank's kernels have reported."""
        self.communicator.synchronize(stream)

    # ---- collectives of arrays ---------------------------------------------------------------------------------------
    #
    # Of any library that has DLPack, contiguous, on this rank's GPU; on the simulated machine CPU arrays. `stream` is a
    # cudaStream_t as a number.

    def all_reduce(self, array: Any, out: Any = None, op: ReduceOp = ReduceOp.SUM, stream: int = 0) -> Any:
        """`out`, or else `array`, becomes the combination of all ranks' `array`. Returns it."""
        return self._call("allreduce", array, array if out is None else out, stream, op=op)

    def all_gather(self, array: Any, out: Any, stream: int = 0) -> Any:
        """`out` becomes all ranks' `array`, one behind the other. Returns it."""
        return self._call("allgather", array, out, stream)

    def reduce_scatter(self, array: Any, out: Any, op: ReduceOp = ReduceOp.SUM, stream: int = 0) -> Any:
        """`out` becomes this rank's part of the combination of all ranks' `array`. Returns it."""
        return self._call("reducescatter", array, out, stream, op=op)

    def all_to_all(self, array: Any, out: Any, stream: int = 0) -> Any:
        """Part p of `array` goes to rank p, where it becomes part `my_rank` of `out`. Returns it."""
        return self._call("alltoall", array, out, stream)

    def broadcast(self, array: Any, root: int = 0, stream: int = 0) -> Any:
        """`array` becomes that of `root`. Returns it."""
        return self._call("broadcast", array, array, stream, root=root)

    def reduce(self, array: Any, root: int = 0, op: ReduceOp = ReduceOp.SUM, stream: int = 0) -> Any:
        """On `root`, `array` becomes the combination of all ranks'. Returns it."""
        return self._call("reduce", array, array, stream, op=op, root=root)

    def _call(
        self, collective: str, array: Any, out: Any, stream: int, op: ReduceOp = ReduceOp.NOP, root: int = 0
    ) -> Any:
        pointer, size, dtype = self._usable(collective, array)
        to, out_size, out_dtype = (pointer, size, dtype) if out is array else self._usable(collective, out)
        if dtype != out_dtype:
            raise InvalidUsage(f"rank {self.my_rank}: {collective} of {dtype.name} into an array of {out_dtype.name}")
        self.algorithms.execute(
            collective, self.communicator, pointer, to, size, out_size, dtype, op=op, stream=stream, root=root
        )
        return out

    def _usable(self, collective: str, array: Any) -> tuple[int, int, DataType]:
        pointer, size, dtype, cuda = _mscclpp.describe_array(array)
        device = self.device
        wanted = device.ordinal if device.kind == "cuda" else -1
        if cuda != wanted:
            there = "the CPU" if cuda < 0 else f"cuda:{cuda}"
            needed = "the CPU, since its device is simulated" if wanted < 0 else f"cuda:{wanted}"
            raise InvalidUsage(f"rank {self.my_rank}: {collective} of an array on {there}; this group needs {needed}")
        return pointer, size, dtype

    # ---- channels of arrays, by peer ---------------------------------------------------------------------------------
    #
    # `peers`: ranks, or what make_connection() returned, which ports need. Ranks that name each other make the same calls
    # in the same order. Arrays lie in memory of the device, such as GpuBuffer, and stay for as long as channels are used.

    def make_connection(self, peers: Collection[int], transport: Optional[Transport] = None) -> dict[int, Connection]:
        """For proxies."""
        return {peer: self.communicator.connect(peer, transport) for peer in peers}

    def make_semaphores(self, connections: Mapping[int, Connection]) -> dict[int, Host2DeviceSemaphore]:
        """Of port channels."""
        return {peer: Host2DeviceSemaphore(self.communicator, each) for peer, each in connections.items()}

    def register_tensor_with_connections(self, array: Any, peers: Collection[int]) -> dict[int, RegisteredMemory]:
        """The peers' arrays, and this rank's own."""
        own = self._registered(array, peers)
        for peer in peers:
            self.communicator.send_memory(own, peer)
        return {self.my_rank: own, **{peer: self.communicator.recv_memory(peer) for peer in peers}}

    def make_memory_channels(self, array: Any, peers: Collection[int]) -> dict[int, MemoryChannel]:
        """From `array` to the peers' `array`."""
        memory = self.register_tensor_with_connections(array, peers)
        return {peer: self._memory_channel(peer, memory[peer], memory[self.my_rank]) for peer in peers}

    def make_memory_channels_with_scratch(
        self, array: Any, scratch: Any, peers: Collection[int]
    ) -> dict[int, MemoryChannel]:
        """From `array` to the peers' `scratch`, where packets may come in, too."""
        memory, own = self.register_tensor_with_connections(scratch, peers), self._registered(array, peers)
        inbox = memory[self.my_rank].data()
        return {peer: self._memory_channel(peer, memory[peer], own, inbox) for peer in peers}

    def register_semaphore_with_proxy(
        self, service: ProxyService, connections: Mapping[int, Connection]
    ) -> dict[int, int]:
        """New semaphores' numbers in the service."""
        return {peer: service.build_and_add_semaphore(each) for peer, each in connections.items()}

    def register_memory_with_proxy(
        self, service: ProxyService, array: Any, connections: Mapping[int, Connection]
    ) -> dict[int, int]:
        """The numbers in the service of the peers' arrays, and of this rank's own."""
        memory = self.register_tensor_with_connections(array, connections)
        return {rank: service.add_memory(each) for rank, each in memory.items()}

    def make_port_channels(
        self, service: ProxyService, array: Any, connections: Mapping[int, Connection]
    ) -> dict[int, PortChannel]:
        """From `array` to the peers' `array`."""
        semaphores = self.register_semaphore_with_proxy(service, connections)
        memory = self.register_memory_with_proxy(service, array, connections)
        own = memory[self.my_rank]
        return {peer: service.port_channel(each, memory[peer], own) for peer, each in semaphores.items()}

    def make_port_channels_with_scratch(
        self, service: ProxyService, array: Any, scratch: Any, connections: Mapping[int, Connection]
    ) -> dict[int, PortChannel]:
        """From `array` to the peers' `scratch`."""
        semaphores = self.register_semaphore_with_proxy(service, connections)
        memory = self.register_memory_with_proxy(service, scratch, connections)
        own = service.add_memory(self._registered(array, connections))
        return {peer: service.port_channel(each, memory[peer], own) for peer, each in semaphores.items()}

    def _registered(self, array: Any, peers: Collection[int]) -> RegisteredMemory:
        pointer, size, _ = self._usable("registration", array)
        transports = {each.transport for each in peers.values()} if isinstance(peers, Mapping) else ()
        return self.communicator.register_memory(pointer, size, list(transports))

    def _memory_channel(
        self, peer: int, dst: RegisteredMemory, src: RegisteredMemory, packet_buffer: int = 0
    ) -> MemoryChannel:
        return MemoryChannel(self.communicator.build_semaphore(peer), dst, src, packet_buffer)


def run_ranks(
    ranks: int, rank_main: Callable[[CommGroup], Any], device: Optional[str] = None, limit: Optional[float] = None
) -> list:
    """Runs `rank_main` in a thread for each rank, rank r on device r, and returns what they returned, by rank.

    `device`: 'cuda' or 'sim'; left out: GPUs where there are enough, else simulated ones. `limit`: seconds that one wait
    inside a kernel may take. When a rank raises, the waits of the others end, and the first exception is raised here.
    """
    if ranks < 1:
        raise InvalidUsage(f"run_ranks: {ranks} ranks; at least 1")
    kind = device or ("cuda" if Device.count("cuda") >= ranks else "sim")
    there = Device.count(kind)
    if there < ranks:
        raise InvalidUsage(f"run_ranks: {ranks} ranks need as many devices; of {kind} there are {there}")
    results: list = [None] * ranks
    failures: list = []
    communicators: list = [None] * ranks
    lock = threading.Lock()

    def main(rank: int, bootstrap: Bootstrap) -> None:
        try:
            communicator = Communicator(bootstrap, Device(f"{kind}:{rank}"))
            if limit is not None:
                communicator.set_time_limit(limit)
            with lock:
                communicators[rank] = communicator
                failed = bool(failures)
            if failed:
                communicator.abort()
            results[rank] = rank_main(CommGroup.of(communicator))
        except BaseException as error:  # pylint: disable=broad-exception-caught
            with lock:
                failures.append(error)
                there_are = [each for each in communicators if each is not None]
            for each in there_are:
                each.abort()
            bootstrap.declare_lost(f"it raised {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=main, args=(rank, bootstrap), name=f"rank {rank}")
        for rank, bootstrap in enumerate(_mscclpp.local_bootstraps(ranks))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise _cause(failures)
    return results


def _cause(failures: list) -> BaseException:
    """What was raised first, other than because another rank had failed."""
    for failure in failures:
        if not isinstance(failure, (Aborted, RemoteError)):
            return failure
    return failures[0]

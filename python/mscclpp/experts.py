# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixtures of experts: tokens travel to the ranks of their experts, and what those make of them comes home.

    experts = mscclpp.ExpertParallel(group, experts=256, topk=8, tokens=128, hidden=7168, dtype="bfloat16")
    there = experts.dispatch(x, indices, weights)        # x: [tokens][hidden]; the others: [tokens][topk]
    results = work(there.rows, there.firsts, there.counts)
    y = experts.combine(results, indices)                # [tokens][hidden]

Arrays as those of CommGroup: of any library that has DLPack, contiguous, on this rank's GPU; on the simulated machine
CPU arrays. What calls make is of the library that x is of: PyTorch, NumPy, CuPy or GpuBuffer; for others give `out`.
NumPy and CuPy have no FP8: its bytes are uint8 there.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Optional

from . import _mscclpp
from ._mscclpp import DataType, ExpertOrder, ExpertTransport
from .buffer import GpuBuffer, data_type_of
from .errors import InvalidUsage
from .group import CommGroup

__all__ = ["Dispatched", "ExpertParallel"]

_FP8 = (DataType.float8_e4m3fn, DataType.float8_e5m2)
_NUMBERS = (DataType.int32, DataType.uint32)
_ORDERS = {"packed": ExpertOrder.packed, "padded": ExpertOrder.padded, "by_token": ExpertOrder.by_token}
_TRANSPORTS = {
    "automatic": ExpertTransport.automatic,
    "memory": ExpertTransport.memory,
    "packets": ExpertTransport.packets,
}


@dataclass
class Dispatched:
    """What a rank was sent, as arrays. In the order 'padded' `rows`, `scales`, `origins` and `weights` have a first
    dimension more, of this rank's experts. What nobody was sent for is as the memory was."""

    rows: Any  # [row][hidden], of the type on the way
    scales: Any = None  # [row][ceil(hidden / 128)] float32, where rows are quantised; a value is its number times it
    firsts: Any = None  # int32, of each of this rank's experts, its first row; by_token: of each source, and the end
    counts: Any = None  # int32, of each of this rank's experts, its number of rows; by_token: of tokens
    origins: Any = None  # [row] int32: source * limit of tokens + token
    weights: Any = None  # [row] float32; by_token: [row][topk], 0 where the expert is another rank's
    experts: Any = None  # by_token: [row][topk] int32, among this rank's experts; -1: another rank's
    dropped: Any = None  # [1] int32, to which rows are added for which there was no room
    unsent: Any = None  # [token][topk] uint8 of this rank's own: 1 where the expert's rank has failed, else 0


class ExpertParallel:
    """The ranks of a group with experts on each: rank r has those from r * ceil(experts / ranks) on.

    experts       of all ranks, up to 512
    topk          experts of a token, up to 16: the second dimension of indices and weights
    tokens        of a rank in a call, at most
    hidden        elements of a token
    dtype         of tokens and results: float32, float16 or bfloat16
    wire          of rows on their way to experts: the same, or for 16 bits float8_e4m3fn or int8, with scales
    part_of_each  each expert's row goes home by itself, and is weighted there by the weights of combine(); else a rank
                  adds up its experts' rows, weighted by the weights of dispatch(), and sends the sum. Over several hosts
                  one row comes from each: parts are added up there, by the weights of dispatch(), in both cases
    transport     'packets': rows travel as lines of which each tells that it has come; 'memory': as they are, some with a
                  flag; 'automatic': packets for up to 512 tokens, where links between GPUs deliver 128 bytes whole. The
                  results are the same
    blocks        of the kernels; left out: 132 on GPUs, 4 on the simulated machine

    Making one is collective, and all ranks ask for the same. It serves one batch, from its dispatch() to its combine();
    what was dispatched stays until the next dispatch(). Ranks make the same calls in the same order. Let it go when the
    calls of all ranks are done.
    """

    def __init__(
        self,
        group: CommGroup,
        *,
        experts: int,
        topk: int,
        tokens: int,
        hidden: int,
        dtype: Any,
        wire: Any = None,
        part_of_each: bool = False,
        transport: str = "automatic",
        blocks: Optional[int] = None,
    ):
        limits = {"experts": experts, "topk": topk, "tokens": tokens, "hidden": hidden}
        if blocks is None:
            blocks = 132 if group.device.kind == "cuda" else 4
        for name, value in {**limits, "blocks": blocks}.items():
            if not 0 <= value < 2**32:
                raise InvalidUsage(f"rank {group.my_rank}: ExpertParallel with {name}={value}; it is from 0 to 2^32 - 1")
        if transport not in _TRANSPORTS:
            raise InvalidUsage(f"rank {group.my_rank}: ExpertParallel with transport={transport!r}; there are "
                               "'automatic', 'memory' and 'packets'")
        self.group = group
        self.dtype = data_type_of(dtype)
        self.wire = self.dtype if wire is None else data_type_of(wire)
        self.native = _mscclpp.ExpertParallel(
            group.communicator,
            **limits,
            dtype=self.dtype,
            wire=self.wire,
            part_of_each=part_of_each,
            blocks=blocks,
            transport=_TRANSPORTS[transport],
        )
        self.experts, self.topk, self.tokens, self.hidden = experts, topk, tokens, hidden
        self.part_of_each = part_of_each
        self.rank: int = self.native.rank
        self.size: int = self.native.size
        self.experts_of_rank: int = self.native.experts_of_rank
        # Of rows by token: this node's ranks, since they bring those of other nodes.
        self.sources: int = self.native.ranks_of_node

    @property
    def bytes(self) -> int:
        """What it takes of this rank's memory."""
        return self.native.bytes

    def device_handle(self) -> Any:
        """What kernels of yours take as DeviceExperts; `.raw` is its bytes."""
        return self.native.device_handle()

    def dispatch(
        self,
        x: Any,
        indices: Any,
        weights: Any = None,
        *,
        order: str = "packed",
        alignment: int = 1,
        rows_per_expert: Optional[int] = None,
        room: Optional[int] = None,
        drop: bool = False,
        failed: Any = None,
        out: Optional[Dispatched] = None,
        stream: int = 0,
    ) -> Dispatched:
        """Sends each token to the ranks of its experts, and returns what came here.

        x        [tokens][hidden], any number up to the limit, none included
        indices  [tokens][topk] int64, places of experts; negative: none
        weights  [tokens][topk] float32; left out: 1
        order    'packed': each expert's rows behind the other's, from a multiple of `alignment` on; 'padded':
                 `rows_per_expert` for each expert, by default as many as there can be; 'by_token': a row for each token,
                 however many of its experts are here. In all of them by source, then by token
        room     rows that there is memory for; by default for all that could come. (What is needed is in `firsts` and
                 `counts`, on the device: a call does not wait for it.)
        drop     what has no room is left out, counted in `dropped`, and counts as zeros at home; else it is an error
        failed   [ranks] int32 where calls shall go on without ranks: not 0 where one has failed, the same on all that are
                 left; only by packets. Tokens are not sent to its experts, `unsent` says which, and nothing of it is
                 awaited. It must have stopped, and stays out for as long as this ExpertParallel
        out      what an earlier call has returned, or arrays of yours in a Dispatched, to be written; what is None there
                 is not asked for. Its rows are the room
        """
        what = f"rank {self.rank}: dispatch"
        each = self._each(what, order, alignment, rows_per_expert)
        tokens = self._tokens(what, x, self.hidden, "x")
        at_x = self._address(what, "x", x, (tokens, self.hidden), self.dtype)
        routing = self._routing(what, tokens, indices, weights)
        if out is None:
            out = self.memory_for(
                x,
                order=order,
                alignment=alignment,
                rows_per_expert=rows_per_expert,
                room=room,
                drop=drop,
                weighted=weights is not None,
            )
            if failed is not None:
                out.unsent = _empty(x, (tokens, self.topk), DataType.uint8, what)
        elif room is not None or drop:
            raise InvalidUsage(f"{what} with `out`, whose rows are the room and whose `dropped` says whether rows may be "
                               "dropped; leave `room` and `drop` out")
        padded = order == "padded"
        rows = self._rows_of(what, out.rows, each if padded else None)
        scales = self.native.scales_of_row
        by_token = order == "by_token"
        table = (self.sources + 1,) if by_token else (self.experts_of_rank,)
        entry = (self.topk,) if by_token else ()

        def place(name: str, shape: tuple, *types: DataType) -> int:
            array = getattr(out, name)
            return 0 if array is None else self._address(what, f"out.{name}", array, shape, *types)

        quantised = self.wire != self.dtype
        if not by_token and out.experts is not None:
            raise InvalidUsage(f"{what} with out.experts, which only the order 'by_token' has, not {order!r}")
        self.native.dispatch(
            at_x,
            routing[0],
            tokens,
            _ORDERS[order],
            each if padded else alignment,
            place("rows", (*rows, self.hidden), *self._types_of_rows()),
            math.prod(rows),
            weights=routing[1],
            scales=place("scales", (*rows, scales), DataType.float32) if quantised else 0,
            firsts=place("firsts", table, *_NUMBERS),
            counts=place("counts", (self.experts_of_rank,), *_NUMBERS),
            origins=place("origins", rows, *_NUMBERS),
            row_weights=place("weights", (*rows, *entry), DataType.float32),
            row_experts=place("experts", (*rows, *entry), DataType.int32) if by_token else 0,
            dropped=place("dropped", (1,), *_NUMBERS),
            failed=self._failed(what, failed),
            unsent=place("unsent", (tokens, self.topk), DataType.uint8),
            stream=stream,
        )
        return out

    def combine(
        self,
        results: Any,
        indices: Any,
        weights: Any = None,
        *,
        weighted: bool = True,
        failed: Any = None,
        out: Any = None,
        stream: int = 0,
    ) -> Any:
        """Sends home what experts have made of the rows that were dispatched, and returns the sums, [tokens][hidden].

        results   a row for each row of the dispatch, at the same place, of the group's dtype
        indices   as they were dispatched
        weights   with part_of_each: [tokens][topk] float32, with which parts are added at home; left out: 1.
                  Over several hosts those that were dispatched
        weighted  without part_of_each: by the weights that were dispatched. Rows by token go home as they are
        failed    as dispatched, or with more ranks; what their experts would have made is missing in the sums
        """
        what = f"rank {self.rank}: combine"
        shape = _shape_of(what, "results", results)
        if len(shape) < 2 or shape[-1] != self.hidden:
            raise InvalidUsage(f"{what} of results of shape {shape}; it takes rows of {self.hidden} elements")
        at_results = self._address(what, "results", results, shape, self.dtype)
        tokens = self._tokens(what, indices, self.topk, "indices")
        at_indices, at_weights = self._routing(what, tokens, indices, weights)
        if weights is not None and not self.part_of_each:
            raise InvalidUsage(f"{what} with weights, of an ExpertParallel without part_of_each, which takes those of "
                               "dispatch()")
        y = _empty(results, (tokens, self.hidden), self.dtype, what) if out is None else out
        self.native.combine(
            at_results,
            math.prod(shape[:-1]),
            at_indices,
            tokens,
            self._address(what, "out", y, (tokens, self.hidden), self.dtype),
            weights=at_weights,
            weighted=weighted,
            failed=self._failed(what, failed),
            stream=stream,
        )
        return y

    def memory_for(
        self,
        x: Any,
        *,
        order: str = "packed",
        alignment: int = 1,
        rows_per_expert: Optional[int] = None,
        room: Optional[int] = None,
        drop: bool = False,
        weighted: bool = True,
    ) -> Dispatched:
        """What dispatch() of these arguments would make, for its `out`: of the library of `x`, and on its device."""
        what = f"rank {self.rank}: dispatch"
        each = self._each(what, order, alignment, rows_per_expert)
        local = self.experts_of_rank
        number = self._rows(what, order, alignment, each, room)
        rows = (local, each) if order == "padded" else (number,)
        by_token = order == "by_token"
        entry = (self.topk,) if by_token else ()

        def make(shape: tuple, dtype: DataType = DataType.int32) -> Any:
            return _empty(x, shape, dtype, what)

        scales = None
        if self.wire != self.dtype:
            scales = make((*rows, self.native.scales_of_row), DataType.float32)
        dropped = None
        if drop:
            dropped = make((1,))
            _clear(dropped)
        return Dispatched(
            rows=make((*rows, self.hidden), self.wire),
            scales=scales,
            firsts=make((self.sources + 1,) if by_token else (local,)),
            counts=make((local,)),
            origins=make(rows),
            weights=make((*rows, *entry), DataType.float32) if weighted else None,
            experts=make((*rows, *entry)) if by_token else None,
            dropped=dropped,
        )

    # ---- arrays

    def _each(self, what: str, order: str, alignment: int, rows_per_expert: Optional[int]) -> int:
        """Rows of an expert in the order 'padded'; throws what cannot be of the three."""
        if order not in _ORDERS:
            raise InvalidUsage(f"{what} in the order {order!r}; there are 'packed', 'padded' and 'by_token'")
        if not 1 <= alignment < 2**32:
            raise InvalidUsage(f"{what} with alignment {alignment}; it is from 1 to 2^32 - 1")
        each = self.size * self.tokens if rows_per_expert is None else rows_per_expert
        if not 1 <= each < 2**32:
            raise InvalidUsage(f"{what} with rows_per_expert {each}; it is from 1 to 2^32 - 1")
        return each

    def _rows(self, what: str, order: str, alignment: int, each: int, room: Optional[int]) -> int:
        """For how many rows to make memory."""
        local, sent = self.experts_of_rank, self.size * self.tokens
        if order == "padded":
            if room not in (None, local * each):
                raise InvalidUsage(f"{what} with room for {room} rows; in the order 'padded' there are {local} * {each}")
            return local * each
        if room is not None:
            if not 0 <= room < 2**32:
                raise InvalidUsage(f"{what} with room for {room} rows; it is from 0 to 2^32 - 1")
            return room
        return sent if order == "by_token" else sent * min(self.topk, local) + local * (alignment - 1)

    def _rows_of(self, what: str, rows: Any, each: Optional[int]) -> tuple:
        """The shape of `out.rows` but for the last dimension."""
        if rows is None:
            raise InvalidUsage(f"{what} with `out` whose `rows` are None; they are what is dispatched")
        shape = _shape_of(what, "out.rows", rows)
        there = shape[:1] if each is None else (self.experts_of_rank, each)
        if len(shape) < 2 or shape != (*there, self.hidden):
            rows_taken = "[any]" if each is None else f"[{self.experts_of_rank}][{each}]"
            raise InvalidUsage(f"{what} with out.rows of shape {shape}; it takes {rows_taken}[{self.hidden}]")
        return shape[:-1]

    def _types_of_rows(self) -> tuple:
        return (self.wire, DataType.uint8) if self.wire in _FP8 else (self.wire,)

    def _tokens(self, what: str, array: Any, columns: int, name: str) -> int:
        shape = _shape_of(what, name, array)
        if len(shape) != 2 or shape[1] != columns or shape[0] > self.tokens:
            raise InvalidUsage(
                f"{what} with {name} of shape {shape}; it takes [up to {self.tokens}][{columns}], for which this "
                "ExpertParallel was made"
            )
        return shape[0]

    def _routing(self, what: str, tokens: int, indices: Any, weights: Any) -> tuple[int, int]:
        shape = (tokens, self.topk)
        of_weights = 0
        if weights is not None:
            of_weights = self._address(what, "weights", weights, shape, DataType.float32)
        return self._address(what, "indices", indices, shape, DataType.int64), of_weights

    def _failed(self, what: str, failed: Any) -> int:
        return 0 if failed is None else self._address(what, "failed", failed, (self.size,), DataType.int32)

    def _address(self, what: str, name: str, array: Any, shape: tuple, *types: DataType) -> int:
        there = _shape_of(what, name, array)
        if there != shape:
            raise InvalidUsage(f"{what} with {name} of shape {there}; it takes {shape}")
        if getattr(array, "requires_grad", False):
            # Calls are for the inside of autograd functions, where gradients are off.
            if importlib.import_module("torch").is_grad_enabled():
                raise InvalidUsage(f"{what} with {name} that requires a gradient; the call has none: detach() it, or call "
                                   "within torch.no_grad() or a torch.autograd.Function")
            array = array.detach()
        try:
            pointer, _, dtype, cuda = _mscclpp.describe_array(array)
        except InvalidUsage as error:
            raise InvalidUsage(f"{what} with {name}: {error}") from None
        if dtype not in types:
            raise InvalidUsage(f"{what} with {name} of {dtype.name}; it takes {' or '.join(each.name for each in types)}")
        device = self.group.device
        wanted = device.ordinal if device.kind == "cuda" else -1
        if cuda != wanted:
            place = "the CPU" if cuda < 0 else f"cuda:{cuda}"
            needed = "the CPU, since its device is simulated" if wanted < 0 else f"cuda:{wanted}"
            raise InvalidUsage(f"{what} with {name} on {place}; this group needs {needed}")
        return pointer


def stream_of(tensor: Any) -> int:
    """PyTorch's current stream of the device of a tensor of its own; 0: of the CPU."""
    return importlib.import_module("torch").cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


def _shape_of(what: str, name: str, array: Any) -> tuple:
    shape = getattr(array, "shape", None)
    if shape is None:
        raise TypeError(f"{what} with {name} of type {type(array).__name__}, which is no array")
    return tuple(shape)


def _empty(like: Any, shape: tuple, dtype: DataType, what: str) -> Any:
    """A new array, of the library that `like` is of and on its device."""
    if isinstance(like, GpuBuffer):
        return GpuBuffer(shape, dtype, like.device)
    library = type(like).__module__.partition(".")[0]
    if library == "torch":
        torch = importlib.import_module("torch")
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.device)
    if library not in ("numpy", "cupy"):
        raise InvalidUsage(f"{what}: arrays of {library} cannot be made here; give `out`")
    module = importlib.import_module(library)
    return module.empty(shape, dtype="uint8" if dtype in _FP8 else dtype.name)


def _clear(array: Any) -> None:
    if hasattr(array, "zero_"):
        array.zero_()
    elif not isinstance(array, GpuBuffer):  # which is new, and zero
        array[...] = 0

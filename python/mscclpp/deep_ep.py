# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The calls that engines make of DeepEP, on tensors of PyTorch, by ExpertParallel.

    from mscclpp.deep_ep import Buffer
    buffer = Buffer(group)                               # of torch.distributed, or a CommGroup
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(topk_idx, num_experts)
    recv_x, recv_idx, recv_weights, counts, handle, event = buffer.dispatch(
        x, topk_idx=topk_idx, topk_weights=topk_weights, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
        num_tokens_per_expert=per_expert)
    y, _, event = buffer.combine(work(recv_x), handle)

Shapes, types and meanings are DeepEP's. What differs:

- Calls are kernels in the current stream, with no stream beside it: `async_finish` gives an event behind them and
  `previous_event` is waited for, but nothing overlaps by itself. `allocate_on_comm_stream`, `config`, num_sms, sizes of
  buffers and numbers of queue pairs have no effect. Memory is taken when a shape is first used, which is collective.
- A `handle` is an object of its own, not a tuple. combine() and dispatch() by one that later dispatches have overtaken
  are right, but combine() dispatches as many rows once more, ahead of its own.
- `topk_weights` of combine() travel by a dispatch and a combine of their own. FP8 pairs travel in rows of bfloat16, so
  they take as long as those.
- Low latency: a call does all of its work at once, so a hook has nothing to do. Two batches may be on their way.
- With `enable_shrink`, low latency goes on without ranks that low_latency_update_mask_buffer() has named, the same on all
  that are left. Nothing finds them by itself: a wait that takes too long is an error, as everywhere.
- Over several hosts rows come by the rank of this host that has brought them, and the weights of low_latency_combine()
  travel by a dispatch of their own; results are then multiplied by them, and rounded, before they are added up.
- There are not: ranks that low latency leaves out over several hosts, round_scale, use_ue8m0, use_logfmt, bias, statistics of waits; up to 512 experts, which
  ranks share evenly, and top-k up to 16. Those are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch

from .errors import InvalidUsage, Unsupported
from .experts import Dispatched, ExpertParallel, stream_of
from .group import CommGroup

__all__ = ["Buffer", "Config", "EventOverlap", "Handle", "LowLatencyHandle"]

_COLUMNS = 128  # that share a scale
_LOW_LATENCY = "low latency"

Tokens = Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]


class Config:
    """Settings of DeepEP's kernels, without effect."""

    def __init__(self, *settings: int):
        self.settings = settings

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: nothing needs to be set aside."""
        del hidden_bytes, num_ranks
        return 0

    get_rdma_buffer_size_hint = get_nvl_buffer_size_hint


class EventOverlap:
    """A point of a stream; of the CPU, where calls are done when they return, nothing."""

    def __init__(self, event: Optional[torch.cuda.Event] = None):
        self.event = event

    def current_stream_wait(self) -> None:
        """What is put into the current stream from now on waits for it."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: Any) -> None:
        self.current_stream_wait()


@dataclass(eq=False)
class Handle:
    """What dispatch() has sent where, for combine() and for other rows on the same ways."""

    num_experts: int
    indices: torch.Tensor  # [tokens][topk]
    rows: int  # that came here
    most: int  # tokens of a rank, at most
    first_rows: Optional[torch.Tensor] = None  # [ranks + 1], of each source; over several hosts of each rank of this one


@dataclass(eq=False)
class LowLatencyHandle:
    """What low_latency_dispatch() has sent where."""

    origins: torch.Tensor  # [expert][row]: source * num_max_dispatch_tokens_per_rank + token
    batch: _Batch
    shape: tuple
    staged: Optional[torch.Tensor] = None


@dataclass
class _Batch:
    """An ExpertParallel, and whose rows are in its memory."""

    experts: ExpertParallel
    last: Any = None


class Buffer:
    """As deep_ep.Buffer. Making one is collective; ranks make the same calls in the same order."""

    num_sms = 20

    def __init__(
        self,
        group: Any,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 1,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
    ):
        del num_qps_per_rank, allow_nvlink_for_low_latency_mode, allow_mnnvl, explicitly_destroy
        self.group = group
        self.num_nvl_bytes, self.num_rdma_bytes, self.low_latency_mode = num_nvl_bytes, num_rdma_bytes, low_latency_mode
        self._ranks = group if isinstance(group, CommGroup) else CommGroup(torch_group=group)
        self.rank, self.group_size = self._ranks.my_rank, self._ranks.nranks
        self._batches: dict[tuple, _Batch] = {}
        self._turns: dict[tuple, int] = {}
        own = self._ranks.device
        place = f"cuda:{own.ordinal}" if own.kind == "cuda" else "cpu"
        self._mask = torch.zeros(self.group_size, dtype=torch.int32, device=place) if enable_shrink else None

    # ---- what has no effect, or little

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Kept, without effect."""
        Buffer.num_sms = new_num_sms

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """Without effect."""
        return Config(num_ranks)

    get_combine_config = get_dispatch_config

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """0: nothing needs to be set aside."""
        del num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts
        return 0

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing needs to be cleaned."""

    @staticmethod
    def capture() -> EventOverlap:
        """The current stream, as far as it has come."""
        return _event(torch.cuda.is_available() and torch.cuda.is_initialized())

    def destroy(self) -> None:
        """Frees its memory. Collective; calls must be done."""
        self._ranks.barrier()
        self._batches.clear()

    # ---- many tokens

    def get_dispatch_layout(
        self,
        topk_idx: torch.Tensor,
        num_experts: int,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, EventOverlap]:
        """Tokens for each rank, None, tokens for each expert, and which token goes to which rank."""
        del allocate_on_comm_stream
        _begin(previous_event)
        local = self._local("get_dispatch_layout", num_experts)
        if topk_idx.dim() != 2 or topk_idx.dtype != torch.int64:
            raise InvalidUsage(
                f"rank {self.rank}: get_dispatch_layout of topk_idx of shape {list(topk_idx.shape)} and {topk_idx.dtype};"
                " it takes [tokens][topk] of torch.int64"
            )
        # No expert is counted, too, ahead of the others.
        places = topk_idx.clamp(min=-1)
        per_expert = places.new_zeros(num_experts + 1, dtype=torch.int32)
        per_expert.scatter_add_(0, places.flatten() + 1, torch.ones_like(places.flatten(), dtype=torch.int32))
        ranks = torch.div(places, local, rounding_mode="floor") + 1
        in_rank = places.new_zeros((places.shape[0], self.group_size + 1), dtype=torch.bool).scatter_(1, ranks, True)
        in_rank = in_rank[:, 1:].contiguous()
        per_rank = in_rank.sum(0, dtype=torch.int32)
        return per_rank, None, per_expert[1:].contiguous(), in_rank, _event(async_finish and topk_idx.is_cuda)

    def dispatch(
        self,
        x: Tokens,
        handle: Optional[Handle] = None,
        num_tokens_per_rank: Optional[torch.Tensor] = None,
        num_tokens_per_rdma_rank: Optional[torch.Tensor] = None,
        is_token_in_rank: Optional[torch.Tensor] = None,
        num_tokens_per_expert: Optional[torch.Tensor] = None,
        topk_idx: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Tokens, Optional[torch.Tensor], Optional[torch.Tensor], Optional[list], Optional[Handle], EventOverlap]:
        """A row for each token on each rank that has experts of it.

        Waits for the numbers of rows, so that memory fits; with `num_worst_tokens` it does not, which takes up to
        num_worst_tokens / ranks tokens of each rank, makes memory for all of them, and returns an empty list of counts.
        """
        del num_tokens_per_rdma_rank, config, allocate_on_comm_stream
        _begin(previous_event)
        rows, pack = self._packed(x)
        event_of = async_finish and rows.is_cuda
        if handle is not None:
            if topk_idx is not None or topk_weights is not None:
                raise InvalidUsage(f"rank {self.rank}: dispatch with a handle, which has its own experts, and topk_idx or "
                                   "topk_weights beside it")
            there = self._send(rows, handle, None)
            return pack(there.rows), None, None, None, None, _event(event_of)
        if num_tokens_per_rank is None or is_token_in_rank is None or num_tokens_per_expert is None:
            raise InvalidUsage(f"rank {self.rank}: dispatch needs num_tokens_per_rank, is_token_in_rank and "
                               "num_tokens_per_expert, as get_dispatch_layout() returns them, or a handle")
        num_experts = num_tokens_per_expert.numel()
        local = self._local("dispatch", num_experts)
        counts: list = []
        if num_worst_tokens > 0:
            received, most = num_worst_tokens, num_worst_tokens // self.group_size
            if rows.shape[0] > most:
                raise InvalidUsage(
                    f"rank {self.rank}: dispatch of {rows.shape[0]} tokens with num_worst_tokens {num_worst_tokens} over "
                    f"{self.group_size} ranks; it takes up to {most} of each"
                )
        else:
            received, most, counts = self._agree(rows, num_tokens_per_rank, num_tokens_per_expert)
        counts = [-(-count // expert_alignment) * expert_alignment for count in counts]
        indices = topk_idx
        if indices is None:
            first = torch.arange(self.group_size, device=rows.device) * local
            indices = torch.where(is_token_in_rank, first, -1)
        handle = Handle(num_experts, indices, received, most)
        there = self._send(rows, handle, topk_weights, asked=topk_idx is not None)
        experts = None if topk_idx is None else there.experts.to(torch.int64)
        return pack(there.rows), experts, there.weights, counts, handle, _event(event_of)

    def combine(
        self,
        x: torch.Tensor,
        handle: Handle,
        topk_weights: Optional[torch.Tensor] = None,
        bias: Any = None,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[torch.Tensor, Optional[torch.Tensor], EventOverlap]:
        """The sums of each token's rows, one of each rank, unweighted; and of the weights, where they are given."""
        del config, allocate_on_comm_stream
        self._refuse("combine", bias=bias)
        _begin(previous_event)
        y = self._home(x, handle)
        weights = None if topk_weights is None else self._home(topk_weights, handle)
        return y, weights, _event(async_finish and x.is_cuda)

    # ---- few tokens

    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Optional[torch.Tensor] = None,
        dispatch_wait_recv_cost_stats: Optional[torch.Tensor] = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
    ) -> tuple[Tokens, torch.Tensor, LowLatencyHandle, EventOverlap, Optional[Callable[[], None]]]:
        """ranks * num_max_dispatch_tokens_per_rank rows for each expert here, and how many of them there are."""
        self._refuse(
            "low_latency_dispatch",
            dispatch_wait_recv_cost_stats=dispatch_wait_recv_cost_stats,
            round_scale=round_scale or None,
            use_ue8m0=use_ue8m0 or None,
        )
        self._local("low_latency_dispatch", num_experts)
        wire = torch.float8_e4m3fn if use_fp8 else x.dtype
        shape = num_max_dispatch_tokens_per_rank, num_experts, topk_idx.shape[-1], x.shape[-1], x.dtype, wire
        turn = self._turns[shape] = 1 - self._turns.get(shape, 0)
        batch = self._batch(
            num_max_dispatch_tokens_per_rank,
            (_LOW_LATENCY, turn, num_max_dispatch_tokens_per_rank),
            experts=num_experts,
            topk=topk_idx.shape[-1],
            hidden=x.shape[-1],
            dtype=x.dtype,
            wire=wire,
            part_of_each=True,
            transport="automatic" if self._mask is None else "packets",
        )
        there = batch.experts.dispatch(x, topk_idx, order="padded", failed=self._mask, stream=stream_of(x))
        batch.last = LowLatencyHandle(there.origins, batch, tuple(there.rows.shape))
        if cumulative_local_expert_recv_stats is not None:
            cumulative_local_expert_recv_stats += there.counts
        rows: Tokens = there.rows
        if use_fp8:
            # Columns first, as copies of tensors by hardware want them.
            rows = there.rows, there.scales.transpose(1, 2).contiguous().transpose(1, 2)
        hook = _arrived if return_recv_hook else None
        return rows, there.counts, batch.last, _event(async_finish and x.is_cuda), hook

    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: LowLatencyHandle,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Optional[torch.Tensor] = None,
        combine_wait_recv_cost_stats: Optional[torch.Tensor] = None,
    ) -> tuple[torch.Tensor, EventOverlap, Optional[Callable[[], None]]]:
        """The sums of what each token's experts have made, weighted. `zero_copy`: of what is in the tensor of
        get_next_low_latency_combine_buffer(), not in `x`."""
        self._refuse(
            "low_latency_combine",
            use_logfmt=use_logfmt or None,
            combine_wait_recv_cost_stats=combine_wait_recv_cost_stats,
        )
        if handle.batch.last is not handle:
            raise InvalidUsage(
                f"rank {self.rank}: low_latency_combine of a batch that two others of its shape have followed; two may be "
                "on their way"
            )
        if zero_copy:
            x = self.get_next_low_latency_combine_buffer(handle)
        weights: Optional[torch.Tensor] = topk_weights
        if handle.batch.experts.sources < self.group_size:
            # Parts are added up at their host, which has no weights.
            x, weights = self._weighted(x, topk_idx, topk_weights, handle), None
        y = handle.batch.experts.combine(x, topk_idx, weights, failed=self._mask, out=out, stream=stream_of(x))
        return y, _event(async_finish and x.is_cuda), _arrived if return_recv_hook else None

    def get_next_low_latency_combine_buffer(self, handle: LowLatencyHandle) -> torch.Tensor:
        """The tensor that combine with `zero_copy` takes its rows from. It saves no copy here."""
        if handle.staged is None:
            experts = handle.batch.experts
            dtype = getattr(torch, experts.dtype.name)
            handle.staged = torch.zeros(handle.shape, dtype=dtype, device=handle.origins.device)
        return handle.staged

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Leaves a rank out of low latency from the next call on, in the current stream. A rank that was left out stays
        so until low_latency_clean_mask_buffer()."""
        masks = self._masks("low_latency_update_mask_buffer")
        if not 0 <= rank_to_mask < self.group_size or rank_to_mask == self.rank or not mask:
            raise InvalidUsage(
                f"rank {self.rank}: low_latency_update_mask_buffer of rank {rank_to_mask} with mask={mask}; it leaves out "
                f"another of the {self.group_size} ranks, and low_latency_clean_mask_buffer() takes all in again"
            )
        masks[rank_to_mask] = 1

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Writes to an int32 for each rank whether it is left out."""
        mask_status.copy_(self._masks("low_latency_query_mask_buffer"))

    def low_latency_clean_mask_buffer(self) -> None:
        """Takes all ranks in again. Collective over all of them, whose memory for low latency is made anew."""
        self._masks("low_latency_clean_mask_buffer").zero_()
        if self._ranks.device.kind == "cuda":
            torch.cuda.synchronize(self._ranks.device.ordinal)
        self._ranks.barrier()
        self._batches = {key: batch for key, batch in self._batches.items() if key[0] != _LOW_LATENCY}
        self._turns.clear()

    # ---- how

    def _masks(self, what: str) -> torch.Tensor:
        if self._mask is None:
            raise InvalidUsage(f"rank {self.rank}: {what} of a Buffer without masks; make it with enable_shrink=True")
        return self._mask

    def _refuse(self, what: str, **arguments: Any) -> None:
        for name, value in arguments.items():
            if value is not None:
                raise Unsupported(f"rank {self.rank}: {what} with {name}, which there is not; leave it out")

    def _local(self, what: str, num_experts: int) -> int:
        """Experts of a rank."""
        if num_experts < 1 or num_experts % self.group_size != 0:
            raise InvalidUsage(
                f"rank {self.rank}: {what} with {num_experts} experts over {self.group_size} ranks; each has as many"
            )
        return num_experts // self.group_size

    def _packed(self, x: Tokens) -> tuple[torch.Tensor, Callable[[torch.Tensor], Tokens]]:
        """Rows that travel, and what gives back of such rows what `x` is."""
        if isinstance(x, torch.Tensor):
            return x, lambda rows: rows
        values, scales = x
        columns = values.shape[-1]
        there = columns // _COLUMNS
        if (
            values.dtype != torch.float8_e4m3fn
            or scales.dtype != torch.float32
            or columns % _COLUMNS
            or scales.shape != (values.shape[0], there)
        ):
            raise InvalidUsage(
                f"rank {self.rank}: dispatch of a pair of {values.dtype} of shape {list(values.shape)} and {scales.dtype} "
                f"of shape {list(scales.shape)}; it takes [tokens][hidden] of torch.float8_e4m3fn and "
                f"[tokens][hidden / {_COLUMNS}] of torch.float32"
            )
        rows = torch.zeros(values.shape, dtype=torch.bfloat16, device=values.device)
        # Bytes, which nobody on the way looks at.
        rows.view(torch.uint8)[:, :columns] = values.view(torch.uint8)
        rows.view(torch.uint8)[:, columns : columns + 4 * there] = scales.contiguous().view(torch.uint8)

        def pair(came: torch.Tensor) -> Tokens:
            raw = came.view(torch.uint8)
            own = raw[:, :columns].contiguous().view(torch.float8_e4m3fn)
            return own, raw[:, columns : columns + 4 * there].contiguous().view(torch.float32)

        return rows, pair

    def _agree(self, rows: torch.Tensor, per_rank: torch.Tensor, per_expert: torch.Tensor) -> tuple[int, int, list]:
        """Rows that come here, tokens of a rank at most, and rows for each expert here, from all ranks' numbers."""
        own = torch.cat([per_rank.new_full((1,), rows.shape[0]), per_rank, per_expert]).to(torch.int32)
        every = own.new_empty((self.group_size, own.numel()))
        self._ranks.all_gather(own, every, stream=stream_of(rows))
        numbers = every.cpu()
        totals = numbers.sum(0).tolist()
        local = per_expert.numel() // self.group_size
        first = 1 + self.group_size + self.rank * local
        return totals[1 + self.rank], int(numbers[:, 0].max()), totals[first : first + local]

    def _batch(self, tokens: int, key: tuple, **limits: Any) -> _Batch:
        """Collective where there is none yet, or only for fewer tokens."""
        key = (*key, *limits.values())
        found = self._batches.get(key)
        if found is None or found.experts.tokens < tokens:
            if found is not None:
                # Kernels of all ranks have ended when its memory goes.
                if self._ranks.device.kind == "cuda":
                    torch.cuda.synchronize(self._ranks.device.ordinal)
                self._ranks.barrier()
            found = self._batches[key] = _Batch(ExpertParallel(self._ranks, tokens=tokens, **limits))
        return found

    def _weighted(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: LowLatencyHandle
    ) -> torch.Tensor:
        """Each row by the weight of its token, which travels here."""
        of = handle.batch.experts
        batch = self._batch(
            of.tokens, (_LOW_LATENCY, "weights", of.tokens), experts=of.experts, topk=of.topk, hidden=4, dtype=torch.float32
        )
        nothing = x.new_zeros((topk_idx.shape[0], 4), dtype=torch.float32)
        there = batch.experts.memory_for(nothing, order="padded")
        there.weights.zero_()
        batch.experts.dispatch(nothing, topk_idx, topk_weights, order="padded", out=there, stream=stream_of(x))
        return (x.float() * there.weights.unsqueeze(-1)).to(x.dtype)

    def _of(self, handle: Handle, rows: torch.Tensor) -> _Batch:
        most = max(1, 1 << (handle.most - 1).bit_length())
        return self._batch(
            most,
            (),
            experts=handle.num_experts,
            topk=handle.indices.shape[-1],
            hidden=rows.shape[-1],
            dtype=rows.dtype,
        )

    def _send(
        self, x: torch.Tensor, handle: Handle, weights: Optional[torch.Tensor], asked: bool = False
    ) -> Dispatched:
        """`asked`: for experts and weights."""
        batch = self._of(handle, x)
        entries = handle.rows, handle.indices.shape[-1]
        if handle.first_rows is None:
            handle.first_rows = x.new_empty(batch.experts.sources + 1, dtype=torch.int32)
        there = Dispatched(
            rows=x.new_empty((handle.rows, x.shape[-1])),
            firsts=handle.first_rows,
            experts=x.new_full(entries, -1, dtype=torch.int32) if asked else None,
            weights=x.new_zeros(entries, dtype=torch.float32) if weights is not None else None,
        )
        batch.experts.dispatch(x, handle.indices, weights, order="by_token", out=there, stream=stream_of(x))
        batch.last = handle
        return there

    def _home(self, rows: torch.Tensor, handle: Handle) -> torch.Tensor:
        batch = self._of(handle, rows)
        if batch.last is not handle:
            self._send(rows.new_zeros((handle.indices.shape[0], rows.shape[-1])), handle, None)
        return batch.experts.combine(rows, handle.indices, stream=stream_of(rows))


def _begin(previous: Optional[EventOverlap]) -> None:
    if previous is not None:
        previous.current_stream_wait()


def _event(there: bool) -> EventOverlap:
    if not there:
        return EventOverlap()
    event = torch.cuda.Event()
    event.record()
    return EventOverlap(event)


def _arrived() -> None:
    """The hook of calls that have done all of their work."""

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens to their experts and home as operators of PyTorch: with derivatives, in compiled programs and in CUDA graphs.

    from mscclpp import expert_ops
    expert_ops.register("experts", mscclpp.ExpertParallel(group, experts=64, topk=6, ...))       # collective
    batch = expert_ops.dispatch(x, indices, weights, experts="experts", alignment=128)
    y = expert_ops.combine(work(batch.rows, batch.firsts, batch.counts), batch)                  # [tokens][hidden]

CUDA tensors: in the current stream. CPU tensors: on the simulated machine. What a derivative of dispatch() is, is a
combine, and of combine() a dispatch, so an ExpertParallel serves any number of layers, whose batches follow each other:
from a dispatch() to its combine() there is no other, and the derivative of a combine() and then that of its dispatch()
follow each other, as they do by themselves where y depends on all rows through combine(). Where they do not, it is said.
Ranks make the same calls in the same order, which compiled programs keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

from .errors import InvalidUsage
from .experts import Dispatched, ExpertParallel, stream_of

__all__ = ["Batch", "combine", "dispatch", "register", "unregister"]


@dataclass
class Batch:
    """What dispatch() has brought, and where from. With order 'padded' rows and what is of rows have a first dimension
    more, of this rank's experts. Rows that nobody was sent for are zeros where gradients are enabled, else as the memory
    was; of other tensors they are as the memory was. Derivatives are of `rows` alone."""

    rows: torch.Tensor  # [row][hidden], of the type on the way
    scales: Optional[torch.Tensor]  # [row][ceil(hidden / 128)] float32, where rows are quantised
    firsts: torch.Tensor  # int32, of each of this rank's experts, its first row
    counts: torch.Tensor  # int32, of each of this rank's experts, its number of rows
    origins: torch.Tensor  # [row] int32: source * limit of tokens + token
    row_weights: Optional[torch.Tensor]  # [row] float32
    dropped: Optional[torch.Tensor]  # [1] int32: rows for which there was no room
    indices: torch.Tensor  # as given, as are the following
    weights: Optional[torch.Tensor]
    layout: tuple  # of the operators: name, order, its rows, room, drop


@dataclass
class _Registered:
    experts: ExpertParallel
    of_weights: ExpertParallel  # rows of topk numbers, which bring the weights' derivatives home
    last: tuple = ()  # what the last dispatch was of,
    weights: int = 0  # and where its weights lie


_registered: dict[str, _Registered] = {}
_OF_WEIGHTS = "/weights"


def register(name: str, experts: ExpertParallel) -> None:
    """Has the operators know it by a name, in this process. Collective: makes a small one beside it, for derivatives of
    weights."""
    if name in _registered:
        raise InvalidUsage(f"expert_ops.register: there is one called {name!r}; unregister() it first")
    limits = {"experts": experts.experts, "topk": experts.topk, "tokens": experts.tokens, "hidden": experts.topk}
    of_weights = ExpertParallel(experts.group, **limits, dtype="float32", blocks=experts.native.blocks)
    _registered[name] = _Registered(experts, of_weights)
    _registered[name + _OF_WEIGHTS] = _Registered(of_weights, of_weights)


def unregister(name: str) -> None:
    """Lets it go; calls of all ranks must be done."""
    _of(name)
    del _registered[name], _registered[name + _OF_WEIGHTS]


def dispatch(
    x: torch.Tensor,
    indices: torch.Tensor,
    weights: Optional[torch.Tensor] = None,
    *,
    experts: str,
    order: str = "packed",
    alignment: int = 1,
    rows_per_expert: Optional[int] = None,
    room: Optional[int] = None,
    drop: bool = False,
) -> Batch:
    """ExpertParallel.dispatch() of the one with this name, in the order 'packed' or 'padded'. The derivative of x is for
    rows that are not quantised; that of `weights` comes by combine()."""
    if order not in ("packed", "padded"):
        raise InvalidUsage(f"expert_ops.dispatch in the order {order!r}; there are 'packed' and 'padded'")
    rows = alignment if order == "packed" else -1 if rows_per_expert is None else rows_per_expert
    layout = (experts, order, rows, -1 if room is None else room, drop)
    row, scales, firsts, counts, origins, row_weights, dropped = torch.ops.mscclpp.expert_dispatch(
        x, indices, weights, *layout, torch.is_grad_enabled()
    )
    return Batch(
        row,
        scales if scales.numel() > 0 else None,
        firsts,
        counts,
        origins,
        row_weights if weights is not None else None,
        dropped if drop else None,
        indices,
        weights,
        layout,
    )


def combine(results: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The sums of what experts have made of each token of the last dispatch(), weighted if it had weights: by them at
    home with part_of_each, else where the rows are added up. `results`: a row for each of its rows."""
    return torch.ops.mscclpp.expert_combine(results, batch.indices, batch.weights, *batch.layout)


# ---- the operators

_library = torch.library.Library("mscclpp", "FRAGMENT")
_library.define(
    "expert_dispatch(Tensor x, Tensor indices, Tensor? weights, str experts, str order, int order_rows, int room,"
    " bool drop, bool clear) -> (Tensor rows, Tensor scales, Tensor firsts, Tensor counts, Tensor origins,"
    " Tensor weights, Tensor dropped)"
)
_library.define(
    "expert_combine(Tensor results, Tensor indices, Tensor? weights, str experts, str order, int order_rows, int room,"
    " bool drop) -> Tensor"
)


def _of(name: str) -> _Registered:
    if name not in _registered:
        raise InvalidUsage(f"expert_ops: there is no ExpertParallel called {name!r}; register() it")
    return _registered[name]


def _order(order: str, rows: int) -> dict[str, Any]:
    """As ExpertParallel takes it."""
    if order == "padded":
        return {"order": order, "rows_per_expert": None if rows < 0 else rows}
    return {"order": order, "alignment": rows}


def _memory(x: torch.Tensor, experts: ExpertParallel, weighted: bool, order: str, rows: int, room: int, drop: bool):
    more = {"room": None if room < 0 else room, "drop": drop, "weighted": weighted}
    return experts.memory_for(x, **_order(order, rows), **more)


def _results(x: torch.Tensor, there: Dispatched) -> tuple:
    """Of the operator, which returns empty tensors for what is not there."""

    def of(tensor: Any, dtype: torch.dtype) -> torch.Tensor:
        return x.new_empty(0, dtype=dtype) if tensor is None else tensor

    scales, weights = of(there.scales, torch.float32), of(there.weights, torch.float32)
    return there.rows, scales, there.firsts, there.counts, there.origins, weights, of(there.dropped, torch.int32)


def _plain(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.detach()


def _batch(indices: torch.Tensor, *layout: Any) -> tuple:
    """Tells the batch of a dispatch from others: for as long as something needs its indices their memory is theirs."""
    return (indices.data_ptr(), *indices.shape, *layout)


def _dispatch(x, indices, weights, experts, order, order_rows, room, drop, clear):
    there = _of(experts)
    out = _memory(x, there.experts, weights is not None, order, order_rows, room, drop)
    if clear:
        out.rows.zero_()
    there.last = ()
    there.experts.dispatch(
        _plain(x), indices, _plain(weights), **_order(order, order_rows), out=out, stream=stream_of(x)
    )
    there.last = _batch(indices, order, order_rows, room, drop)
    there.weights = 0 if weights is None else weights.data_ptr()
    return _results(x, out)


def _combine(results, indices, weights, experts, order, order_rows, room, drop):
    there = _of(experts)
    same = there.last == _batch(indices, order, order_rows, room, drop)
    # Derivatives of tokens come home as they are, whatever the weights.
    if not same or (weights is not None and weights.data_ptr() != there.weights):
        raise InvalidUsage(
            f"torch.ops.mscclpp.expert_combine: rank {there.experts.rank}: the last dispatch of {experts!r} was of "
            "another batch, or of copies of these indices and weights; batches that are on their way together need an "
            "ExpertParallel each"
        )
    parts = there.experts.part_of_each
    return there.experts.combine(
        _plain(results),
        indices,
        _plain(weights) if parts else None,
        weighted=not parts and weights is not None,
        stream=stream_of(results),
    )


for _device in ("CPU", "CUDA"):
    _library.impl("expert_dispatch", _dispatch, _device)
    _library.impl("expert_combine", _combine, _device)

# Each call waits for the same call of other ranks: what compiles a program must not change their order.
for _op in (torch.ops.mscclpp.expert_dispatch.default, torch.ops.mscclpp.expert_combine.default):
    _register_effectful_op(_op, _EffectType.ORDERED)


@torch.library.register_fake("mscclpp::expert_dispatch", lib=_library)
def _(x, indices, weights, experts, order, order_rows, room, drop, clear):
    return _results(x, _memory(x, _of(experts).experts, weights is not None, order, order_rows, room, drop))


@torch.library.register_fake("mscclpp::expert_combine", lib=_library)
def _(results, indices, weights, experts, order, order_rows, room, drop):
    return results.new_empty((indices.shape[0], _of(experts).experts.hidden))


# ---- derivatives


def _keep_dispatch(ctx: Any, inputs: tuple, output: tuple) -> None:
    _, indices, _, *ctx.layout, _ = inputs
    ctx.save_for_backward(indices)
    ctx.mark_non_differentiable(*output[1:])
    _refuse_quantised(ctx)


def _keep_combine(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    del output
    results, indices, weights, *ctx.layout = inputs
    ctx.save_for_backward(results, indices, weights)
    _refuse_quantised(ctx)


def _refuse_quantised(ctx: Any) -> None:
    experts = _of(ctx.layout[0]).experts
    if any(ctx.needs_input_grad) and experts.wire != experts.dtype:
        raise InvalidUsage(f"expert_ops: rank {experts.rank}: rows of {experts.wire.name} have no derivative; detach() "
                           "what needs one, or give the ExpertParallel no `wire`")


def _dispatch_backward(ctx: Any, of_rows: torch.Tensor, *_: Any) -> tuple:
    (indices,) = ctx.saved_tensors
    of_x = torch.ops.mscclpp.expert_combine(of_rows.contiguous(), indices, None, *ctx.layout)
    return of_x, None, None, None, None, None, None, None, None


def _combine_backward(ctx: Any, of_y: torch.Tensor) -> tuple:
    results, indices, weights = ctx.saved_tensors
    send = torch.ops.mscclpp.expert_dispatch
    rows, *_, row_weights, _ = send(of_y.contiguous(), indices, weights, *ctx.layout, True)
    of_results, of_weights = rows, None
    if weights is not None:
        of_results = (rows.float() * row_weights.nan_to_num().unsqueeze(-1)).to(rows.dtype)
        if ctx.needs_input_grad[2]:
            # Each row says of which of its token's weights it is, and brings that one's derivative.
            name, *layout = ctx.layout
            places = torch.arange(weights.shape[1], dtype=torch.float32, device=weights.device)
            of_place = places.expand_as(weights).contiguous()
            *_, place, _ = send(torch.zeros_like(of_place), indices, of_place, name + _OF_WEIGHTS, *layout, False)
            products = (rows.float() * results.float()).sum(-1, keepdim=True)
            products = torch.where(place.unsqueeze(-1) == places, products, 0).contiguous()
            of_weights = torch.ops.mscclpp.expert_combine(products, indices, None, name + _OF_WEIGHTS, *layout)
    return of_results, None, of_weights, None, None, None, None, None


torch.library.register_autograd(
    "mscclpp::expert_dispatch", _dispatch_backward, setup_context=_keep_dispatch, lib=_library
)
torch.library.register_autograd("mscclpp::expert_combine", _combine_backward, setup_context=_keep_combine, lib=_library)

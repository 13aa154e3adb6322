# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives as operators of PyTorch, torch.ops.mscclpp: for eager programs, torch.compile and CUDA graphs.

    import mscclpp.ops
    y = mscclpp.ops.fused_all_reduce(x, scale=0.5, residual=r, dtype=torch.bfloat16)

CUDA tensors: in the current stream. CPU tensors: on the simulated machine; the call returns when it is done. Tensors
are contiguous. `group`: a process group of the backend mscclpp, its name, or a name that register_group() was given;
left out, the default process group. `op`: sum, avg, min, max or product. The operators are compiled when this module is
first imported, in seconds, and kept under MSCCLPP_CACHE_DIR, for every PyTorch from 2.10 on.

In compiled programs the calls of each rank stay in the order in which they are written.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Union

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

from . import _mscclpp, compiler, include_path, library_path
from .group import CommGroup

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_",
    "all_reduce_rms_norm",
    "all_to_all",
    "broadcast",
    "broadcast_",
    "fused_all_reduce",
    "recv",
    "recv_",
    "reduce_scatter",
    "register_group",
    "send",
    "unregister_group",
]

_TARGET = 0x020A000000000000  # the oldest PyTorch that it works with, 2.10

Group = Union[str, "torch.distributed.ProcessGroup", None]


def _library() -> str:
    """The file of the operators."""
    home = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_source")
    there = os.path.dirname(os.path.abspath(torch.__file__))
    folders = [os.path.join(there, "include"), include_path(), home]
    command = [compiler.host_compiler("torch.ops.mscclpp"), "-std=c++20", "-O2", "-fPIC", "-shared", "-w"]
    command += [f"-DTORCH_TARGET_VERSION={_TARGET:#018x}"]
    command += [flag for folder in folders for flag in ("-isystem", folder)]
    linked = [f"-L{os.path.join(there, 'lib')}", "-Wl,--no-as-needed", "-ltorch_cpu", f"-L{library_path()}"]
    linked += [f"-Wl,-rpath,{library_path()}"]
    source = os.path.join(home, "torch_ops", "ops.cpp")
    return compiler.library_of("mscclpp_ops", source, command, linked, compiler.headers_in(home))[0]


def _find(name: str, cuda: bool) -> str:
    """Has the library know a process group; why that cannot be, or nothing."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return ""
    device = torch.device("cuda" if cuda else "cpu")
    try:
        backend = torch.distributed.distributed_c10d._resolve_process_group(name)._get_backend(device)
    except (RuntimeError, ValueError):
        return ""
    if not hasattr(backend, "offer"):
        return f"the process group's backend for them is {backend.name()}"
    try:
        backend.offer(name, cuda)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


_mscclpp.set_group_resolver(_find)
torch.ops.load_library(_library())
_ops = torch.ops.mscclpp


def register_group(name: str, group: CommGroup) -> None:
    """Has the operators know the ranks of a group by a name. Collective. The group may go before unregister_group()."""
    _mscclpp.register_group(name, group.communicator)


def unregister_group(name: str) -> None:
    """Frees what register_group() made. Its calls must be done."""
    _mscclpp.unregister_group(name)


def _name(group: Group) -> str:
    if isinstance(group, str):
        return group
    if group is None:
        group = torch.distributed.group.WORLD
        if group is None:
            raise ValueError("mscclpp.ops: there is no default process group; init_process_group(), or name a group")
    return group.group_name


# ---- the calls


def _call(operator: Any, needs_gradient: bool, *arguments: Any) -> Any:
    if (needs_gradient and torch.is_grad_enabled()) or torch.compiler.is_compiling():
        return operator(*arguments)
    # The derivative's part of a call takes longer than the rest.
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def all_reduce(x: torch.Tensor, op: str = "sum", group: Group = None) -> torch.Tensor:
    """The combination of all ranks' `x`. With a derivative for sum and avg."""
    return _call(_ops.all_reduce, x.requires_grad, x, op, _name(group))


def fused_all_reduce(
    x: torch.Tensor,
    op: str = "sum",
    group: Group = None,
    *,
    scale: float = 1.0,
    residual: Optional[torch.Tensor] = None,
    dtype: Optional[torch.dtype] = None,
) -> torch.Tensor:
    """(scale * all_reduce(x) + residual).to(dtype), in one kernel, of floating numbers.

    The residual is of x's shape, and of its type or of `dtype`. The sum is rounded to x's type; what follows is
    computed in float32 (float64 for such x) and rounded once. With a derivative for sum and avg.
    """
    needs_gradient = x.requires_grad or (residual is not None and residual.requires_grad)
    return _call(_ops.fused_all_reduce, needs_gradient, x, op, _name(group), scale, residual, dtype)


def all_reduce_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: Optional[torch.Tensor] = None,
    eps: float = 1e-6,
    group: Group = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """y and the new residual: new = all_reduce(x) + residual, y = new * rsqrt(mean(new * new) + eps) * weight.

    Means are over the last dimension. Of float16, bfloat16 or float32, all of them of one type; computed in float32, and
    each result rounded once. Larger inputs take two kernels: there the sum is rounded, too. With a derivative.
    """
    needs_gradient = x.requires_grad or weight.requires_grad or (residual is not None and residual.requires_grad)
    return _call(_ops.all_reduce_rms_norm, needs_gradient, x, weight, _name(group), residual, eps)


def all_gather(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """All ranks' `x`, one behind the other in dimension 0. With a derivative."""
    return _call(_ops.all_gather, x.requires_grad, x, _name(group))


def reduce_scatter(x: torch.Tensor, op: str = "sum", group: Group = None) -> torch.Tensor:
    """This rank's part, in dimension 0, of the combination of all ranks' `x`. With a derivative for sum and avg."""
    return _call(_ops.reduce_scatter, x.requires_grad, x, op, _name(group))


def all_to_all(x: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Part p of dimension 0 goes to rank p; what came from rank p is part p of the result. With a derivative."""
    return _call(_ops.all_to_all, x.requires_grad, x, _name(group))


def broadcast(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """The root's `x`. With a derivative."""
    return _call(_ops.broadcast, x.requires_grad, x, root, _name(group))


def send(x: torch.Tensor, peer: int, group: Group = None) -> None:
    """Sends it to another rank's recv(). On the CPU it may wait for that."""
    _ops.send(x, peer, _name(group))


def recv(like: torch.Tensor, peer: int, group: Group = None) -> torch.Tensor:
    """What `peer` sends, a tensor of the shape and type of `like`, whose elements do not matter."""
    return _ops.recv(like, peer, _name(group))


def all_reduce_(x: torch.Tensor, op: str = "sum", group: Group = None) -> torch.Tensor:
    """all_reduce() in place; returns `x`."""
    if torch.compiler.is_compiling():
        return _detached(x).copy_(_ops.all_reduce(x, op, _name(group)))
    _ops.all_reduce_(_detached(x), op, _name(group))
    return x


def broadcast_(x: torch.Tensor, root: int = 0, group: Group = None) -> torch.Tensor:
    """broadcast() in place; returns `x`."""
    if torch.compiler.is_compiling():
        return _detached(x).copy_(_ops.broadcast(x, root, _name(group)))
    _ops.broadcast_(_detached(x), root, _name(group))
    return x


def recv_(x: torch.Tensor, peer: int, group: Group = None) -> torch.Tensor:
    """recv() into `x`; returns it."""
    if torch.compiler.is_compiling():
        return _detached(x).copy_(_ops.recv(x, peer, _name(group)))
    _ops.recv_(_detached(x), peer, _name(group))
    return x


def _detached(x: torch.Tensor) -> torch.Tensor:
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("mscclpp.ops: calls in place have no derivative; take the other form, or torch.no_grad()")
    return x


# ---- what torch.compile and autograd need to know

# Each call waits for the same call of other ranks: what compiles a program must not change their order. Calls in place
# are written as the others and a copy there, since PyTorch orders only what changes no argument.
for _op in (
    _ops.all_reduce.default,
    _ops.fused_all_reduce.default,
    _ops.all_reduce_rms_norm.default,
    _ops.all_gather.default,
    _ops.reduce_scatter.default,
    _ops.all_to_all.default,
    _ops.broadcast.default,
    _ops.send.default,
    _ops.recv.default,
):
    _register_effectful_op(_op, _EffectType.ORDERED)


def _size(x: torch.Tensor, group: str) -> int:
    return _mscclpp.group_size(group, x.device.type == "cuda")


def _divided(what: str, x: torch.Tensor, group: str) -> int:
    size = _size(x, group)
    torch._check(x.dim() > 0, lambda: f"torch.ops.mscclpp.{what}: a tensor without dimensions")
    torch._check(
        x.shape[0] % size == 0,
        lambda: f"torch.ops.mscclpp.{what}: dimension 0 of shape {list(x.shape)} does not divide by {size} ranks",
    )
    return size


@torch.library.register_fake("mscclpp::all_reduce_")
def _(x, op, group):
    return None


@torch.library.register_fake("mscclpp::broadcast_")
@torch.library.register_fake("mscclpp::recv_")
@torch.library.register_fake("mscclpp::send")
def _(x, peer, group):
    return None


@torch.library.register_fake("mscclpp::all_reduce")
def _(x, op, group):
    return torch.empty_like(x)


@torch.library.register_fake("mscclpp::broadcast")
@torch.library.register_fake("mscclpp::recv")
def _(x, peer, group):
    return torch.empty_like(x)


@torch.library.register_fake("mscclpp::fused_all_reduce")
def _(x, op, group, scale=1.0, residual=None, dtype=None):
    return torch.empty_like(x, dtype=dtype or x.dtype)


@torch.library.register_fake("mscclpp::all_reduce_rms_norm")
def _(x, weight, group, residual=None, eps=1e-6):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.register_fake("mscclpp::all_gather")
def _(x, group):
    torch._check(x.dim() > 0, lambda: "torch.ops.mscclpp.all_gather: a tensor without dimensions")
    return x.new_empty((x.shape[0] * _size(x, group), *x.shape[1:]))


@torch.library.register_fake("mscclpp::reduce_scatter")
def _(x, op, group):
    return x.new_empty((x.shape[0] // _divided("reduce_scatter", x, group), *x.shape[1:]))


@torch.library.register_fake("mscclpp::all_to_all")
def _(x, group):
    _divided("all_to_all", x, group)
    return torch.empty_like(x)


def _linear(ctx: Any, what: str) -> None:
    if ctx.op not in ("sum", "avg"):
        raise RuntimeError(f"torch.ops.mscclpp.{what}: there is no derivative of {ctx.op}, only of sum and avg")


def _keep_op(ctx: Any, inputs: tuple, output: Any) -> None:
    del output
    _, ctx.op, ctx.group = inputs


def _keep_group(ctx: Any, inputs: tuple, output: Any) -> None:
    del output
    ctx.group = inputs[1]


def _all_reduce_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    _linear(ctx, "all_reduce")
    return _ops.all_reduce(gradient.contiguous(), ctx.op, ctx.group), None, None


def _keep_fused(ctx: Any, inputs: tuple, output: Any) -> None:
    del output
    x, ctx.op, ctx.group, ctx.scale, residual, _ = inputs
    ctx.dtype = x.dtype
    ctx.residual_dtype = None if residual is None else residual.dtype


def _fused_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    _linear(ctx, "fused_all_reduce")
    of_x = of_residual = None
    if ctx.needs_input_grad[0]:
        of_x = _ops.fused_all_reduce(gradient.contiguous(), ctx.op, ctx.group, ctx.scale, None, ctx.dtype)
    if ctx.residual_dtype is not None and ctx.needs_input_grad[4]:
        of_residual = gradient.to(ctx.residual_dtype)
    return of_x, None, None, None, of_residual, None


def _keep_norm(ctx: Any, inputs: tuple, output: Any) -> None:
    _, weight, ctx.group, residual, ctx.eps = inputs
    ctx.has_residual = residual is not None
    ctx.save_for_backward(weight, output[1])


def _norm_backward(ctx: Any, of_y: torch.Tensor, of_new: torch.Tensor) -> tuple:
    weight, new = ctx.saved_tensors
    wide, of_y = new.float(), of_y.float()
    scale = (wide.square().mean(-1, keepdim=True) + ctx.eps).rsqrt()
    unit, weighted = wide * scale, of_y * weight.float()
    of_sum = (weighted - unit * (weighted * unit).mean(-1, keepdim=True)) * scale + of_new.float()
    of_sum = of_sum.to(new.dtype).contiguous()
    of_x = _ops.all_reduce(of_sum, "sum", ctx.group) if ctx.needs_input_grad[0] else None
    of_weight = (of_y * unit).reshape(-1, weight.numel()).sum(0).to(weight.dtype)
    return of_x, of_weight, None, of_sum if ctx.has_residual else None, None


def _all_gather_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    return _ops.reduce_scatter(gradient.contiguous(), "sum", ctx.group), None


def _reduce_scatter_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    _linear(ctx, "reduce_scatter")
    whole = _ops.all_gather(gradient.contiguous(), ctx.group)
    return (whole / _size(gradient, ctx.group) if ctx.op == "avg" else whole), None, None


def _all_to_all_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    return _ops.all_to_all(gradient.contiguous(), ctx.group), None


def _broadcast_backward(ctx: Any, gradient: torch.Tensor) -> tuple:
    total = _ops.all_reduce(gradient.contiguous(), "sum", ctx.group)
    is_root = _mscclpp.group_rank(ctx.group, gradient.device.type == "cuda") == ctx.op
    return (total if is_root else torch.zeros_like(total)), None, None


torch.library.register_autograd("mscclpp::all_reduce", _all_reduce_backward, setup_context=_keep_op)
torch.library.register_autograd("mscclpp::fused_all_reduce", _fused_backward, setup_context=_keep_fused)
torch.library.register_autograd("mscclpp::all_reduce_rms_norm", _norm_backward, setup_context=_keep_norm)
torch.library.register_autograd("mscclpp::all_gather", _all_gather_backward, setup_context=_keep_group)
torch.library.register_autograd("mscclpp::reduce_scatter", _reduce_scatter_backward, setup_context=_keep_op)
torch.library.register_autograd("mscclpp::all_to_all", _all_to_all_backward, setup_context=_keep_group)
torch.library.register_autograd("mscclpp::broadcast", _broadcast_backward, setup_context=_keep_op)

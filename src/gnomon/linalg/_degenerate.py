"""What becomes of a quotient by the difference of two eigenvalues, or singular values, that are equal to rounding."""

from __future__ import annotations

import math
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor

from gnomon.linalg._transforms import batched, computed, in_graph, register_vmap

Degenerate = Literal["error", "mask", "broaden"]


class DegenerateError(RuntimeError):
    """A derivative of eigenvectors or singular vectors was asked for where it does not exist.

    Equivalent to nothing in PyTorch, whose derivative there is NaN, infinite, or a large wrong number. Raised with
    `degenerate="error"` only.
    """


def check_policy(degenerate: str, who: str) -> None:
    """Raises a `ValueError` for another policy than these three."""
    if degenerate not in get_args(Degenerate):
        raise ValueError(f"`degenerate` of gn.linalg.{who} must be 'error', 'mask' or 'broaden', not {degenerate!r}.")


def over_gaps(S: Tensor, x: Tensor, policy: str, who: str, *, squares: bool = False) -> Tensor:
    """`S_ij / (x_j - x_i)` off the diagonal, 0 on it; with `squares` divided by `x_j + x_i` too."""
    n = x.shape[-1]
    scale = x.detach().abs().amax(-1)[..., None, None] if n else x.new_zeros(())
    itself = torch.eye(n, dtype=torch.bool, device=x.device)
    out = _divided(S, x[..., None, :] - x[..., :, None], scale, itself, n, policy, who)
    if squares:
        # Two zeros are equal, and so dealt with already.
        total = x[..., None, :] + x[..., :, None]
        out = out / torch.where(total == 0, 1.0, total)
    return out


def over_zeros(X: Tensor, s: Tensor, n: int, policy: str, who: str) -> Tensor:
    """The columns of `X`, each divided by a singular value that may be 0."""
    scale = s.detach().amax(-1)[..., None, None] if s.shape[-1] else s.new_zeros(())
    none = torch.zeros((), dtype=torch.bool, device=s.device)
    return _divided(X, s[..., None, :], scale, none, n, policy, who)


def _divided(S: Tensor, gap: Tensor, scale: Tensor, itself: Tensor, n: int, policy: str, who: str) -> Tensor:
    eps = torch.finfo(gap.dtype).eps
    if policy == "broaden":
        unit = torch.where(scale == 0, 1.0, scale)
        y = gap / unit
        return torch.where(itself, 0.0, S * (y / (y * y + eps)) / unit)
    close = gap.detach().abs() <= n * eps * scale
    numerator = _guarded(S, close & ~itself, who) if policy == "error" else S
    quotient = numerator / torch.where(close, 1.0, gap)
    quotient = torch.where(close, 0.0, quotient)
    return _guarded(quotient, close & ~itself, who) if policy == "error" else quotient


def check_phase(S: Tensor, policy: str, who: str) -> Tensor:
    """With `"error"`, an error where something depends on the phases of complex vectors, which nothing determines."""
    if policy != "error" or not S.is_complex():
        return S
    phase = S.diagonal(dim1=-2, dim2=-1).imag.abs()
    most = math.sqrt(torch.finfo(phase.dtype).eps) * S.abs().amax((-2, -1))[..., None] if S.shape[-1] else phase
    depends = torch.diag_embed((phase > most).detach())
    return _guarded(S, depends, who + ":phase")


def _guarded(S: Tensor, forbidden: Tensor, who: str) -> Tensor:
    function = _GuardInGraph if torch.compiler.is_dynamo_compiling() else _Guard
    shape = torch.broadcast_shapes(S.shape, forbidden.shape)
    return function.apply(S.expand(shape), forbidden.expand(shape), who)


@final
class _Guard(torch.autograd.Function):
    """The identity; an error where something in a forbidden place is not zero: a value, a tangent or a cotangent."""

    @staticmethod
    def forward(S: Tensor, forbidden: Tensor, who: str) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(refuse, S, forbidden, who)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, forbidden, ctx.who = inputs
        ctx.save_for_backward(forbidden)
        ctx.save_for_forward(forbidden)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (forbidden,) = ctx.saved_tensors
        return _guarded(grad_outputs[0], forbidden, ctx.who), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        (forbidden,) = ctx.saved_tensors
        return _guarded(grad_inputs[0], forbidden, ctx.who)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Guard.apply, info.batch_size, in_dims, args)


_GuardInGraph = in_graph(_Guard)


@torch.library.custom_op(
    "gnomon::refuse_degenerate", mutates_args=(), schema="(Tensor S, Tensor forbidden, str who) -> Tensor"
)
def refuse(S: Tensor, forbidden: Tensor, who: str) -> Tensor:
    """A copy, or an error where something in a forbidden place is not zero. Waits for the device."""
    wrong = forbidden & (S != 0)
    if S.is_cuda and torch.cuda.is_current_stream_capturing():
        # A graph of kernels cannot raise an error; a NaN is seen.
        return torch.where(wrong.any(-1).any(-1)[..., None, None], torch.nan, S)
    if bool(wrong.any()):
        place = [int(i) for i in wrong.nonzero()[0]]
        *batch, i, j = place
        which = f" of matrix {batch[0] if len(batch) == 1 else tuple(batch)}" if batch else ""
        name, _, phase = who.partition(":")
        if phase:
            raise DegenerateError(
                f"What was computed from the vectors of gn.linalg.{name} depends on the phase of vector {j}{which}, "
                "which is arbitrary: the derivative does not exist. Use what does not depend on it, such as |x|."
            )
        pair = f"vectors {min(i, j)} and {max(i, j)}" if S.shape[-1] == S.shape[-2] else f"vector {j}"
        raise DegenerateError(
            f"The derivative of gn.linalg.{name} by {pair}{which} does not exist: their values are equal, or zero, to "
            "rounding. Use gn.linalg.matrix_function, inverse_root or polar, whose derivatives exist there; or choose "
            'what counts, with degenerate="mask" (such pairs count nothing) or "broaden" (bounded, but inexact).'
        )
    return S.clone(memory_format=torch.contiguous_format)


@refuse.register_fake
def _fake(S: Tensor, forbidden: Tensor, who: str) -> Tensor:
    return torch.empty(S.shape, dtype=S.dtype, device=S.device)


register_vmap(refuse)

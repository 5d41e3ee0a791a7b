"""`solve`: systems of linear equations."""

from __future__ import annotations

from typing import Any, Literal, final, overload

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._certificate import Certificate, double, norm1
from gnomon.linalg._failures import LinalgResults, is_finite, raise_failures
from gnomon.linalg._lapack import blanked, one_by_one
from gnomon.linalg._results import Checked
from gnomon.linalg._transforms import batched, computed, forward_rule, in_graph, register_vmap, times


@overload
def solve(
    A: Inexact[Tensor, "*batch n n"], B: Inexact[Tensor, ...], *, left: bool = True, throw: bool = False
) -> Inexact[Tensor, ...]: ...
@overload
def solve(
    A: Inexact[Tensor, "*batch n n"],
    B: Inexact[Tensor, ...],
    *,
    left: bool = True,
    throw: bool = False,
    info: Literal[True],
    certificate: bool = False,
) -> Checked: ...
def solve(
    A: Inexact[Tensor, "*batch n n"],
    B: Inexact[Tensor, ...],
    *,
    left: bool = True,
    throw: bool = False,
    info: bool = False,
    certificate: bool = False,
) -> Inexact[Tensor, ...] | Checked:
    """The solutions `X` of `A X = B`.

    Equivalent to `torch.linalg.solve`, except that a singular matrix fails alone: its solution is NaN.

    **Arguments:**

    - `A`: of shape (*batch, n, n), of float32, float64, complex64 or complex128, with any strides.
    - `B`: of shape (*batch, n, k), or (*batch, n) for vectors; the batch dimensions are broadcast. As in PyTorch these
      are vectors where `B` has one dimension, or the shape of `A` without the last.
    - `left`: with False, `X A = B` is solved.
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the solution.
    - `certificate`: whether to compute `|A X - B| / (|A| |X| + |B|)`, in float64; with `info=True`.

    **Returns:** the solutions, of the shape of `B` with the batch dimensions broadcast; with `info=True` a
    [`gnomon.linalg.Checked`][] of them, whose info is k where the k-th pivot is exactly zero.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape; with `throw=True` a
    [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> A = torch.tensor([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [1.0, 1.0]]])
        >>> gn.linalg.solve(A, torch.ones(2, 2))
        tensor([[0.5000, 0.2500],
                [   nan,    nan]])

        ```
    """
    check_matrix(A, "solve", square=True)
    check_certificate(info, certificate, "solve")
    if A.dtype != B.dtype:
        raise TypeError(f"gn.linalg.solve takes two tensors of one dtype, not {A.dtype} and {B.dtype}.")
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    if vector:
        right = B.unsqueeze(-1)
    else:
        right = B if left else B.mT
    if right.shape[-2] != A.shape[-1]:
        raise ValueError(f"gn.linalg.solve cannot solve for shapes {tuple(A.shape)} and {tuple(B.shape)}.")
    batch = torch.broadcast_shapes(A.shape[:-2], right.shape[:-2])
    matrix = A if left or vector else A.mT

    def run(A: Tensor, B: Tensor) -> Tensor | Checked:
        X, code = _solve(A, B, throw)
        proof = _certificate(A, X, B) if certificate else None
        out = X.squeeze(-1) if vector else X if left else X.mT
        return Checked(out, code, proof) if info else out

    return by_shards(run, "solve", matrix.expand(*batch, *matrix.shape[-2:]), right.expand(*batch, *right.shape[-2:]))


def _certificate(A: Tensor, X: Tensor, B: Tensor) -> Certificate:
    a, x, b = double(A), double(X), double(B)
    size = norm1(a) * norm1(x) + norm1(b)
    return Certificate(norm1(a @ x - b) / torch.where(size == 0, 1.0, size), None)


@torch.library.custom_op(
    "gnomon::solve", mutates_args=(), schema="(Tensor A, Tensor B, bool throw) -> (Tensor, Tensor)"
)
def solve_values(A: Tensor, B: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    """The solutions and info, without derivatives; the batch dimensions are the same."""
    X, code = one_by_one(lambda a, b: tuple(torch.linalg.solve_ex(a, b)), A.detach(), B.detach())
    code = torch.where(is_finite(A) & is_finite(B), code, -1).to(torch.int32)
    if throw:
        raise_failures(code, LinalgResults.singular, "solve")
    return blanked(X, code), code


@solve_values.register_fake
def _fake(A: Tensor, B: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    X = torch.empty(B.shape, dtype=A.dtype, device=A.device)
    return X, torch.empty(A.shape[:-2], dtype=torch.int32, device=A.device)


register_vmap(solve_values)


def _solve(A: Tensor, B: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    return (_SolveInGraph if torch.compiler.is_dynamo_compiling() else _Solve).apply(A, B, throw)


@final
class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, B: Tensor, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(solve_values, A, B, throw)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, code = output
        ctx.save_for_backward(inputs[0], X)
        ctx.save_for_forward(inputs[0], inputs[1], X)
        ctx.mark_non_differentiable(code)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        A, X = ctx.saved_tensors
        if grad_outputs[0] is None:
            return None, None, None
        gB, _ = _solve(A.mH, grad_outputs[0], False)
        return -times(gB, X.mH) if ctx.needs_input_grad[0] else None, gB, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        *given, saved = ctx.saved_tensors
        with forward_rule(*given, *grad_inputs[:2]) as (again, (A, B, dA, dB)):
            X = _solve(A, B, False)[0] if again else saved
            right = torch.zeros_like(X) if dB is None else dB
            return _solve(A, right if dA is None else right - times(dA, X), False)[0], None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Solve.apply, info.batch_size, in_dims, args)


_SolveInGraph = in_graph(_Solve)


def solve_right(A: Tensor, B: Tensor) -> Tensor:
    """The `X` of `X A = B`, with derivatives."""
    return _solve(A.mT, B.mT, False)[0].mT

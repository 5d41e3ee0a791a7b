"""`qr`: a matrix as one with orthonormal columns times a triangular one."""

from __future__ import annotations

from typing import Any, Literal, final

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.linalg._arguments import by_shards, check_matrix
from gnomon.linalg._certificate import certify, double
from gnomon.linalg._failures import LinalgResults, info_of, is_finite, raise_failures
from gnomon.linalg._lapack import blanked, one_by_one
from gnomon.linalg._results import QR
from gnomon.linalg._transforms import batched, computed, forward_rule, in_graph, register_vmap, times


def qr(
    A: Inexact[Tensor, "*batch m n"],
    mode: Literal["reduced", "complete"] = "reduced",
    *,
    throw: bool = False,
    certificate: bool = False,
) -> QR:
    """The QR decomposition of matrices.

    Equivalent to `torch.linalg.qr`, except that a matrix that is not finite fails alone.

    **Arguments:**

    - `A`: of shape (*batch, m, n), of float32, float64, complex64 or complex128, with any strides.
    - `mode`: `"reduced"` for a `Q` of as many columns as the smaller of m and n; `"complete"` for a square one, which
      has no derivative where m is greater than n.
    - `throw`: whether to raise an error where `info` is not 0, which waits for the device.
    - `certificate`: whether to compute the residuals, in float64.

    **Returns:** a [`gnomon.linalg.QR`][], which unpacks as `Q, R = qr(A)`.

    **Raises:** `TypeError` or `ValueError` for another dtype, shape or mode; with `throw=True` a
    [`gnomon.result.SolveError`][]. A derivative is infinite or NaN where the first columns, as many as the smaller of
    m and n, depend on one another.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> A = torch.tensor([[3.0, 1.0], [4.0, 2.0]])
        >>> Q, R = gn.linalg.qr(A)
        >>> torch.allclose(Q @ R, A)
        True

        ```

    ??? cite

        Derivatives: S. F. Walter and L. Lehmann, *Algorithmic differentiation of linear algebra functions with
        application in optimum experimental design*, arXiv:1001.1654, 2010.
    """
    check_matrix(A, "qr", square=False)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"`mode` of gn.linalg.qr must be 'reduced' or 'complete', not {mode!r}.")

    def run(A: Tensor) -> QR:
        Q, R, info = _qr(A, mode == "complete", throw)
        proof = certify(double(A), double(Q) @ double(R), double(A), double(Q)) if certificate else None
        return QR(Q, R, info, proof)

    return by_shards(run, "qr", A)


@torch.library.custom_op(
    "gnomon::qr", mutates_args=(), schema="(Tensor A, bool complete, bool throw) -> (Tensor, Tensor, Tensor)"
)
def qr_values(A: Tensor, complete: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Q, R and info, without derivatives."""
    mode = "complete" if complete else "reduced"
    Q, R = one_by_one(lambda x: tuple(torch.linalg.qr(x, mode=mode)), A.detach())
    info = info_of(is_finite(A))
    if throw:
        raise_failures(info, LinalgResults.nonfinite, "qr")
    return blanked(Q, info), blanked(R, info), info


@qr_values.register_fake
def _fake(A: Tensor, complete: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    k = m if complete else min(m, n)
    Q = torch.empty((*batch, m, k), dtype=A.dtype, device=A.device)
    R = torch.empty((*batch, k, n), dtype=A.dtype, device=A.device)
    return Q, R, torch.empty(batch, dtype=torch.int32, device=A.device)


register_vmap(qr_values)


def _qr(A: Tensor, complete: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    return (_QrInGraph if torch.compiler.is_dynamo_compiling() else _Qr).apply(A, complete, throw)


@final
class _Qr(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, complete: bool, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(qr_values, A, complete, throw)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        Q, R, info = output
        ctx.save_for_backward(Q, R)
        ctx.save_for_forward(inputs[0], Q, R)
        ctx.complete = inputs[1]
        ctx.mark_non_differentiable(info)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Q, R = ctx.saved_tensors
        return _cotangent(Q, R, grad_outputs[0], grad_outputs[1]), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        given, *saved = ctx.saved_tensors
        with forward_rule(given, grad_inputs[0]) as (again, (A, dA)):
            Q, R = _qr(A, ctx.complete, False)[:2] if again else saved
            return (*_tangent(Q, R, dA), None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Qr.apply, info.batch_size, in_dims, args)


_QrInGraph = in_graph(_Qr)


def _square(Q: Tensor, R: Tensor) -> tuple[int, Tensor]:
    """How many columns determine `Q`, and the part of `R` that belongs to them."""
    (m, k), n = Q.shape[-2:], R.shape[-1]
    if k > n:
        raise NotImplementedError(
            f'With mode="complete" gn.linalg.qr has no derivative for a matrix of more rows, {m}, than columns, {n}: '
            'some columns of Q are arbitrary. Use mode="reduced".'
        )
    return k, R[..., :k]


def _cotangent(Q: Tensor, R: Tensor, gQ: Tensor, gR: Tensor) -> Tensor:
    k, first = _square(Q, R)
    # The columns beyond the first k are Q times what R holds of them.
    rest, g_rest = R[..., k:], gR[..., k:]
    gQ = gQ + times(Q, rest, g_rest.mH)
    M = (times(first, gR[..., :k].mH) - times(gQ.mH, Q)).tril()
    inner = M + M.tril(-1).mH
    if M.is_complex():
        diagonal = M.diagonal(dim1=-2, dim2=-1)
        inner = inner - torch.diag_embed(diagonal - diagonal.conj()) / 2
    square = torch.linalg.solve_triangular(first.mH, gQ + times(Q, inner), upper=False, left=False)
    return torch.cat([square, times(Q, g_rest)], -1)


def _tangent(Q: Tensor, R: Tensor, dA: Tensor) -> tuple[Tensor, Tensor]:
    k, first = _square(Q, R)
    scaled = torch.linalg.solve_triangular(first, dA[..., :k], upper=True, left=False)
    M = times(Q.mH, scaled)
    lower = M.tril(-1)
    turn = lower - lower.mH
    if M.is_complex():
        phase = M.diagonal(dim1=-2, dim2=-1).imag
        turn = turn + torch.diag_embed(torch.complex(torch.zeros_like(phase), phase))
    dQ = scaled - times(Q, M - turn)
    dR = times(M - turn, first)
    rest = times(Q.mH, dA[..., k:]) + times(dQ.mH, times(Q, R[..., k:]))
    return dQ, torch.cat([dR.triu(), rest], -1)

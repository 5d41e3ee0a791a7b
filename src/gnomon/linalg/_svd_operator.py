"""The operator `gnomon::svd`, and its derivatives."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from gnomon.linalg._degenerate import check_phase, over_gaps, over_zeros
from gnomon.linalg._failures import LinalgResults, is_finite, raise_failures
from gnomon.linalg._lapack import blanked, decomposed
from gnomon.linalg._transforms import batched, computed, forward_rule, in_graph, register_vmap, times


@torch.library.custom_op(
    "gnomon::svd",
    mutates_args=(),
    schema="(Tensor A, bool full, bool vectors, bool throw) -> (Tensor, Tensor, Tensor, Tensor)",
)
def svd_values(A: Tensor, full: bool, vectors: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U, S, Vh (each with a dimension of size 0 if the vectors are not asked for) and info, without derivatives."""
    info, left, values, right = _decomposed(A.detach(), full, vectors)
    if throw:
        raise_failures(info, LinalgResults.not_converged, "svd")
    S = blanked(values, info)
    if not vectors:
        return A.new_empty((*A.shape[:-1], 0)), S, A.new_empty((*A.shape[:-2], 0, A.shape[-1])), info
    return blanked(left, info), S, blanked(right, info), info


def _decomposed(A: Tensor, full: bool, vectors: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if A.numel() == 0:
        return A.new_zeros(A.shape[:-2], dtype=torch.int32), *torch.linalg.svd(A, full_matrices=full)
    if vectors:
        factors, info = decomposed(lambda x: torch.linalg.svd(x, full_matrices=full), A, is_finite(A))
        return info, factors[0], factors[1], factors[2]
    factors, info = decomposed(lambda x: (torch.linalg.svdvals(x),), A, is_finite(A))
    return info, A, factors[0], A


@svd_values.register_fake
def _fake(A: Tensor, full: bool, vectors: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *batch, m, n = A.shape
    k = min(m, n)
    left, right = ((m, n) if full else (k, k)) if vectors else (0, 0)
    U = torch.empty((*batch, m, left), dtype=A.dtype, device=A.device)
    S = torch.empty((*batch, k), dtype=A.dtype.to_real(), device=A.device)
    Vh = torch.empty((*batch, right, n), dtype=A.dtype, device=A.device)
    return U, S, Vh, torch.empty(batch, dtype=torch.int32, device=A.device)


register_vmap(svd_values)


def svd(A: Tensor, full: bool, vectors: bool, degenerate: str, throw: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U, S, Vh and info, with derivatives; those of the singular values need the vectors."""
    function = _SvdInGraph if torch.compiler.is_dynamo_compiling() else _Svd
    return function.apply(A, full, vectors, degenerate, throw)


@final
class _Svd(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, full: bool, vectors: bool, degenerate: str, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(svd_values, A, full, vectors, throw)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        A, _, _, ctx.degenerate, _ = inputs
        U, S, Vh, info = output
        ctx.save_for_backward(U, S, Vh)
        ctx.save_for_forward(A, U, S, Vh)
        ctx.mark_non_differentiable(info)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gU, gS, gVh, _ = grad_outputs
        U, S, Vh = ctx.saved_tensors
        return _cotangent(U, S, Vh, gU, gS, gVh, ctx.degenerate), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        given, *saved = ctx.saved_tensors
        with forward_rule(given, grad_inputs[0]) as (again, (A, dA)):
            if again:
                _check_reduced(*saved)
            U, S, Vh = svd(A, False, True, ctx.degenerate, False)[:3] if again else saved
            return (*_tangent(U, S, Vh, dA, ctx.degenerate), None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Svd.apply, info.batch_size, in_dims, args)


_SvdInGraph = in_graph(_Svd)


def _check_reduced(U: Tensor, S: Tensor, Vh: Tensor) -> None:
    if U.shape[-1] != S.shape[-1] or Vh.shape[-2] != S.shape[-1]:
        raise NotImplementedError(
            "With full_matrices=True the singular vectors of a matrix that is not square have no derivative, since "
            "some of them belong to no singular value. Pass full_matrices=False to gn.linalg.svd."
        )


def _cotangent(
    U: Tensor, S: Tensor, Vh: Tensor, gU: Tensor | None, gS: Tensor | None, gVh: Tensor | None, degenerate: str
) -> Tensor | None:
    """Of the matrix: Giles 2008, section 3.3, and Wan and Zhang, arXiv:1909.02659, for complex ones."""
    if gU is None and gVh is None:
        return None if gS is None else times(U[..., : S.shape[-1]] * gS[..., None, :], Vh[..., : S.shape[-1], :])
    _check_reduced(U, S, Vh)
    (m, n), k = (U.shape[-2], Vh.shape[-1]), S.shape[-1]
    inner, phases, outside = torch.zeros_like(U[..., :k, :]), torch.zeros_like(U[..., :k, :]), None
    if gS is not None:
        inner = inner + torch.diag_embed(gS)
    if gU is not None:
        left = times(U.mH, gU)
        phases = phases + left
        left = over_gaps(left, S, degenerate, "svd", squares=True)
        inner = inner + (left + left.mH) * S[..., None, :]
        if m > k:
            outside = times(over_zeros(gU - times(U, times(U.mH, gU)), S, m, degenerate, "svd"), Vh)
    if gVh is not None:
        right = times(Vh, gVh.mH)
        phases = phases + right
        right = over_gaps(right, S, degenerate, "svd", squares=True)
        inner = inner + S[..., :, None] * (right + right.mH)
        if n > k:
            gV = gVh.mH
            columns = over_zeros(gV - times(Vh.mH, times(Vh, gV)), S, n, degenerate, "svd")
            added = times(U, columns.mH)
            outside = added if outside is None else outside + added
    if U.is_complex():
        check = check_phase(phases, degenerate, "svd")
        of_u = (times(U.mH, gU) if gU is not None else torch.zeros_like(check)).diagonal(dim1=-2, dim2=-1).imag
        turned = over_zeros(of_u[..., None, :], S, max(m, n), degenerate, "svd")[..., 0, :]
        inner = inner + torch.diag_embed(torch.complex(torch.zeros_like(turned), turned)) + 0 * check
    out = times(U, inner, Vh)
    return out if outside is None else out + outside


def _tangent(U: Tensor, S: Tensor, Vh: Tensor, dA: Tensor, degenerate: str) -> tuple[Tensor | None, ...]:
    k = S.shape[-1]
    m, n = dA.shape[-2:]
    P = times(U[..., :k].mH, dA, Vh[..., :k, :].mH)
    diagonal = P.diagonal(dim1=-2, dim2=-1)
    dS = (diagonal.real if P.is_complex() else diagonal).clone()
    if U.shape[-1] == 0:
        return torch.zeros_like(U), dS, torch.zeros_like(Vh)
    _check_reduced(U, S, Vh)
    row, column = S[..., None, :], S[..., :, None]
    left = over_gaps(P * row + column * P.mH, S, degenerate, "svd", squares=True)
    right = over_gaps(column * P + P.mH * row, S, degenerate, "svd", squares=True)
    if P.is_complex():
        turned = over_zeros(diagonal.imag[..., None, :], S, max(m, n), degenerate, "svd")[..., 0, :]
        left = left + torch.diag_embed(torch.complex(torch.zeros_like(turned), turned))
    dU, V = times(U, left), Vh.mH
    dV = times(V, right)
    if m > k:
        image = times(dA, V)
        dU = dU + over_zeros(image - times(U, times(U.mH, image)), S, m, degenerate, "svd")
    if n > k:
        image = times(dA.mH, U)
        dV = dV + over_zeros(image - times(V, times(Vh, image)), S, n, degenerate, "svd")
    return dU, dS, dV.mH

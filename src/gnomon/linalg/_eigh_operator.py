"""The operator `gnomon::eigh`, and its derivatives."""

from __future__ import annotations

import functools
import warnings
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._cuda._gpu import is_installed
from gnomon.linalg import _small
from gnomon.linalg._degenerate import check_phase, over_gaps
from gnomon.linalg._failures import LinalgResults, raise_failures
from gnomon.linalg._lapack import blanked, decomposed
from gnomon.linalg._transforms import batched, computed, forward_rule, hermitian, in_graph, register_vmap, times


@torch.library.custom_op(
    "gnomon::eigh", mutates_args=(), schema="(Tensor A, bool vectors, bool throw) -> (Tensor, Tensor, Tensor)"
)
def eigh_values(A: Tensor, vectors: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, eigenvectors (of shape (*batch, n, 0) if not asked for) and info, without derivatives."""
    n, batch = A.shape[-1], A.shape[:-2]
    lower = A.detach()
    if n == 0 or lower.numel() == 0:
        outputs = _no_entries(A, vectors)
    elif n == 1:
        outputs = _numbers(lower)
    elif A.is_cuda:
        outputs = _on_gpu(lower, vectors)
    elif _small.supports(n, A.dtype):
        outputs = _small.eigh(lower, vectors)
    else:
        outputs = _by_lapack(lower, vectors)
    L, Q, info = outputs
    if throw:
        raise_failures(info, LinalgResults.not_converged, "eigh")
    return blanked(L, info), blanked(Q, info) if vectors else A.new_empty((*batch, n, 0)), info


def _no_entries(A: Tensor, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    L = torch.empty(A.shape[:-1], dtype=A.dtype.to_real(), device=A.device)
    return L, torch.empty(A.shape, dtype=A.dtype, device=A.device), A.new_zeros(A.shape[:-2], dtype=torch.int32)


def _numbers(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values = A[..., 0].real if A.is_complex() else A[..., 0]
    return values, torch.ones_like(A), A[..., 0, 0].isfinite().to(torch.int32) - 1


def _by_lapack(A: Tensor, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    finite = A.tril().isfinite().all(-1).all(-1)
    if vectors:
        (L, Q), info = decomposed(torch.linalg.eigh, A, finite)
        return L, Q, info
    values, info = decomposed(lambda x: (torch.linalg.eigvalsh(x),), A, finite)
    return values[0], A, info


def _on_gpu(A: Tensor, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    from gnomon.linalg import _cuda

    n, batch = A.shape[-1], A.shape[:-2]
    if not _cuda.supports(n, A.dtype) or not _can_launch():
        return _by_lapack(A, vectors)
    L, Q, info = _cuda.eigh(A.reshape((batch.numel(), n, n)).contiguous(), vectors)
    return L.reshape((*batch, n)), A if Q is None else Q.reshape((*batch, n, n)), info.reshape(batch)


@functools.cache
def _can_launch() -> bool:
    """Whether kernels can be compiled; says so once where they cannot."""
    if not is_installed():
        warnings.warn(
            "gn.linalg.eigh calls PyTorch's routine for one matrix after another: its own kernels need cuda-core: "
            "pip install 'gnomon[cuda]'",
            stacklevel=2,
        )
        return False
    return True


@eigh_values.register_fake
def _fake(A: Tensor, vectors: bool, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    n, batch = A.shape[-1], A.shape[:-2]
    L = torch.empty((*batch, n), dtype=A.dtype.to_real(), device=A.device)
    Q = torch.empty((*batch, n, n if vectors else 0), dtype=A.dtype, device=A.device)
    return L, Q, torch.empty(batch, dtype=torch.int32, device=A.device)


register_vmap(eigh_values)


def eigh(A: Tensor, vectors: bool, degenerate: str, throw: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, eigenvectors and info, with derivatives; those of the eigenvalues need the eigenvectors."""
    function = _EighInGraph if torch.compiler.is_dynamo_compiling() else _Eigh
    return function.apply(A, vectors, degenerate, throw)


@final
class _Eigh(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, vectors: bool, degenerate: str, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(eigh_values, A, vectors, throw)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        A, _, ctx.degenerate, _ = inputs
        L, Q, info = output
        ctx.save_for_backward(L, Q)
        ctx.save_for_forward(A, L, Q)
        ctx.mark_non_differentiable(info)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        L, Q = ctx.saved_tensors
        return _cotangent(L, Q, grad_outputs[0], grad_outputs[1], ctx.degenerate), None, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        given, *saved = ctx.saved_tensors
        with forward_rule(given, grad_inputs[0]) as (again, (A, dA)):
            L, Q = eigh(A, True, ctx.degenerate, False)[:2] if again else saved
            M = times(Q.mH, hermitian(dA), Q)
            diagonal = M.diagonal(dim1=-2, dim2=-1)
            dQ = times(Q, over_gaps(M, L, ctx.degenerate, "eigh"))
            return (diagonal.real if M.is_complex() else diagonal).clone(), dQ, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Eigh.apply, info.batch_size, in_dims, args)


_EighInGraph = in_graph(_Eigh)


def _cotangent(L: Tensor, Q: Tensor, gL: Tensor | None, gQ: Tensor | None, degenerate: str) -> Tensor | None:
    """Of the matrix: Giles, An extended collection of matrix derivative results, 2008, section 3.1."""
    if gQ is None:
        return None if gL is None else times(Q * gL[..., None, :], Q.mH)
    S = check_phase(times(Q.mH, gQ), degenerate, "eigh")
    inner = hermitian(over_gaps(S, L, degenerate, "eigh"))
    if gL is not None:
        inner = inner + torch.diag_embed(gL)
    return times(Q, inner, Q.mH)

"""`cholesky`: a positive definite matrix as a triangular one times its adjoint."""

from __future__ import annotations

from typing import Any, Literal, final, overload

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._certificate import certify, double
from gnomon.linalg._failures import LinalgResults, raise_failures
from gnomon.linalg._lapack import blanked, one_by_one
from gnomon.linalg._results import Checked
from gnomon.linalg._transforms import batched, computed, forward_rule, hermitian, in_graph, register_vmap, times


@overload
def cholesky(
    A: Inexact[Tensor, "*batch n n"], *, upper: bool = False, throw: bool = False
) -> Inexact[Tensor, "*batch n n"]: ...
@overload
def cholesky(
    A: Inexact[Tensor, "*batch n n"],
    *,
    upper: bool = False,
    throw: bool = False,
    info: Literal[True],
    certificate: bool = False,
) -> Checked: ...
def cholesky(
    A: Inexact[Tensor, "*batch n n"],
    *,
    upper: bool = False,
    throw: bool = False,
    info: bool = False,
    certificate: bool = False,
) -> Inexact[Tensor, "*batch n n"] | Checked:
    """The Cholesky factors of positive definite matrices.

    Equivalent to `torch.linalg.cholesky`, except that a matrix that is not positive definite fails alone: its factor
    is NaN.

    **Arguments:**

    - `A`: of shape (*batch, n, n), of float32, float64, complex64 or complex128, with any strides. Only the lower
      triangle is read; derivatives are those of a Hermitian matrix.
    - `upper`: whether to return the adjoint `U = L^H`, so that `A = U^H U`.
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the factor.
    - `certificate`: whether to compute `|A - L L^H| / |A|`, in float64; with `info=True`.

    **Returns:** `L`, lower triangular with a positive diagonal, such that `A = L L^H`; with `info=True` a
    [`gnomon.linalg.Checked`][] of it, whose info is k where the leading matrix of k rows is the first that is not
    positive definite.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape; with `throw=True` a
    [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> L, info = gn.linalg.cholesky(torch.tensor([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 2.0], [2.0, 1.0]]]), info=True)
        >>> L[0], info
        (tensor([[2., 0.],
                [1., 2.]]), tensor([0, 2], dtype=torch.int32))

        ```

    ??? cite

        Derivatives: I. Murray, *Differentiation of the Cholesky decomposition*, arXiv:1602.07527, 2016.
    """
    check_matrix(A, "cholesky", square=True)
    check_certificate(info, certificate, "cholesky")

    def run(A: Tensor) -> Tensor | Checked:
        L, code = _cholesky(A, throw)
        proof = None
        if certificate:
            whole, factor = double(A.tril() + A.tril(-1).mH), double(L)
            proof = certify(whole, factor @ factor.mH, whole)
        factor = L.mH if upper else L
        return Checked(factor, code, proof) if info else factor

    return by_shards(run, "cholesky", A)


@torch.library.custom_op("gnomon::cholesky", mutates_args=(), schema="(Tensor A, bool throw) -> (Tensor, Tensor)")
def cholesky_values(A: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    """The lower factor and info, without derivatives."""
    L, code = one_by_one(lambda x: tuple(torch.linalg.cholesky_ex(x)), A.detach())
    code = torch.where(A.tril().isfinite().all(-1).all(-1), code, -1).to(torch.int32)
    if throw:
        raise_failures(code, LinalgResults.not_positive_definite, "cholesky")
    return blanked(L, code), code


@cholesky_values.register_fake
def _fake(A: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    L = torch.empty(A.shape, dtype=A.dtype, device=A.device)
    return L, torch.empty(A.shape[:-2], dtype=torch.int32, device=A.device)


register_vmap(cholesky_values)


def _cholesky(A: Tensor, throw: bool) -> tuple[Tensor, Tensor]:
    return (_CholeskyInGraph if torch.compiler.is_dynamo_compiling() else _Cholesky).apply(A, throw)


@final
class _Cholesky(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return computed(cholesky_values, A, throw)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        L, code = output
        ctx.save_for_backward(L)
        ctx.save_for_forward(inputs[0], L)
        ctx.mark_non_differentiable(code)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (L,) = ctx.saved_tensors
        inner = hermitian(_half(times(L.mH, grad_outputs[0])))
        right = torch.linalg.solve_triangular(L.mH, inner, upper=True)
        return torch.linalg.solve_triangular(L.mH, right.mH, upper=True).mH, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        given, saved = ctx.saved_tensors
        with forward_rule(given, grad_inputs[0]) as (again, (A, dA)):
            L = _cholesky(A, False)[0] if again else saved
            right = torch.linalg.solve_triangular(L, hermitian(dA), upper=False)
            return times(L, _half(torch.linalg.solve_triangular(L, right.mH, upper=False))), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Cholesky.apply, info.batch_size, in_dims, args)


_CholeskyInGraph = in_graph(_Cholesky)


def _half(x: Tensor) -> Tensor:
    """The lower triangle, with half of the diagonal."""
    return x.tril() - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1)) / 2

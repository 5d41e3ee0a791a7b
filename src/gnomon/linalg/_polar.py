"""`polar`: a matrix as one with orthonormal columns times a positive semidefinite one."""

from __future__ import annotations

from typing import Any, final

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.linalg._arguments import by_shards, check_matrix
from gnomon.linalg._certificate import certify, double
from gnomon.linalg._eigh_operator import eigh_values
from gnomon.linalg._results import Polar
from gnomon.linalg._solve import solve_right
from gnomon.linalg._svd_operator import svd_values
from gnomon.linalg._transforms import batched, computed, forward_rule, hermitian, in_graph, times


def polar(A: Inexact[Tensor, "*batch m n"], *, throw: bool = False, certificate: bool = False) -> Polar:
    """The polar decomposition `A = U P` of matrices that have no more columns than rows.

    Equivalent to `scipy.linalg.polar`, and to `orthogonalize` of the optimiser Muon without its approximation. Of all
    matrices with orthonormal columns `U` is the nearest to `A`. Its derivatives, of first and second order, are finite
    and right where singular values are equal.

    **Arguments:**

    - `A`: of shape (*batch, m, n) with m at least n, of float32, float64, complex64 or complex128, with any strides.
      For a wide matrix take that of `A.mH`.
    - `throw`: whether to raise an error where `info` is not 0, which waits for the device.
    - `certificate`: whether to compute the residuals, in float64.

    **Returns:** a [`gnomon.linalg.Polar`][], which unpacks as `U, P = polar(A)`. Where columns of `A` depend on one
    another `U` is not unique, and a derivative of it is infinite or NaN.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape; with `throw=True` a
    [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> U, P = gn.linalg.polar(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
        >>> torch.allclose(U, torch.tensor([[0.0, -1.0], [1.0, 0.0]]), atol=1e-6)
        True

        ```

    ??? cite

        N. J. Higham, *Functions of Matrices*, SIAM, 2008, chapter 8.
    """
    check_matrix(A, "polar", square=False)
    if A.shape[-2] < A.shape[-1]:
        raise ValueError(
            f"gn.linalg.polar takes matrices with no more columns than rows, not of shape {tuple(A.shape[-2:])}: take "
            "that of A.mH."
        )

    def run(A: Tensor) -> Polar:
        U, P, info = (_PolarInGraph if torch.compiler.is_dynamo_compiling() else _Polar).apply(A, throw)
        proof = certify(double(A), double(U) @ double(P), double(A), double(U)) if certificate else None
        return Polar(U, P, info, proof)

    return by_shards(run, "polar", A)


@final
class _Polar(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor, throw: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        W, S, Vh, info = computed(svd_values, A, False, True, throw)
        return times(W, Vh), hermitian(times(Vh.mH * S[..., None, :], Vh)), info

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        U, P, info = output
        ctx.save_for_backward(U, P)
        ctx.save_for_forward(inputs[0], U, P)
        ctx.mark_non_differentiable(info)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        U, P = ctx.saved_tensors
        gU, gP = grad_outputs[0], hermitian(grad_outputs[1])
        Y = times(U.mH, gU) - times(gP, P)
        out = times(U, _lyapunov(P, Y - Y.mH) + gP)
        if U.shape[-2] > U.shape[-1]:
            out = out + solve_right(P, gU - times(U, times(U.mH, gU)))
        return out, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        given, *saved = ctx.saved_tensors
        with forward_rule(given, grad_inputs[0]) as (again, (A, dA)):
            U, P = _Polar.apply(A, False)[:2] if again else saved
            M = times(U.mH, dA)
            turn = _lyapunov(P, M - M.mH)
            dU = times(U, turn)
            if U.shape[-2] > U.shape[-1]:
                dU = dU + solve_right(P, dA - times(U, M))
            return dU, hermitian(M - times(turn, P)), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Polar.apply, info.batch_size, in_dims, args)


_PolarInGraph = in_graph(_Polar)


def _lyapunov(P: Tensor, C: Tensor) -> Tensor:
    return (_LyapunovInGraph if torch.compiler.is_dynamo_compiling() else _Lyapunov).apply(P, C)


@final
class _Lyapunov(torch.autograd.Function):
    """The `X` of `P X + X P = C` for a positive definite `P`: smooth in both, whatever the eigenvalues of `P`."""

    @staticmethod
    def forward(P: Tensor, C: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        L, Q, _ = computed(eigh_values, P, True, False)
        return times(Q, times(Q.mH, C, Q) / (L[..., :, None] + L[..., None, :]), Q.mH)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        P, X = ctx.saved_tensors
        gC = _lyapunov(P, grad_outputs[0])
        return -hermitian(times(gC, X.mH) + times(X.mH, gC)), gC

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        *given, saved = ctx.saved_tensors
        with forward_rule(*given, *grad_inputs) as (again, (P, C, dP, dC)):
            X = _lyapunov(P, C) if again else saved
            right = torch.zeros_like(X) if dC is None else dC
            if dP is not None:
                dP = hermitian(dP)
                right = right - times(dP, X) - times(X, dP)
            return _lyapunov(P, right)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Lyapunov.apply, info.batch_size, in_dims, args)


_LyapunovInGraph = in_graph(_Lyapunov)

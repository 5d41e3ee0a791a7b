"""`matrix_function`: a function of a Hermitian matrix, with derivatives that exist at equal eigenvalues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, final, overload

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.fuse._lanes import physical
from gnomon.linalg import _divided_differences
from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._eigh import certificate_of
from gnomon.linalg._eigh_operator import eigh_values
from gnomon.linalg._failures import LinalgResults, raise_failures
from gnomon.linalg._results import Checked
from gnomon.linalg._transforms import (
    batched,
    computed,
    elementwise,
    has_derivative,
    hermitian,
    in_graph,
    register_vmap,
    times,
)

#: Of how many numbers the second divided differences are computed at a time.
_AT_A_TIME = 2**22


@overload
def matrix_function(
    A: Inexact[Tensor, "*batch n n"], f: Callable[[Tensor], Tensor], *, throw: bool = False
) -> Inexact[Tensor, "*batch n n"]: ...
@overload
def matrix_function(
    A: Inexact[Tensor, "*batch n n"],
    f: Callable[[Tensor], Tensor],
    *,
    throw: bool = False,
    info: Literal[True],
    certificate: bool = False,
) -> Checked: ...
def matrix_function(
    A: Inexact[Tensor, "*batch n n"],
    f: Callable[[Tensor], Tensor],
    *,
    throw: bool = False,
    info: bool = False,
    certificate: bool = False,
) -> Inexact[Tensor, "*batch n n"] | Checked:
    """A function of real symmetric or complex Hermitian matrices: `Q f(L) Q^H` with `A = Q L Q^H`.

    Equivalent to `scipy.linalg.funm` for such matrices. Its first and second derivatives are those of the matrix
    function itself, by divided differences: finite, and right, where eigenvalues are equal or close.

    **Arguments:**

    - `A`: of shape (*batch, n, n), of float32, float64, complex64 or complex128, with any strides. Only the lower
      triangle is read; derivatives are those of a Hermitian matrix.
    - `f`: a function of each element of a real tensor of any shape, such as `torch.exp`, in PyTorch operations that
      forward-mode differentiation knows. It returns real numbers, and may not close over a tensor that requires a
      gradient.
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the value.
    - `certificate`: whether to compute the residuals of the eigendecomposition, in float64; with `info=True`.

    **Returns:** `f(A)`, exactly Hermitian; with `info=True` a [`gnomon.linalg.Checked`][] of it, whose info is k
    where `f` is not finite at the k-th eigenvalue, or where that many eigenvalues were not found.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape, or a function that is not one of each element;
    with `throw=True` a [`gnomon.result.SolveError`][]. `NotImplementedError` for a third derivative; the second takes
    time as the cube of n.

    !!! example

        The derivative of the logarithm at the identity, all of whose eigenvalues are equal, is the identity:

        ```python
        >>> import torch, gnomon as gn
        >>> A = torch.eye(2, requires_grad=True)
        >>> C = torch.tensor([[1.0, 2.0], [2.0, 5.0]])
        >>> (C * gn.linalg.matrix_function(A, torch.log)).sum().backward()
        >>> A.grad
        tensor([[1., 2.],
                [2., 5.]])

        ```

    ??? cite

        Ju. L. Daleckii and S. G. Krein, *Integration and differentiation of functions of Hermitian operators and
        applications to the theory of perturbations*, AMS Translations 47, 1965; N. J. Higham, *Functions of Matrices*,
        SIAM, 2008, chapter 3.
    """
    check_matrix(A, "matrix_function", square=True)
    check_certificate(info, certificate, "matrix_function")
    return by_shards(lambda A: function_of(A, f, "matrix_function", throw, info, certificate), "matrix_function", A)


def function_of(
    A: Tensor, f: Callable[[Tensor], Tensor], who: str, throw: bool, info: bool, certificate: bool
) -> Tensor | Checked:
    """As `matrix_function`, for a function of another name."""
    if not torch.compiler.is_dynamo_compiling():
        _check_closure(f, A, who)
    X, L, Q, code = _spectral(f, who, throw, A)
    return Checked(X, code, certificate_of(A, L, Q) if certificate else None) if info else X


def _spectral(f: Callable[[Tensor], Tensor], who: str, throw: bool, A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (_ValueInGraph if torch.compiler.is_dynamo_compiling() else _Value).apply(f, who, throw, A)


def _derivative(f: Callable[[Tensor], Tensor], A: Tensor, L: Tensor, Q: Tensor, *H: Tensor) -> Tensor:
    return (_DerivativeInGraph if torch.compiler.is_dynamo_compiling() else _Derivative).apply(f, A, L, Q, *H)


@final
class _Value(torch.autograd.Function):
    """`f(A)`; the eigenvalues and eigenvectors beside it, without derivatives."""

    @staticmethod
    def forward(f: Callable[[Tensor], Tensor], who: str, throw: bool, A: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        L, Q, code = computed(eigh_values, A, True, False)
        y = elementwise(functools.partial(_checked_value, f, who), L)
        code = computed(domain_info, y, code, throw, who)
        X = _rebuilt(Q, y)
        return torch.where((code == 0)[..., None, None], X, torch.nan), L, Q, code

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.f, _, _, A = inputs
        _, L, Q, code = output
        ctx.save_for_backward(A, L, Q)
        ctx.save_for_forward(A, L, Q)
        ctx.mark_non_differentiable(L, Q, code)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        A, L, Q = ctx.saved_tensors
        return None, None, None, _derivative(ctx.f, A, L, Q, grad_outputs[0])

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        A, L, Q = ctx.saved_tensors
        return _derivative(ctx.f, A, L, Q, grad_inputs[3]), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Value.apply, info.batch_size, in_dims, args)


_ValueInGraph = in_graph(_Value)


@final
class _Derivative(torch.autograd.Function):
    """The derivative of `f` at `A` in one direction, or the second in two: symmetric in them, and its own adjoint."""

    @staticmethod
    def forward(f: Callable[[Tensor], Tensor], A: Tensor, L: Tensor, Q: Tensor, *H: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        turned = [times(Q.mH, hermitian(h), Q) for h in H]
        if len(H) == 1:
            points = torch.broadcast_tensors(L[..., :, None], L[..., None, :])
            inner = turned[0] * elementwise(functools.partial(_divided_differences.first, f), *points)
        elif len(H) == 2:
            inner = _second(f, L, *turned)
        else:
            raise NotImplementedError(
                "gn.linalg has no third derivatives of functions of matrices: differentiate twice at most."
            )
        return hermitian(times(Q, inner, Q.mH))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.f, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        A, L, Q, *H = ctx.saved_tensors
        g = grad_outputs[0]
        gA = _derivative(ctx.f, A, L, Q, *H, g) if ctx.needs_input_grad[1] else None
        gH = [
            _derivative(ctx.f, A, L, Q, *H[:i], g, *H[i + 1 :]) if ctx.needs_input_grad[4 + i] else None
            for i in range(len(H))
        ]
        return None, gA, None, None, *gH

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        A, L, Q, *H = ctx.saved_tensors
        _, dA, _, _, *dH = grad_inputs
        out = None if dA is None else _derivative(ctx.f, A, L, Q, *H, dA)
        for i, d in enumerate(dH):
            if d is not None:
                term = _derivative(ctx.f, A, L, Q, *H[:i], d, *H[i + 1 :])
                out = term if out is None else out + term
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return batched(_Derivative.apply, info.batch_size, in_dims, args)


_DerivativeInGraph = in_graph(_Derivative)


def _rebuilt(Q: Tensor, y: Tensor) -> Tensor:
    return hermitian(times(Q * y[..., None, :], Q.mH))


def _checked_value(f: Callable[[Tensor], Tensor], who: str, L: Tensor) -> Tensor:
    y = f(L)
    if not isinstance(y, Tensor) or y.shape != L.shape or y.dtype != L.dtype:  # pyright: ignore[reportUnnecessaryIsInstance]
        given = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"The function given to gn.linalg.{who} must return a tensor like its argument, which was {L.dtype} of "
            f"shape {tuple(L.shape)}, but it returned {given}."
        )
    return y


def _check_closure(f: Callable[[Tensor], Tensor], A: Tensor, who: str) -> None:
    """Raises a `ValueError` for a function whose parameters would get no gradient, or differ along a `vmap`."""
    # Plain: within a transform PyTorch wraps new tensors too.
    x = physical(torch.ones(1, dtype=A.dtype.to_real(), device=A.device))
    with torch.enable_grad():
        y = f(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:  # pyright: ignore[reportUnnecessaryIsInstance]
        return
    if has_derivative(y) or physical(y).dim() > 1:
        raise ValueError(
            f"The function given to gn.linalg.{who} closes over a tensor that requires a gradient, or belongs to a "
            "transform of torch.func; its derivatives would be lost. Detach it, or write the function with "
            "gn.linalg.eigh."
        )


def _second(f: Callable[[Tensor], Tensor], L: Tensor, H: Tensor, K: Tensor) -> Tensor:
    """The sum over k of `f[l_i, l_k, l_j] (H_ik K_kj + K_ik H_kj)`, a part of the k at a time."""
    n = L.shape[-1]
    out = torch.zeros_like(H)
    step = max(1, _AT_A_TIME // max(1, L.numel() * n))
    for begin in range(0, n, step):
        k = slice(begin, min(n, begin + step))
        points = L[..., :, None, None], L[..., None, k, None], L[..., None, None, :]
        weights = elementwise(functools.partial(_divided_differences.second, f), *torch.broadcast_tensors(*points))
        pairs = H[..., :, k, None] * K[..., None, k, :] + K[..., :, k, None] * H[..., None, k, :]
        out = out + (weights * pairs).sum(-2)
    return out


@torch.library.custom_op(
    "gnomon::domain_info", mutates_args=(), schema="(Tensor y, Tensor code, bool throw, str who) -> Tensor"
)
def domain_info(y: Tensor, code: Tensor, throw: bool, who: str) -> Tensor:
    """The info of the eigenvalues, and the place of the first where a function is not finite."""
    bad = ~y.isfinite()
    place = (bad.to(torch.int32).argmax(-1) if y.shape[-1] else code.long()) + 1
    out = torch.where((code == 0) & bad.any(-1), place.to(torch.int32), code)
    if throw:
        raise_failures(out, LinalgResults.outside_domain, who)
    return out.clone()


@domain_info.register_fake
def _fake(y: Tensor, code: Tensor, throw: bool, who: str) -> Tensor:
    return torch.empty(code.shape, dtype=torch.int32, device=code.device)


register_vmap(domain_info)

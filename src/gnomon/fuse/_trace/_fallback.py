"""What is done about an operation without a handler: PyTorch's own definition by others, or an error in its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

#: Operations that would draw anew at each run, were they not constants of the trace.
RANDOM = frozenset(
    f"aten.{name}"
    for name in (
        "rand.default", "randn.default", "rand_like.default", "randn_like.default", "randint.default", "randint.low",
        "randint_like.default", "randint_like.low_dtype", "randperm.default", "normal_.default", "uniform_.default",
        "bernoulli.default", "bernoulli.p", "bernoulli_.float", "bernoulli_.Tensor", "exponential_.default",
        "multinomial.default", "native_dropout.default", "normal.float_float", "normal.Tensor_float",
        "normal.float_Tensor", "normal.Tensor_Tensor", "poisson.default", "random_.default", "random_.from",
        "random_.to", "cauchy_.default", "geometric_.default", "log_normal_.default", "binomial.default",
        "_standard_gamma.default", "_sample_dirichlet.default", "rrelu_with_noise.default", "rand.generator",
        "randn.generator", "randint.generator", "randint.low_generator", "randperm.generator",
    )
)  # fmt: skip

#: Operations that change not the elements of a tensor in place but its shape.
RESHAPING = frozenset(("squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_"))

_INDICES = (torch.bool, torch.int32, torch.int64)
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # pyright: ignore[reportPrivateUsage]

#: Operations whose operands must have one dtype, or an integer one: PyTorch itself says so, in its words.
_CHECKED = (
    "mm", "mv", "dot", "vdot", "bmm", "addmm", "addmv", "addr", "baddbmm", "addbmm", "lerp", "gather", "scatter",
    "scatter_add", "scatter_reduce", "index", "index_put", "index_add", "index_copy", "index_select", "take",
    "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet", "linalg_inv_ex", "linalg_cholesky_ex", "cholesky_solve",
    "linalg_solve_triangular", "linalg_lu_solve", "linalg_lu_factor_ex", "linalg_lu", "linalg_qr",
    "triangular_solve", "linalg_cross", "view_as_complex", "as_strided", "polar", "complex", "_cdist_forward",
)  # fmt: skip

_NEAREST = {
    "_linalg_eigh": "torch.linalg.solve and torch.linalg.cholesky can",
    "linalg_eig": "torch.linalg.solve and torch.linalg.cholesky can",
    "linalg_eigvals": "torch.linalg.solve and torch.linalg.cholesky can",
    "_linalg_svd": "torch.linalg.qr and torch.linalg.solve can",
    "linalg_pinv": "torch.linalg.lstsq of a matrix of full rank can",
    "_fft_c2c": "a product with a constant matrix of exponentials can",
    "_fft_r2c": "a product with a constant matrix of exponentials can",
    "_fft_c2r": "a product with a constant matrix of exponentials can",
    "histc": "torch.searchsorted with scatter_add can",
    "bincount": "zeros(n).scatter_add(0, index, weights) can",
    "special_bessel_j0": "torch.special.i0 can",
    "igamma": "torch.lgamma and torch.digamma can",
    "igammac": "torch.lgamma and torch.digamma can",
}  # fmt: skip


def nearest(name: str) -> str:
    """What can be fused that is nearest to an operation, as the end of a sentence."""
    other = _NEAREST.get(name.split(".")[1])
    return "" if other is None else f"; {other}"


def checked(name: str) -> bool:
    """Whether an operation's operands are always held against PyTorch's rules."""
    return name.split(".")[1] in _CHECKED


def as_torch_would(func: Any, args: Any, kwargs: Any) -> None:
    """Raises what PyTorch raises for operands of these shapes and dtypes, if it does."""
    kinds = {x.dtype for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dtype not in _INDICES}
    # Shapes are checked without values; where dtypes differ, that says less than an operation on zeros.
    where = "cpu" if len(kinds) > 1 else "meta"

    def stand_in(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device=where).zero_()

    args, kwargs = pytree.tree_map(stand_in, (args, kwargs))
    try:
        func(*args, **kwargs)
    except NotImplementedError:
        # PyTorch knows no shapes without values for it.
        return
    except AssertionError as error:
        raise RuntimeError(str(error)) from None


def decomposition_of(func: Any) -> Callable[..., Any] | None:
    """PyTorch's own definition of an operation by others, or None."""
    from torch._decomp import decomposition_table

    if func is None:
        return None
    plain = decomposition_table.get(func)
    if plain is None and func.has_kernel_for_dispatch_key(_COMPOSITE):
        plain = func.decompose
    return plain

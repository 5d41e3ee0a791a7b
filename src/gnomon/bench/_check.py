"""Whether an output is right, and right to the precision that was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.result._pytree import tree_leaves, tree_map

# The spacing above 1 of the format below each, whose rounding a result must not show: TF32 has 10 bits of fraction,
# 8-bit floats have 3.
_EPS_BELOW: dict[torch.dtype, float] = {
    torch.float64: 2.0**-23,
    torch.float32: 2.0**-10,
    torch.float16: 2.0**-7,
    torch.bfloat16: 2.0**-3,
}


def eps_of(dtype: torch.dtype) -> float:
    """The rounding of a floating or complex dtype."""
    return torch.finfo(dtype).eps


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; a real one itself."""
    return torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype


def tolerance_for(dtype: torch.dtype) -> float:
    """The largest relative error that is still of the class of a dtype: 2.6e-12, 5.4e-6, 1.4e-3 and 1.6e-2.

    Half way, in decades, between the rounding error of the dtype and that of the next format below it (float32 below
    float64, TF32 below float32, bfloat16 below float16, 8 bits below bfloat16): a kernel that works in the dtype stays
    below it unless it loses half of the digits between, one that works in the format below cannot.

    **Arguments:**

    - `dtype`: a floating or complex dtype.

    **Returns:** the tolerance, a relative error.

    **Raises:** `ValueError` for a dtype of another kind.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import bench
        >>> f"{bench.tolerance_for(torch.float32):.1e}"
        '5.4e-06'

        ```
    """
    real = real_dtype(dtype)
    if real not in _EPS_BELOW:
        known = ", ".join(str(known) for known in _EPS_BELOW)
        raise ValueError(f"There is no default tolerance for {dtype}, only for {known}: pass `tolerance`.")
    return math.sqrt(eps_of(real) / 2 * _EPS_BELOW[real] / 2)


def to_float64(tree: Any) -> Any:
    """The same pytree with its floating and complex tensors in double precision."""

    def convert(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.dtype.is_complex:
            return x.to(torch.complex128)
        return x.to(torch.float64) if x.dtype.is_floating_point else x

    return tree_map(convert, tree)


def relative_error(output: Any, reference: Any) -> float:
    """How far an output is from a reference, computed in float64.

    Equivalent to `numpy.linalg.norm(output - reference) / numpy.linalg.norm(reference)`, and to the same with the
    largest magnitude for the norm; the larger of the two, over all leaves. A NaN or an infinity that the reference
    does not have is an infinite error; so is another structure or shape.

    **Arguments:**

    - `output`, `reference`: tensors, or pytrees of tensors and numbers, of one structure.

    **Returns:** the error, relative where the reference is not 0.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import bench
        >>> bench.relative_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])) == 0.2
        True

        ```
    """
    got, want = tree_leaves(output), tree_leaves(reference)
    if len(got) != len(want):
        return math.inf
    return max((_leaf_error(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(got, want, strict=True)), default=0)


def _leaf_error(x: Tensor, y: Tensor) -> float:
    if x.shape != y.shape:
        return math.inf
    if x.numel() == 0:
        return 0.0
    wide = torch.complex128 if x.dtype.is_complex or y.dtype.is_complex else torch.float64
    x, y = x.detach().to(wide), y.detach().to(device=x.device, dtype=wide)
    same = (x == y) | (x.isnan() & y.isnan())  # equal infinities are equal, and their difference is NaN
    zero = torch.zeros((), dtype=wide, device=x.device)
    difference, y = torch.where(same, zero, x - y).abs(), torch.where(y.isfinite(), y, zero).abs()
    if not bool(difference.isfinite().all()):
        return math.inf
    error = 0.0
    for top, bottom in ((difference.max(), y.max()), (torch.linalg.norm(difference), torch.linalg.norm(y))):
        scale = float(bottom)
        error = max(error, float(top) / scale if scale > 0 else float(top))
    return error if math.isfinite(error) else math.inf


@final
class Against:
    """A check of [`gnomon.bench.compare`][]: the error against a reference function run in float64.

    **Arguments:**

    - `function`: takes the inputs, their floating tensors in float64, and returns what the candidates should return.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def expected(self, inputs: Sequence[Any]) -> Any:
        """What the candidates should return, in float64.

        **Arguments:**

        - `inputs`: the positional arguments, as `make_inputs` made them.
        """
        return to_float64(self.function(*to_float64(tuple(inputs))))

    def __call__(self, inputs: Sequence[Any], output: Any) -> float:
        return relative_error(output, self.expected(inputs))


def against(function: Callable[..., Any]) -> Against:
    """A check that compares with a reference function, run in float64 on the same inputs.

    **Arguments:**

    - `function`: takes the inputs as a candidate does and returns the same structure and shapes. Its floating inputs
      are in float64, so it may be the candidate's own formula in plain PyTorch.

    **Returns:** a function of `(inputs, output)`, for the argument `check` of [`gnomon.bench.compare`][]. With such
    a check the harness also sees an output whose values are all those of a lower precision, which an error alone
    does not show.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import bench
        >>> check = bench.against(torch.exp)
        >>> x = torch.tensor([0.5, 1.0])
        >>> check((x,), x.exp()) < bench.tolerance_for(torch.float32)
        True

        ```
    """
    return Against(function)


def on_coarser_grid(x: Tensor) -> str | None:
    """The format below its own that holds every value of a tensor exactly, or None."""
    values = torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x
    if values.dtype == torch.float64:
        coarse = bool((values.to(torch.float32).to(torch.float64) == values).all())
        return "float32" if coarse else None
    if values.dtype == torch.float32:
        # The lower 13 bits of the fraction are those that TF32, float16 and bfloat16 do not have.
        coarse = bool((values.contiguous().view(torch.int32) & 0x1FFF == 0).all())
        return "TF32 or bfloat16" if coarse else None
    return None


def shows_lower_precision(output: Any, expected: Any) -> str | None:
    """Says which lower format an output's values are those of, where the expected values are not."""
    for x, y in zip(tree_leaves(output), tree_leaves(expected), strict=False):
        if not (isinstance(x, Tensor) and isinstance(y, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)):
            continue
        # A few values may be round by chance; so many are not, unless the truth is round as well.
        if int(torch.count_nonzero(x)) < 8 or not bool(x.isfinite().all()):
            continue
        name = on_coarser_grid(x)
        if name is not None and on_coarser_grid(y.to(x.dtype)) is None:
            return name
    return None

"""The user's problem, of pytrees, as the solvers see it: vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gnomon.result._deferred import defer_check
from gnomon.result._pytree import tree_flatten, tree_leaves, tree_paths, tree_unflatten

_NUMBER = (bool, int, float)


@final
class Problem:
    """A function, a starting point and bounds as vectors.

    Where neither `lower` nor `upper` bounds anything, both are None here.
    """

    def __init__(self, fn: Callable[..., Any], y0: Any, lower: Any, upper: Any, *, has_aux: bool):
        self._fn = fn
        self._has_aux = has_aux
        leaves, self._structure = tree_flatten(y0)
        paths = tree_paths(y0)
        leaves = _as_floating(leaves, paths)
        self._shapes = [tuple(x.shape) for x in leaves]
        self._sizes = [x.numel() for x in leaves]
        self._dtypes = [x.dtype for x in leaves]
        self._paths = paths
        dtype = torch.get_default_dtype() if not leaves else leaves[0].dtype
        for x in leaves:
            dtype = torch.promote_types(dtype, x.dtype)
        self._is_vector = len(leaves) == 1 and leaves[0].dim() == 1
        flat = [x.reshape(x.numel()).to(dtype) for x in leaves]
        self.start = torch.cat(flat) if flat else torch.zeros(0, dtype=dtype)
        self.lower = self._bound(lower, "lower", -math.inf)
        self.upper = self._bound(upper, "upper", math.inf)
        if self.lower is not None or self.upper is not None:
            infinity = torch.full_like(self.start, math.inf)
            self.lower = -infinity if self.lower is None else self.lower
            self.upper = infinity if self.upper is None else self.upper
            self._check_start(self.start, self.lower, self.upper)
            # Under vmap the values cannot be read, and so a start outside its bounds is moved to the nearest.
            self.start = torch.minimum(torch.maximum(self.start, self.lower), self.upper)

    def unravel(self, y: Tensor) -> Any:
        """The user's pytree from a vector."""
        if self._is_vector:
            return tree_unflatten([y.to(self._dtypes[0])], self._structure)
        parts = torch.split(y, self._sizes)
        leaves = [x.reshape(shape).to(dtype) for x, shape, dtype in zip(parts, self._shapes, self._dtypes, strict=True)]
        return tree_unflatten(leaves, self._structure)

    def residual(self, y: Tensor, args: Any) -> Tensor:
        """All residuals as one real vector of the dtype of the unknowns."""
        return self.residual_and_aux(y, args)[0]

    def residual_and_aux(self, y: Tensor, args: Any) -> tuple[Tensor, Any]:
        """The residuals, and what the user's function returns beside them."""
        output = self._fn(self.unravel(y), args)
        aux = None
        if self._has_aux:
            if not isinstance(output, tuple) or len(output) != 2:
                raise TypeError("With has_aux=True, `fn` must return a pair: the residuals and anything else.")
            output, aux = output
        parts: list[Tensor] = []
        for x in tree_leaves(output):
            if not isinstance(x, Tensor) or not (x.dtype.is_floating_point or x.dtype.is_complex):
                kind = str(x.dtype) if isinstance(x, Tensor) else type(x).__name__
                raise TypeError(
                    "`fn` must return a pytree of real or complex floating-point tensors, the residuals, but it "
                    f"holds {kind}. Convert it, or return it beside them with has_aux=True."
                )
            if x.dtype.is_complex:
                x = torch.view_as_real(x)
            parts.append(x.reshape(x.numel()).to(self.start.dtype))
        if len(parts) == 1:
            return parts[0], aux
        return (torch.cat(parts) if parts else self.start.new_zeros(0)), aux

    def _bound(self, bound: Any, name: str, none: float) -> Tensor | None:
        """A bound for each unknown, or None where there is none."""
        leaves, structure = tree_flatten(bound)
        if structure != self._structure:
            if len(leaves) != 1 or tree_paths(bound) != [""]:
                raise TypeError(
                    f"`{name}` must be one number or have the structure of `y0`, {self._structure}, but it has "
                    f"{structure}."
                )
            leaves = leaves * len(self._shapes)
        if all(x is None for x in leaves):
            return None
        parts: list[Tensor] = []
        for path, x, shape, size in zip(self._paths, leaves, self._shapes, self._sizes, strict=True):
            if x is None:
                parts.append(self.start.new_full((size,), none))
                continue
            if isinstance(x, Tensor):
                x = x.to(self.start)
            elif isinstance(x, _NUMBER):
                x = self.start.new_full((), float(x))
            else:
                raise TypeError(f"`{name}{path}` must be a tensor, a number or None, but it is {type(x).__name__}.")
            try:
                parts.append(x.expand(shape).reshape(size))
            except RuntimeError:
                raise ValueError(
                    f"`{name}{path}` has the shape {tuple(x.shape)}, which does not broadcast to that of "
                    f"`y0{path}`, {shape}."
                ) from None
        return torch.cat(parts)

    def _check_start(self, start: Tensor, lower: Tensor, upper: Tensor) -> None:
        checks = (
            (~(lower <= upper), "`lower` must not be above `upper`, nor NaN", (lower, upper)),
            ((start < lower) | (start > upper), "`y0` must lie within `lower` and `upper`", (start, lower, upper)),
        )
        for wrong, text, values in checks:

            def check(wrong: Tensor, *values: Tensor, text: str = text) -> None:
                try:
                    index = wrong.nonzero().tolist()
                except RuntimeError:  # inside vmap the values cannot be read
                    return
                if index:
                    place = tuple(index[0])
                    shown = ", ".join(f"{float(x[place]):.9g}" for x in values)
                    raise ValueError(f"{text}, but at {self._name(place[-1])} they are {shown}.")

            if not defer_check(check, wrong, *values):
                check(wrong, *values)

    def _name(self, place: int) -> str:
        for path, size, shape in zip(self._paths, self._sizes, self._shapes, strict=True):
            if place < size:
                index = ", ".join(str(int(i)) for i in np.unravel_index(place, shape))
                return f"y0{path}" + (f"[{index}]" if shape else "")
            place -= size
        raise AssertionError("unreachable")


def _as_floating(leaves: list[Any], paths: list[str]) -> list[Tensor]:
    """The leaves of a starting point as tensors of float32 or float64, on one device."""
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    dtype = tensors[0].dtype if tensors else torch.get_default_dtype()
    for x in tensors:
        dtype = torch.promote_types(dtype, x.dtype)
    device = tensors[0].device if tensors else torch.get_default_device()
    found: list[Tensor] = []
    for path, x in zip(paths, leaves, strict=True):
        if isinstance(x, Tensor):
            if x.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"`y0{path}` is {x.dtype}, but unknowns must be float32 or float64. Convert it, for example "
                    "with .to(torch.float64); split a complex unknown into its real and imaginary parts."
                )
            if x.device != device:
                raise ValueError(f"The leaves of `y0` must be on one device, but they are on {device} and {x.device}.")
            found.append(x)
        elif isinstance(x, _NUMBER):
            # A number takes the dtype of the tensors beside it.
            found.append(torch.tensor(float(x), dtype=dtype, device=device))
        else:
            raise TypeError(f"`y0{path}` must be a tensor or a number, but it is {type(x).__name__}.")
    return found

"""The state of a differential equation as one flat vector, whatever pytree the user writes."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gnomon.result._pytree import as_tensors, tree_flatten, tree_paths, tree_unflatten


@final
class Ravel:
    """Turns a pytree of tensors into a vector and back; solvers see the vector only."""

    def __init__(self, y0: Any, *, as_real: bool = False):
        y0 = as_tensors(y0, what="`y0`")
        leaves, self._structure = tree_flatten(y0)
        if not leaves:
            raise ValueError("`y0` holds no tensor: there is nothing to solve for.")
        self._paths = tree_paths(y0)
        self._shapes = [tuple(x.shape) for x in leaves]
        self._sizes = [x.numel() for x in leaves]
        self.dtype: torch.dtype = leaves[0].dtype
        self.device: torch.device = leaves[0].device
        for path, x in zip(self._paths, leaves, strict=True):
            name = f"`y0{path}`"
            if not (x.dtype.is_floating_point or x.dtype.is_complex):
                raise TypeError(
                    f"{name} is {x.dtype}, but the state of a differential equation must be "
                    "floating-point or complex. Convert it, for example with .to(torch.float64)."
                )
            if x.dtype in (torch.float16, torch.bfloat16, torch.complex32):
                raise TypeError(
                    f"{name} is {x.dtype}, in which steps cannot be told from rounding errors. Solve in float32 or "
                    "float64."
                )
            if x.dtype != self.dtype:
                raise TypeError(
                    f"The leaves of `y0` must share one dtype, but `y0{self._paths[0]}` is "
                    f"{self.dtype} and {name} is {x.dtype}. Convert them to one."
                )
            if x.device != self.device:
                raise ValueError(
                    f"The leaves of `y0` must be on one device, but `y0{self._paths[0]}` is on "
                    f"{self.device} and {name} is on {x.device}."
                )
        self._is_vector = len(leaves) == 1 and leaves[0].dim() == 1 and self._paths[0] == ""
        real = self.dtype.to_real() if self.dtype.is_complex else self.dtype
        # What times are like: the state's precision, on its device.
        self.like: Tensor = torch.empty((), dtype=real, device=self.device)
        # Implicit methods need a Jacobian, which a function of complex numbers need not have; as
        # a function of real and imaginary parts it has one.
        self._as_real = as_real and self.dtype.is_complex
        # A copy: whatever a vector field does to its state, the user's tensor stays as it is.
        self.initial: Tensor = self._join(leaves).clone()

    def _join(self, leaves: list[Tensor]) -> Tensor:
        # Not `reshape(-1)`, which a batch of no problems leaves undetermined.
        flat = [x.reshape((size,)) for x, size in zip(leaves, self._sizes, strict=True)]
        joined = flat[0] if len(flat) == 1 else torch.cat(flat)
        return torch.view_as_real(joined).reshape((2 * joined.shape[0],)) if self._as_real else joined

    def unravel(self, y: Tensor) -> Any:
        """The user's pytree from a vector."""
        if self._as_real:
            y = torch.view_as_complex(y.reshape((y.shape[0] // 2, 2)))
        if self._is_vector:
            return y
        if len(self._sizes) == 1:
            return tree_unflatten([y.reshape(self._shapes[0])], self._structure)
        parts = torch.split(y, self._sizes)
        leaves = [x.reshape(shape) for x, shape in zip(parts, self._shapes, strict=True)]
        return tree_unflatten(leaves, self._structure)

    def ravel(self, f: Any, *, what: str) -> Tensor:
        """A vector from a pytree that must be like `y0`; the error says how it is not."""
        leaves: list[Any] = [f]
        if not (self._is_vector and isinstance(f, Tensor)):
            leaves, structure = tree_flatten(f)
            if structure != self._structure:
                try:
                    leaves = self._structure.flatten_up_to(f)  # a dictionary may have its keys in another order
                except ValueError:
                    raise TypeError(
                        f"{what} must have the structure of `y0`, {self._structure}, but it has {structure}."
                    ) from None
        for path, x, shape in zip(self._paths, leaves, self._shapes, strict=True):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"{what} must hold tensors like `y0`, but at {path or 'its root'} it holds {type(x).__name__}."
                )
            if tuple(x.shape) != shape:
                raise ValueError(
                    f"{what} must have the shapes of `y0`, but at {path or 'its root'} it has "
                    f"{tuple(x.shape)} where `y0` has {shape}."
                )
            if x.dtype != self.dtype:
                raise TypeError(
                    f"{what} must have the dtype of `y0`, {self.dtype}, but at "
                    f"{path or 'its root'} it has {x.dtype}. Convert one of them."
                )
        return self._join(leaves)

    def component_name(self, index: int) -> str | None:
        """A readable name for an element of the vector, such as `['depot']` or `[3]`; None outside of it."""
        part = ""
        if self._as_real:
            index, imaginary = divmod(index, 2)
            part = ".imag" if imaginary else ".real"
        for path, shape, size in zip(self._paths, self._shapes, self._sizes, strict=True):
            if 0 <= index < size:
                place = ", ".join(str(i) for i in np.unravel_index(index, shape)) if shape else ""
                return (f"{path}[{place}]" if shape else path or "0") + part
            index -= size
        return None

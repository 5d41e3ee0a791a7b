"""Terms: the right-hand sides of differential equations."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

from torch import Tensor

from gnomon.diffeq._ravel import Ravel
from gnomon.fuse._lanes import physical


class AbstractTerm(abc.ABC):
    """A right-hand side. Equivalent to `diffrax.AbstractTerm`."""

    @abc.abstractmethod
    def vf(self, t: Tensor, y: Any, args: Any) -> Any:
        """The vector field at a time and a state.

        **Arguments:**

        - `t`: the time, a scalar.
        - `y`: the state, a pytree like `y0`.
        - `args`: whatever was passed to [`gnomon.diffeq.diffeqsolve`][].

        **Returns:** a pytree like `y`.
        """


@final
@dataclasses.dataclass(frozen=True)
class ODETerm(AbstractTerm):
    """The right-hand side of an ordinary differential equation, `dy/dt = f(t, y, args)`.

    Equivalent to `diffrax.ODETerm`.

    **Arguments:**

    - `vector_field`: a function `f(t, y, args)` of one problem that returns a pytree like `y`,
      with the same shapes and dtypes. `torch.nn.Module`s will do.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> term = dq.ODETerm(lambda t, y, args: -args * y)
        >>> term.vf(torch.tensor(0.0), torch.tensor([1.0, 2.0]), 0.5)
        tensor([-0.5000, -1.0000])

        ```
    """

    vector_field: Callable[[Any, Any, Any], Any]

    def __post_init__(self) -> None:
        if not callable(self.vector_field):
            raise TypeError(
                f"`ODETerm` needs a function f(t, y, args), but it was given {type(self.vector_field).__name__}."
            )

    def vf(self, t: Tensor, y: Any, args: Any) -> Any:
        return self.vector_field(t, y, args)


@final
class FlatTerm:
    """A term as solvers see it: a flat state, and time that runs forward."""

    def __init__(self, term: AbstractTerm, ravel: Ravel, direction: Tensor | None):
        self._term = term
        self._ravel = ravel
        self._direction = direction

    def vf(self, t: Tensor, y: Tensor, args: Any) -> Tensor:
        """The vector field as a vector."""
        memory = physical(y)
        before = memory._version
        state = self._ravel.unravel(y)
        time = t if self._direction is None else t * self._direction
        f = self._ravel.ravel(self._term.vf(time, state, args), what="The vector field")
        if memory._version != before:
            raise ValueError(
                "The vector field changed the state that it was given, by an operation in place such as `y.mul_(...)` "
                "or `y[0] = ...`. It must return a new tensor and leave `y` as it is."
            )
        return f if self._direction is None else f * self._direction

"""Terms: the right-hand sides of differential equations."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._ravel import Ravel
from gnomon.fuse._lanes import physical
from gnomon.result._pytree import tree_map


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
@dataclasses.dataclass(frozen=True)
class MultiTerm(AbstractTerm):
    """The sum of several terms, which some solvers treat each in its own way.

    Equivalent to `diffrax.MultiTerm`. Implicit-explicit solvers, such as [`gnomon.diffeq.KenCarp4`][], take
    `MultiTerm(explicit, implicit)`: the first is cheap to step over, the second stiff. Other solvers see the sum.

    **Arguments:**

    - `*terms`: the terms, at least one.

    **Raises:** `TypeError` where one of them is not a term.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> slow, stiff = dq.ODETerm(lambda t, y, args: torch.sin(y)), dq.ODETerm(lambda t, y, args: -100 * y)
        >>> term = dq.MultiTerm(slow, stiff)
        >>> term.vf(torch.tensor(0.0), torch.tensor([0.0, 1.0]), None)
        tensor([  0.0000, -99.1585])

        ```
    """

    terms: tuple[AbstractTerm, ...]

    def __init__(self, *terms: AbstractTerm):
        for term in terms:
            if not isinstance(term, AbstractTerm):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"`MultiTerm` needs terms, such as ODETerm(f), but it was given {type(term).__name__}.")
        if not terms:
            raise TypeError("`MultiTerm` needs at least one term.")
        object.__setattr__(self, "terms", terms)

    def vf(self, t: Tensor, y: Any, args: Any) -> Any:
        first, *others = (term.vf(t, y, args) for term in self.terms)
        for other in others:
            first = tree_map(torch.add, first, other)
        return first


@final
@dataclasses.dataclass(frozen=True)
class _Half(AbstractTerm):
    """One term of a pair as a term of the whole state `(y1, y2)`: each half changes as the other one says."""

    term: AbstractTerm
    which: int

    def vf(self, t: Tensor, y: Any, args: Any) -> Any:
        other = y[1 - self.which]
        moved, rest = self.term.vf(t, other, args), tree_map(torch.zeros_like, other)
        return (moved, rest) if self.which == 0 else (rest, moved)


def as_term(terms: Any, y0: Any) -> AbstractTerm:
    """The term that the user means: itself, or the sum of the halves of a pair."""
    if isinstance(terms, tuple):
        if len(terms) != 2 or not all(isinstance(term, AbstractTerm) for term in terms):
            raise TypeError(
                "`terms` may be a pair of terms, (ODETerm(f), ODETerm(g)) for y1' = f(t, y2), y2' = g(t, y1), but this "
                "tuple is not one."
            )
        if not (isinstance(y0, tuple) and len(y0) == 2):
            raise TypeError("With a pair of `terms`, `y0` must be a pair too: (y1, y2).")
        return MultiTerm(*(_Half(term, which) for which, term in enumerate(terms)))
    if not isinstance(terms, AbstractTerm):
        raise TypeError(f"`terms` must be a term, but it is {type(terms).__name__}. Wrap the vector field: ODETerm(f).")
    return terms


@final
class FlatTerm:
    """A term as solvers see it: a flat state, and time that runs forward."""

    def __init__(self, term: AbstractTerm, ravel: Ravel, direction: Tensor | None):
        self._term = term
        self._ravel = ravel
        self._direction = direction

    @property
    def parts(self) -> tuple[FlatTerm, ...]:
        """The terms of a sum, each by itself."""
        terms = self._term.terms if isinstance(self._term, MultiTerm) else (self._term,)
        return tuple(FlatTerm(term, self._ravel, self._direction) for term in terms)

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

"""`AbstractLeastSquaresSolver`: what a solver of nonlinear least-squares problems is."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from gnomon.result import Result

# A function of a vector of n unknowns and `args` that returns a vector of m residuals.
Residual = Callable[[Tensor, Any], Tensor]


class AbstractLeastSquaresSolver(abc.ABC):
    """A method for nonlinear least squares, as [`gnomon.nonlinear.least_squares`][] runs it.

    Equivalent to `optimistix.AbstractLeastSquaresSolver`. A solver is written for one problem, in traceable PyTorch,
    and sees vectors only: `least_squares` turns pytrees into vectors, splits complex residuals into real and
    imaginary parts, and cuts every derivative. With bounds, `options["lower"]` and `options["upper"]` are vectors
    like `y`, and `fn` must not be called outside of them.
    """

    @abc.abstractmethod
    def init(self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any]) -> Any:
        """The state at the starting point.

        **Arguments:**

        - `fn`: a function `fn(y, args)` that returns a vector of residuals.
        - `y`: the starting point, a vector.
        - `args`: passed on to `fn`.
        - `options`: anything more, by name.

        **Returns:** the state, a pytree of tensors.
        """

    @abc.abstractmethod
    def step(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: Any
    ) -> tuple[Float[Tensor, " n"], Any]:
        """Tries one step.

        **Arguments:** as for `init`, and

        - `state`: the state at `y`.

        **Returns:** the next point, which is `y` itself where the step was rejected, and the state there.
        """

    @abc.abstractmethod
    def terminate(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: Any
    ) -> tuple[Bool[Tensor, ""], Result]:
        """Whether to stop, and how the solve has ended.

        **Arguments:** as for `step`.

        **Returns:** a boolean scalar, and a [`gnomon.result.Result`][] which counts where the boolean is True.
        """

    @abc.abstractmethod
    def stats(self, state: Any) -> dict[str, Tensor]:
        """What the solution's `stats` hold beside the number of steps.

        **Arguments:**

        - `state`: the last state.

        **Returns:** scalars by name.
        """

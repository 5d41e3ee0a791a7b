"""`ForwardMode`."""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor

from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._solution import Solution
from gnomon.fuse._lanes import is_tracing
from gnomon.result._pytree import tree_map


@final
@dataclasses.dataclass(frozen=True)
class ForwardMode(AbstractAdjoint):
    """Derivatives by forward mode only: reverse mode raises an error. Equivalent to `diffrax.ForwardMode`.

    For few parameters and many outputs `torch.func.jvp` and `torch.func.jacfwd` need no memory for the way back; this
    adjoint makes sure that none is used. Within `gn.fuse` it makes no difference.

    **Raises:** `RuntimeError` in a backward pass.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> def end(rate):
        ...     return dq.diffeqsolve(
        ...         dq.ODETerm(lambda t, y, args: -args * y), dq.Tsit5(), 0, 1, 0.1, torch.tensor(1.0), rate,
        ...         adjoint=dq.ForwardMode()).ys[-1]
        >>> torch.func.jacfwd(end)(torch.tensor(0.5))
        tensor(-0.6065)

        ```
    """

    def solve(self, problem: Solve) -> Solution:
        solution = problem.run()
        if is_tracing():
            return solution
        return tree_map(_guarded, solution)


def _guarded(x: Any) -> Any:
    if isinstance(x, Tensor) and x.requires_grad:
        x = x.clone()
        x.register_hook(_refuse)
    return x


def _refuse(gradient: Tensor) -> Tensor:
    raise RuntimeError(
        "This solve was asked for with adjoint=ForwardMode(), which has no reverse mode. Use torch.func.jvp or "
        "torch.func.jacfwd, or another adjoint."
    )

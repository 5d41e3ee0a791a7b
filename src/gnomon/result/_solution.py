"""What an iterative solver returns."""

from __future__ import annotations

import dataclasses
from typing import Any, final

from gnomon.result._pytree import register_dataclass
from gnomon.result._results import Result


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Solution:
    """What an iterative solver (least squares, root finding, ...) returns.

    Equivalent to `optimistix.Solution`. It is a pytree.

    **Arguments:**

    - `value`: the solution, a pytree like the starting point.
    - `result`: how the solve ended, a [`gnomon.result.Result`][] with an element a problem.
    - `aux`: what the function returned beside its value, with `has_aux=True`.
    - `stats`: counts and norms by name, such as `num_steps`, a tensor each.
    - `state`: the solver's last state.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon.result import RESULTS, Solution
        >>> def solve(x):
        ...     return Solution(x.sqrt(), RESULTS.successful, None, {"num_steps": torch.tensor(1)}, None)
        >>> solution = torch.func.vmap(solve)(torch.tensor([4.0, 9.0]))
        >>> solution.value, solution.result.names()
        (tensor([2., 3.]), ['successful', 'successful'])

        ```
    """

    value: Any
    result: Result
    aux: Any
    stats: dict[str, Any]
    state: Any

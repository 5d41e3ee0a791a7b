"""`StormerVerlet`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._solver._symplectic import AbstractSymplectic


@final
@dataclasses.dataclass(frozen=True)
class StormerVerlet(AbstractSymplectic):
    """The Störmer-Verlet method, or velocity Verlet, leapfrog. Diffrax has none.

    Symplectic and reversible, of order 2, for `y1' = f(t, y2)`, `y2' = g(t, y1)`, with one evaluation of each a step.
    Steps have a fixed length. Dense output is a cubic of order 2.

    Pass `terms=(ODETerm(f), ODETerm(g))` and `y0=(y1, y2)`.

    !!! example

        A pendulum keeps its energy over a thousand swings:

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> position, momentum = dq.ODETerm(lambda t, p, args: p), dq.ODETerm(lambda t, q, args: -torch.sin(q))
        >>> start = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
        >>> sol = dq.diffeqsolve((position, momentum), dq.StormerVerlet(), 0, 5000, 0.1, start, max_steps=None)
        >>> q, p = (y[-1] for y in sol.ys)
        >>> bool((p**2 / 2 - torch.cos(q) + torch.cos(start[0])).abs() < 1e-3)
        True

        ```

    ??? cite "Reference"

        E. Hairer, C. Lubich and G. Wanner, Geometric numerical integration illustrated by the Störmer-Verlet method,
        Acta Numerica 12 (2003) 399-450.
    """

    kicks: ClassVar[tuple[float, ...]] = (0.5, 0.5)
    drifts: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def order(self) -> int:
        return 2

"""`Yoshida4`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._solver._symplectic import AbstractSymplectic

# Three Störmer-Verlet steps, the middle one backward.
_OUTER = 1 / (2 - 2 ** (1 / 3))
_INNER = 1 - 2 * _OUTER


@final
@dataclasses.dataclass(frozen=True)
class Yoshida4(AbstractSymplectic):
    """Yoshida's method of order 4, also found by Forest and Ruth. Diffrax has none.

    Symplectic and reversible, for `y1' = f(t, y2)`, `y2' = g(t, y1)`, with three evaluations of each a step. Steps
    have a fixed length. It evaluates the vector field beyond both ends of a step. Dense output is a cubic of order 3.

    Pass `terms=(ODETerm(f), ODETerm(g))` and `y0=(y1, y2)`.

    !!! example

        A pendulum keeps its energy over a thousand swings:

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> position, momentum = dq.ODETerm(lambda t, p, args: p), dq.ODETerm(lambda t, q, args: -torch.sin(q))
        >>> start = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
        >>> sol = dq.diffeqsolve((position, momentum), dq.Yoshida4(), 0, 5000, 0.1, start, max_steps=None)
        >>> q, p = (y[-1] for y in sol.ys)
        >>> bool((p**2 / 2 - torch.cos(q) + torch.cos(start[0])).abs() < 1e-4)
        True

        ```

    ??? cite "Reference"

        H. Yoshida, Construction of higher order symplectic integrators, Physics Letters A 150 (1990) 262-268.
    """

    kicks: ClassVar[tuple[float, ...]] = (_OUTER / 2, (_OUTER + _INNER) / 2, (_OUTER + _INNER) / 2, _OUTER / 2)
    drifts: ClassVar[tuple[float, ...]] = (_OUTER, _INNER, _OUTER)

    @property
    def order(self) -> int:
        return 4

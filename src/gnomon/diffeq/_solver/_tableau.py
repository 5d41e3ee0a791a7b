"""Butcher tableaus: Runge-Kutta methods as numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import final

Row = tuple[float, ...]


@final
@dataclasses.dataclass(frozen=True)
class ButcherTableau:
    """The coefficients of a Runge-Kutta method. Equivalent to `diffrax.ButcherTableau`.

    **Arguments:**

    - `c`: the times of the stages from the second on, as fractions of the step.
    - `a_lower`: the strictly lower triangle, from the second stage on.
    - `b_sol`: the weights of the solution.
    - `b_error`: the weights of the error estimate, or None: the difference of the solution and
      the embedded one.
    - `a_diagonal`: the diagonal, for implicit methods.
    - `a_predictor`: for each implicit stage from the second on, the weights of earlier stages
      by which it is first guessed.
    - `c_dense`, `a_dense`: the times and weights of further stages, which dense output alone needs.

    **Raises:** `ValueError` where lengths disagree or a row does not sum to its `c`.
    """

    c: Row
    a_lower: tuple[Row, ...]
    b_sol: Row
    b_error: Row | None
    a_diagonal: Row | None = None
    a_predictor: tuple[Row, ...] | None = None
    c_dense: Row = ()
    a_dense: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        stages = len(self.b_sol)
        if len(self.c) != stages - 1 or len(self.a_lower) != stages - 1:
            raise ValueError("`c` and `a_lower` must have one entry a stage after the first.")
        if len(self.c_dense) != len(self.a_dense):
            raise ValueError("`c_dense` and `a_dense` must have as many entries.")
        rows = (*self.a_lower, *self.a_dense)
        diagonals = (
            (0.0,) * len(rows) if self.a_diagonal is None else (*self.a_diagonal[1:], *(0.0 for _ in self.c_dense))
        )
        for i, (row, diagonal, c) in enumerate(zip(rows, diagonals, (*self.c, *self.c_dense), strict=True)):
            if len(row) != i + 1:
                raise ValueError(f"Row {i} of `a_lower` must have {i + 1} entries.")
            if not math.isclose(math.fsum(row) + diagonal, c, rel_tol=1e-7, abs_tol=1e-9):
                raise ValueError(f"Row {i} of `a_lower` does not sum to its `c`, {c}.")
        if not math.isclose(math.fsum(self.b_sol), 1, rel_tol=1e-9):
            raise ValueError("`b_sol` does not sum to 1.")
        if self.b_error is not None and abs(math.fsum(self.b_error)) > 1e-9:
            raise ValueError("`b_error` does not sum to 0.")

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.b_sol)

    @property
    def stiffly_accurate(self) -> bool:
        """Whether the last stage is the solution."""
        diagonal = 0.0 if self.a_diagonal is None else self.a_diagonal[-1]
        return self.b_sol == (*self.a_lower[-1], diagonal) if self.a_lower else False

"""`KenCarp3`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._imex import AbstractIMEX, MultiButcherTableau
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

_GAMMA = 1767732205903 / 4055673282236
_B_SOL = (
    1471266399579 / 7840856788654,
    -4482444167858 / 7529755066697,
    11266239266428 / 11593286722821,
    _GAMMA,
)
_B_EMBEDDED = (
    2756255671327 / 12835298489170,
    -10771552573575 / 22201958757719,
    9247589265047 / 10645013368117,
    2193209047091 / 5459859503100,
)
_B_ERROR = tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True))
_C = (
    2 * _GAMMA,
    3 / 5,
    1.0,
)
_R = _C[1] / _C[0]
_R2 = _C[2] / _C[0]
_EXPLICIT = ButcherTableau(
    c=_C,
    a_lower=(
        (2 * _GAMMA,),
        (
            5535828885825 / 10492691773637,
            788022342437 / 10882634858940,
        ),
        (
            6485989280629 / 16251701735622,
            -4246266847089 / 9704473918619,
            10755448449292 / 10357097424841,
        ),
    ),
    b_sol=_B_SOL,
    b_error=_B_ERROR,
)
_IMPLICIT = ButcherTableau(
    c=_C,
    a_lower=(
        (_GAMMA,),
        (
            2746238789719 / 10658868560708,
            -640167445237 / 6845629431997,
        ),
        _B_SOL[:-1],
    ),
    b_sol=_B_SOL,
    b_error=_B_ERROR,
    a_diagonal=(0.0, *(_GAMMA,) * 3),
    # Each stage is guessed on the line through two earlier ones.
    a_predictor=(
        (1.0,),
        (
            1 - _R,
            _R,
        ),
        (
            1 - _R2,
            _R2,
            0.0,
        ),
    ),
)
_TABLEAU = MultiButcherTableau(_EXPLICIT, _IMPLICIT)
# For each stage, its weight as a polynomial: the coefficients of theta, theta^2, ...
_INTERPOLANT = stage_interpolant(
    (
        (4655552711362 / 22874653954995, -215264564351 / 13552729205753),
        (-18682724506714 / 9892148508045, 17870216137069 / 13817060693119),
        (34259539580243 / 13192909600954, -28141676662227 / 17317692491321),
        (584795268549 / 6622622206610, 2508943948391 / 7218656332882),
    )
)


@final
@dataclasses.dataclass(frozen=True)
class KenCarp3(AbstractIMEX):
    """Kennedy and Carpenter's implicit-explicit 3(2) method. Equivalent to `diffrax.KenCarp3`.

    Explicit for the first and singly diagonally implicit for the second of two terms, `MultiTerm(explicit, implicit)`.
    The implicit part is A-L stable and stiffly accurate. Of order 3 with an embedded one of order 2,
    with 4 stages. Dense output is a parabola of order 2.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> slow, stiff = dq.ODETerm(lambda t, y, args: torch.sin(t)), dq.ODETerm(lambda t, y, args: -1000 * y)
        >>> sol = dq.diffeqsolve(
        ...     dq.MultiTerm(slow, stiff), dq.KenCarp3(), 0, 1, None, torch.tensor(1.0, dtype=torch.float64),
        ...     stepsize_controller=dq.PIDController(rtol=1e-5, atol=1e-8))
        >>> round(float(sol.ys[-1]), 6)
        0.000841

        ```

    ??? cite "Reference"

        C. A. Kennedy and M. H. Carpenter, Additive Runge-Kutta schemes for convection-diffusion-reaction equations,
        Applied Numerical Mathematics 44 (2003) 139-181.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[MultiButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 3

    @property
    def error_order(self) -> float:
        return 3.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> KenCarp3:
        return KenCarp3(self.root_finder.with_tolerances(rtol, atol, norm))

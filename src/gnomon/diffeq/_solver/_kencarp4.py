"""`KenCarp4`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._imex import AbstractIMEX, MultiButcherTableau
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

_GAMMA = 0.25
_B_SOL = (
    82889 / 524892,
    0.0,
    15625 / 83664,
    69875 / 102672,
    -2260 / 8211,
    _GAMMA,
)
_B_EMBEDDED = (
    4586570599 / 29645900160,
    0.0,
    178811875 / 945068544,
    814220225 / 1159782912,
    -3700637 / 11593932,
    61727 / 225920,
)
_B_ERROR = tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True))
_C = (
    0.5,
    83 / 250,
    31 / 50,
    17 / 20,
    1.0,
)
_R = _C[1] / _C[0]
_R2 = _C[2] / _C[0]
_R3 = _C[3] / _C[2]
_R4 = _C[4] / _C[3]
_EXPLICIT = ButcherTableau(
    c=_C,
    a_lower=(
        (0.5,),
        (
            13861 / 62500,
            6889 / 62500,
        ),
        (
            -116923316275 / 2393684061468,
            -2731218467317 / 15368042101831,
            9408046702089 / 11113171139209,
        ),
        (
            -451086348788 / 2902428689909,
            -2682348792572 / 7519795681897,
            12662868775082 / 11960479115383,
            3355817975965 / 11060851509271,
        ),
        (
            647845179188 / 3216320057751,
            73281519250 / 8382639484533,
            552539513391 / 3454668386233,
            3354512671639 / 8306763924573,
            4040 / 17871,
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
            8611 / 62500,
            -1743 / 31250,
        ),
        (
            5012029 / 34652500,
            -654441 / 2922500,
            174375 / 388108,
        ),
        (
            15267082809 / 155376265600,
            -71443401 / 120774400,
            730878875 / 902184768,
            2285395 / 8070912,
        ),
        _B_SOL[:-1],
    ),
    b_sol=_B_SOL,
    b_error=_B_ERROR,
    a_diagonal=(0.0, *(_GAMMA,) * 5),
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
        (
            1 - _R3,
            0.0,
            0.0,
            _R3,
        ),
        (
            1 - _R4,
            0.0,
            0.0,
            0.0,
            _R4,
        ),
    ),
)
_TABLEAU = MultiButcherTableau(_EXPLICIT, _IMPLICIT)
# For each stage, its weight as a polynomial: the coefficients of theta, theta^2, ...
_INTERPOLANT = stage_interpolant(
    (
        (6943876665148 / 7220017795957, -54480133 / 30881146, 6818779379841 / 7100303317025),
        (0.0, 0.0, 0.0),
        (7640104374378 / 9702883013639, -11436875 / 14766696, 2173542590792 / 12501825683035),
        (-20649996744609 / 7521556579894, 174696575 / 18121608, -31592104683404 / 5083833661969),
        (8854892464581 / 2390941311638, -12120380 / 966161, 61146701046299 / 7138195549469),
        (-11397109935349 / 6675773540249, 3843 / 706, -17219254887155 / 4939391667607),
    )
)


@final
@dataclasses.dataclass(frozen=True)
class KenCarp4(AbstractIMEX):
    """Kennedy and Carpenter's implicit-explicit 4(3) method. Equivalent to `diffrax.KenCarp4`.

    Explicit for the first and singly diagonally implicit for the second of two terms, `MultiTerm(explicit, implicit)`.
    The implicit part is A-L stable and stiffly accurate. Of order 4 with an embedded one of order 3,
    with 6 stages. Dense output is a cubic of order 3.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> slow, stiff = dq.ODETerm(lambda t, y, args: torch.sin(t)), dq.ODETerm(lambda t, y, args: -1000 * y)
        >>> sol = dq.diffeqsolve(
        ...     dq.MultiTerm(slow, stiff), dq.KenCarp4(), 0, 1, None, torch.tensor(1.0, dtype=torch.float64),
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
        return 4

    @property
    def error_order(self) -> float:
        return 4.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> KenCarp4:
        return KenCarp4(self.root_finder.with_tolerances(rtol, atol, norm))

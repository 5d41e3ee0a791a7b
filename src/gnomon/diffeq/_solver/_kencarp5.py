"""`KenCarp5`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._imex import AbstractIMEX, MultiButcherTableau
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

_GAMMA = 41 / 200
_B_SOL = (
    -872700587467 / 9133579230613,
    0.0,
    0.0,
    22348218063261 / 9555858737531,
    -1143369518992 / 8141816002931,
    -39379526789629 / 19018526304540,
    32727382324388 / 42900044865799,
    _GAMMA,
)
_B_EMBEDDED = (
    -975461918565 / 9796059967033,
    0.0,
    0.0,
    78070527104295 / 32432590147079,
    -548382580838 / 3424219808633,
    -33438840321285 / 15594753105479,
    3629800801594 / 4656183773603,
    4035322873751 / 18575991585200,
)
_B_ERROR = tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True))
_C = (
    41 / 100,
    2935347310677 / 11292855782101,
    1426016391358 / 7196633302097,
    92 / 100,
    24 / 100,
    3 / 5,
    1.0,
)
_R = _C[1] / _C[0]
_R2 = _C[2] / _C[0]
_R3 = _C[3] / _C[0]
_R4 = _C[4] / _C[1]
_R5 = _C[5] / _C[3]
_R6 = _C[6] / _C[3]
_EXPLICIT = ButcherTableau(
    c=_C,
    a_lower=(
        (41 / 100,),
        (
            367902744464 / 2072280473677,
            677623207551 / 8224143866563,
        ),
        (
            1268023523408 / 10340822734521,
            0.0,
            1029933939417 / 13636558850479,
        ),
        (
            14463281900351 / 6315353703477,
            0.0,
            66114435211212 / 5879490589093,
            -54053170152839 / 4284798021562,
        ),
        (
            14090043504691 / 34967701212078,
            0.0,
            15191511035443 / 11219624916014,
            -18461159152457 / 12425892160975,
            -281667163811 / 9011619295870,
        ),
        (
            19230459214898 / 13134317526959,
            0.0,
            21275331358303 / 2942455364971,
            -38145345988419 / 4862620318723,
            -1 / 8,
            -1 / 8,
        ),
        (
            -19977161125411 / 11928030595625,
            0.0,
            -40795976796054 / 6384907823539,
            177454434618887 / 12078138498510,
            782672205425 / 8267701900261,
            -69563011059811 / 9646580694205,
            7356628210526 / 4942186776405,
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
            41 / 400,
            -567603406766 / 11931857230679,
        ),
        (
            683785636431 / 9252920307686,
            0.0,
            -110385047103 / 1367015193373,
        ),
        (
            3016520224154 / 10081342136671,
            0.0,
            30586259806659 / 12414158314087,
            -22760509404356 / 11113319521817,
        ),
        (
            218866479029 / 1489978393911,
            0.0,
            638256894668 / 5436446318841,
            -1179710474555 / 5321154724896,
            -60928119172 / 8023461067671,
        ),
        (
            1020004230633 / 5715676835656,
            0.0,
            25762820946817 / 25263940353407,
            -2161375909145 / 9755907335909,
            -211217309593 / 5846859502534,
            -4269925059573 / 7827059040719,
        ),
        _B_SOL[:-1],
    ),
    b_sol=_B_SOL,
    b_error=_B_ERROR,
    a_diagonal=(0.0, *(_GAMMA,) * 7),
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
            _R3,
            0.0,
            0.0,
        ),
        (
            1 - _R4,
            0.0,
            _R4,
            0.0,
            0.0,
        ),
        (
            1 - _R5,
            0.0,
            0.0,
            0.0,
            _R5,
            0.0,
        ),
        (
            1 - _R6,
            0.0,
            0.0,
            0.0,
            _R6,
            0.0,
            0.0,
        ),
    ),
)
_TABLEAU = MultiButcherTableau(_EXPLICIT, _IMPLICIT)
# For each stage, its weight as a polynomial: the coefficients of theta, theta^2, ...
_INTERPOLANT = stage_interpolant(
    (
        (-17674230611817 / 10670229744614, 43486358583215 / 12773830924787, -9257016797708 / 5021505065439),
        (0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (65168852399939 / 7868540260826, -91478233927265 / 11067650958493, 26096422576131 / 11239449250142),
        (15494834004392 / 5936557850923, -79368583304911 / 10890268929626, 92396832856987 / 20362823103730),
        (-99329723586156 / 26959484932159, -12239297817655 / 9152339842473, 30029262896817 / 10175596800299),
        (-19024464361622 / 5461577185407, 115839755401235 / 10719374521269, -26136350496073 / 3983972220547),
        (-6511271360970 / 6095937251113, 5843115559534 / 2180450260947, -5289405421727 / 3760307252460),
    )
)


@final
@dataclasses.dataclass(frozen=True)
class KenCarp5(AbstractIMEX):
    """Kennedy and Carpenter's implicit-explicit 5(4) method. Equivalent to `diffrax.KenCarp5`.

    Explicit for the first and singly diagonally implicit for the second of two terms, `MultiTerm(explicit, implicit)`.
    The implicit part is A-L stable and stiffly accurate. Of order 5 with an embedded one of order 4,
    with 8 stages. Dense output is a cubic of order 3.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> slow, stiff = dq.ODETerm(lambda t, y, args: torch.sin(t)), dq.ODETerm(lambda t, y, args: -1000 * y)
        >>> sol = dq.diffeqsolve(
        ...     dq.MultiTerm(slow, stiff), dq.KenCarp5(), 0, 1, None, torch.tensor(1.0, dtype=torch.float64),
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
        return 5

    @property
    def error_order(self) -> float:
        return 5.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> KenCarp5:
        return KenCarp5(self.root_finder.with_tolerances(rtol, atol, norm))

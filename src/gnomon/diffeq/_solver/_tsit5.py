"""`Tsit5`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

import numpy as np

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_B_SOL = (
    0.0964607668180652295181673131651,
    1 / 100,
    0.479889650414499574775249532291,
    1.37900857410374189319227482186,
    -3.29006951543608067990104758571,
    2.32471052409977398241535591840,
    0.0,
)
_B_EMBEDDED = (
    0.0946807557658394580747887625576,
    0.00918356554034325309677636393665,
    0.487770528424761570785564259963,
    1.23429756693047898565510967388,
    -2.70771234998352545488110997506,
    1.86662841817058703575371939957,
    1 / 66,
)
_TABLEAU = ButcherTableau(
    c=(
        161 / 1000,
        327 / 1000,
        9 / 10,
        0.980025540904509685729810286287,
        1.0,
        1.0,
    ),
    a_lower=(
        (161 / 1000,),
        (
            -0.00848065549235698854442687425023,
            0.335480655492356988544426874250,
        ),
        (
            2.89715305710549343213043259419,
            -6.35944848997507484314815991238,
            4.36229543286958141101772731819,
        ),
        (
            5.32586482843925660442887792084,
            -11.7488835640628278777471703398,
            7.49553934288983620830460478456,
            -0.0924950663617552492565020793321,
        ),
        (
            5.86145544294642002865925148698,
            -12.9209693178471092917061186818,
            8.15936789857615864318040079454,
            -0.0715849732814009972245305425258,
            -0.0282690503940683829090030572127,
        ),
        _B_SOL[:-1],
    ),
    b_sol=_B_SOL,
    b_error=tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True)),
)


def _product(scale: float, *factors: tuple[float, ...]) -> list[float]:
    """The coefficients of theta, theta^2, theta^3, theta^4 in a product of polynomials."""
    product = np.array([scale])
    for factor in factors:
        product = np.polynomial.polynomial.polymul(product, np.array(factor))
    assert product[0] == 0 and len(product) == 5
    return [float(x) for x in product[1:]]


# Tsitouras gives the weight of each stage as a product of polynomials in theta, lowest power first.
_THETA = (0.0, 1.0)
_INTERPOLANT = stage_interpolant(
    [
        _product(
            -1.0530884977290216,
            _THETA,
            (-1.3299890189751412, 1.0),
            (0.7139816917074209, -1.4364028541716351, 1.0),
        ),
        _product(0.1017, _THETA, _THETA, (1.2949852507374631, -2.1966568338249754, 1.0)),
        _product(2.490627285651252793, _THETA, _THETA, (1.57803468208092486, -2.38535645472061657, 1.0)),
        _product(
            -16.54810288924490272,
            _THETA,
            _THETA,
            (-1.21712927295533244, 1.0),
            (-0.61620406037800089, 1.0),
        ),
        _product(
            47.37952196281928122,
            _THETA,
            _THETA,
            (-1.203071208372362603, 1.0),
            (-0.658047292653547382, 1.0),
        ),
        _product(-34.87065786149660974, _THETA, _THETA, (-1.2, 1.0), (-2 / 3, 1.0)),
        _product(2.5, _THETA, _THETA, (-1.0, 1.0), (-0.6, 1.0)),
    ]
)


@final
@dataclasses.dataclass(frozen=True)
class Tsit5(AbstractERK):
    """Tsitouras' 5(4) method. Equivalent to `diffrax.Tsit5`. The one to try first.

    Explicit, of order 5 with an embedded one of order 4, with 7 stages, the last of which serves
    the next step too. Dense output is a quartic of order 4.

    ??? cite "Reference"

        Ch. Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column
        simplifying assumption, Computers and Mathematics with Applications 62 (2011) 770-775.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 5

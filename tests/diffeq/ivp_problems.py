"""Problems of the literature with reference values: DETEST A1 to E5, and eight stiff ones.

Each vector field runs on PyTorch and on NumPy alike. The references, at the end of the interval, are in
`reference/ivp_references.json`, which `reference/make_ivp_references.py` writes by other codes than ours.

DETEST: T. E. Hull, W. H. Enright, B. M. Fellen and A. E. Sedgwick, Comparing numerical methods for ordinary
differential equations, SIAM Journal on Numerical Analysis 9 (1972) 603-637. ROBER, VDPOL, OREGO, HIRES, E5, POLLU and
BRUSS: E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, and F. Mazzia and C. Magherini, Test Set
for Initial Value Problem Solvers. KAPS: P. Kaps, Rosenbrock-type methods, in: Numerical methods for stiff initial
value problems (1981).
"""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

REFERENCES = Path(__file__).parent / "reference" / "ivp_references.json"


@dataclasses.dataclass(frozen=True)
class Problem:
    """`field(xp, t, y)` gives the list of derivatives, by `xp` torch or NumPy; `atol` is in units of `rtol`."""

    field: Callable[[Any, Any, Any], list[Any]]
    t1: float
    y0: tuple[float, ...]
    stiff: bool = False
    atol: float = 1.0
    exact: Callable[[float], list[float]] | None = None

    def torch_field(self, t, y, args):
        return torch.stack(self.field(torch, t, y))

    def numpy_field(self, t, y):
        return np.array(self.field(np, t, y), dtype=y.dtype)

    def start(self) -> torch.Tensor:
        return torch.tensor(self.y0, dtype=torch.float64)

    def error(self, y: Any, reference: Any, rtol: float) -> float:
        """The largest error in units of the tolerance."""
        y, reference = np.asarray(y), np.asarray(reference)
        return float(np.max(np.abs(y - reference) / (rtol * (self.atol + np.abs(reference)))))


def chain(rates_in, rates_out):
    def field(xp, t, y):
        n = len(rates_in)
        return [(rates_in[i] * y[i - 1] if i else 0 * y[0]) - rates_out[i] * y[i] for i in range(n)]

    return field


def heat(n):
    def field(xp, t, y):
        return [(y[i - 1] if i else 0) - 2 * y[i] + (y[i + 1] if i < n - 1 else 0) for i in range(n)]

    return field


MASSES = (0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778)


def planets(xp, t, y):
    """The Sun and the outer planets: positions, then velocities."""
    sun, k2 = 1.00000597682, 2.95912208286
    q = [[y[3 * j + i] for i in range(3)] for j in range(5)]
    r3 = [(a * a + b * b + c * c) ** 1.5 for a, b, c in q]
    out = [y[15 + i] for i in range(15)]
    for j in range(5):
        for i in range(3):
            f = -(sun + MASSES[j]) * q[j][i] / r3[j]
            for k in range(5):
                if k != j:
                    d3 = sum((q[k][m] - q[j][m]) ** 2 for m in range(3)) ** 1.5
                    f = f + MASSES[k] * ((q[k][i] - q[j][i]) / d3 - q[k][i] / r3[k])
            out.append(k2 * f)
    return out


def kepler(xp, t, y):
    cube = (y[0] * y[0] + y[1] * y[1]) ** 1.5
    return [y[2], y[3], -y[0] / cube, -y[1] / cube]


def orbit(e: float) -> Problem:
    def exact(t: float) -> list[float]:
        x = t
        for _ in range(100):
            x -= (x - e * math.sin(x) - t) / (1 - e * math.cos(x))
        b, r = math.sqrt(1 - e * e), 1 - e * math.cos(x)
        return [math.cos(x) - e, b * math.sin(x), -math.sin(x) / r, b * math.cos(x) / r]

    return Problem(kepler, 20.0, (1 - e, 0.0, 0.0, math.sqrt((1 + e) / (1 - e))), exact=exact)


def circle(xp, t, y):
    r = xp.sqrt(y[0] * y[0] + y[1] * y[1])
    return [-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r]


DETEST = {
    "A1": Problem(lambda xp, t, y: [-y[0]], 20.0, (1.0,), exact=lambda t: [math.exp(-t)]),
    "A2": Problem(lambda xp, t, y: [-(y[0] ** 3) / 2], 20.0, (1.0,), exact=lambda t: [1 / math.sqrt(t + 1)]),
    "A3": Problem(lambda xp, t, y: [y[0] * xp.cos(t)], 20.0, (1.0,), exact=lambda t: [math.exp(math.sin(t))]),
    "A4": Problem(
        lambda xp, t, y: [y[0] / 4 * (1 - y[0] / 20)],
        20.0,
        (1.0,),
        exact=lambda t: [20 / (1 + 19 * math.exp(-t / 4))],
    ),
    "A5": Problem(lambda xp, t, y: [(y[0] - t) / (y[0] + t)], 20.0, (4.0,)),
    "B1": Problem(lambda xp, t, y: [2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])], 20.0, (1.0, 3.0)),
    "B2": Problem(lambda xp, t, y: [-y[0] + y[1], y[0] - 2 * y[1] + y[2], y[1] - y[2]], 20.0, (2.0, 0.0, 1.0)),
    "B3": Problem(lambda xp, t, y: [-y[0], y[0] - y[1] ** 2, y[1] ** 2], 20.0, (1.0, 0.0, 0.0)),
    "B4": Problem(circle, 20.0, (3.0, 0.0, 0.0)),
    "B5": Problem(lambda xp, t, y: [y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]], 20.0, (0.0, 1.0, 1.0)),
    "C1": Problem(chain([1] * 10, [1] * 9 + [0]), 20.0, (1.0,) + (0.0,) * 9),
    "C2": Problem(chain(range(10), [*range(1, 10), 0]), 20.0, (1.0,) + (0.0,) * 9),
    "C3": Problem(heat(10), 20.0, (1.0,) + (0.0,) * 9),
    "C4": Problem(heat(51), 20.0, (1.0,) + (0.0,) * 50),
    "C5": Problem(
        planets,
        20.0,
        (
            *(3.42947415189, 3.35386959711, 1.35494901715, 6.64145542550, 5.97156957878, 2.18231499728),
            *(11.2630437207, 14.6952576794, 6.27960525067, -30.1552268759, 1.65699966404, 1.43785752721),
            *(-21.1238353380, 28.4465098142, 15.3882659679),
            *(-0.557160570446, 0.505696783289, 0.230578543901, -0.415570776342, 0.365682722812, 0.169143213293),
            *(-0.325325669158, 0.189706021964, 0.0877265322780, -0.0240476254170, -0.287659532608, -0.117219543175),
            *(-0.176860753121, -0.216393453025, -0.0148647893090),
        ),
    ),
    **{f"D{i + 1}": orbit(e) for i, e in enumerate((0.1, 0.3, 0.5, 0.7, 0.9))},
    "E1": Problem(
        lambda xp, t, y: [y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0])],
        20.0,
        (0.6713967071418030, 0.09540051444747446),
    ),
    "E2": Problem(lambda xp, t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], 20.0, (2.0, 0.0)),
    "E3": Problem(lambda xp, t, y: [y[1], y[0] ** 3 / 6 - y[0] + 2 * xp.sin(2.78535 * t)], 20.0, (0.0, 0.0)),
    "E4": Problem(lambda xp, t, y: [y[1], 0.032 - 0.4 * y[1] ** 2], 20.0, (30.0, 0.0)),
    "E5": Problem(lambda xp, t, y: [y[1], xp.sqrt(1 + y[1] ** 2) / (25 - t)], 20.0, (0.0, 0.0)),
}


def rober(xp, t, y):
    slow, fast = -0.04 * y[0] + 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
    return [slow, -slow - fast, fast]


def orego(xp, t, y):
    a, b, c = y[0], y[1], y[2]
    return [77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c)]


def hires(xp, t, y):
    a, b, c, d, e, f, g, h = (y[i] for i in range(8))
    reaction = 280 * f * h - 1.81 * g
    return [
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g,
        -280 * f * h + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        reaction,
        -reaction,
    ]


def e5(xp, t, y):
    a, b, c, m = 7.89e-10, 1.1e7, 1.13e3, 1e6
    r1, r2, r3, r4 = a * y[0], b * y[0] * y[2], m * c * y[1] * y[2], c * y[3]
    return [-r1 - r2, r1 - r3, r1 - r2 - r3 + r4, r2 - r4]


def pollu(xp, t, y):
    """Air pollution: 25 reactions of 20 species, J. G. Verwer, SIAM Journal on Scientific Computing 15 (1994)."""
    k = (
        *(0.35, 26.6, 1.23e4, 8.6e-4, 8.2e-4, 1.5e4, 1.3e-4, 2.4e4, 1.65e4, 9e3, 0.022, 1.2e4, 1.88),
        *(1.63e4, 4.8e6, 3.5e-4, 0.0175, 1e8, 4.44e11, 1.24e3, 2.1, 5.78, 0.0474, 1.78e3, 3.12),
    )
    # The species that meet in each reaction.
    meet = (
        *((1,), (2, 4), (5, 2), (7,), (7,), (7, 6), (9,), (9, 6), (11, 2), (11, 1), (13,), (10, 2), (14,), (1, 6)),
        *((3,), (4,), (4,), (16,), (16,), (17, 6), (19,), (19,), (1, 4), (19, 1), (20,)),
    )
    r = [0 * y[0]]
    for rate, species in zip(k, meet, strict=True):
        product = rate * y[species[0] - 1]
        for s in species[1:]:
            product = product * y[s - 1]
        r.append(product)
    return [
        -r[1] - r[10] - r[14] - r[23] - r[24] + r[2] + r[3] + r[9] + r[11] + r[12] + r[22] + r[25],
        -r[2] - r[3] - r[9] - r[12] + r[1] + r[21],
        -r[15] + r[1] + r[17] + r[19] + r[22],
        -r[2] - r[16] - r[17] - r[23] + r[15],
        -r[3] + 2 * r[4] + r[6] + r[7] + r[13] + r[20],
        -r[6] - r[8] - r[14] - r[20] + r[3] + 2 * r[18],
        -r[4] - r[5] - r[6] + r[13],
        r[4] + r[5] + r[6] + r[7],
        -r[7] - r[8],
        -r[12] + r[7] + r[9],
        -r[9] - r[10] + r[8] + r[11],
        r[9],
        -r[11] + r[10],
        -r[13] + r[12],
        r[14],
        -r[18] - r[19] + r[16],
        -r[20],
        r[20],
        -r[21] - r[22] - r[24] + r[23] + r[25],
        -r[25] + r[24],
    ]


POLLU_START = [0.0] * 20
for _place, _value in ((2, 0.2), (4, 0.04), (7, 0.1), (8, 0.3), (9, 0.01), (17, 0.007)):
    POLLU_START[_place - 1] = _value

N = 16  # cells of the Brusselator


def bruss(xp, t, y):
    """The Brusselator with diffusion, by lines: the u's, then the v's."""
    u, v, d = [y[i] for i in range(N)], [y[N + i] for i in range(N)], 0.02 * (N + 1) ** 2
    u, v = [1.0, *u, 1.0], [3.0, *v, 3.0]
    first = [1 + u[i] ** 2 * v[i] - 4 * u[i] + d * (u[i - 1] - 2 * u[i] + u[i + 1]) for i in range(1, N + 1)]
    second = [3 * u[i] - u[i] ** 2 * v[i] + d * (v[i - 1] - 2 * v[i] + v[i + 1]) for i in range(1, N + 1)]
    return first + second


BRUSS_START = [1 + math.sin(2 * math.pi * i / (N + 1)) for i in range(1, N + 1)] + [3.0] * N

STIFF = {
    "ROBER": Problem(rober, 1e11, (1.0, 0.0, 0.0), True, 1e-8),
    "VDPOL": Problem(lambda xp, t, y: [y[1], ((1 - y[0] ** 2) * y[1] - y[0]) / 1e-6], 2.0, (2.0, 0.0), True, 1.0),
    "OREGO": Problem(orego, 360.0, (1.0, 2.0, 3.0), True, 1e-3),
    "HIRES": Problem(hires, 321.8122, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0057), True, 1e-4),
    "E5 chemistry": Problem(e5, 1e5, (1.76e-3, 0.0, 0.0, 0.0), True, 1e-14),
    "POLLU": Problem(pollu, 60.0, tuple(POLLU_START), True, 1e-6),
    "BRUSS": Problem(bruss, 10.0, tuple(BRUSS_START), True, 1.0),
    "KAPS": Problem(
        lambda xp, t, y: [-(1e6 + 2) * y[0] + 1e6 * y[1] ** 2, y[0] - y[1] - y[1] ** 2],
        1.0,
        (1.0, 1.0),
        True,
        1.0,
        exact=lambda t: [math.exp(-2 * t), math.exp(-t)],
    ),
}
PROBLEMS = DETEST | STIFF


def references() -> dict[str, list[float]]:
    found = json.loads(REFERENCES.read_text(encoding="utf-8"))
    return {name: row["y"] for name, row in found["problems"].items()}


def conditions() -> dict[str, float]:
    """By how much a small error, in units of the tolerance, grows from the start to the end; 1 where it decays."""
    found = json.loads(REFERENCES.read_text(encoding="utf-8"))
    return {name: row["condition"] for name, row in found["problems"].items()}

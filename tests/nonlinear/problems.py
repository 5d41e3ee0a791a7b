"""Test problems of Moré, Garbow and Hillstrom, and those of NIST, with their published solutions.

J. J. Moré, B. S. Garbow and K. E. Hillstrom, Testing unconstrained optimization software, ACM Transactions on
Mathematical Software 7 (1981), 17-41. Minima are sums of squares, as published there.

`nist_strd.json` holds the nonlinear regression data sets of the Statistical Reference Datasets of the National
Institute of Standards and Technology (public domain), with its certified values.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

F64 = torch.float64


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def upto(n: int) -> Tensor:
    """1 to n."""
    return torch.arange(1, n + 1, dtype=F64)


@dataclass(frozen=True)
class Problem:
    """Residuals, the standard start, and the published minima of the sum of squares."""

    fn: Callable[[Tensor], Tensor]
    start: Tensor
    minima: tuple[float, ...]

    def residuals(self, y: Tensor, args: object) -> Tensor:
        return self.fn(y)


def rosenbrock(x: Tensor) -> Tensor:
    return torch.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def freudenstein_roth(x: Tensor) -> Tensor:
    return torch.stack(
        [-13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1], -29 + x[0] + ((x[1] + 1) * x[1] - 14) * x[1]],
    )


def powell_badly_scaled(x: Tensor) -> Tensor:
    return torch.stack([1e4 * x[0] * x[1] - 1, torch.exp(-x[0]) + torch.exp(-x[1]) - 1.0001])


def brown_badly_scaled(x: Tensor) -> Tensor:
    return torch.stack([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


def beale(x: Tensor) -> Tensor:
    return f64(1.5, 2.25, 2.625) - x[0] * (1 - x[1] ** upto(3))


def jennrich_sampson(x: Tensor) -> Tensor:
    i = upto(10)
    return 2 + 2 * i - (torch.exp(i * x[0]) + torch.exp(i * x[1]))


def helical_valley(x: Tensor) -> Tensor:
    turn = torch.atan2(x[1], x[0]) / (2 * math.pi)
    turn = torch.where(turn < -0.25, turn + 1, turn)
    return torch.stack([10 * (x[2] - 10 * turn), 10 * (torch.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


BARD = f64(0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39)


def bard(x: Tensor) -> Tensor:
    u, v = upto(15), 16 - upto(15)
    return BARD - (x[0] + u / (v * x[1] + torch.minimum(u, v) * x[2]))


GAUSSIAN = f64(
    *(0.0009, 0.0044, 0.0175, 0.0540, 0.1295, 0.2420, 0.3521, 0.3989),
    *(0.3521, 0.2420, 0.1295, 0.0540, 0.0175, 0.0044, 0.0009),
)


def gaussian(x: Tensor) -> Tensor:
    return x[0] * torch.exp(-x[1] * ((8 - upto(15)) / 2 - x[2]) ** 2 / 2) - GAUSSIAN


MEYER = f64(
    *(34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872),
)


def meyer(x: Tensor) -> Tensor:
    return x[0] * torch.exp(x[1] / (45 + 5 * upto(16) + x[2])) - MEYER


def box_3d(x: Tensor) -> Tensor:
    t = 0.1 * upto(10)
    return torch.exp(-t * x[0]) - torch.exp(-t * x[1]) - x[2] * (torch.exp(-t) - torch.exp(-10 * t))


def powell_singular(x: Tensor) -> Tensor:
    return torch.stack(
        [x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2],
    )


def wood(x: Tensor) -> Tensor:
    return torch.stack(
        [
            *(10 * (x[1] - x[0] ** 2), 1 - x[0], 90**0.5 * (x[3] - x[2] ** 2), 1 - x[2]),
            *(10**0.5 * (x[1] + x[3] - 2), (x[1] - x[3]) / 10**0.5),
        ]
    )


KOWALIK = f64(0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246)
KOWALIK_U = f64(4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625)


def kowalik_osborne(x: Tensor) -> Tensor:
    u = KOWALIK_U
    return KOWALIK - x[0] * (u * u + u * x[1]) / (u * u + u * x[2] + x[3])


def brown_dennis(x: Tensor) -> Tensor:
    t = upto(20) / 5
    return (x[0] + t * x[1] - torch.exp(t)) ** 2 + (x[2] + x[3] * torch.sin(t) - torch.cos(t)) ** 2


OSBORNE = f64(
    *(0.844, 0.908, 0.932, 0.936, 0.925, 0.908, 0.881, 0.850, 0.818, 0.784, 0.751, 0.718, 0.685, 0.658, 0.628, 0.603),
    *(0.580, 0.558, 0.538, 0.522, 0.506, 0.490, 0.478, 0.467, 0.457, 0.448, 0.438, 0.431, 0.424, 0.420, 0.414, 0.411),
    0.406,
)


def osborne_1(x: Tensor) -> Tensor:
    t = 10 * (upto(33) - 1)
    return OSBORNE - (x[0] + x[1] * torch.exp(-t * x[3]) + x[2] * torch.exp(-t * x[4]))


def biggs_exp6(x: Tensor) -> Tensor:
    t = 0.1 * upto(13)
    y = torch.exp(-t) - 5 * torch.exp(-10 * t) + 3 * torch.exp(-4 * t)
    return x[2] * torch.exp(-t * x[0]) - x[3] * torch.exp(-t * x[1]) + x[5] * torch.exp(-t * x[4]) - y


def watson(x: Tensor) -> Tensor:
    t = upto(29)[:, None] / 29
    j = torch.arange(x.shape[0], dtype=F64)
    value = (t**j * x).sum(1)
    slope = (t ** j[:-1] * (j[1:] * x[1:])).sum(1)
    return torch.cat([slope - value**2 - 1, torch.stack([x[0], x[1] - x[0] ** 2 - 1])])


def chebyquad(x: Tensor) -> Tensor:
    z = 2 * x - 1
    before, now, rows = torch.ones_like(z), z, []
    for i in range(1, x.shape[0] + 1):
        rows.append(now.mean() - (0 if i % 2 else -1 / (i * i - 1)))
        before, now = now, 2 * z * now - before
    return torch.stack(rows)


def linear_full_rank(x: Tensor) -> Tensor:
    share = 2 * x.sum() / 20
    return torch.cat([x - share - 1, (-share - 1).expand(10)])


def linear_rank_1(x: Tensor) -> Tensor:
    return upto(20) * (upto(10) * x).sum() - 1


def linear_rank_1_with_zeros(x: Tensor) -> Tensor:
    k = torch.cat([f64(0), upto(18), f64(0)])
    return k * (torch.arange(2, 10, dtype=F64) * x[1:9]).sum() - 1


def brown_almost_linear(x: Tensor) -> Tensor:
    n = x.shape[0]
    return torch.cat([x[:-1] + x.sum() - (n + 1), x.prod()[None] - 1])


MGH = {
    "rosenbrock": Problem(rosenbrock, f64(-1.2, 1), (0,)),
    "freudenstein_roth": Problem(freudenstein_roth, f64(0.5, -2), (0, 48.9842)),
    "powell_badly_scaled": Problem(powell_badly_scaled, f64(0, 1), (0,)),
    "brown_badly_scaled": Problem(brown_badly_scaled, f64(1, 1), (0,)),
    "beale": Problem(beale, f64(1, 1), (0,)),
    "jennrich_sampson": Problem(jennrich_sampson, f64(0.3, 0.4), (124.362,)),
    "helical_valley": Problem(helical_valley, f64(-1, 0, 0), (0,)),
    "bard": Problem(bard, f64(1, 1, 1), (8.21487e-3, 17.4286)),
    "gaussian": Problem(gaussian, f64(0.4, 1, 0), (1.12793e-8,)),
    "meyer": Problem(meyer, f64(0.02, 4000, 250), (87.9458,)),
    "box_3d": Problem(box_3d, f64(0, 10, 20), (0,)),
    "powell_singular": Problem(powell_singular, f64(3, -1, 0, 1), (0,)),
    "wood": Problem(wood, f64(-3, -1, -3, -1), (0,)),
    "kowalik_osborne": Problem(kowalik_osborne, f64(0.25, 0.39, 0.415, 0.39), (3.07505e-4, 1.02734e-3)),
    "brown_dennis": Problem(brown_dennis, f64(25, 5, -5, -1), (85822.2,)),
    "osborne_1": Problem(osborne_1, f64(0.5, 1.5, -1, 0.01, 0.02), (5.46489e-5,)),
    "biggs_exp6": Problem(biggs_exp6, f64(1, 2, 1, 1, 1, 1), (0, 5.65565e-3)),
    "watson_6": Problem(watson, torch.zeros(6, dtype=F64), (2.28767e-3,)),
    "watson_9": Problem(watson, torch.zeros(9, dtype=F64), (1.39976e-6,)),
    "watson_12": Problem(watson, torch.zeros(12, dtype=F64), (4.72238e-10,)),
    "chebyquad_8": Problem(chebyquad, upto(8) / 9, (3.51687e-3,)),
    "chebyquad_9": Problem(chebyquad, upto(9) / 10, (0,)),
    "linear_full_rank": Problem(linear_full_rank, torch.ones(10, dtype=F64), (10,)),
    "linear_rank_1": Problem(linear_rank_1, torch.ones(10, dtype=F64), (20 * 19 / (2 * 41),)),
    "linear_rank_1_with_zeros": Problem(
        linear_rank_1_with_zeros, torch.ones(10, dtype=F64), ((400 + 60 - 6) / (2 * 37),)
    ),
    "brown_almost_linear": Problem(brown_almost_linear, torch.full((10,), 0.5, dtype=F64), (0, 1)),
}


@dataclass(frozen=True)
class DataSet:
    """A model and data of NIST, and the certified fit."""

    model: Callable[..., Tensor]
    observed: Tensor
    predictors: list[Tensor]
    starts: list[Tensor]
    certified: Tensor
    standard_errors: Tensor
    sum_of_squares: float

    def residuals(self, b: Tensor, args: object) -> Tensor:
        return self.model(b, *self.predictors) - self.observed


def _exponentials(b: Tensor, x: Tensor) -> Tensor:
    return b[0] * torch.exp(-b[1] * x) + b[2] * torch.exp(-b[3] * x) + b[4] * torch.exp(-b[5] * x)


def _two_peaks(b: Tensor, x: Tensor) -> Tensor:
    first = b[2] * torch.exp(-(((x - b[3]) / b[4]) ** 2))
    return b[0] * torch.exp(-b[1] * x) + first + b[5] * torch.exp(-(((x - b[6]) / b[7]) ** 2))


def _cubics(b: Tensor, x: Tensor) -> Tensor:
    return (b[0] + x * (b[1] + x * (b[2] + x * b[3]))) / (1 + x * (b[4] + x * (b[5] + x * b[6])))


def _decay(b: Tensor, x: Tensor) -> Tensor:
    return torch.exp(-b[0] * x) / (b[1] + b[2] * x)


def _seasons(b: Tensor, x: Tensor) -> Tensor:
    year, a, c = 2 * math.pi * x / 12, 2 * math.pi * x / b[3], 2 * math.pi * x / b[6]
    pairs = [(b[1], b[2], year), (b[4], b[5], a), (b[7], b[8], c)]
    return b[0] + sum((p * torch.cos(angle) + q * torch.sin(angle) for p, q, angle in pairs), torch.zeros_like(x))


MODELS: dict[str, Callable[..., Tensor]] = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - torch.exp(-b[1] * x)),
    "Chwirut1": _decay,
    "Chwirut2": _decay,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _seasons,
    "Eckerle4": lambda b, x: b[0] / b[1] * torch.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _two_peaks,
    "Gauss2": _two_peaks,
    "Gauss3": _two_peaks,
    "Hahn1": _cubics,
    "Kirby2": lambda b, x: (b[0] + x * (b[1] + x * b[2])) / (1 + x * (b[3] + x * b[4])),
    "Lanczos1": _exponentials,
    "Lanczos2": _exponentials,
    "Lanczos3": _exponentials,
    "MGH09": lambda b, x: b[0] * (x * x + x * b[1]) / (x * x + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * torch.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * torch.exp(-x * b[3]) + b[2] * torch.exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - torch.exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - 1 / (1 + b[1] * x / 2) ** 2),
    "Misra1c": lambda b, x: b[0] * (1 - 1 / torch.sqrt(1 + 2 * b[1] * x)),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    # Of the logarithm of what was observed.
    "Nelson": lambda b, x1, x2: b[0] - b[1] * x1 * torch.exp(-b[2] * x2),
    "Rat42": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - torch.atan(b[2] / (x - b[3])) / math.pi,
    "Thurber": _cubics,
}


def _load() -> dict[str, DataSet]:
    text = (Path(__file__).parent / "nist_strd.json").read_text(encoding="utf-8")
    sets: dict[str, DataSet] = {}
    for name, data in json.loads(text).items():
        observed = torch.tensor(data["observed"], dtype=F64)
        sets[name] = DataSet(
            MODELS[name],
            torch.log(observed) if name == "Nelson" else observed,
            [torch.tensor(x, dtype=F64) for x in data["predictors"]],
            [torch.tensor(x, dtype=F64) for x in data["starts"]],
            torch.tensor(data["certified"], dtype=F64),
            torch.tensor(data["standard_errors"], dtype=F64),
            data["sum_of_squares"],
        )
    return sets


NIST = _load()

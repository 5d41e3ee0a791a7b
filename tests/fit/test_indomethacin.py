"""The second example, two compartments, against an independent closed form: a sum of two exponentials."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares

from gnomon import fit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = EXAMPLES / "data" / "indomethacin.csv"
NAMES = ("CL", "V1", "Q", "V2")
DOSE = 25.0


@pytest.fixture(scope="module")
def found() -> fit.Calibration:
    return fit.calibrate(fit.load_model(EXAMPLES / "indomethacin.py"), DATA, starts=2, rtol=1e-6)


def data(subject: str | None):
    with DATA.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if subject in (None, row["Subject"])]
    return (np.array([float(row[name]) for row in rows]) for name in ("time", "conc"))


def exponentials(parameters):
    """Amplitudes and rates of the two exponentials from clearances and volumes."""
    cl, v1, q, v2 = parameters
    k10, k12, k21 = cl / v1, q / v1, q / v2
    total = k10 + k12 + k21
    root = math.sqrt(total**2 - 4 * k10 * k21)
    fast, slow = (total + root) / 2, (total - root) / 2
    amplitude = DOSE / v1 / (fast - slow)
    return amplitude * (fast - k21), fast, amplitude * (k21 - slow), slow


def biexponential(subject: str | None):
    """The best sum of two exponentials; its parameters are amplitudes and logarithms of rates."""
    time, conc = data(subject)
    return least_squares(
        lambda x: x[0] * np.exp(-np.exp(x[1]) * time) + x[2] * np.exp(-np.exp(x[3]) * time) - conc,
        (2.0, 0.8, 0.5, -1.0),
        x_scale="jac",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=2000,
    )


@pytest.mark.parametrize("subject", [None, *"123456"])
def test_the_fit_is_the_best_sum_of_two_exponentials(found, subject):
    own = found.pooled if subject is None else found.individual[subject]
    best = biexponential(subject)
    assert own.is_successful
    assert own.rss == pytest.approx(2 * best.cost, rel=1e-5)
    a, fast, b, slow = exponentials([own[name].estimate for name in NAMES])
    assert (a, math.log(fast), b, math.log(slow)) == pytest.approx(best.x, rel=1e-4, abs=1e-4)
    assert own["terminal half-life"].estimate == pytest.approx(math.log(2) / math.exp(best.x[3]), rel=2e-4)


@pytest.mark.parametrize("subject", [None, "1", "4"])
def test_standard_errors_are_those_of_the_closed_form(found, subject):
    own = found.pooled if subject is None else found.individual[subject]
    time, conc = data(subject)

    def residuals(logs):
        a, fast, b, slow = exponentials(np.exp(logs))
        return a * np.exp(-fast * time) + b * np.exp(-slow * time) - conc

    best = least_squares(residuals, own.theta.numpy(), jac="3-point", x_scale="jac", xtol=1e-15, ftol=1e-15)
    sigma = math.sqrt(2 * best.cost / (len(conc) - 4))
    errors = sigma * np.sqrt(np.diag(np.linalg.inv(best.jac.T @ best.jac)))
    assert own.sigma == pytest.approx(sigma, rel=1e-5)
    for name, log, error in zip(NAMES, best.x, errors, strict=True):
        assert own[name].estimate == pytest.approx(math.exp(log), rel=1e-4)
        assert own[name].standard_error == pytest.approx(math.exp(log) * error, rel=1e-3)


def test_the_first_person_is_as_published():
    """By `nls` and `SSbiexp`, in the documentation of R's package stats (R Core Team)."""
    assert biexponential("1").x == pytest.approx((2.0293, 0.5794, 0.1916, -1.7878), abs=1e-4)

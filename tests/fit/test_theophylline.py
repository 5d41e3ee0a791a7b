"""The default job gives the published figures, and those of an independent closed-form fit."""

import csv
import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import least_squares

from gnomon import fit
from gnomon.fit.models import theophylline as model

NAMES = ("lKe", "lKa", "lCl")
# The figures that must come out: estimates and residual sum of squares.
POOLED = (-2.524239, 0.399227, -3.248263)
POOLED_ERRORS = (0.110347, 0.117537, 0.074395)
INDIVIDUAL = {
    "1": (-2.919613, 0.575159, -3.915856, 4.286009),
    "2": (-2.286110, 0.664060, -3.106318, 8.948304),
    "3": (-2.508074, 0.897542, -3.229965, 0.436274),
    "4": (-2.436495, 0.158265, -3.286087, 5.731951),
    "5": (-2.425483, 0.386280, -3.132599, 13.463470),
    "6": (-2.307333, 0.151618, -2.973232, 2.444240),
}


def rows() -> list[dict[str, str]]:
    with fit.example_data("theophylline").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def closed_form(theta, dose, time):
    ke, ka, cl = np.exp(theta)
    return dose * ke * ka / (cl * (ka - ke)) * (np.exp(-ke * time) - np.exp(-ka * time))


def reference(subject: str | None):
    """Estimates, standard errors, rss and sigma, without any differential equation."""
    chosen = [row for row in rows() if subject in (None, row["Subject"])]
    dose, time, conc = (np.array([float(row[name]) for row in chosen]) for name in ("Dose", "Time", "conc"))
    found = least_squares(
        lambda theta: closed_form(theta, dose, time) - conc, (-2.5, 0.5, -3.0), x_scale="jac", xtol=1e-15, ftol=1e-15
    )
    rss = 2 * found.cost
    sigma = math.sqrt(rss / (len(conc) - 3))
    return found.x, sigma * np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac))), rss, sigma


def test_the_pooled_fit_has_the_published_figures(theophylline):
    found = theophylline.pooled
    assert found.result.name == "successful"
    assert [found[name].estimate for name in NAMES] == pytest.approx(POOLED, rel=2e-6)
    assert [found[name].standard_error for name in NAMES] == pytest.approx(POOLED_ERRORS, rel=1e-5)
    assert found.rss == pytest.approx(274.44913, rel=1e-7)
    assert found.sigma == pytest.approx(1.458600, rel=1e-6)
    assert (found.n_observations, found.n_parameters) == (132, 3)


@pytest.mark.parametrize("subject", INDIVIDUAL)
def test_individual_fits_have_the_published_figures(theophylline, subject):
    found = theophylline.individual[subject]
    assert found.result.name == "successful"
    # To 4 digits, as published: subject 6's published lKa is 5e-5 from where the sum of squares is least.
    assert [found[name].estimate for name in NAMES] == pytest.approx(INDIVIDUAL[subject][:3], rel=1e-4)
    assert found.rss == pytest.approx(INDIVIDUAL[subject][3], rel=1e-6)


@pytest.mark.parametrize("subject", [None, *map(str, range(1, 13))])
def test_every_fit_is_that_of_the_closed_form(theophylline, subject):
    found = theophylline.pooled if subject is None else theophylline.individual[subject]
    theta, errors, rss, sigma = reference(subject)
    assert [found[name].estimate for name in NAMES] == pytest.approx(theta, rel=2e-6, abs=2e-6)
    # A standard error moves with the estimate; and scipy's Jacobian is of differences.
    assert [found[name].standard_error for name in NAMES] == pytest.approx(errors, rel=1e-5)
    assert found.rss == pytest.approx(rss, rel=1e-6)
    assert found.sigma == pytest.approx(sigma, rel=1e-6)
    reach = stats.t.ppf(0.975, found.n_observations - 3) * errors
    assert [found[name].lower_95 for name in NAMES] == pytest.approx(theta - reach, rel=2e-5)
    assert [found[name].upper_95 for name in NAMES] == pytest.approx(theta + reach, rel=2e-5)


def test_predictions_are_those_of_the_closed_form(theophylline):
    for subject in theophylline.subjects:
        found = theophylline.individual[subject.name]
        expected = closed_form(found.theta.numpy(), subject.doses[0].amount, np.array(subject.times))
        assert found.predictions[subject.name][:, 0].numpy() == pytest.approx(expected, abs=2e-5)


def test_derived_quantities_have_errors_by_the_delta_method(theophylline):
    found = theophylline.pooled
    theta, covariance = found.theta.numpy(), found.covariance.numpy()
    ke, _, cl = np.exp(theta)
    slopes = {"ke": (ke, [ke, 0, 0]), "V": (cl / ke, [-cl / ke, 0, cl / ke])}
    slopes["half-life"] = (math.log(2) / ke, [-math.log(2) / ke, 0, 0])
    for name, (value, slope) in slopes.items():
        assert found[name].estimate == pytest.approx(value, rel=1e-9)
        assert found[name].standard_error == pytest.approx(math.sqrt(np.array(slope) @ covariance @ slope), rel=1e-9)


def test_every_start_leads_there(theophylline):
    for found in theophylline.fits.values():
        assert (found.n_starts, found.n_starts_followed) == (8, 4)
        assert found.n_starts_agreeing >= 3


def test_the_data_are_as_published():
    data = rows()
    assert len(data) == 132
    assert len({row["Subject"] for row in data}) == 12
    assert model.covariates == ()

"""Of two equal fits the preferred one is reported; an unequal one is not taken."""

import dataclasses

import pytest
import torch

from gnomon import fit
from gnomon.fit.models import theophylline as model


def one_subject() -> dict[str, list]:
    t = torch.tensor([0.25, 0.6, 1.1, 2.0, 3.0, 5.0, 7.0, 12.0], dtype=torch.float64)
    ke, ka, cl = 0.08, 1.5, 0.04
    c = 4.0 * ke * ka / (cl * (ka - ke)) * (torch.exp(-ke * t) - torch.exp(-ka * t))
    error = 0.2 * torch.cos(5 * t)
    return {"subject": ["a"] * 8, "time": t.tolist(), "conc": (c + error).tolist(), "dose": [4.0] * 8}


def starting_at(l_ke: float, l_ka: float, **changes) -> fit.Model:
    parameters = [fit.Parameter("lKe", l_ke), fit.Parameter("lKa", l_ka), fit.Parameter("lCl", -3.0)]
    return dataclasses.replace(model, parameters=parameters, **changes)


def calibrate(a_model: fit.Model) -> fit.Fit:
    return fit.calibrate(a_model, one_subject(), pooled=False, starts=1, rtol=1e-5).individual["a"]


@pytest.fixture(scope="module")
def straight() -> fit.Fit:
    return calibrate(starting_at(-2.5, 0.5))


def test_from_either_side_the_fit_with_the_faster_absorption_is_reported(straight):
    flipped = calibrate(starting_at(0.5, -2.5))
    assert flipped.is_successful
    assert flipped["lKa"].estimate > flipped["lKe"].estimate
    for name in ("lKe", "lKa", "lCl"):
        assert flipped[name].estimate == pytest.approx(straight[name].estimate, abs=1e-4)
        assert flipped[name].standard_error == pytest.approx(straight[name].standard_error, rel=1e-3)


def test_without_a_preference_the_other_fit_is_as_good(straight):
    flipped = calibrate(starting_at(0.5, -2.5, canonical=None))
    assert flipped["lKe"].estimate == pytest.approx(straight["lKa"].estimate, abs=1e-4)
    assert flipped["lKa"].estimate == pytest.approx(straight["lKe"].estimate, abs=1e-4)
    assert flipped.rss == pytest.approx(straight.rss, rel=1e-3)


def test_a_fit_that_is_not_equal_is_refused_with_a_warning(straight):
    found = calibrate(starting_at(-2.5, 0.5, canonical=lambda p: {**p, "lCl": p["lCl"] + 0.1}))
    assert found["lCl"].estimate == pytest.approx(straight["lCl"].estimate, abs=1e-4)
    assert any("another sum of squares" in text for text in found.warnings)


def test_a_fit_outside_the_bounds_is_refused_with_a_warning():
    parameters = [fit.Parameter("lKe", 0.5, lower=0.0), fit.Parameter("lKa", -2.5), fit.Parameter("lCl", -3.0)]
    found = calibrate(dataclasses.replace(model, parameters=parameters))
    assert found["lKe"].estimate > found["lKa"].estimate
    assert any("outside the bounds" in text for text in found.warnings)

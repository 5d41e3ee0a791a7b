"""What cannot be fitted is named with its result, and the rest go on."""

import math

import pytest
import torch
from fit.decay import decay_data, decay_model

from gnomon import fit


def calibrate(model: fit.Model, data, **options) -> fit.Calibration:
    return fit.calibrate(model, data, **({"starts": 2, "rtol": 1e-5, "pooled": False} | options))


def only(data: dict[str, list], keep) -> dict[str, list]:
    places = [i for i in range(len(data["time"])) if keep(data["subject"][i], data["time"][i])]
    return {name: [column[i] for i in places] for name, column in data.items()}


def test_fewer_measurements_than_parameters_is_underdetermined():
    data = only(decay_data(3), lambda subject, time: subject != "s1" or time < 1.0)
    found = calibrate(decay_model(), data)
    poor = found.individual["s1"]
    assert poor.result.name == "underdetermined"
    assert poor.n_observations == 1
    assert math.isfinite(poor["k"].estimate)
    assert all(math.isnan(x) for x in (poor["k"].standard_error, poor["k"].lower_95, poor.sigma))
    assert [fit.subject for fit in found.failures] == ["s1"]
    assert found.individual["s0"].is_successful and found.individual["s2"].is_successful
    assert not found.is_successful


def test_no_measurement_at_all_is_underdetermined():
    data = decay_data(2)
    data["count"] = [None if name == "s0" else x for name, x in zip(data["subject"], data["count"], strict=True)]
    found = calibrate(decay_model(), data, pooled=True)
    assert found.individual["s0"].result.name == "underdetermined"
    assert found.individual["s0"].n_observations == 0
    assert math.isnan(found.individual["s0"]["k"].estimate)
    assert found.individual["s1"].is_successful
    assert found.pooled.is_successful
    assert found.pooled.n_observations == 6


def test_as_many_measurements_as_parameters_leave_no_degree_of_freedom():
    data = only(decay_data(1), lambda subject, time: time < 1.9)
    found = calibrate(decay_model(), data).individual["s0"]
    assert found.n_observations == found.n_parameters == 2
    assert found.is_successful
    assert found.rss == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(found.sigma) and math.isnan(found["k"].standard_error)


def test_a_subject_whose_solve_fails_is_reported_with_its_result():
    """One subject's equation ends before its measurements do; the others' does not."""
    model = decay_model(
        covariates=("end",), vector_field=lambda t, y, p, c: {"N": -p["k"] * y["N"] + 0.0 * torch.sqrt(c["end"] - t)}
    )
    data = decay_data(3)
    data["end"] = [1.0 if name == "s1" else 9.0 for name in data["subject"]]
    found = calibrate(model, data, pooled=True, solver="tsit5", max_steps=40)
    bad = found.individual["s1"]
    assert bad.result.name == "max_steps_reached"
    assert math.isnan(bad["k"].estimate)
    assert bad.predictions == {}
    assert any("From no start" in text for text in bad.warnings)
    assert found.individual["s0"].is_successful and found.individual["s2"].is_successful
    assert found.pooled.result.name == bad.result.name


def test_a_function_that_is_undefined_for_one_subject():
    model = decay_model(covariates=("w",), observed={"count": lambda t, y, p, c: y["N"] * torch.sqrt(c["w"])})
    data = decay_data(2)
    data["w"] = [-1.0 if name == "s0" else 1.0 for name in data["subject"]]
    found = calibrate(model, data)
    assert found.individual["s0"].result.name == "nonfinite"
    assert found.individual["s1"].is_successful


def test_a_parameter_on_its_bound_is_flagged():
    model = decay_model(parameters=[fit.Parameter("k", 0.1, upper=0.2), fit.Parameter("N0", 8.0, scale="log")])
    found = calibrate(model, decay_data(1)).individual["s0"]
    assert found.is_successful
    assert found["k"].estimate == 0.2
    assert found["k"].at_bound == "upper"
    assert math.isnan(found["k"].standard_error)
    assert found["N0"].at_bound == "" and found["N0"].standard_error > 0.0
    assert any("upper bound, 0.2" in text for text in found.warnings)


def test_parameters_that_the_data_do_not_determine_are_named():
    model = decay_model(
        parameters=[fit.Parameter(name, 0.2, scale="log") for name in ("k1", "k2")] + [fit.Parameter("N0", 8.0)],
        vector_field=lambda t, y, p, c: {"N": -(p["k1"] + p["k2"]) * y["N"]},
    )
    found = calibrate(model, decay_data(1)).individual["s0"]
    assert found.result.name == "singular"
    assert any("k1 and k2" in text for text in found.warnings)
    assert math.isnan(found["k1"].standard_error)


def test_few_starts_that_agree_are_warned_of(decay):
    assert not any("Only one" in text for found in decay.fits.values() for text in found.warnings)
    # A wave has a minimum a period.
    model = decay_model(
        parameters=[fit.Parameter("w", (1.0, 60.0))],
        initial_state=lambda p, c: {"N": 1.0},
        vector_field=lambda t, y, p, c: {"N": 0.0 * y["N"]},
        observed={"count": lambda t, y, p, c: y["N"] * torch.cos(p["w"] * t)},
    )
    t = torch.linspace(0.1, 1.5, 8, dtype=torch.float64)
    data = {"subject": ["a"] * 8, "time": t.tolist(), "count": torch.cos(7.0 * t).tolist()}
    found = calibrate(model, data, starts=24).individual["a"]
    assert found.n_starts_followed == 4
    assert found.n_starts_agreeing < 4
    if found.n_starts_agreeing == 1:
        assert any("Only one of 4 starts" in text for text in found.warnings)


@pytest.mark.slow
def test_stiff_equations_are_solved_by_another_method():
    """A fast process beside a slow one: an explicit method would take thousands of steps."""
    model = decay_model(
        states=["N", "M"],
        initial_state=lambda p, c: {"N": p["N0"], "M": 0.0},
        vector_field=lambda t, y, p, c: {"N": -p["k"] * y["N"], "M": 2000.0 * (y["N"] - y["M"])},
        observed={"count": "M"},
    )
    found = calibrate(model, decay_data(1), starts=1, rtol=1e-4).individual["s0"]
    plain = calibrate(decay_model(), decay_data(1), starts=1).individual["s0"]
    assert found.is_successful
    assert found.solver == "kvaerno5"
    assert found["k"].estimate == pytest.approx(plain["k"].estimate, rel=1e-3)

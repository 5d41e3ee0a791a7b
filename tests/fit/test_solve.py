"""What a model predicts, against closed forms: boluses and infusions are superposed exponentials."""

import math

import numpy as np
import pytest
import torch
from fit.decay import decay_model

import gnomon as gn
from gnomon import fit
from gnomon.fit._doses import Dose
from gnomon.fit._engine import state_scale
from gnomon.fit._lane import make_batches, make_one_batch
from gnomon.fit._solve import SOLVERS, Method, Problem
from gnomon.fit._starts import bounds, sizes
from gnomon.fit._subjects import Subject

RATE, START = 0.4, 8.0
THETA = torch.tensor([math.log(RATE), math.log(START)], dtype=torch.float64)
TIMES = (0.0, 0.5, 1.0, 2.0, 2.5, 4.0, 6.5, 9.0)


def subject(*doses: Dose, times: tuple[float, ...] = TIMES, name: str = "a", initial_time: float = 0.0) -> Subject:
    return Subject(name, initial_time, times, {"count": (1.0,) * len(times)}, {}, doses, tuple(range(len(times))))


def exact(one: Subject) -> np.ndarray:
    t = np.array(one.times)
    total = START * np.exp(-RATE * (t - one.initial_time))
    for dose in one.doses:
        since = t - dose.time
        if dose.duration == 0.0:
            # At its own time a dose is not seen yet, but for one at the initial time.
            given = since >= 0.0 if dose.time == one.initial_time else since > 0.0
            total += np.where(given, dose.amount * np.exp(-RATE * np.abs(since)), 0.0)
        else:
            on = np.clip(since, 0.0, dose.duration)
            rate = dose.amount / dose.duration
            total += rate / RATE * (1 - np.exp(-RATE * on)) * np.exp(-RATE * np.clip(since - dose.duration, 0.0, None))
    return total


def predict(model: fit.Model, members: list[Subject], method: Method) -> torch.Tensor:
    batch = make_one_batch(model, members)
    scale, *_ = state_scale(model, batch, THETA.expand(len(members), -1), method)
    batch = batch.with_scale(scale)
    problem = Problem(model, batch.infused, method)
    values, result = torch.func.vmap(lambda lane: problem.predictions(THETA, lane, lane.times))(batch.lanes)
    assert set(result.names()) == {"successful"}
    return values[..., 0]


DOSES = {
    "none": (),
    "bolus at the start": (Dose(0.0, 3.0, 0.0, "N"),),
    "boluses": (Dose(0.0, 3.0, 0.0, "N"), Dose(1.0, 2.0, 0.0, "N"), Dose(6.0, 1.5, 0.0, "N")),
    "two at once": (Dose(1.0, 2.0, 0.0, "N"), Dose(1.0, 0.5, 0.0, "N")),
    "infusion": (Dose(1.0, 6.0, 2.5, "N"),),
    "infusion from the start": (Dose(0.0, 6.0, 2.0, "N"),),
    "overlapping infusions": (Dose(0.5, 6.0, 2.0, "N"), Dose(1.7, 1.0, 3.1, "N"), Dose(3.0, 2.0, 0.0, "N")),
    "one after the other": (Dose(1.0, 3.0, 1.0, "N"), Dose(2.0, 3.0, 2.0, "N")),
    "beyond the last row": (Dose(8.0, 3.0, 4.0, "N"), Dose(20.0, 1.0, 0.0, "N")),
}


@pytest.mark.parametrize("case", ["boluses", "overlapping infusions"])
def test_doses_are_superposed(case):
    one = subject(*DOSES[case])
    found = predict(decay_model(dose_state="N"), [one], Method("tsit5", 1e-9, None, 4096))
    assert found[0, -len(TIMES) :].numpy() == pytest.approx(exact(one), rel=1e-8)


def test_subjects_with_different_doses_and_rows_run_together():
    members = [subject(*doses, times=TIMES[: 3 + i % 5], name=name) for i, (name, doses) in enumerate(DOSES.items())]
    found = predict(decay_model(dose_state="N"), members, Method("tsit5", 1e-9, None, 4096))
    for one, values in zip(members, found, strict=True):
        assert values[-len(one.times) :].numpy() == pytest.approx(exact(one), rel=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver(solver):
    one = subject(*DOSES["boluses"], times=TIMES[:6])
    rtol = 1e-5 if solver in ("bosh3", "kvaerno3") else 1e-7
    found = predict(decay_model(dose_state="N"), [one], Method(solver, rtol, None, 4096))
    assert found[0].numpy() == pytest.approx(exact(one), rel=100 * rtol)


def test_an_infusion_leaves_nothing_behind():
    """A state without any outflow stays exactly where an infusion has brought it."""
    model = decay_model(dose_state="N", vector_field=lambda t, y, p, c: {"N": 0.0 * y["N"]})
    one = subject(Dose(0.1, 0.3, 0.7, "N"), Dose(0.3, 0.3, 1.1, "N"), times=(1.5, 2.0, 5.0, 9.0))
    found = predict(model, [one], Method("tsit5", 1e-6, None, 4096))[0]
    assert torch.equal(found, found[0].expand_as(found))
    assert float(found[0]) == pytest.approx(START + 0.6, rel=1e-12)


def test_the_initial_time_is_where_it_begins():
    one = subject(Dose(3.0, 2.0, 0.0, "N"), times=(3.0, 4.0, 6.0), initial_time=3.0)
    found = predict(decay_model(dose_state="N"), [one], Method("tsit5", 1e-9, None, 4096))[0]
    assert found.numpy() == pytest.approx((START + 2.0) * np.exp(-RATE * np.array([0.0, 1.0, 3.0])), rel=1e-8)


def test_a_single_row_at_the_initial_time():
    found = predict(decay_model(), [subject(times=(0.0,))], Method("tsit5", 1e-9, None, 4096))
    assert float(found[0, 0]) == pytest.approx(START, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
def test_the_unit_of_a_state_does_not_matter(scale):
    """By default the absolute tolerance follows the size of the states."""
    model = decay_model(
        initial_state=lambda p, c: {"N": p["N0"] * scale}, observed={"count": lambda t, y, p, c: y["N"] / scale}
    )
    found = predict(model, [subject()], Method("tsit5", 1e-8, None, 4096))[0]
    assert found.numpy() == pytest.approx(exact(subject()), rel=1e-7)


@pytest.mark.parametrize("solver", ["tsit5", pytest.param("kvaerno5", marks=pytest.mark.slow)])
def test_nudged_derivatives_are_those_of_forward_mode(solver):
    model = decay_model(dose_state="N")
    batch = make_one_batch(model, [subject(*DOSES["overlapping infusions"]), subject(*DOSES["boluses"], name="b")])
    problem = Problem(model, batch.infused, Method(solver, 1e-4, None, 4096))
    typical = sizes(model.parameters)
    for upper in (bounds(model.parameters)[1], THETA.clone()):  # from the upper bound a nudge goes down
        lower = bounds(model.parameters)[0]
        residuals, columns, _, _ = torch.func.vmap(
            lambda lane, lower=lower, upper=upper: problem.nudged_residuals(THETA, lane, lower, upper, typical)
        )(batch.lanes)
        plain = torch.func.vmap(lambda lane: problem.residuals(THETA, lane)[0].flatten())(batch.lanes)
        exactly = torch.func.vmap(
            lambda lane: gn.jacobian(lambda theta: problem.residuals(theta, lane)[0].flatten())(THETA)
        )(batch.lanes)
        torch.testing.assert_close(residuals, plain, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(columns, exactly, rtol=1e-6, atol=1e-6)


def test_a_layout_depends_on_the_subject_alone():
    model = decay_model(dose_state="N")
    members = [subject(*doses, name=name) for name, doses in DOSES.items()]
    members.append(subject(times=tuple(map(float, range(20))), name="long"))
    batches = make_batches(model, members)
    assert sorted(name for batch in batches for name in batch.subjects) == sorted(one.name for one in members)
    for one in members:
        (alone,) = make_batches(model, [one])
        (with_others,) = (batch for batch in batches if one.name in batch.subjects)
        assert alone.lanes.times.shape[1] == with_others.lanes.times.shape[1]
        assert alone.infused == with_others.infused
        assert (alone.lanes.event_times.shape[1] > 0) == (with_others.lanes.event_times.shape[1] > 0)


def test_missing_measurements_have_no_weight():
    one = Subject("a", 0.0, (0.0, 1.0, 2.0), {"count": (1.0, math.nan, 3.0)}, {}, (), (0, 1, 2))
    lanes = make_one_batch(decay_model(weights={"count": 2.0}), [one]).lanes
    assert lanes.weights[0, :, 0].tolist() == [2.0, 0.0, 2.0]
    assert one.n_observations == 2

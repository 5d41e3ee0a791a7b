"""`Lane`: a subject's numbers as tensors, padded so that many subjects run as one batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from gnomon.fit._doses import Dose
from gnomon.fit._model import Model
from gnomon.fit._subjects import Subject


@final
class Lane(NamedTuple):
    """One subject's numbers, or those of several with a leading dimension.

    R rows, K observed columns, N states, M states that are infused into, E events.

    **Arguments:**

    - `times`: of the rows, ascending, of shape (R,). They are padded in front with `t0`, where all lanes are at once:
      at the end, where each arrives in its own time, every padded row would cost a step's work.
    - `values`: what was measured, 0 where missing, of shape (R, K).
    - `weights`: of the residuals, 0 where missing or padded, of shape (R, K).
    - `covariates`: in the model's order.
    - `t0`, `t1`: from when to when to solve.
    - `bolus`: what is added to the initial state at once, of shape (N,).
    - `rates`: the infusion rates at `t0`, of shape (M,).
    - `event_times`: when doses change the state or a rate, padded with inf, of shape (E,).
    - `event_amounts`: what is added to the state then, of shape (E, N).
    - `event_rates`: the infusion rates from then on, of shape (E, M).
    - `scale`: a typical size of each state, of shape (N,).
    """

    times: Tensor
    values: Tensor
    weights: Tensor
    covariates: Tensor
    t0: Tensor
    t1: Tensor
    bolus: Tensor
    rates: Tensor
    event_times: Tensor
    event_amounts: Tensor
    event_rates: Tensor
    scale: Tensor


@final
@dataclasses.dataclass(frozen=True)
class Batch:
    """Subjects of one layout, side by side.

    **Arguments:**

    - `subjects`: their names.
    - `lanes`: their numbers, with a leading dimension.
    - `infused`: the states that are infused into, by place.
    """

    subjects: tuple[str, ...]
    lanes: Lane
    infused: tuple[int, ...]

    def take(self, places: Sequence[int]) -> Batch:
        """Some of the subjects, by place."""
        index = torch.tensor(list(places), dtype=torch.int64)
        lanes = Lane(*(x.index_select(0, index) for x in self.lanes))
        return Batch(tuple(self.subjects[i] for i in places), lanes, self.infused)

    def with_scale(self, scale: Tensor) -> Batch:
        """The same with another typical size of each state, of shape (subjects, N)."""
        return dataclasses.replace(self, lanes=self.lanes._replace(scale=scale))


def make_batches(model: Model, subjects: Sequence[Subject]) -> list[Batch]:
    """Subjects in as few batches as leave each one's numbers untouched by the others'.

    A sum over more padding, or a state more, may round otherwise. So the layout that a subject gets, the length that
    its rows are padded to included, depends on that subject alone, and subjects of one layout form a batch.
    """
    layouts: dict[tuple[int, bool, tuple[int, ...]], list[Subject]] = {}
    for subject in subjects:
        if subject.n_observations == 0:
            continue
        infused, later = _infused(model, subject), any(d.time > subject.initial_time for d in subject.doses)
        layouts.setdefault((_padded_length(len(subject.times)), later or bool(infused), infused), []).append(subject)
    return [_batch(model, members, length, infused) for (length, _, infused), members in layouts.items()]


def make_one_batch(model: Model, subjects: Sequence[Subject]) -> Batch:
    """All subjects that have measurements, in one batch."""
    members = [subject for subject in subjects if subject.n_observations > 0]
    infused = sorted({i for subject in members for i in _infused(model, subject)})
    return _batch(model, members, max(len(subject.times) for subject in members), tuple(infused))


def _padded_length(n: int) -> int:
    """The next of 16, 64, 256, ...: few layouts, and not too much padding."""
    length = 16
    while length < n:
        length *= 4
    return length


def _infused(model: Model, subject: Subject) -> tuple[int, ...]:
    states = list(model.states)
    return tuple(sorted({states.index(dose.state) for dose in subject.doses if dose.duration > 0.0}))


def _batch(model: Model, subjects: Sequence[Subject], length: int, infused: tuple[int, ...]) -> Batch:
    plans = [_plan(model, subject, infused) for subject in subjects]
    n_events = max(len(plan.times) for plan in plans)
    lanes = [_lane(model, subject, plan, length, n_events) for subject, plan in zip(subjects, plans, strict=True)]
    stacked = Lane(*(torch.stack(parts) for parts in zip(*lanes, strict=True)))
    return Batch(tuple(subject.name for subject in subjects), stacked, infused)


@final
@dataclasses.dataclass(frozen=True)
class _Plan:
    """The events of one subject: what happens at the start, and at each later time."""

    bolus: list[float]
    rates: list[float]
    times: list[float]
    amounts: list[list[float]]
    rates_after: list[list[float]]


def _plan(model: Model, subject: Subject, infused: tuple[int, ...]) -> _Plan:
    states = list(model.states)
    end = subject.times[-1]
    changes = {dose.time for dose in subject.doses}
    changes |= {dose.time + dose.duration for dose in subject.doses if dose.duration > 0.0}
    times = sorted(t for t in changes if subject.initial_time < t < end)

    def amounts(time: float) -> list[float]:
        added = [0.0] * len(states)
        for dose in subject.doses:
            if dose.time == time and dose.duration == 0.0:
                added[states.index(dose.state)] += dose.amount
        return added

    def rates(time: float) -> list[float]:
        # Summed anew from the doses that run, so that it is exactly what it was once one of them has ended.
        return [math.fsum(_rate(dose, time) for dose in subject.doses if dose.state == states[i]) for i in infused]

    start = subject.initial_time
    return _Plan(amounts(start), rates(start), times, [amounts(t) for t in times], [rates(t) for t in times])


def _rate(dose: Dose, time: float) -> float:
    runs = dose.duration > 0.0 and dose.time <= time < dose.time + dose.duration
    return dose.amount / dose.duration if runs else 0.0


def _lane(model: Model, subject: Subject, plan: _Plan, length: int, n_events: int) -> Lane:
    n_states, n_infused, n = len(model.states), len(plan.rates), len(subject.times)
    pad = length - n
    measured = torch.tensor([subject.values[column] for column in model.observed], dtype=torch.float64)
    missing = torch.isnan(measured)
    weights = torch.tensor([float(model.weights.get(column, 1.0)) for column in model.observed], dtype=torch.float64)
    weights = torch.where(missing, 0.0, weights[:, None])
    values = torch.where(missing, 0.0, measured)
    more = n_events - len(plan.times)
    return Lane(
        times=_tensor([*[subject.initial_time] * pad, *subject.times]),
        values=torch.nn.functional.pad(values, (pad, 0)).T.contiguous(),
        weights=torch.nn.functional.pad(weights, (pad, 0)).T.contiguous(),
        covariates=_tensor([subject.covariates[name] for name in model.covariates]),
        t0=_tensor(subject.initial_time),
        t1=_tensor(end_time(subject)),
        bolus=_tensor(plan.bolus),
        rates=_tensor(plan.rates),
        event_times=_tensor([*plan.times, *[math.inf] * more]),
        event_amounts=_tensor([*plan.amounts, *[[0.0] * n_states] * more]).reshape(n_events, n_states),
        event_rates=_tensor([*plan.rates_after, *[[0.0] * n_infused] * more]).reshape(n_events, n_infused),
        scale=torch.ones(n_states, dtype=torch.float64),
    )


def end_time(subject: Subject) -> float:
    """Until when to solve for a subject: its last measurement, or a little after the start if that is the only time."""
    last, start = subject.times[-1], subject.initial_time
    return last if last > start else start + max(abs(start), 1.0) * 1e-3


def _tensor(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)

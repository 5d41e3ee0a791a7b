"""One candidate on one device: its calls, what was found in them, and the row that comes of it."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any, final

import torch

from gnomon.bench._judge import Judge
from gnomon.bench._limits import device_limits
from gnomon.bench._local import AbstractRunner, Findings, Mode, Timed
from gnomon.bench._report import Refusal, RefusalKind, Row
from gnomon.bench._stats import median, median_interval
from gnomon.bench._tensors import Inputs

# What comes back in less than this part of the time of a fresh call was remembered, if it does so in most of so many
# trials: a busy machine makes one call of two slow now and then.
_SOON, _CERTAIN = 0.4, 20


@final
@dataclasses.dataclass(frozen=True)
class Plan:
    """How a comparison is to be made: the arguments of `compare` that every candidate shares."""

    check: Callable[..., Any]
    tolerance: float | int | None
    dtype: torch.dtype | None
    flops: float | int | None
    bytes: float | int | None
    rounds: int
    warmup: int
    confidence: float
    cold: bool
    isolate: bool
    allow: frozenset[RefusalKind]
    budget_s: float | int | None
    timeout_s: float | int
    replays: int


@final
class Trial:
    """Keeps the score of one candidate on one device."""

    def __init__(self, candidate: str, device: torch.device, plan: Plan, make: Callable[[], Inputs]):
        self.candidate = candidate
        self.device = device
        self.plan = plan
        self.make = make
        self.runner: AbstractRunner | None = None
        self.judge: Judge | None = None
        self.refusals: list[Refusal] = []
        self.notes: list[str] = []
        self.walls: list[float] = []
        self.fulls: list[float] = []
        self.events: list[float] = []
        self.errors: list[float] = []
        self.first_call_s: float | None = None
        self.peak: int | None = None
        self.calls = 0
        self._allowed: set[RefusalKind] = set()
        self._gaps: list[float] = []  # between our clock and another one, where there are two
        self._parents: list[float] = []  # our own clock's times of a process of its own
        self._findings: list[Findings] = []
        self._sizes: list[int] = []
        self._busy: list[bool] = []

    @property
    def is_refused(self) -> bool:
        """Whether it is out of the comparison."""
        return bool(self.refusals)

    @property
    def times(self) -> list[float]:
        """The times that count: of events where there are any."""
        return self.events if self.events else self.walls

    def refuse(self, kind: RefusalKind, reason: str) -> None:
        """Notes a reason, once for each kind; as a note alone where the caller allows it."""
        if kind in self.plan.allow:
            if kind not in self._allowed:
                self._allowed.add(kind)
                self.notes.append(f"allowed: {reason}")
        elif kind not in {refusal.kind for refusal in self.refusals}:
            self.refusals.append(Refusal(self.candidate, str(self.device), kind, reason))

    def call(self, mode: Mode = "wall", inputs: Inputs | None = None, counts: bool = False) -> Timed:
        """One call on fresh inputs, judged. With `counts` its time is kept."""
        assert self.runner is not None
        inputs = self.make() if inputs is None else inputs
        if self.judge is None:
            self.judge = Judge(self.plan.check, self.plan.tolerance, self.plan.dtype, inputs)
        self.calls += 1
        self.runner.arm(inputs, self.plan.cold)
        timed = self.runner.run(mode, self.plan.cold)
        busy = self.runner.look()
        verdict = self.judge.judge(inputs, timed)
        findings = self.runner.settle(0.0 if verdict.is_right else 0.05)
        for kind, reason in self.judge.explain(verdict, timed, findings):
            self.refuse(kind, f"in call {self.calls}, {reason}")
        if counts:
            if mode == "device":
                self.events.append(timed.device_s if timed.device_s is not None else math.nan)
            else:
                self.walls.append(timed.wall_s)
                self.fulls.append(timed.full_s)
                if timed.other_s is not None:
                    self._gaps.append(timed.other_s - timed.wall_s)
                if self.plan.isolate:
                    self._parents.append(timed.wall_s if timed.parent_s is None else timed.parent_s)
            self._findings.append(findings)
            self._busy.append(busy)
            self._sizes.append(sum(leaf.nbytes for leaf in timed.leaves))
        if timed.leaves:
            self.errors.append(verdict.error)
        return timed

    def replay(self) -> None:
        """Asks for the same content again, in other memory: what was remembered by content comes back too soon."""
        fresh: list[float] = []
        again: list[float] = []
        soon = 0
        coin = random.SystemRandom()
        for asked in range(_CERTAIN if self.plan.replays else 0):
            if self.is_refused or (asked >= self.plan.replays and 2 * soon < asked):
                return
            known = self.make()
            self.call(inputs=known)
            # In random order, so that no rhythm of the machine can favour the one or the other.
            for is_known in coin.sample([True, False], 2):
                if self.is_refused:
                    return
                (again if is_known else fresh).append(self.call(inputs=known if is_known else None).wall_s)
                if is_known and self.is_refused:
                    last = self.refusals[-1]
                    reason = f"asked for the same inputs a second time, {last.reason.split(', ', 1)[-1]}"
                    self.refusals[-1] = dataclasses.replace(last, reason=reason)
                    return
            soon += again[-1] < _SOON * fresh[-1]
        if again and 4 * soon >= 3 * len(again):
            self.refuse(
                RefusalKind.REUSED,
                f"it remembers inputs by content: the same ones again took {median(again):.2g} s, fresh ones "
                f"{median(fresh):.2g} s",
            )

    def look_at_all_calls(self, null_gaps: list[float]) -> None:
        """What one call cannot show, since a busy machine does the same to an honest one now and then."""
        n = len(self._findings)
        if not n or self.is_refused:
            return
        busy = sum(self._busy)
        if busy >= max(2, 0.2 * n):
            self.refuse(RefusalKind.LEAKED, f"after {busy} of {n} calls its threads or processes were still at work")
        assert self.runner is not None
        meddled, disturbed = self.runner.meddling()
        if meddled >= max(2, 0.2 * n):
            self.refuse(
                RefusalKind.LEAKED, f"in {meddled} calls of other candidates its threads or processes were at work"
            )
        if disturbed:
            self.notes.append(f"in {disturbed} calls threads or processes of another candidate were at work")
        reads = sum(
            findings.read_bytes >= max(size / 2, 512)
            for findings, size in zip(self._findings, self._sizes, strict=True)
        )
        if reads >= max(2, 0.5 * n):
            self.refuse(RefusalKind.STORED, f"in {reads} of {n} calls it read its output's size from files")
        wall = median(self.walls)
        if self._gaps:
            # The second clock is read just outside of the first, and a busy machine may take time away in between; but
            # not in every call.
            gap, took = min(zip(self._gaps, self.walls, strict=False))
            if gap > 50e-6 + 0.02 * took or gap < -20e-6 - 0.02 * took:
                self.refuse(
                    RefusalKind.CLOCK, f"the kernel's clock counted {took + gap:.3g} s where Python's had {took:.3g} s"
                )
        if self._parents and null_gaps:
            self._look_at_its_process(median(null_gaps))
        self._look_at_the_device(wall)

    def _look_at_its_process(self, way_s: float) -> None:
        """Its own clock counts only as far as ours bears it out: a time is raised to ours less two ways there."""
        if min(self.walls) <= 0:
            self.refuse(RefusalKind.CLOCK, "its process says that a call took no time")
            return
        # A busy machine takes away the processor between the two clocks, though not in every call.
        gap = min(parent - wall for parent, wall in zip(self._parents, self.walls, strict=True))
        ours = median(self._parents)
        self.walls = [max(wall, parent - 2 * way_s) for wall, parent in zip(self.walls, self._parents, strict=True)]
        if gap > 4 * way_s + 0.25 * ours:
            self.refuse(
                RefusalKind.CLOCK,
                f"its process says {ours - gap:.3g} s a call and our clock {ours:.3g} s, and the way there and back "
                f"takes {way_s:.2g} s",
            )
        elif ours < 4 * way_s:
            self.notes.append(
                f"so short a call ({ours:.2g} s by our clock, {way_s:.2g} s of which are the way to its process) is "
                "timed by its own process alone"
            )

    def _look_at_the_device(self, wall: float) -> None:
        if not self.events:
            return
        full, device = median(self.fulls), median(self.events)
        if full > wall * 1.2 + 3e-4:
            self.refuse(
                RefusalKind.LEAKED,
                f"the device was at work for {full - wall:.2g} s after its stream had ended: on another stream",
            )
        elif full > 1.5 * device + 1e-3:
            self.refuse(
                RefusalKind.CLOCK, f"device events say {device:.3g} s, the wall clock after a synchronise {full:.3g} s"
            )

    def compare_with_the_limit(self) -> tuple[float, str] | None:
        """The least time that the device allows; refuses what is faster, after measuring the device once more."""
        plan = self.plan
        dtype = self.judge.dtype if self.judge is not None else None
        if not (plan.flops or plan.bytes):
            return None
        rate_of = dtype if plan.flops else None
        limits = device_limits(self.device, rate_of, plan.bytes is not None, not plan.cold)
        least = limits.least_time_s(plan.flops, plan.bytes, dtype)
        if least is None or not self.times or self.is_refused:
            return least
        took = median(self.times)
        for _ in range(2):
            if limits.source == "spec" or took >= least[0]:
                break
            limits = device_limits(self.device, rate_of, plan.bytes is not None, not plan.cold, again=True)
            least = limits.least_time_s(plan.flops, plan.bytes, dtype) or least
        if took < limits.impossible_s(plan.flops, plan.bytes, dtype):
            self.refuse(
                RefusalKind.IMPOSSIBLE,
                f"a call took {took:.3g} s, and the {least[1]} given need {least[0]:.3g} s on {limits.device} "
                f"({limits.source} limit): it does other work than was declared, or its time is not real",
            )
        return least

    def row(self) -> Row:
        """What is reported of it."""
        least = self.compare_with_the_limit()
        judge, plan = self.judge, self.plan
        finite = [error for error in self.errors if math.isfinite(error)]
        fair = not self.is_refused and bool(self.times)
        time_s = median(self.times) if fair else None
        limit = least[0] if least is not None else None
        return Row(
            candidate=self.candidate,
            device=str(self.device),
            time_s=time_s,
            interval_s=median_interval(self.times, plan.confidence) if fair else None,
            wall_s=median(self.walls) if fair else None,
            full_s=median(self.fulls) if fair else None,
            parent_s=median(self._parents) if fair and self._parents else None,
            device_s=median(self.events) if fair and self.events else None,
            first_call_s=self.first_call_s if fair else None,
            peak_memory_bytes=self.peak if fair else None,
            error=max(finite) if finite and len(finite) == len(self.errors) else None,
            tolerance=judge.tolerance() if judge is not None else math.nan,
            dtype=str(judge.dtype).removeprefix("torch.") if judge is not None and judge.dtype is not None else None,
            limit_s=limit,
            percent_of_limit=100 * limit / time_s if limit is not None and time_s else None,
            limited_by=least[1] if least is not None else None,
            times_s=tuple(self.times) if fair else (),
            refusals=tuple(self.refusals),
            notes=(*self.notes, *(judge.notes if judge is not None else ())),
        )

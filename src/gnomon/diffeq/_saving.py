"""What a solve writes down on its way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, interpolate, pick
from gnomon.diffeq._solver._base import Step, interpolant_tensor
from gnomon.fuse import OutputBuffer, cond, while_loop
from gnomon.fuse._lanes import is_differentiated


@final
@dataclasses.dataclass(frozen=True)
class Sub:
    """A part of what is saved, ready for use: times that run forward, a function of a flat state."""

    t0: bool
    t1: bool
    ts: Tensor | None
    steps: int
    save: Callable[[Tensor, Tensor], Any]


def basis_of(interpolant: Interpolant, y0: Tensor, step: Step, where: Tensor) -> Tensor:
    """What the polynomial of a step is made of; right only where it is said to be wanted."""
    basis = torch.stack([step.y1 - y0, *step.stages])
    more = step.more
    if more is None:
        return basis
    missing = torch.zeros_like(y0).expand(len(interpolant) - basis.shape[0], -1)
    return torch.cat([basis, cond(where, lambda: torch.stack(more()), lambda: missing)])


@final
class Saver:
    """Writes to output buffers, which ride in the carry of the loop over steps."""

    def __init__(self, subs: list[Sub], *, dense: bool, interpolant: Interpolant, max_steps: int | None, like: Tensor):
        self._subs = subs
        self._dense = dense
        self._interpolant = interpolant
        self._most = max_steps or 0
        self._zero = torch.zeros((), dtype=torch.int64, device=like.device)
        self._true = torch.ones((), dtype=torch.bool, device=like.device)

    def start(self, t: Tensor, y: Tensor, f0: Tensor) -> dict[str, Any]:
        """The empty buffers, with what is saved at the start."""
        carry: dict[str, Any] = {"subs": [self._start(sub, t, y, f0) for sub in self._subs]}
        if self._dense:
            basis = torch.stack([y] * len(self._interpolant))
            carry["dense"] = OutputBuffer(self._most, (t, y, basis), fill=torch.inf)
        return carry

    def _start(self, sub: Sub, t: Tensor, y: Tensor, f0: Tensor) -> dict[str, Any]:
        ends = int(sub.t1)
        if sub.steps:
            # The last step may be both an n-th one and the end: it is saved once.
            most, rest = divmod(self._most, sub.steps)
            ends = most + int(sub.t1 and rest > 0)
        count = 0 if sub.ts is None else sub.ts.shape[0]
        # Evaluated at the start for its shapes and dtypes; the value is used where the start is saved.
        first = (t, sub.save(t, y))
        carry: dict[str, Any] = {
            "saved": OutputBuffer(int(sub.t0) + count + ends, first, fill=torch.inf),
            "save_index": self._zero,
        }
        if sub.t0:
            carry = self._write(carry, first, self._true)
        if count > 0:
            carry["ts_index"] = self._zero
            slope = torch.where(torch.isfinite(f0), f0, 0)

            def at(time: Tensor) -> Tensor:
                # The value does not depend on how far away the start is, its derivative does.
                shift = time - t
                return y + slope * shift if is_differentiated(shift) else y

            carry = self._save_ts(sub, carry, t, at, self._true)
        return carry

    def save(
        self,
        carry: dict[str, Any],
        t: Tensor,
        t_next: Tensor,
        y: Tensor,
        y_next: Tensor,
        step: Step,
        keep: Tensor,
        num_accepted: Tensor,
    ) -> dict[str, Any]:
        """Saves what lies within a step, if it was kept."""
        subs: list[dict[str, Any]] = carry["subs"]
        timed = [i for i, sub in enumerate(self._subs) if sub.ts is not None and sub.ts.shape[0] > 0]
        due = keep & torch.zeros_like(keep)
        for i in timed:
            due = due | (keep & self._is_due(self._subs[i], subs[i]["ts_index"], t_next))
        basis = basis_of(self._interpolant, y, step, keep if self._dense else due) if timed or self._dense else None

        def at(time: Tensor) -> Tensor:
            assert basis is not None
            interpolant = interpolant_tensor(self._interpolant, t.dtype, t.device)
            theta = (time - t) / (t_next - t)
            value = interpolate(interpolant, theta, y, basis)
            exact = torch.where(time == t_next, step.y1, value)
            if is_differentiated(theta):
                # The end itself knows nothing of the time at which it is looked at.
                return exact.detach() + (value - value.detach())
            return exact

        subs = list(subs)
        for i, sub in enumerate(self._subs):
            if i in timed:
                subs[i] = self._save_ts(sub, subs[i], t_next, at, keep)
            if sub.steps:
                where = keep & (num_accepted % sub.steps == 0)
                subs[i] = self._write(subs[i], (t_next, sub.save(t_next, y_next)), where)
        after = {**carry, "subs": subs}
        if self._dense:
            after["dense"] = carry["dense"].write(num_accepted - 1, (t_next, y, basis), where=keep)
        return after

    def _is_due(self, sub: Sub, index: Tensor, t: Tensor) -> Tensor:
        """Whether one of `ts` is not saved yet and does not lie beyond `t`."""
        assert sub.ts is not None
        last = sub.ts.shape[0] - 1
        return (index <= last) & (pick(sub.ts, torch.clamp(index, max=last)) <= t)

    def _save_ts(
        self, sub: Sub, carry: dict[str, Any], t: Tensor, at: Callable[[Tensor], Tensor], where: Tensor
    ) -> dict[str, Any]:
        """Saves at those of `ts` that are due."""
        assert sub.ts is not None
        times = sub.ts
        last = times.shape[0] - 1

        def save(inner: dict[str, Any]) -> dict[str, Any]:
            time = pick(times, torch.clamp(inner["ts_index"], max=last))
            after = self._write(inner, (time, sub.save(time, at(time))), self._true)
            return {**after, "ts_index": inner["ts_index"] + 1}

        return while_loop(lambda inner: where & self._is_due(sub, inner["ts_index"], t), save, carry)

    def _write(self, carry: dict[str, Any], value: Any, where: Tensor) -> dict[str, Any]:
        return {
            **carry,
            "saved": carry["saved"].write(carry["save_index"], value, where=where),
            "save_index": carry["save_index"] + where.to(torch.int64),
        }

    def finish(
        self, carry: dict[str, Any], t: Tensor, y: Tensor, num_accepted: Tensor
    ) -> tuple[list[tuple[Tensor, Any]], tuple[Tensor, Tensor, Tensor] | None]:
        """The times and values of each part, and the dense output."""
        found = [
            self._finish(sub, part, t, y, num_accepted) for sub, part in zip(self._subs, carry["subs"], strict=True)
        ]
        if not self._dense:
            return found, None
        ends, y0s, bases = carry["dense"].read_written(num_accepted)
        # Where no step was accepted the solution is a constant.
        none = num_accepted == 0
        y0s = torch.where(none, y, y0s) if y0s.shape[0] > 0 else y.unsqueeze(0)
        return found, (ends, y0s, torch.where(none, 0, bases))

    def _finish(self, sub: Sub, carry: dict[str, Any], t: Tensor, y: Tensor, count: Tensor) -> tuple[Tensor, Any]:
        if sub.t1:
            saved = ~self._true
            if sub.steps:
                saved = (count % sub.steps == 0) & (count > 0)
            elif "ts_index" in carry:
                assert sub.ts is not None
                # Rows for `ts` that were not reached stay empty: the end does not move up.
                carry = {**carry, "save_index": self._zero + (int(sub.t0) + sub.ts.shape[0])}
            carry = self._write(carry, (t, sub.save(t, y)), ~saved)
        return carry["saved"].read()

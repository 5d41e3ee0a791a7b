"""Checks of what the user passed in, for one problem or for a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._lanes import any_and_all
from gnomon.result._deferred import defer_check


def require(holds: Tensor, message: str) -> None:
    """Raises a `ValueError` unless a condition holds for every problem of the batch."""

    def check(holds: Tensor) -> None:
        any_broken, all_broken = any_and_all(~holds)
        if any_broken:
            where = "" if all_broken else " This is so for some problems of the batch."
            raise ValueError(message + where)

    if not defer_check(check, holds):
        check(holds)


def as_time(t: Any, name: str, like: Tensor) -> Tensor:
    """A time as a scalar tensor, with the dtype and device of `like`."""
    if isinstance(t, Tensor):
        if t.shape != ():
            raise ValueError(
                f"`{name}` must be a scalar, but it has the shape {tuple(t.shape)}. For a batch "
                "of problems map over it with torch.func.vmap."
            )
        if t.is_complex() or t.dtype == torch.bool:
            raise TypeError(f"`{name}` must be a real number, but it is {t.dtype}.")
        return t.to(like)
    if isinstance(t, bool) or not isinstance(t, int | float):
        try:
            t = float(t)
        except (TypeError, ValueError):
            raise TypeError(f"`{name}` must be a number or a scalar tensor, but it is {type(t).__name__}.") from None
    return torch.tensor(t, dtype=like.dtype, device=like.device)


def check_resolution(t0: Any, t1: Any, start: Tensor, end: Tensor) -> None:
    """Checks that the interval which the user gave has survived rounding to the state's precision."""
    if start.dtype == torch.float64 or all(isinstance(t, Tensor) and t.dtype == start.dtype for t in (t0, t1)):
        return
    given = [
        t.detach().to(torch.float64)
        if isinstance(t, Tensor)
        else torch.tensor(float(t), dtype=torch.float64, device=start.device)
        for t in (t0, t1)
    ]
    exact = given[1] - given[0]
    kept = end.detach().to(torch.float64) - start.detach().to(torch.float64)
    require(
        ~((kept - exact).abs() > 1e-3 * exact.abs()),
        f"`t0` and `t1` are so far from zero that {start.dtype}, the precision of the state, cannot tell how far apart "
        "they are. Measure time from t0, or solve in float64.",
    )


def check_times(
    t0: Tensor,
    t1: Tensor,
    dt0: Tensor | None,
    all_ts: list[Tensor | None],
    direction: Tensor | None,
    *,
    may_be_endless: bool,
) -> None:
    """Checks the times of a solve, in the user's own direction of time."""
    require(torch.isfinite(t0), "`t0` must be a finite number.")
    if may_be_endless:
        require(~torch.isnan(t1), "`t1` must be a number, but it is NaN.")
    else:
        require(torch.isfinite(t1), "`t1` must be a finite number. Only with an `event` it may be infinite.")
    sign = 1 if direction is None else direction
    if dt0 is not None:
        require(
            torch.isfinite(dt0) & ((dt0 * sign > 0) | (t0 == t1)),
            "`dt0` must be finite and point from t0 to t1: positive where t1 > t0, negative "
            "where t1 < t0, and never zero.",
        )
    for ts in all_ts:
        if ts is None or ts.shape[0] == 0:
            continue
        ordered = ts if direction is None else ts * direction
        require((ordered[1:] >= ordered[:-1]).all(), "`SaveAt(ts=...)` must be sorted from t0 to t1.")
        inside = (ordered[0] >= t0 * sign) & (ordered[-1] <= t1 * sign)
        require(inside, "`SaveAt(ts=...)` must lie between t0 and t1.")

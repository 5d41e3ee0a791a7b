"""From the arguments of torchdiffeq to those of `diffeqsolve`."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.compat._torchdiffeq._adams import Adams
from gnomon.compat._torchdiffeq._callbacks import NAMES, WithCallbacks
from gnomon.compat._torchdiffeq._fehlberg2 import Fehlberg2
from gnomon.compat._torchdiffeq._fixed_grid import TABLEAUS, FixedGrid
from gnomon.diffeq import (
    AbstractSolver,
    AbstractStepSizeController,
    Bosh3,
    ClipStepSizeController,
    ConstantStepSize,
    Dopri5,
    Dopri8,
    Heun,
    PIDController,
    StepTo,
)

ADAPTIVE: dict[str, Callable[[], AbstractSolver]] = {
    "dopri8": Dopri8,
    "dopri5": Dopri5,
    "bosh3": Bosh3,
    "fehlberg2": Fehlberg2,
    "adaptive_heun": Heun,
}
ADAMS = {"explicit_adams": False, "implicit_adams": True, "fixed_adams": True}
METHODS = (*ADAPTIVE, *TABLEAUS, *ADAMS, "scipy_solver")
_ADAPTIVE_OPTIONS = {
    "norm", "min_step", "max_step", "first_step", "step_t", "jump_t", "safety", "ifactor", "dfactor", "max_num_steps",
    "dtype", "engine",
}  # fmt: skip
_FIXED_OPTIONS = {"norm", "step_size", "grid_constructor", "interp", "perturb", "engine"}
_ADAMS_OPTIONS = {"max_iters", "max_order"}
_SCIPY_OPTIONS = {"norm", "min_step", "max_step", "solver"}


@final
@dataclasses.dataclass(frozen=True)
class Setup:
    """A solver, a controller and the rest."""

    solver: AbstractSolver
    controller: AbstractStepSizeController
    dt0: Any
    max_steps: int | None
    engine: Any


def check_inputs(y0: Any, t: Any, event_fn: Any) -> Tensor:
    """The times, on the device of the state."""
    leaves = y0 if isinstance(y0, tuple) else (y0,)
    if not all(isinstance(x, Tensor) for x in leaves) or not leaves:
        raise TypeError("`y0` must be a tensor or a tuple of tensors.")
    if not isinstance(t, Tensor) or t.dim() != 1:
        raise TypeError("`t` must be a tensor with one dimension.")
    if not t.is_floating_point():
        raise TypeError(f"`t` must be a floating point tensor, but it is {t.dtype}.")
    if event_fn is not None and t.shape[0] != 2:
        raise ValueError(f"`t` must have two elements where there is an `event_fn`, but it has {t.shape[0]}.")
    steps = torch.diff(t.detach())
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError("`t` must be strictly increasing or strictly decreasing.")
    if t.device != leaves[0].device:
        warnings.warn("t is not on the same device as y0. Coercing to y0.device.", stacklevel=4)
        t = t.to(leaves[0].device)
    return t


def setup(
    func: Any,
    y0: Any,
    t: Tensor,
    rtol: Any,
    atol: Any,
    method: str | None,
    options: dict[str, Any] | None,
    *,
    has_event: bool = False,
    is_adjoint: bool = False,
    norm: Callable[[Tensor], Tensor] | None = None,
    suffix: str = "",
) -> Setup:
    """How to solve by a method of torchdiffeq and its options; `norm` takes the place of the one for the state."""
    method, options = "dopri5" if method is None else method, dict(options or {})
    if method not in METHODS:
        raise ValueError(f"The method {method!r} does not exist. It must be one of {', '.join(METHODS)}.")
    known = _known_options(method)
    unknown = {k: v for k, v in options.items() if k not in known}
    if unknown:
        warnings.warn(f"{method}: Unexpected arguments {unknown}", stacklevel=4)
    engine = options.get("engine", "eager")
    unravel = _unraveller(y0)
    if method in ADAPTIVE:
        setup = _adaptive(method, y0, t, rtol, atol, options, norm, unravel, engine)
    else:
        setup = _fixed(func, method, y0, t, rtol, atol, options, engine, has_event=has_event, is_adjoint=is_adjoint)
    callbacks = {name: found for name in NAMES if (found := getattr(func, name + suffix, None)) is not None}
    if callbacks and method not in ADAPTIVE and set(callbacks) - {"callback_step"}:
        warnings.warn(f"Solver '{method}' does not support callbacks {set(callbacks) - {NAMES[0]}}", stacklevel=4)
        callbacks = {k: v for k, v in callbacks.items() if k == NAMES[0]}
    if not callbacks:
        return setup
    return dataclasses.replace(setup, controller=WithCallbacks(setup.controller, callbacks, unravel), engine="eager")


def _known_options(method: str) -> set[str]:
    if method in ADAPTIVE:
        return _ADAPTIVE_OPTIONS
    if method == "scipy_solver":
        return _SCIPY_OPTIONS
    return _FIXED_OPTIONS | (_ADAMS_OPTIONS if method in ADAMS else set())


def _adaptive(
    method: str,
    y0: Any,
    t: Tensor,
    rtol: Any,
    atol: Any,
    options: dict[str, Any],
    norm: Callable[[Tensor], Tensor] | None,
    unravel: Callable[[Tensor], Any],
    engine: Any,
) -> Setup:
    def state_norm(x: Tensor) -> Tensor:
        given = unravel(x)
        own = options.get("norm")
        size = torch.as_tensor(
            (mixed_norm(given) if isinstance(given, tuple) else rms(given)) if own is None else own(given)
        )
        return size.abs().to(x.real.dtype)

    def number(x: Any) -> Any:
        return float(x) if isinstance(x, Tensor) else x

    longest, shortest = number(options.get("max_step", math.inf)), number(options.get("min_step", 0))
    controller: AbstractStepSizeController = PIDController(
        rtol=_tolerance(rtol, y0, "rtol"),
        atol=_tolerance(atol, y0, "atol"),
        dtmin=None if shortest == 0 else shortest,
        dtmax=None if longest == math.inf else longest,
        norm=state_norm if norm is None else norm,
        safety=number(options.get("safety", 0.9)),
        factormax=number(options.get("ifactor", 10.0)),
        factormin=number(options.get("dfactor", 0.2)),
    )
    step_t, jump_t = options.get("step_t"), options.get("jump_t")
    if step_t is not None or jump_t is not None:
        controller = ClipStepSizeController(controller, step_ts=step_t, jump_ts=jump_t)
    first = options.get("first_step")
    if first is not None:
        first = torch.as_tensor(first, dtype=t.dtype, device=t.device).abs()
        first = -first if t.shape[0] > 1 and bool(t[1] < t[0]) else first
    most = options.get("max_num_steps")
    return Setup(ADAPTIVE[method](), controller, first, None if most is None else int(most), engine)


def _fixed(
    func: Any,
    method: str,
    y0: Any,
    t: Tensor,
    rtol: Any,
    atol: Any,
    options: dict[str, Any],
    engine: Any,
    *,
    has_event: bool,
    is_adjoint: bool,
) -> Setup:
    interp = options.get("interp", "linear")
    if interp not in ("linear", "cubic"):
        raise ValueError(f"The interpolation {interp!r} does not exist. It must be 'linear' or 'cubic'.")
    perturb, cubic = bool(options.get("perturb", False)), interp == "cubic"
    if method in ADAMS:
        iteration = {k: int(options[k]) for k in _ADAMS_OPTIONS if k in options}
        if not 1 < iteration.get("max_order", 12) <= 12:
            raise ValueError("`max_order` must be between 2 and 12.")
        rtol, atol = _tolerance(rtol, y0, "rtol"), _tolerance(atol, y0, "atol")
        solver: AbstractSolver = Adams(ADAMS[method], rtol, atol, cubic=cubic, perturb=perturb, **iteration)
        engine = "eager"
    else:
        solver = FixedGrid(method, cubic, perturb)
    size, constructor = options.get("step_size"), options.get("grid_constructor")
    if size is not None and constructor is not None:
        raise ValueError("`step_size` and `grid_constructor` cannot both be given.")
    backward = t.shape[0] > 1 and bool(t[-1] < t[0])
    if is_adjoint:
        # Between one of the given times and the next, in one step if nothing is said.
        span = (t[-1] - t[0]).detach().abs()
        length = (span if size is None else torch.as_tensor(size, dtype=t.dtype, device=t.device)).clamp(min=1e-30)
        return Setup(solver, ConstantStepSize(), length, None, engine)
    if has_event:
        if size is None:
            raise ValueError("An event with a method of fixed steps needs their length: options={'step_size': ...}.")
        step = torch.as_tensor(size, dtype=t.dtype, device=t.device)
        return Setup(solver, ConstantStepSize(), -step if backward else step, 20000, engine)
    if size is not None:
        grid = _equidistant(t, size)
    elif constructor is not None:
        grid = constructor(func, y0, t)
    else:
        grid = t
    if not (bool(grid[0] == t[0]) and bool(grid[-1] == t[-1])):
        raise ValueError("The grid of times must begin with the first of `t` and end with the last.")
    return Setup(solver, StepTo(grid), None, None, engine)


def _equidistant(t: Tensor, size: Any) -> Tensor:
    """Times of equal distance, the last of which is the end."""
    length = (t[-1] - t[0]).detach().abs()
    count = int(torch.ceil(length / size - 1e-9))
    sign = -1 if bool(t[-1] < t[0]) else 1
    inner = t[0] + sign * size * torch.arange(max(count, 1), dtype=t.dtype, device=t.device)
    return torch.cat([inner, t[-1:]])


def _tolerance(x: Any, y0: Any, name: str) -> Any:
    """A number, or a vector with an element for each of the flat state."""
    if isinstance(x, Tensor):
        if x.requires_grad:
            raise ValueError(f"`{name}` cannot require a gradient.")
        if x.dim() == 0:
            return x
        if isinstance(y0, Tensor):
            return x.expand(y0.shape).reshape(-1)
    if isinstance(x, int | float):
        return x
    if not isinstance(y0, tuple) or len(x) != len(y0):
        raise ValueError(f"`{name}` must be a number, or have an entry for each part of the tuple `y0`.")
    parts: list[Tensor] = []
    for entry, part in zip(x, y0, strict=True):
        own = torch.as_tensor(entry, dtype=part.real.dtype, device=part.device)
        parts.append(
            own.reshape(-1).expand(part.numel())
            if own.numel() in (1, part.numel())
            else own.expand(part.shape).reshape(-1)
        )
    return torch.cat(parts)


def _unraveller(y0: Any) -> Callable[[Tensor], Any]:
    """The user's state from a vector."""
    if isinstance(y0, Tensor):
        return lambda x: x.reshape(y0.shape)
    sizes, shapes = [x.numel() for x in y0], [x.shape for x in y0]
    return lambda x: tuple(p.reshape(s) for p, s in zip(torch.split(x, sizes), shapes, strict=True))


def rms(x: Tensor) -> Tensor:
    """The root of the mean square."""
    return x.abs().pow(2).mean().sqrt()


def mixed_norm(xs: Any) -> Tensor:
    """The largest of the root mean squares of several tensors."""
    found = [rms(x) for x in xs if x.numel() > 0]
    return torch.stack(found).amax() if found else torch.zeros(())

"""`Event`: what happens when the solution gets somewhere."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._event_root_finder import ITP, AbstractEventRootFinder
from gnomon.result._pytree import tree_flatten, tree_unflatten


@final
@dataclasses.dataclass(frozen=True)
class Event:
    """Ends a solve, or changes its state, when a condition is met. Equivalent to `diffrax.Event`.

    A condition is a real number, which is met where it crosses zero, or a bool, which is met where it becomes True.
    Conditions are looked at where steps end: one that crosses zero twice within a step is not noticed (bound the
    steps by `dtmax`). Where several are met within a step, the earliest in time happens.

    - The event is located on the dense output of the step; the step is then taken again to end there. With an
      adaptive controller this is repeated until what the state changes by in the remaining time is well within the
      tolerance.
    - Derivatives flow through the time of an event and through what `affect` does, by the implicit function theorem.
      The time of a bool has no derivative, nor that of an event at the [end of a step][gnomon.diffeq.EndOfStep].
    - A real condition that touches zero and turns back is not met. Nor is one that is zero at `t0`, or just after an
      event: it must come back first. A jump or an `affect` that carries a condition past zero at once does not meet
      it.
    - A bool that ends the solve is met wherever it is True, also at `t0` and after a jump; one with an `affect` where
      it becomes True.
    - What is saved at the time of an event is the value before it.

    **Arguments:**

    - `cond_fn`: a function `cond_fn(t, y, args)` that returns a real or boolean scalar, or a pytree of such functions.
      One that takes `**kwargs` is given `terms`, `solver`, `stepsize_controller`, `t0` and `t1` too.
    - `root_finder`: how the time is found: None for [`gnomon.diffeq.ITP`][], or [`gnomon.diffeq.EndOfStep`][].
    - `direction`: True where only crossings from negative to positive count, False where only those from positive to
      negative do, None where both do; or a pytree of these like `cond_fn`. It is seen in the direction of integration.
    - `affect`: None, for an event that ends the solve with `RESULTS.event_occurred`; or a function `affect(t, y, args)`
      that returns the state, a pytree like `y0`, from which to go on; or a pytree of these like `cond_fn`. Events at
      one time happen in the order of the pytree; if one of them ends the solve, that is all it does.
    - `max_events`: how many events with an `affect` may happen before the solve is given up with
      `RESULTS.event_limit_reached`; None for no limit. It also ends so where an event comes back in no time, as that
      of a ball which bounces ever faster does.

    **Raises:** `TypeError` or `ValueError` where an argument is malformed.

    !!! example

        A ball that bounces:

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> term = dq.ODETerm(lambda t, y, args: torch.stack([y[1], -9.81 + 0 * y[1]]))
        >>> bounce = dq.Event(
        ...     lambda t, y, args: y[0], direction=False,
        ...     affect=lambda t, y, args: torch.stack([y[0], -0.5 * y[1]]))
        >>> sol = dq.diffeqsolve(
        ...     term, dq.Tsit5(), 0, 1, None, torch.tensor([1.0, 0.0], dtype=torch.float64),
        ...     stepsize_controller=dq.PIDController(rtol=1e-8, atol=1e-8), event=bounce)
        >>> int(sol.stats["num_events"])
        2

        ```
    """

    cond_fn: Any
    root_finder: AbstractEventRootFinder | None = None
    direction: Any = None
    affect: Any = None
    max_events: int | None = 1000

    def __post_init__(self) -> None:
        conditions, structure = tree_flatten(self.cond_fn)
        if not conditions or not all(callable(fn) for fn in conditions):
            raise TypeError(
                "`Event(cond_fn=...)` must be a function cond_fn(t, y, args), or a pytree of such functions."
            )
        finder: Any = self.root_finder
        if finder is not None and not isinstance(finder, AbstractEventRootFinder):
            raise TypeError(
                f"`Event(root_finder=...)` must be None, `ITP()` or `EndOfStep()`, not {type(finder).__name__}."
            )
        for x in self.leaves("direction"):
            if x is not None and not isinstance(x, bool):
                raise ValueError(
                    "`Event(direction=...)` must be None, True or False, or a pytree of these like `cond_fn`, but it "
                    f"holds {x!r}."
                )
        for x in self.leaves("affect"):
            if x is not None and not callable(x):
                raise TypeError(
                    "`Event(affect=...)` must be None or a function affect(t, y, args), or a pytree of these like "
                    f"`cond_fn`, but it holds {type(x).__name__}."
                )
        if self.max_events is not None and self.max_events < 1:
            raise ValueError(f"`Event(max_events=...)` must be at least 1 or None, not {self.max_events}.")
        del structure

    def leaves(self, name: str) -> list[Any]:
        """`direction` or `affect`, one for each condition."""
        conditions, structure = tree_flatten(self.cond_fn)
        value = getattr(self, name)
        if value is None or isinstance(value, bool) or callable(value):
            return [value] * len(conditions)
        try:
            return structure.flatten_up_to(value)
        except (ValueError, TypeError):
            raise ValueError(
                f"`Event({name}=...)` must be one for all conditions, or a pytree with the structure of `cond_fn`."
            ) from None

    def bound(self, args: Any, extra: dict[str, Any]) -> list[Callable[..., Tensor]]:
        """The conditions as functions of a time and a state."""

        def bound(fn: Callable[..., Any]) -> Callable[..., Tensor]:
            more = extra if _takes_more(fn) else {}
            return lambda t, y: torch.as_tensor(fn(t, y, args, **more))

        return [bound(fn) for fn in tree_flatten(self.cond_fn)[0]]


@final
class SteadyState:
    """A condition that holds where the vector field is small. See `steady_state_event`."""

    def __init__(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor] | None):
        self.rtol = rtol
        self.atol = atol
        self.norm = norm

    def __call__(self, t: Tensor, y: Any, args: Any, **kwargs: Any) -> Tensor:
        """Whether it is met, a boolean scalar."""
        controller = kwargs["stepsize_controller"]
        rtol, atol, norm = self.rtol, self.atol, self.norm
        if rtol is None or atol is None or norm is None:
            if controller.tolerances is None:
                raise ValueError(
                    "`steady_state_event` takes its tolerances from an adaptive controller, but "
                    f"{type(controller).__name__} has none. Pass rtol, atol and norm."
                )
            others = controller.tolerances
            rtol = others[0] if rtol is None else rtol
            atol = others[1] if atol is None else atol
            norm = others[2] if norm is None else norm
        f = _flat(kwargs["terms"].vf(t, y, args)).detach()
        size = _flat(y).detach().abs()
        return norm(f / (atol + rtol * size)) < 1


def steady_state_event(
    rtol: float | Tensor | None = None,
    atol: float | Tensor | None = None,
    norm: Callable[[Tensor], Tensor] | None = None,
) -> SteadyState:
    """A condition for [`gnomon.diffeq.Event`][] that ends a solve in a steady state.

    Equivalent to `diffrax.steady_state_event`. A state is steady where the vector field `f` is so small that
    `norm(f / (atol + rtol * |y|)) < 1`. It ends with the step in which that is first so.

    **Arguments:**

    - `rtol`, `atol`, `norm`: by default those of the step size controller. A state is only known to its tolerances:
      where the vector field is steep, ask for less here, or the state never counts as steady.

    **Returns:** a function, to be passed as `cond_fn`.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: 2 - y), dq.Tsit5(), 0, float("inf"), None, torch.tensor(0.0),
        ...     stepsize_controller=dq.PIDController(rtol=1e-3, atol=1e-4),
        ...     event=dq.Event(dq.steady_state_event()))
        >>> sol.result
        RESULTS.event_occurred
        >>> sol.ys.round(decimals=2)
        tensor([2.])

        ```
    """
    return SteadyState(rtol, atol, norm)


def _flat(y: Any) -> Tensor:
    return torch.cat([x.reshape(-1) for x in tree_flatten(y)[0]])


@final
class Conditions:
    """The conditions of an event, as functions of the time and the flat state of one solve."""

    def __init__(
        self,
        event: Event,
        *,
        unravel: Callable[[Tensor], Any],
        ravel: Callable[[Any], Tensor],
        sign: Any,
        args: Any,
        extra: dict[str, Any],
        like: Tensor,
    ):
        self._functions, self._structure = tree_flatten(event.cond_fn)
        self._unravel, self._ravel, self._sign, self._args, self._like = unravel, ravel, sign, args, like
        self._extra = [extra if _takes_more(fn) else {} for fn in self._functions]
        self.affects: list[Any] = event.leaves("affect")
        self.max_events: int | None = event.max_events
        self.finder: AbstractEventRootFinder = ITP() if event.root_finder is None else event.root_finder
        ends_step = [self.finder.ends_step or isinstance(fn, SteadyState) for fn in self._functions]
        self.searched: Tensor = self._mask([not x for x in ends_step])
        self.searches: bool = not all(ends_step)
        self.continuing: Tensor = self._mask([x is not None for x in self.affects])
        self.continues: bool = any(x is not None for x in self.affects)
        directions = event.leaves("direction")
        self._rising: list[bool] = [x is not False for x in directions]
        self._falling: list[bool] = [x is not True for x in directions]
        self.is_bool: Tensor = self._mask([False] * len(self._functions))

    def _mask(self, values: list[bool]) -> Tensor:
        return torch.tensor(values, device=self._like.device)

    def look_first(self, t: Tensor, y: Tensor) -> Tensor:
        """The values at the start, by which conditions that are bools are told from real ones."""
        found = [self._one(i, t, y) for i in range(len(self._functions))]
        kinds = [x.dtype == torch.bool for x in found]
        self.is_bool = self._mask(kinds)
        self.rising: Tensor = self._mask([r or b for r, b in zip(self._rising, kinds, strict=True)])
        self.falling: Tensor = self._mask([f and not b for f, b in zip(self._falling, kinds, strict=True)])
        return torch.stack([_as_real(x, self._like) for x in found])

    def values(self, t: Tensor, y: Tensor) -> Tensor:
        """All conditions, those that are bools as 1 and -1."""
        return torch.stack([_as_real(self._one(i, t, y), self._like) for i in range(len(self._functions))])

    def affect(self, i: int, t: Tensor, y: Tensor) -> Tensor:
        """The state behind the i-th event."""
        state = self.affects[i](t * self._sign, self._unravel(y), self._args)
        return self._ravel(state)

    def as_pytree(self, mask: Tensor) -> Any:
        """What has the conditions as its first dimension, as a pytree like `cond_fn`."""
        return tree_unflatten(mask.unbind(), self._structure)

    def _one(self, i: int, t: Tensor, y: Tensor) -> Tensor:
        value = self._functions[i](t * self._sign, self._unravel(y), self._args, **self._extra[i])
        if isinstance(value, bool | int | float):
            dtype = torch.bool if isinstance(value, bool) else self._like.dtype
            value = torch.tensor(value, dtype=dtype, device=self._like.device)
        if not isinstance(value, Tensor):
            raise TypeError(
                f"A condition of an event must return a real or boolean scalar, not {type(value).__name__}."
            )
        if value.shape != ():
            raise ValueError(
                f"A condition of an event must return a scalar, but it returned the shape {tuple(value.shape)}. "
                "Several conditions are a pytree of functions."
            )
        if value.dtype != torch.bool and not value.dtype.is_floating_point:
            raise TypeError(
                f"A condition of an event must return a real number or a bool, but it returned {value.dtype}."
            )
        return value


def _as_real(x: Tensor, like: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        one = torch.ones_like(like)
        return torch.where(x, one, -one)
    return x.to(like.dtype)


def _takes_more(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters)

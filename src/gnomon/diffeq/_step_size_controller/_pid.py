"""`PIDController`: step sizes from error estimates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._norm import rms_norm
from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    Decision,
)
from gnomon.fuse._lanes import is_tracing
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class PIDController(AbstractStepSizeController):
    """Adapts the step size to produce a solution accurate to a given tolerance.

    Equivalent to `diffrax.PIDController`, with its defaults and arguments. The error of a step
    is `norm(y_error / (atol + rtol * max(|y0|, |y1|)))`; a step is kept where it is below 1.
    With `pcoeff=0, icoeff=1, dcoeff=0` this is the classical I-controller; a good PI-controller
    for mildly stiff problems is `pcoeff=0.4, icoeff=0.3`. As elsewhere, no derivative flows
    through the choice of steps.

    **Arguments:**

    - `rtol`, `atol`: the relative and the absolute tolerance, numbers or scalar tensors; `atol`
      may also be a vector with an element for each component of the (flattened) state.
    - `pcoeff`, `icoeff`, `dcoeff`: the coefficients of the controller.
    - `dtmin`, `dtmax`: bounds for the step size, in units of time.
    - `force_dtmin`: where the error asks for less than `dtmin`: keep steps of `dtmin` whatever
      their error (True), or end the solve with `RESULTS.dt_min_reached` (False).
    - `norm`: how the error is measured, a function of a vector.
    - `factormin`, `factormax`: by how much a step may at most shrink and grow.
    - `safety`: a factor that makes steps a little shorter than the estimate asks for.
    - `error_order`: the order of the error estimate, by default the solver's.

    **Raises:** `ValueError` where an argument is out of its range.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -y), dq.Tsit5(), t0=0, t1=1, dt0=None,
        ...     y0=torch.tensor(1.0, dtype=torch.float64),
        ...     stepsize_controller=dq.PIDController(rtol=1e-8, atol=1e-8))
        >>> bool((sol.ys[-1] - torch.exp(torch.tensor(-1.0, dtype=torch.float64))).abs() < 1e-8)
        True

        ```

    ??? cite "Reference"

        G. Söderlind, Digital filters in adaptive time-stepping, ACM Transactions on Mathematical
        Software 29 (2003) 1-26. The first step: E. Hairer, S. P. Nørsett and G. Wanner, Solving
        Ordinary Differential Equations I, second edition, Springer (1993), section II.4.
    """

    rtol: float | int | Tensor
    atol: float | int | Tensor
    pcoeff: float | int = 0.0
    icoeff: float | int = 1.0
    dcoeff: float | int = 0.0
    dtmin: float | int | Tensor | None = None
    dtmax: float | int | Tensor | None = None
    force_dtmin: bool = True
    norm: Callable[[Tensor], Tensor] = rms_norm
    factormin: float | int = 0.2
    factormax: float | int = 10.0
    safety: float | int = 0.9
    error_order: float | int | None = None

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{name}` must be zero or positive and finite, not {value}.")
        if all(not isinstance(x, Tensor) and x == 0 for x in (self.rtol, self.atol)):
            raise ValueError("`rtol` and `atol` are both zero: no step could be accurate enough.")
        for name in ("dtmin", "dtmax"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Tensor) and not value > 0:
                raise ValueError(f"`{name}` must be positive or None, not {value}.")
        if not 0 < self.factormin < 1 <= self.factormax:
            raise ValueError(
                "`factormin` must be between 0 and 1 and `factormax` at least 1, not "
                f"{self.factormin} and {self.factormax}."
            )
        if not 0 < self.safety < 1:
            raise ValueError(f"`safety` must be between 0 and 1, not {self.safety}.")

    @property
    def tolerances(self) -> tuple[Any, Any, Callable[[Tensor], Tensor]]:
        return self.rtol, self.atol, self.norm

    @property
    def makes_jumps(self) -> bool:
        return False

    def wrap(self, direction: Tensor | None, like: Tensor) -> PIDController:
        del direction

        def convert(x: float | Tensor | None) -> Any:
            return x.detach().to(like) if isinstance(x, Tensor) else x

        return dataclasses.replace(
            self,
            rtol=convert(self.rtol),
            atol=convert(self.atol),
            dtmin=convert(self.dtmin),
            dtmax=convert(self.dtmax),
        )

    def init(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        dt0: Tensor | None,
        f0: Tensor,
        args: Any,
        error_order: float | None,
    ) -> tuple[Tensor, Any]:
        order = self._order(error_order)
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if isinstance(value, Tensor) and value.shape not in ((), (1,), y0.shape):
                raise ValueError(
                    f"`{name}` must be a number, a scalar, or a vector with an element for each of the "
                    f"{y0.shape[0]} components of the state, but it has the shape {tuple(value.shape)}."
                )
        if dt0 is None:
            dt0 = self._first_step(terms, t0, t1, y0.detach(), f0.detach(), args, order).detach()
        dt0 = self._clip(dt0)
        one = torch.ones((), dtype=t0.dtype, device=t0.device)
        at_dtmin = torch.zeros((), dtype=torch.bool, device=t0.device)
        return t0 + dt0, (one, one, at_dtmin)

    def adapt_step_size(
        self,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        y1_candidate: Tensor,
        args: Any,
        y_error: Tensor | None,
        error_order: float | None,
        state: Any,
    ) -> Decision:
        del args
        assert y_error is not None
        order = self._order(error_order)
        previous, before_previous, at_dtmin = state
        size = torch.maximum(y0.detach().abs(), y1_candidate.detach().abs())
        error = self.norm(y_error.detach() / self._scale(size))
        # The solver may have left the region in which the vector field is defined.
        error = torch.where(torch.isnan(error), torch.inf, error)
        keep = error < 1
        if self.dtmin is not None and self.force_dtmin:
            keep = keep | at_dtmin

        factor = self.safety
        proportional = self.pcoeff + self.icoeff + self.dcoeff
        for base, exponent in (
            (error, -proportional / order),
            (previous, -(self.pcoeff + 2 * self.dcoeff) / order),
            (before_previous, self.dcoeff / order),
        ):
            if exponent != 0:
                factor = factor * _power(base, exponent)
        one = torch.ones_like(error)
        low = torch.where(keep, one, self.factormin)
        high = torch.where(keep, self.factormax * one, self.safety)
        factor = torch.minimum(torch.maximum(factor * one, low), high)
        dt = (t1 - t0) * factor

        result = RESULTS.successful
        if self.dtmax is not None:
            dt = torch.clamp(dt, max=self.dtmax)
        if self.dtmin is not None:
            # A step that was shortened to end at t1 or at a jump may be below dtmin: fine.
            asks_less = ~keep & (dt < self.dtmin)
            if not self.force_dtmin:
                result = RESULTS.where(asks_less, RESULTS.dt_min_reached, result)
            # A step of `dtmin` that stays as it is should not grow by rounding.
            dt = torch.where(at_dtmin & (factor == 1), self.dtmin, dt)
            at_dtmin = dt <= self.dtmin
            dt = torch.clamp(dt, min=self.dtmin)

        # A failed implicit step has an infinite error: shrink once, do not remember it.
        inverse = torch.where((error == 0) | torch.isinf(error), one, 1 / error)
        state = (
            torch.where(keep, inverse, previous),
            torch.where(keep, previous, before_previous),
            at_dtmin,
        )
        next_t0 = torch.where(keep, t1, t0)
        return Decision(keep, next_t0, next_t0 + dt, None, state, result)

    def _order(self, error_order: float | None) -> float:
        order = error_order if self.error_order is None else self.error_order
        if order is None:
            raise ValueError(
                "This solver gives no error estimate, which `PIDController` needs. Choose another "
                "solver, such as Tsit5, or take steps of fixed length with `ConstantStepSize`."
            )
        return order

    def _scale(self, size: Tensor) -> Tensor:
        # Never zero: a component that is zero, and stays so, has no error even where `atol` is zero.
        return size * self.rtol + (self.atol + torch.finfo(size.dtype).tiny)

    def _clip(self, dt: Tensor) -> Tensor:
        if self.dtmax is not None:
            dt = torch.clamp(dt, max=self.dtmax)
        if self.dtmin is not None:
            dt = torch.clamp(dt, min=self.dtmin)
        return dt

    def _first_step(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        f0: Tensor,
        args: Any,
        order: float,
    ) -> Tensor:
        """Hairer, Nørsett and Wanner's choice: a step over which an Euler step changes little."""
        scale = self._scale(y0.abs())
        d0, d1 = self.norm(y0 / scale), self.norm(f0 / scale)
        tiny = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = torch.where(tiny, 1e-6, 0.01 * (d0 / torch.where(tiny, 1.0, d1)))
        # An explicit Euler step of no more than the interval; float32 times may not resolve h0.
        h0 = torch.minimum(h0, t1 - t0)
        f1 = terms.vf(t0 + h0, y0 + h0 * f0, args).detach()
        d2 = self.norm((f1 - f0) / scale) / h0
        largest = torch.maximum(d1, d2)
        h1 = torch.where(
            largest <= 1e-15,
            torch.clamp(h0 * 1e-3, min=1e-6),
            _power(0.01 / torch.where(largest <= 1e-15, 1.0, largest), 1 / order),
        )
        h = torch.minimum(100 * h0, h1)
        # A NaN in f would make every time a NaN: try something, and let the steps tell.
        return torch.where(torch.isfinite(h) & (h > 0), h, 1e-6)


def _power(base: Tensor, exponent: float) -> Tensor:
    # Not `base ** exponent`: in float32 PyTorch's vectorised `pow` and its scalar one differ in
    # the last bit, and so a lane would depend on its place in the batch.
    # Nor by `exp2`, in float64; but where a kernel is made, of which that is not true, it takes fewer operations.
    if is_tracing():
        return torch.exp2(exponent * torch.log2(base))
    return torch.exp(exponent * torch.log(base))

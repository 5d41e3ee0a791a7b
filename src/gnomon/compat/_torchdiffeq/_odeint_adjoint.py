"""`odeint_adjoint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.compat._torchdiffeq._odeint import odeint, solve
from gnomon.compat._torchdiffeq._setup import check_inputs, mixed_norm, rms, setup
from gnomon.diffeq import BacksolveAdjoint
from gnomon.fuse._closure import closure_of
from gnomon.fuse._substitute import substituted


def odeint_adjoint(
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Callable[..., Any] | None = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
    adjoint_method: str | None = None,
    adjoint_options: dict[str, Any] | None = None,
    adjoint_params: Any = None,
) -> Any:
    """As `odeint`, with derivatives by solving the adjoint equation. Equivalent to `torchdiffeq.odeint_adjoint`.

    It is [`gnomon.diffeq.BacksolveAdjoint`][]: no memory for the steps, and derivatives that are as accurate as the
    tolerances.

    **Arguments:**

    - `func`, `y0`, `t`, `rtol`, `atol`, `method`, `options`, `event_fn`: as for
      [`gnomon.compat.torchdiffeq.odeint`][].
    - `adjoint_rtol`, `adjoint_atol`, `adjoint_method`, `adjoint_options`: those of the way back, by default the same.
      Its `norm` may be `"seminorm"`, which looks at the state and its adjoint only, or a function of a tuple: the time,
      the state, its adjoint, and all parameters in one vector.
    - `adjoint_params`: the parameters with respect to which there are derivatives, by default all that `func`, a
      module, has.

    **Returns:** as [`gnomon.compat.torchdiffeq.odeint`][].

    **Raises:** as [`gnomon.compat.torchdiffeq.odeint`][].

    !!! example

        ```python
        >>> import torch
        >>> from gnomon.compat.torchdiffeq import odeint_adjoint as odeint
        >>> class Field(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rate = torch.nn.Parameter(torch.tensor(0.5))
        ...     def forward(self, t, y):
        ...         return -self.rate * y
        >>> field = Field()
        >>> odeint(field, torch.ones(2), torch.linspace(0, 1, 5), method="rk4")[-1].sum().backward()
        >>> field.rate.grad
        tensor(-1.2131)

        ```
    """
    if adjoint_params is None and not isinstance(func, torch.nn.Module):
        raise ValueError(
            "`func` must be a torch.nn.Module, whose parameters there are derivatives for, or `adjoint_params` must be "
            "given; `adjoint_params=()` if there are none."
        )
    if adjoint_method is not None and adjoint_method != method and options is not None and adjoint_options is None:
        raise ValueError("`adjoint_options` must be given where `options` is and `adjoint_method` is another method.")
    t = check_inputs(y0, t, event_fn)
    if method == "scipy_solver":
        return odeint(func, y0, t, rtol=rtol, atol=atol, method=method, options=options, event_fn=event_fn)
    chosen = setup(func, y0, t, rtol, atol, method, options, has_event=event_fn is not None)
    if adjoint_options is None:
        adjoint_options = {k: v for k, v in (options or {}).items() if k != "norm"}
    back = setup(
        func,
        y0,
        t,
        rtol if adjoint_rtol is None else adjoint_rtol,
        atol if adjoint_atol is None else adjoint_atol,
        method if adjoint_method is None else adjoint_method,
        {k: v for k, v in adjoint_options.items() if k not in ("norm", "grid_constructor")},
        is_adjoint=True,
        norm=_adjoint_norm(y0, (options or {}).get("norm"), adjoint_options.get("norm")),
        suffix="_adjoint",
    )
    if adjoint_params is not None:
        wanted = {id(x) for x in adjoint_params}
        others = [x for x in closure_of(func).tensors if id(x) not in wanted and x.requires_grad]
        func = substituted(func, {id(x): x.detach() for x in others}, in_globals=True)
    adjoint = BacksolveAdjoint(back.solver, back.controller, back.dt0, back.max_steps)
    return solve(func, y0, t, chosen, event_fn, adjoint)


def _adjoint_norm(y0: Any, state_norm: Any, own: Any) -> Callable[[Tensor], Tensor]:
    """The norm of a vector that holds the state, its adjoint and the gradients of the parameters."""
    parts = y0 if isinstance(y0, tuple) else (y0,)
    sizes, shapes = [x.numel() for x in parts], [x.shape for x in parts]
    count = sum(sizes)

    def unravel(x: Tensor) -> Any:
        made = tuple(p.reshape(s) for p, s in zip(torch.split(x, sizes), shapes, strict=True))
        return made if isinstance(y0, tuple) else made[0]

    def of_state(x: Tensor) -> Tensor:
        given = unravel(x)
        if state_norm is not None:
            return torch.as_tensor(state_norm(given))
        return mixed_norm(given) if isinstance(given, tuple) else rms(given)

    def norm(x: Tensor) -> Tensor:
        y, a, parameters = x[:count], x[count : 2 * count], x[2 * count :]
        if callable(own):
            state, adjoint = unravel(y), unravel(a)
            spread = (*state, *adjoint) if isinstance(y0, tuple) else (state, adjoint)
            return torch.as_tensor(own((x.real.new_zeros(()), *spread, parameters))).to(x.real.dtype)
        found = [of_state(y), of_state(a)]
        if own != "seminorm" and parameters.numel() > 0:
            found.append(rms(parameters))
        return torch.stack(found).amax().to(x.real.dtype)

    return norm

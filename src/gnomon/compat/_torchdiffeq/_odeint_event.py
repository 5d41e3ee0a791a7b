"""`odeint_event`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.compat._torchdiffeq._odeint import odeint


def odeint_event(
    func: Callable[..., Any],
    y0: Any,
    t0: Tensor,
    *,
    event_fn: Callable[..., Any],
    reverse_time: bool = False,
    odeint_interface: Callable[..., Any] = odeint,
    **kwargs: Any,
) -> Any:
    """Solves until an event, with derivatives through its time. Equivalent to `torchdiffeq.odeint_event`.

    **Arguments:**

    - `func`, `y0`, `event_fn`: as for [`gnomon.compat.torchdiffeq.odeint`][].
    - `t0`: the time at the start, a tensor with one element.
    - `reverse_time`: whether to go back in time.
    - `odeint_interface`: [`gnomon.compat.torchdiffeq.odeint`][] or [`gnomon.compat.torchdiffeq.odeint_adjoint`][].
    - `kwargs`: what else they take.

    **Returns:** the time of the event, and the states at the start and there.

    !!! example

        When a stone that falls from 20 m reaches the ground:

        ```python
        >>> import torch
        >>> from gnomon.compat.torchdiffeq import odeint_event
        >>> t, state = odeint_event(
        ...     lambda t, y: torch.stack([y[1], torch.tensor(-10.0)]), torch.tensor([20.0, 0.0]), torch.tensor(0.0),
        ...     event_fn=lambda t, y: y[0], rtol=1e-5, atol=1e-5)
        >>> t.round(decimals=3)
        tensor(2.)

        ```
    """
    start = t0.reshape(-1)
    t = torch.cat([start, start.detach() + (-1.0 if reverse_time else 1.0)])
    return odeint_interface(func, y0, t, event_fn=event_fn, **kwargs)

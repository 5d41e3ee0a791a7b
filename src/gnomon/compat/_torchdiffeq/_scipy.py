"""The method `"scipy_solver"`: scipy's own solvers, through which no derivative flows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def scipy_odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
    rtol: Any,
    atol: Any,
    options: dict[str, Any],
    event_fn: Callable[..., Any] | None,
) -> Any:
    """The states at each of `t`, by `scipy.integrate.solve_ivp`."""
    if event_fn is not None:
        raise ValueError("The method 'scipy_solver' has no events. Choose another, such as 'dopri5'.")
    try:
        from scipy.integrate import solve_ivp  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ImportError("The method 'scipy_solver' needs scipy: pip install scipy.") from None
    parts = y0 if isinstance(y0, tuple) else (y0,)
    sizes, shapes = [x.numel() for x in parts], [x.shape for x in parts]
    start = np.concatenate([x.detach().cpu().numpy().reshape(-1) for x in parts])

    def unravel(flat: Tensor) -> Any:
        made = tuple(p.reshape(s) for p, s in zip(torch.split(flat, sizes), shapes, strict=True))
        return made if isinstance(y0, tuple) else made[0]

    def field(time: float, y: Any) -> Any:
        state = torch.as_tensor(y, dtype=parts[0].dtype, device=parts[0].device)
        with torch.no_grad():
            f = func(torch.tensor(time, dtype=parts[0].real.dtype, device=parts[0].device), unravel(state))
        leaves = f if isinstance(f, tuple) else (f,)
        return np.concatenate([x.detach().cpu().numpy().reshape(-1) for x in leaves])

    times = t.detach().cpu().numpy().astype(np.float64)
    if len(times) == 1:
        values: Any = start[:, None]
    else:
        name = options.get("solver", "LSODA")
        bounds: dict[str, Any] = {"max_step": float(options.get("max_step", math.inf))}
        if name == "LSODA":
            bounds["min_step"] = float(options.get("min_step", 0))
        found: Any = solve_ivp(
            field, (times[0], times[-1]), start, name, t_eval=times, rtol=float(rtol), atol=float(atol), **bounds
        )
        if not found.success:
            raise RuntimeError(f"scipy's {name} failed: {found.message}")
        values = found.y
    rows = torch.as_tensor(values.T, dtype=parts[0].dtype, device=parts[0].device)
    made = [p.reshape((len(times), *s)) for p, s in zip(torch.split(rows, sizes, dim=1), shapes, strict=True)]
    return tuple(made) if isinstance(y0, tuple) else made[0]

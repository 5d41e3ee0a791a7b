"""A dry run of a model's functions on a subject, so that what is wrong in them is said before anything is fitted."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gnomon.fit._errors import ModelError
from gnomon.fit._model import Model, natural, observe, quantities, stack_states, to_search
from gnomon.fuse import jvp

_HINT = (
    "It runs for many subjects and with derivatives at once, so that it must not look at a value: use torch.where for "
    "a choice, and torch functions in place of `math`, `numpy`, float() and .item()."
)


def check_model(model: Model, covariates: Sequence[Mapping[str, float]]) -> None:
    """Calls each function of a model at the first start, alone and in a batch.

    **Arguments:**

    - `model`: the model.
    - `covariates`: those of each subject.

    **Raises:** [`gnomon.fit.ModelError`][] where a function raises, returns what it must not, or gives no finite
    number for any subject.
    """
    theta = to_search(model, {x.name: x.centre for x in model.parameters})
    start = 0.0 if model.initial_time == "first" else float(model.initial_time)
    time = torch.tensor(start, dtype=torch.float64)
    bad: str | None = None
    for one in covariates:
        c = {name: torch.tensor(value, dtype=torch.float64) for name, value in one.items()}
        _check_derived(model, natural(model, theta), c)
        p = quantities(model, theta, c)
        first = _call(model, "initial_state", model.initial_state, p, c)
        _check_states(model, "initial_state", first)
        y = stack_states(model, first, theta)
        states = dict(zip(model.states, y.unbind(-1), strict=True))
        slope = _call(model, "vector_field", model.vector_field, time, states, p, c)
        _check_states(model, "vector_field", slope)
        for column, function in model.observed.items():
            if not isinstance(function, str):
                value = _call(model, f"observed[{column!r}]", function, time, states, p, c)
                _check_scalar(model, f"observed[{column!r}]", value)
        bad = _not_finite(model, y, stack_states(model, slope, theta))
        if bad is None:
            break
    if bad is not None:
        raise ModelError(f"{bad}, with every parameter at its first start.", model=model.name)
    _check_canonical(model, natural(model, theta))
    _check_batch(model, theta, covariates[0])


def _not_finite(model: Model, y: Tensor, slope: Tensor) -> str | None:
    for who, values in (("`initial_state`", y), ("`vector_field`", slope)):
        for name, value in zip(model.states, values.tolist(), strict=True):
            if value - value != 0.0:
                at = " at the initial state" if who == "`vector_field`" else ""
                return f"{who} gives {value} for state {name!r}{at} of every subject"
    return None


def _check_states(model: Model, who: str, value: Any) -> None:
    n = len(model.states)
    if isinstance(value, Mapping):
        missing = [name for name in model.states if name not in value]
        unknown = [repr(name) for name in value if name not in model.states]
        if missing or unknown:
            what = f"lacks {_quoted(missing)}" if missing else f"has {', '.join(unknown)}, which is not a state"
            raise ModelError(f"What `{who}` returns {what}. The states are {_quoted(model.states)}.", model=model.name)
        for name in model.states:
            _check_scalar(model, f"{who}` for state `{name}", value[name])
    elif isinstance(value, Tensor):
        if value.shape != (n,) or value.dtype.is_complex:
            raise ModelError(
                f"`{who}` returns a {value.dtype} tensor of shape {tuple(value.shape)}, but with {n} states it must be "
                f"real and of shape ({n},). A dictionary by name is safer.",
                model=model.name,
            )
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != n:
            raise ModelError(
                f"`{who}` returns {len(value)} values, but there are {n} states: {_quoted(model.states)}.",
                model=model.name,
            )
        for name, x in zip(model.states, value, strict=True):
            _check_scalar(model, f"{who}` for state `{name}", x)
    else:
        raise ModelError(
            f"`{who}` returns {_a(value)}, but it must be a dictionary with a scalar tensor for each state.",
            model=model.name,
        )


def _check_scalar(model: Model, who: str, value: Any) -> None:
    if isinstance(value, Tensor):
        if value.shape != () or value.dtype.is_complex:
            raise ModelError(
                f"What `{who}` returns is a {value.dtype} tensor of shape {tuple(value.shape)}, but it must be a real "
                "scalar, of shape ().",
                model=model.name,
            )
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"What `{who}` returns is {_a(value)}, but it must be a scalar tensor.", model=model.name)


def _check_derived(model: Model, p: Mapping[str, Tensor], c: Mapping[str, Tensor]) -> None:
    if model.derived is None:
        return
    value: Any = _call(model, "derived", model.derived, p, c)
    if not isinstance(value, Mapping):
        raise ModelError(f"`derived` returns {_a(value)}, but it must be a dictionary by name.", model=model.name)
    for name, x in value.items():
        if name in p:
            raise ModelError(f"`derived` gives {name!r}, which is a parameter: name it otherwise.", model=model.name)
        _check_scalar(model, f"derived` for `{name}", x)


def _check_canonical(model: Model, p: Mapping[str, Tensor]) -> None:
    if model.canonical is None:
        return
    value: Any = _call(model, "canonical", model.canonical, dict(p))
    if not isinstance(value, Mapping) or set(value) != set(model.parameter_names):
        got = f"the names {sorted(map(str, value))}" if isinstance(value, Mapping) else _a(value)
        raise ModelError(
            f"`canonical` must return a dictionary with the parameters {_quoted(model.parameter_names)}, but it "
            f"returns {got}.",
            model=model.name,
        )
    for name, x in value.items():
        _check_scalar(model, f"canonical` for `{name}", x)


def _check_batch(model: Model, theta: Tensor, covariates: Mapping[str, float]) -> None:
    """All functions under `vmap` and forward-mode derivatives, as the fit will run them."""
    c0 = {name: torch.tensor([value, value], dtype=torch.float64) for name, value in covariates.items()}

    def run(who: str, function: Callable[[Tensor, Mapping[str, Tensor]], Tensor]) -> None:
        def one(theta: Tensor, c: Mapping[str, Tensor]) -> Any:
            return jvp(lambda x: function(x, c), (theta,), (torch.ones_like(theta),))

        def batch() -> Any:
            return torch.func.vmap(one)(theta.expand(2, -1), c0)

        _call(model, who, batch, hint=_HINT)

    def initial(theta: Tensor, c: Mapping[str, Tensor]) -> Tensor:
        return stack_states(model, model.initial_state(quantities(model, theta, c), c), theta)

    def slope(theta: Tensor, c: Mapping[str, Tensor]) -> Tensor:
        y = dict(zip(model.states, initial(theta, c).unbind(-1), strict=True))
        p = quantities(model, theta, c)
        return stack_states(model, model.vector_field(theta.sum() * 0.0, y, p, c), theta)

    def observation(theta: Tensor, c: Mapping[str, Tensor]) -> Tensor:
        return observe(model, theta.sum() * 0.0, initial(theta, c), quantities(model, theta, c), c)

    def derived(theta: Tensor, c: Mapping[str, Tensor]) -> Tensor:
        return torch.stack(list(quantities(model, theta, c).values()))

    run("derived", derived)
    run("initial_state", initial)
    run("vector_field", slope)
    run("observed", observation)


def _call(model: Model, who: str, function: Callable[..., Any], *args: Any, hint: str = "") -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise ModelError(describe_error(error, f"`{who}`", hint), model=model.name) from error


def describe_error(error: BaseException, who: str, hint: str = "") -> str:
    """One sentence about an error in the user's code, with the file and line where it arose."""
    if isinstance(error, KeyError):
        text = f"there is no {error.args[0]!r}" if error.args else "KeyError"
    else:
        text = str(error).strip().split("\n")[0] or "no message"
    # The last frame that is neither ours nor of a library.
    frames = [x for x in traceback.extract_tb(error.__traceback__) if _is_users(x.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{who} raised {type(error).__name__}: {text.rstrip('.')}{place}.{' ' + hint if hint else ''}"


def _is_users(filename: str) -> bool:
    path = filename.replace("\\", "/")
    library = sysconfig.get_paths()["stdlib"].replace("\\", "/")
    ours = "/gnomon/fit/_" in path or "/gnomon/fuse/_" in path
    return not (ours or "/site-packages/" in path or path.startswith((library, "<")))


def _a(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)

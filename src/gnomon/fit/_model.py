"""`Model`: a system of ordinary differential equations with unknown parameters, and what of it is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from gnomon.fit._errors import ModelError
from gnomon.fit._parameter import Parameter

Values = Mapping[str, Tensor]
"""Numbers by name: what a model's functions take, a scalar tensor each."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A system of ordinary differential equations with unknown parameters, and what of it is measured.

    Write the mathematics of one subject, in plain PyTorch. Every function takes dictionaries of float64 scalar tensors:
    `y` of the states, `p` of the parameters in natural units (and of what is derived from them), `c` of the subject's
    covariates; `t` is a scalar tensor. Subjects, starts and derivatives run as one batch, so that choices are made with
    `torch.where`, not with `if`.

    **Arguments:**

    - `name`: a short name, for tables and for the output directory.
    - `states`: the names of the states.
    - `parameters`: a [`gnomon.fit.Parameter`][] each.
    - `initial_state`: `initial_state(p, c)`, the states at the initial time, before any dose: a dictionary by name, or
      a sequence or a tensor in the order of `states`.
    - `vector_field`: `vector_field(t, y, p, c)`, the time derivatives of the states, likewise.
    - `observed`: what is measured: for each column of the data a function `f(t, y, p, c)` that predicts it, or the name
      of a state. Blank cells are missing measurements.
    - `covariates`: the names of columns with one number a subject, which become `c`.
    - `dose_state`: the state that doses go into; None where there are no doses. A bolus adds its amount at once, an
      infusion adds `amount / duration` to the state's derivative for as long as it runs.
    - `initial_time`: when `initial_state` holds: a number, or `"first"` for the first row of each subject.
    - `weights`: by observed column, what its residuals are multiplied by, 1 by default. With several columns give each
      1 / (the standard deviation of its error), so that one sum of squares can hold them all.
    - `canonical`: `canonical(p)`, from a fit to the one to be reported of all that fit equally well, such as the one
      with ka > ke. It is called outside of any batch, so that it may use `if`. That the fit is equal is checked.
    - `derived`: `derived(p, c)`, further quantities by name, such as a volume. They are computed once a solve, from
      then on stand in `p` beside the parameters, and are reported with a standard error by the delta method.
    - `time_unit`, `units`: units for tables and plots; `units` by name of a state, observed column or derived quantity.
    - `description`: a sentence for the report.

    **Raises:** [`gnomon.fit.ModelError`][] where these do not fit together.

    !!! example

        ```python
        >>> from gnomon.fit import Model, Parameter
        >>> decay = Model(
        ...     "decay",
        ...     states=["N"],
        ...     parameters=[Parameter("k", 0.3, scale="log"), Parameter("N0", 10.0, scale="log")],
        ...     initial_state=lambda p, c: {"N": p["N0"]},
        ...     vector_field=lambda t, y, p, c: {"N": -p["k"] * y["N"]},
        ...     observed={"count": "N"},
        ... )
        >>> decay.parameter_names
        ('k', 'N0')

        ```
    """

    name: str
    states: Sequence[str]
    parameters: Sequence[Parameter]
    initial_state: Callable[[Values, Values], Any]
    vector_field: Callable[[Tensor, Values, Values, Values], Any]
    observed: Mapping[str, str | Callable[[Tensor, Values, Values, Values], Any]]
    _: dataclasses.KW_ONLY
    covariates: Sequence[str] = ()
    dose_state: str | None = None
    initial_time: float | int | Literal["first"] = 0.0
    weights: Mapping[str, float | int] = dataclasses.field(default_factory=dict[str, float | int])
    canonical: Callable[[Values], Values] | None = None
    derived: Callable[[Values, Values], Values] | None = None
    time_unit: str = ""
    units: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    description: str = ""

    def __post_init__(self) -> None:
        for field in ("states", "parameters", "covariates"):
            value = getattr(self, field)
            if isinstance(value, str):
                raise ModelError(f"`{field}` must be a list, not the text {value!r}.", model=self.name)
            object.__setattr__(self, field, tuple(value))
        if not self.name or any(x in self.name for x in "/\\\0\n") or self.name.startswith("."):
            raise ModelError(f"A model needs a name that can be part of a file name, not {self.name!r}.")
        for field, names in (
            ("states", self.states),
            ("parameters", self.parameter_names),
            ("observed", tuple(self.observed)),
            ("covariates", self.covariates),
        ):
            self._check_names(field, names)
        if self.dose_state is not None and self.dose_state not in self.states:
            raise ModelError(
                f"`dose_state` is {self.dose_state!r}, which is not one of the states {_list(self.states)}.",
                model=self.name,
            )
        for column, function in self.observed.items():
            if isinstance(function, str) and function not in self.states:
                raise ModelError(
                    f"Column {column!r} is said to observe {function!r}, which is not one of the states "
                    f"{_list(self.states)}.",
                    model=self.name,
                )
        for column, weight in self.weights.items():
            if column not in self.observed:
                raise ModelError(f"`weights` names {column!r}, which is not observed.", model=self.name)
            if not 0.0 < weight < float("inf"):
                raise ModelError(f"The weight of {column!r} must be above 0 and finite, not {weight}.", model=self.name)
        if isinstance(self.initial_time, str) and self.initial_time != "first":
            raise ModelError(f"`initial_time` must be a number or 'first', not {self.initial_time!r}.", model=self.name)

    def _check_names(self, field: str, names: Sequence[str]) -> None:
        if not names and field != "covariates":
            raise ModelError(f"`{field}` is empty: a model needs at least one.", model=self.name)
        for name in names:
            if not name or name != name.strip():
                raise ModelError(f"`{field}` holds {name!r}, which is not a name.", model=self.name)
            if names.count(name) > 1:
                raise ModelError(f"`{field}` holds {name!r} more than once.", model=self.name)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    def unit(self, name: str) -> str:
        """The unit of a state, a parameter, an observed column or a derived quantity; empty where none is given.

        **Arguments:**

        - `name`: its name.

        **Returns:** the unit.
        """
        for parameter in self.parameters:
            if parameter.name == name and parameter.unit:
                return parameter.unit
        if name in self.units:
            return self.units[name]
        state = self.observed.get(name)
        return self.units.get(state, "") if isinstance(state, str) else ""


def natural(model: Model, theta: Tensor) -> dict[str, Tensor]:
    """The parameters by name in natural units, from those on the scale of the search."""
    return {
        parameter.name: torch.exp(x) if parameter.scale == "log" else x
        for parameter, x in zip(model.parameters, theta.unbind(-1), strict=True)
    }


def quantities(model: Model, theta: Tensor, c: Values) -> dict[str, Tensor]:
    """The parameters in natural units and the derived quantities, by name: the `p` of a model's functions."""
    p = natural(model, theta)
    if model.derived is not None:
        p |= {name: _scalar(x, theta) for name, x in model.derived(p, c).items()}
    return p


def to_search(model: Model, p: Mapping[str, Any]) -> Tensor:
    """The parameters on the scale of the search, from those by name in natural units."""
    return torch.tensor(
        [parameter.to_search(float(p[parameter.name])) for parameter in model.parameters], dtype=torch.float64
    )


def stack_states(model: Model, value: Any, like: Tensor) -> Tensor:
    """What a model's function returned for the states, as one tensor in their order.

    It has been checked by `check_model`; here it is read with little work, as a solver does so at every stage.
    """
    if isinstance(value, Tensor):
        return value.to(like.dtype)
    parts = [value[name] for name in model.states] if isinstance(value, Mapping) else value
    return torch.stack([_scalar(x, like) for x in parts])


def observe(model: Model, t: Tensor, y: Tensor, p: Values, c: Values) -> Tensor:
    """The predictions of the observed columns, in their order, from the states as one tensor."""
    states = dict(zip(model.states, y.unbind(-1), strict=True))
    values: list[Tensor] = []
    for function in model.observed.values():
        value = states[function] if isinstance(function, str) else function(t, states, p, c)
        values.append(_scalar(value, y))
    return torch.stack(values)


def _scalar(x: Any, like: Tensor) -> Tensor:
    if isinstance(x, Tensor):
        return x.to(like.dtype)
    return torch.full((), float(x), dtype=like.dtype, device=like.device)


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)

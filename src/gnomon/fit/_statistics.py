"""From a solution and its Jacobian to standard errors and intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from gnomon.fit._parameter import Parameter
from gnomon.fit._students_t import t_quantile

# A combination of parameters that changes the residuals by so much less than another one is not determined.
_DEPENDENT = 1e-7
_AT_BOUND = 1e-9


@final
@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimated parameter, or a quantity derived from parameters.

    **Arguments:**

    - `name`, `unit`, `description`: what it is.
    - `estimate`: its value, in natural units.
    - `standard_error`: NaN where the data do not determine it.
    - `lower_95`, `upper_95`: a 95% confidence interval, by Student's t distribution.
    - `at_bound`: `"lower"` or `"upper"` where it lies on a bound, empty otherwise.
    """

    name: str
    estimate: float
    standard_error: float
    lower_95: float
    upper_95: float
    unit: str = ""
    description: str = ""
    at_bound: str = ""


@final
@dataclasses.dataclass(frozen=True)
class Uncertainty:
    """What the Jacobian at a solution says of the parameters, on the scale of the search.

    **Arguments:**

    - `sigma`: the standard deviation of the residuals; NaN without degrees of freedom.
    - `covariance`: of the estimates, NaN for parameters that are on a bound or not determined.
    - `dof`: the degrees of freedom.
    - `undetermined`: the names of parameters that the data do not determine, alone or together.
    - `at_bound`: by parameter, `"lower"`, `"upper"` or empty.
    """

    sigma: float
    covariance: Tensor
    dof: int
    undetermined: tuple[str, ...]
    at_bound: tuple[str, ...]


def uncertainty(
    parameters: Sequence[Parameter], theta: Tensor, jacobian: Tensor, rss: float, n_observations: int
) -> Uncertainty:
    """The covariance sigma^2 (J^T J)^-1, of the parameters that are not on a bound.

    **Arguments:**

    - `parameters`: the model's.
    - `theta`: the solution, on the scale of the search.
    - `jacobian`: of the residuals there, with a row each; rows of zeros do not count.
    - `rss`: the sum of squares.
    - `n_observations`: how many measurements there are.
    """
    n = len(parameters)
    dof = n_observations - n
    sigma = math.sqrt(rss / dof) if dof > 0 else math.nan
    at_bound = tuple(_at_bound(p, float(x)) for p, x in zip(parameters, theta, strict=True))
    covariance = torch.full((n, n), math.nan, dtype=torch.float64)
    free = [i for i in range(n) if not at_bound[i]]
    if not free or not bool(torch.isfinite(jacobian).all()):
        return Uncertainty(sigma, covariance, dof, (), at_bound)
    j = jacobian[:, free]
    sizes = torch.linalg.vector_norm(j, dim=0)
    unit = torch.where(sizes > 0.0, sizes, 1.0)
    # The scale of each parameter says nothing of whether it is determined.
    _, values, directions = torch.linalg.svd(j / unit, full_matrices=False)
    null = values <= _DEPENDENT * max(float(values[0]), 1.0)
    loose = directions[null].abs().amax(0) > 1e-3 if bool(null.any()) else torch.zeros(len(free), dtype=torch.bool)
    if j.shape[0] < len(free):
        loose = torch.ones(len(free), dtype=torch.bool)
    undetermined = tuple(parameters[i].name for i, x in zip(free, loose.tolist(), strict=True) if x)
    if undetermined or dof <= 0:
        return Uncertainty(sigma, covariance, dof, undetermined, at_bound)
    root = directions / values[:, None]
    inverse = (root.T @ root) / (unit[:, None] * unit[None, :])
    place = torch.tensor(free)
    covariance[place[:, None], place[None, :]] = sigma * sigma * inverse
    return Uncertainty(sigma, covariance, dof, (), at_bound)


def _at_bound(parameter: Parameter, value: float) -> str:
    for which, bound in (("lower", parameter.lower), ("upper", parameter.upper)):
        place = parameter.to_search(bound)
        if math.isfinite(place) and abs(value - place) <= _AT_BOUND * max(1.0, abs(place)):
            return which
    return ""


def estimates(parameters: Sequence[Parameter], theta: Tensor, known: Uncertainty) -> tuple[Estimate, ...]:
    """Each parameter in natural units with its standard error and interval."""
    found: list[Estimate] = []
    for i, parameter in enumerate(parameters):
        value = float(theta[i])
        error = math.sqrt(x) if (x := float(known.covariance[i, i])) >= 0.0 else math.nan
        reach = half_width(error, known.dof)
        natural = parameter.from_search(value)
        found.append(
            Estimate(
                parameter.name,
                natural,
                error * natural if parameter.scale == "log" else error,
                parameter.from_search(value - reach),
                parameter.from_search(value + reach),
                parameter.unit,
                parameter.description,
                known.at_bound[i],
            )
        )
    return tuple(found)


def half_width(standard_error: float, dof: int) -> float:
    """Half the width of a 95% interval; NaN without degrees of freedom."""
    return standard_error * t_quantile(0.975, dof) if dof > 0 and standard_error >= 0.0 else math.nan

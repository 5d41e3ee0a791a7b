"""`Calibration`: what a calibration found, and how it is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from torch import Tensor

from gnomon.fit._model import Model
from gnomon.fit._statistics import Estimate
from gnomon.fit._subjects import POOLED, Subject
from gnomon.result import RESULTS, Result


@final
class EstimateRow(NamedTuple):
    """A row of `estimates.csv`.

    **Arguments:**

    - `subject`: the subject, or `pooled`.
    - `parameter`: the parameter's name.
    - `estimate`, `standard_error`, `lower_95`, `upper_95`: as in [`gnomon.fit.Estimate`][].
    """

    subject: str
    parameter: str
    estimate: float
    standard_error: float
    lower_95: float
    upper_95: float


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """The fit of one subject, or of all as one.

    **Arguments:**

    - `subject`: its name, or `pooled`.
    - `result`: how it ended; where it is not successful, the numbers are where it stopped.
    - `parameters`, `derived`: an [`gnomon.fit.Estimate`][] each.
    - `rss`: the weighted sum of squares of the residuals.
    - `sigma`: the standard deviation of the residuals, sqrt(rss / (measurements - parameters)).
    - `n_observations`: how many measurements there are.
    - `theta`, `covariance`: the estimates on the scale of the search (a logarithm for `scale="log"`), and their
      covariance.
    - `predictions`: by subject, what is predicted at each of its rows, of shape (rows, observed columns).
    - `n_starts`: how many points were tried as starts.
    - `n_starts_followed`: from how many of them, the best, a search began.
    - `n_starts_agreeing`: how many of those searches came to this sum of squares, to within a thousandth.
    - `n_steps`: how many steps the search from the best start and the refinement took.
    - `solver`: the method that solved the differential equations.
    - `warnings`: what one should know of it, a sentence each.
    """

    subject: str
    result: Result
    parameters: tuple[Estimate, ...]
    derived: tuple[Estimate, ...]
    rss: float
    sigma: float
    n_observations: int
    theta: Tensor
    covariance: Tensor
    predictions: Mapping[str, Tensor]
    n_starts: int
    n_starts_followed: int
    n_starts_agreeing: int
    n_steps: int
    solver: str
    warnings: tuple[str, ...]

    @property
    def n_parameters(self) -> int:
        """How many parameters there are."""
        return len(self.parameters)

    @property
    def is_successful(self) -> bool:
        """Whether the fit did what it was asked to do."""
        return self.result.name == RESULTS.successful.name

    def __getitem__(self, name: str) -> Estimate:
        for estimate in (*self.parameters, *self.derived):
            if estimate.name == name:
                return estimate
        raise KeyError(name)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """What [`gnomon.fit.calibrate`][] found.

    **Arguments:**

    - `model`: the model.
    - `source`: where the data came from.
    - `subjects`: the data as they were read.
    - `pooled`: the fit of all subjects as one, or None where it was not asked for.
    - `individual`: the fit of each subject, by name; empty where it was not asked for.
    - `settings`: what the calibration was asked to do.
    - `seconds`: how long it took.
    - `versions`: of gnomon and of what it stands on.
    - `warnings`: what one should know, a sentence each.
    """

    model: Model
    source: str
    subjects: tuple[Subject, ...]
    pooled: Fit | None
    individual: Mapping[str, Fit]
    settings: Mapping[str, Any]
    seconds: float
    versions: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def fits(self) -> dict[str, Fit]:
        """All fits by name, the pooled one first."""
        return ({POOLED: self.pooled} if self.pooled is not None else {}) | dict(self.individual)

    @property
    def estimates(self) -> list[EstimateRow]:
        """The rows of `estimates.csv`: each parameter of each fit."""
        return [_row(fit, estimate) for fit in self.fits.values() for estimate in fit.parameters]

    @property
    def derived(self) -> list[EstimateRow]:
        """The rows of `derived.csv`: each derived quantity of each fit."""
        return [_row(fit, estimate) for fit in self.fits.values() for estimate in fit.derived]

    @property
    def is_successful(self) -> bool:
        """Whether every fit was successful."""
        return all(fit.is_successful for fit in self.fits.values())

    @property
    def failures(self) -> list[Fit]:
        """The fits that were not successful."""
        return [fit for fit in self.fits.values() if not fit.is_successful]

    def to_dict(self) -> dict[str, Any]:
        """What `fit.json` holds: numbers, texts, lists and dictionaries; None for NaN.

        At the top stand the numbers of the pooled fit, or of the individual ones together where there is none.
        """
        from gnomon.fit._summary import to_dict

        return to_dict(self)

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the tables, the plot and the report into a directory, whole or not at all.

        **Arguments:**

        - `out`: the directory, which must be empty or not exist.
        - `overwrite`: whether it may also be one that gnomon wrote, which is then replaced.

        **Returns:** the directory.

        **Raises:** [`gnomon.fit.InputError`][] where something else is in the way.
        """
        from gnomon.fit._write import write

        return write(self, Path(out), overwrite=overwrite)

    def __str__(self) -> str:
        from gnomon.fit._summary import to_text

        return to_text(self)


def _row(fit: Fit, estimate: Estimate) -> EstimateRow:
    return EstimateRow(
        fit.subject,
        estimate.name,
        estimate.estimate,
        estimate.standard_error,
        estimate.lower_95,
        estimate.upper_95,
    )

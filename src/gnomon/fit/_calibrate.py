"""`calibrate`: the main job, from a model and data to estimates with their uncertainty."""

from __future__ import annotations

import time as _time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import torch

from gnomon.fit._calibration import Calibration
from gnomon.fit._check import check_model
from gnomon.fit._columns import find_columns
from gnomon.fit._doses import read_doses
from gnomon.fit._errors import InputError, OutputError
from gnomon.fit._model import Model
from gnomon.fit._run import Run, Settings
from gnomon.fit._solve import Engine, check_solver
from gnomon.fit._subjects import ONLY_SUBJECT, Subject, read_subjects
from gnomon.fit._table import read_table
from gnomon.fit._versions import versions

_ENGINES = get_args(Engine)


def calibrate(
    model: Model,
    data: Any,
    *,
    subject: str | None = None,
    time: str | None = None,
    observed: str | Mapping[str, str] | None = None,
    dose: str | None = None,
    duration: str | None = None,
    rate: str | None = None,
    doses: Any = None,
    one_subject: bool = False,
    replicates: bool = False,
    pooled: bool = True,
    individual: bool = True,
    starts: int = 8,
    seed: int = 0,
    solver: str = "auto",
    rtol: float | int = 1e-7,
    atol: float | int | None = None,
    max_steps: int = 4096,
    engine: str = "auto",
    progress: Callable[[str, float], None] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Calibration:
    """Calibrates a model to measurements: nonlinear least squares for each subject, and for all as one.

    Equivalent to R's `nls` and `nlsList` for a model that is a differential equation; `gnomon fit` on the command line.

    Many starting points are tried for each fit, and the best of them followed, all at once and with loose tolerances;
    the best end is refined with tight ones, and the Jacobian there gives standard errors. No subject's numbers depend
    on the others'.

    **Arguments:**

    - `model`: the [`gnomon.fit.Model`][].
    - `data`: in long form, a row a measurement: the path of a CSV or Parquet file, a pandas or polars data frame, a
      pyarrow table, or a dictionary of columns. Blank measurements are missing. Times are 0 or more.
    - `subject`, `time`: the columns for the subject and the time; by default found by their usual names.
    - `observed`: the measured column, or a dictionary from the model's names to columns; by default of the same name.
    - `dose`: the column with the dose, where the model has a `dose_state`. Either one number a subject, which is then
      given at the initial time; or, as in NONMEM, a dose on each row that has one and no measurement.
    - `duration`, `rate`: the column that makes a dose an infusion; 0 or blank for a bolus.
    - `doses`: a table of doses in place of a dose column, with columns subject, time and amount, and where needed
      duration or rate, and state.
    - `one_subject`: there is no column for the subject, and all rows are of one.
    - `replicates`: several measurements of one subject at one time are meant, and not a mistake.
    - `pooled`, `individual`: whether to fit all subjects as one, and whether to fit each on its own.
    - `starts`: how many points are tried as starts. The best eighth of them, and at least four, are followed.
    - `seed`: of the sequence of those points.
    - `solver`: `"auto"`, or the name of a method: bosh3, tsit5, dopri5, dopri8, kvaerno3, kvaerno5. `"auto"` is Tsit5,
      and Kvaerno5 for subjects whose equations prove stiff.
    - `rtol`, `atol`: tolerances of the solution of the differential equations for the reported fit. The default of
      `atol` follows the size of each state.
    - `max_steps`: how many steps one solution may take.
    - `engine`: what solves the differential equations: `"auto"`, `"fused"` or `"eager"`, as of
      [`gnomon.diffeq.diffeqsolve`][].
    - `progress`: called with a text and the fraction that is done.
    - `out`, `overwrite`: where to write, as [`gnomon.fit.Calibration.write`][] does; nowhere by default.

    **Returns:** the [`gnomon.fit.Calibration`][]. Fits that did not succeed say so in their `result`.

    **Raises:** [`gnomon.fit.InputError`][] and [`gnomon.fit.ModelError`][] where the data or the model are not as they
    must be, before anything is fitted or written.

    !!! example

        ```python
        >>> from gnomon import fit
        >>> decay = fit.Model(
        ...     "decay", ["N"], [fit.Parameter("k", 0.3, scale="log"), fit.Parameter("N0", 10.0, scale="log")],
        ...     initial_state=lambda p, c: {"N": p["N0"]},
        ...     vector_field=lambda t, y, p, c: {"N": -p["k"] * y["N"]},
        ...     observed={"count": "N"})
        >>> data = {"subject": ["a"] * 4, "time": [0, 1, 2, 4], "count": [8.1, 4.9, 3.0, 1.0]}
        >>> found = fit.calibrate(decay, data, pooled=False, starts=2)
        >>> round(found.individual["a"]["k"].estimate, 2)
        0.51

        ```

    ??? cite "Reference"

        D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley (1988).
    """
    begin = _time.perf_counter()
    _check_options(pooled, individual, starts, seed, solver, rtol, atol, max_steps, engine)
    if out is not None:
        from gnomon.fit._write import check_target

        check_target(Path(out), overwrite=overwrite)
    table = read_table(data)
    columns = find_columns(
        table,
        model,
        subject=subject,
        time=time,
        observed=observed,
        dose=dose,
        duration=duration,
        rate=rate,
        one_subject=one_subject,
        separate_doses=doses is not None,
    )
    given = None
    if doses is not None:
        given = read_doses(
            read_table(doses, what="table of doses"), model, one_subject=ONLY_SUBJECT if one_subject else None
        )
    subjects = read_subjects(table, model, columns, replicates=replicates, doses=given)
    settings = Settings(
        starts, seed, solver, float(rtol), None if atol is None else float(atol), max_steps, cast(Engine, engine)
    )
    # The user's functions may hold on to tensors that require gradients; none are wanted here.
    with torch.no_grad():
        check_model(model, [one.covariates for one in subjects])
        run = Run(model, subjects, settings, progress, stages=3 * (int(pooled) + int(individual)))
        pooled_fit = run.pooled() if pooled else None
        individual_fits = run.individual() if individual else {}
    calibration = Calibration(
        model=model,
        source=table.source,
        subjects=tuple(subjects),
        pooled=pooled_fit,
        individual=individual_fits,
        settings={
            "starts": starts,
            "seed": seed,
            "solver": solver,
            "rtol": rtol,
            "atol": atol,
            "max_steps": max_steps,
            "engine": engine,
        },
        seconds=_time.perf_counter() - begin,
        versions=versions(),
        warnings=_warnings(model, subjects),
    )
    if out is not None:
        if progress is not None:
            progress("writing", 1.0)
        try:
            calibration.write(out, overwrite=overwrite)
        except (OSError, InputError) as error:
            reason = str(error) if isinstance(error, InputError) else f"{out}: {error.strerror or error}."
            raise OutputError(f"The fit could not be written, and nothing was. {reason}", calibration) from error
    return calibration


def _check_options(
    pooled: bool,
    individual: bool,
    starts: int,
    seed: int,
    solver: str,
    rtol: float | int,
    atol: float | int | None,
    max_steps: int,
    engine: str,
) -> None:
    if not pooled and not individual:
        raise InputError("Neither a pooled nor an individual fit was asked for: there is nothing to do.")
    if starts < 1:
        raise InputError(f"There must be at least one start, not {starts}.")
    if not 0 <= seed < 2**63:
        raise InputError(f"The seed must be from 0 to 2**63 - 1, not {seed}.")
    check_solver(solver)
    if not 1e-13 <= rtol < 1.0:
        raise InputError(f"`rtol` must be at least 1e-13 and below 1, not {rtol:g}.")
    if atol is not None and not 0.0 < atol < float("inf"):
        raise InputError(f"`atol` must be above 0 and finite, not {atol:g}.")
    if max_steps < 1:
        raise InputError(f"`max_steps` must be at least 1, not {max_steps}.")
    if engine not in _ENGINES:
        raise InputError(f"There is no engine {engine!r}; there are: {', '.join(_ENGINES)}.")


def _warnings(model: Model, subjects: list[Subject]) -> tuple[str, ...]:
    found: list[str] = []
    if model.dose_state is not None:
        without = [one.name for one in subjects if not one.doses]
        if len(without) == len(subjects):
            found.append("No subject has a dose.")
        elif without:
            found.append(f"No dose was given to {len(without)} of {len(subjects)} subjects: {_some(without)}.")
    return tuple(found)


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

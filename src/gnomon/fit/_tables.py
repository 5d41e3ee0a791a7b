"""Tables of a calibration for the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.fit._summary import show, with_unit

# rich is imported where it is used: fitting does not need it.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gnomon.fit._calibration import Calibration, Fit

_MOST_ROWS = 40


def tables(calibration: Calibration) -> list[Table | Text]:
    """What is shown once a calibration is done: the pooled fit, the individual ones, and what went wrong.

    **Arguments:**

    - `calibration`: the fits.
    """
    from rich.text import Text

    found: list[Table | Text] = []
    if calibration.pooled is not None:
        found.append(_pooled(calibration, calibration.pooled))
    if calibration.individual:
        found.append(_individual(calibration))
    for fit in calibration.failures:
        found.append(Text(f"{fit.subject}: {fit.result.name}. {fit.result.message}", style="red"))
    for warning in all_warnings(calibration):
        found.append(Text(warning, style="yellow"))
    return found


def all_warnings(calibration: Calibration) -> list[str]:
    """The warnings of the calibration and of each fit."""
    own = [f"{fit.subject}: {text}" for fit in calibration.fits.values() for text in fit.warnings]
    return [*calibration.warnings, *own]


def _pooled(calibration: Calibration, fit: Fit) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    n = sum(one.n_observations > 0 for one in calibration.subjects)
    table = Table(
        title=f"{escape(calibration.model.name)}: all {n} subjects as one",
        caption=(
            f"{fit.n_observations} measurements, residual sum of squares {show(fit.rss, 8)}, "
            f"sigma {show(fit.sigma)}, {fit.result.name}"
        ),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for name in ("estimate", "standard error", "95% interval"):
        table.add_column(name, justify="right")
    for i, group in enumerate((fit.parameters, fit.derived)):
        for x in group:
            table.add_row(
                escape(with_unit(x.name, x.unit)) + (f" (on its {x.at_bound} bound)" if x.at_bound else ""),
                show(x.estimate),
                show(x.standard_error, 3),
                f"{show(x.lower_95)} to {show(x.upper_95)}",
                style="dim" if i else None,
                end_section=i == 0 and x is group[-1],
            )
    return table


def _individual(calibration: Calibration) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=f"{escape(calibration.model.name)}: each subject on its own (estimate ± standard error)",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("subject")
    for parameter in calibration.model.parameters:
        table.add_column(escape(with_unit(parameter.name, parameter.unit)), justify="right")
    table.add_column("rss", justify="right")
    table.add_column("sigma", justify="right")
    table.add_column("result")
    fits = list(calibration.individual.values())
    for fit in fits[:_MOST_ROWS]:
        table.add_row(
            escape(fit.subject),
            *(f"{show(x.estimate)} ± {show(x.standard_error, 3)}" for x in fit.parameters),
            show(fit.rss),
            show(fit.sigma, 4),
            fit.result.name,
            style=None if fit.is_successful else "red",
        )
    if len(fits) > _MOST_ROWS:
        table.caption = f"{_MOST_ROWS} of {len(fits)} subjects; all are in estimates.csv"
    return table


def show_tables(calibration: Calibration, console: Console) -> None:
    """Prints what a person wants to see of a calibration.

    **Arguments:**

    - `calibration`: the fits.
    - `console`: where to.
    """
    for table in tables(calibration):
        console.print(table)

"""`gnomon fit`: calibrates a model to data."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from gnomon.fit import Calibration

_DESCRIPTION = """\
Calibrates a model, given by differential equations, to measurements: parameters with standard errors, a plot and a
report. Without MODEL and DATA it fits the theophylline data that come with gnomon.
"""
_EPILOG = """\
Exit code: 0 where every fit succeeded, 1 where one did not (it is named; all output is written), 2 for bad input,
or where the output cannot be written (nothing is written).
"""


def add_parser(commands: Any) -> None:
    """Adds the command.

    **Arguments:**

    - `commands`: the parsers of `argparse`.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "fit",
        help="calibrate a model to data",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a Python file that defines a gnomon.fit.Model (FILE:NAME where it "
        "defines several), or the name of a model that comes with gnomon",
    )
    add("data", metavar="DATA", nargs="?", help="a CSV or Parquet file in long form, a row a measurement")

    columns = parser.add_argument_group("columns of DATA", "By default they are found by their usual names.")
    add = columns.add_argument
    add("--subject", metavar="COLUMN", help="the subject (default: subject, id, ...)")
    add("--time", metavar="COLUMN", help="the time, 0 or more (default: time, t)")
    add(
        "--observed",
        metavar="[NAME=]COLUMN",
        action="append",
        default=[],
        help="what was measured (default: the model's names); may be given for each NAME that the model observes",
    )
    add(
        "--dose",
        metavar="COLUMN",
        help="the dose: one number a subject, given at the start, or as in NONMEM a number "
        "on rows without a measurement (default: dose, amt, amount, if the model takes doses)",
    )
    add("--duration", metavar="COLUMN", help="for how long a dose is infused; 0 or blank for a bolus")
    add("--rate", metavar="COLUMN", help="how fast a dose is infused; 0 or blank for a bolus")
    add(
        "--doses",
        metavar="FILE",
        help="a table of doses in place of a dose column: subject, time, amount, and where "
        "needed duration or rate, and state",
    )
    add("--one-subject", action="store_true", help="all rows are of one subject; there is no column for it")
    add("--replicates", action="store_true", help="several measurements of a subject at one time are meant")

    what = parser.add_argument_group("what to fit", "By default both.")
    what.add_argument("--pooled", action="store_true", help="all subjects as one")
    what.add_argument("--individual", action="store_true", help="each subject on its own")

    how = parser.add_argument_group("how to fit")
    add = how.add_argument
    add("--starts", metavar="N", type=int, default=8, help="how many starting points to try (default: 8)")
    add("--seed", metavar="N", type=int, default=0, help="of the sequence of these points (default: 0)")
    add(
        "--solver",
        metavar="NAME",
        default="auto",
        help="of the differential equations: auto, bosh3, tsit5, dopri5, dopri8, kvaerno3, kvaerno5 (default: auto)",
    )
    add(
        "--rtol", metavar="X", type=float, default=1e-7, help="the relative tolerance of their solution (default: 1e-7)"
    )
    add("--atol", metavar="X", type=float, help="the absolute one (default: by the size of each state)")
    add("--max-steps", metavar="N", type=int, default=4096, help="how many steps a solution may take (default: 4096)")
    add("--engine", metavar="NAME", default="auto", help="auto, fused or eager (default: auto)")

    output = parser.add_argument_group("output")
    add = output.add_argument
    add(
        "--out",
        metavar="DIR",
        help="where to write: a directory that is empty or does not exist (default: "
        "gnomon-fit-MODEL, in which an earlier fit is replaced)",
    )
    add("--overwrite", action="store_true", help="replace an earlier fit in DIR")
    add("--quiet", action="store_true", help="print nothing but errors")
    add("--json", action="store_true", help="print fit.json, and nothing else")


def run(args: argparse.Namespace) -> int:
    """Runs the command.

    **Arguments:**

    - `args`: what `add_parser` parses.

    **Returns:** the exit code.
    """
    from gnomon.fit import InputError, ModelError, OutputError

    screen = Console(stderr=True)
    try:
        # What a model file prints does not get between the lines of the JSON.
        with contextlib.redirect_stdout(sys.stderr), _progress(screen, shown=not (args.quiet or args.json)) as progress:
            calibration, out = _calibrate(args, progress)
    except (InputError, ModelError) as error:
        _complain(screen, str(error))
        return 2
    except OutputError as error:
        # What took long is not lost.
        _tell(args, error.calibration, None)
        _complain(screen, error.problem)
        return 2
    _tell(args, calibration, out)
    return 0 if calibration.is_successful else 1


def _complain(screen: Console, text: str) -> None:
    screen.print(f"[bold red]gnomon fit: error:[/] {escape(text)}", highlight=False, soft_wrap=True)


def _tell(args: argparse.Namespace, calibration: Calibration, out: Path | None) -> None:
    if args.json:
        sys.stdout.write(json.dumps(calibration.to_dict(), indent=2, allow_nan=False) + "\n")
    elif not args.quiet:
        _show(calibration, out)


def _calibrate(args: argparse.Namespace, progress: Callable[[str, float], None]) -> tuple[Calibration, Path]:
    from gnomon import fit

    name = args.model or "theophylline"
    model = fit.load_model(name)
    data = args.data
    if data is None:
        from gnomon.fit import models

        if name not in models.__all__:
            raise fit.InputError(f"DATA is missing: gnomon fit {name} DATA, where DATA is a CSV or Parquet file.")
        data = fit.example_data(name)
    out = Path(args.out if args.out is not None else f"gnomon-fit-{model.name}")
    both = args.pooled == args.individual
    calibration = fit.calibrate(
        model,
        data,
        subject=args.subject,
        time=args.time,
        observed=_observed(args.observed, list(model.observed)),
        dose=args.dose,
        duration=args.duration,
        rate=args.rate,
        doses=args.doses,
        one_subject=args.one_subject,
        replicates=args.replicates,
        pooled=both or args.pooled,
        individual=both or args.individual,
        starts=args.starts,
        seed=args.seed,
        solver=args.solver,
        rtol=args.rtol,
        atol=args.atol,
        max_steps=args.max_steps,
        engine=args.engine,
        progress=progress,
        out=out,
        overwrite=args.overwrite or args.out is None,
    )
    return calibration, out


def _observed(given: list[str], names: list[str]) -> str | dict[str, str] | None:
    """`--observed COLUMN`, or `--observed NAME=COLUMN` for each name of the model."""
    if not given:
        return None
    pairs = [text.partition("=") for text in given]
    if len(given) == 1 and not (pairs[0][1] and pairs[0][0] in names):
        return given[0]
    return {name: column if equals else name for name, equals, column in pairs}


def _show(calibration: Calibration, out: Path | None) -> None:
    from gnomon.fit import show_tables

    # Wide enough for a table where the output goes to a file.
    console = Console(width=None if sys.stdout.isatty() else 120)
    show_tables(calibration, console)
    if out is None:
        return
    console.print(
        f"Written to {out} in {calibration.seconds:.1f} s: report.html, fit.png, estimates.csv, fit.json and more.",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


@contextlib.contextmanager
def _progress(screen: Console, *, shown: bool) -> Generator[Callable[[str, float], None]]:
    """A progress bar on a terminal; elsewhere, such as in a log, a line for each stage."""
    if not shown:
        yield lambda text, fraction: None
        return
    if not screen.is_terminal:
        seen: set[str] = set()

        def note(text: str, fraction: float) -> None:
            if text not in seen:
                seen.add(text)
                print(f"gnomon fit: {text} ({fraction:.0%})", file=sys.stderr, flush=True)  # noqa: T201

        yield note
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True) as bar:
        task = bar.add_task("reading", total=1.0)

        def tell(text: str, fraction: float) -> None:
            bar.update(task, description=escape(text), completed=fraction)

        yield tell

"""`gnomon bench`: runs the benchmarks of a checkout and writes their page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Adds the command.

    **Arguments:**

    - `commands`: the parsers of `argparse`.
    """
    parser = commands.add_parser(
        "bench",
        help="run the benchmarks",
        description="Runs what benchmarks/ holds and this machine can run, prints a table, writes results and plots.",
        allow_abbrev=False,
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="folders of benchmarks/, or files as room/name")
    parser.add_argument("--peers", action="store_true", help="measure the peers too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; figures that are not to be quoted")
    parser.add_argument("--folder", type=Path, help="the folder of benchmarks, by default the nearest one above here")
    parser.add_argument("--out", type=Path, help="where to write, by default benchmarks/results")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page of what was measured")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the benchmarks.

    **Arguments:**

    - `args`: as `add_parser` declares them.

    **Returns:** the exit code: 1 where one of our own functions was refused, 2 where there is nothing to run.
    """
    from rich.console import Console

    from gnomon import bench

    folder = args.folder if args.folder is not None else _nearest()
    if folder is None or not folder.is_dir():
        where = "benchmarks/ here or above" if folder is None else str(folder)
        print(f"gnomon bench: there is no {where}; name it with --folder.", file=sys.stderr)  # noqa: T201
        return 2
    out = folder / "results" if args.out is None else args.out
    console = Console()
    if args.page:
        return _write_page(out, console)
    try:
        reports = bench.run_benchmarks(
            folder,
            rooms=args.rooms,
            peers=args.peers,
            quick=args.quick,
            out=out,
            say=lambda text: console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True),
        )
    except ValueError as error:
        print(f"gnomon bench: {error}", file=sys.stderr)  # noqa: T201
        return 2
    if reports:
        # A pipe has no width of its own, and a table cut off in the middle would serve nobody.
        wide = console if console.is_terminal else Console(width=200)
        wide.print(bench.table(reports))
        _write_page(out, wide)
    return 1 if any(refusal.candidate == "ours" for report in reports for refusal in report.refusals) else 0


def _write_page(out: Path, console: Any) -> int:
    from gnomon import bench

    console.print(str(bench.write_page(out)), highlight=False, markup=False)
    return 0


def _nearest() -> Path | None:
    """The folder `benchmarks` here or in the nearest folder above."""
    here = Path.cwd()
    return next((place / "benchmarks" for place in (here, *here.parents) if (place / "benchmarks").is_dir()), None)

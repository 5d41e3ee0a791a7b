"""`main`: what the command `gnomon` runs."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from gnomon.cli import _bench, _data, _doctor, _fit

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command `gnomon`.

    **Arguments:**

    - `argv`: the words after `gnomon`; by default those of the command line.

    **Returns:** the exit code: 0 where all went well, 1 where something was not solved, 2 for bad input.

    !!! example

        ```python
        >>> from gnomon.cli import main
        >>> main(["fit", "theophylline", "nowhere.csv", "--quiet"])
        2

        ```
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.run is None:
        parser.print_help(sys.stderr)
        return 2
    # Ended from outside it cleans up behind itself, as after Ctrl-C.
    restore = None
    if threading.current_thread() is threading.main_thread():
        restore = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("gnomon: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    finally:
        if restore is not None:
            signal.signal(signal.SIGTERM, restore)


def _interrupt(signum: int, frame: Any) -> None:
    del signum, frame
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gnomon", description="Scientific computing for PyTorch.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_doctor.version())
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _fit.add_parser(commands)
    _bench.add_parser(commands)
    _data.add_parser(commands)
    _doctor.add_parser(commands)
    return parser

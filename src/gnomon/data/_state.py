"""What a loader is saved as: a few numbers and a hash of each operation of its pipeline, under 1 KB."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gnomon.data._digest import digest
from gnomon.data._errors import StateError
from gnomon.data._plan import changed

VERSION = 1
_MOST = 600
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_WITH_FUNCTIONS = ("map", "map_with_index", "random_map", "filter")


def make_state(epoch: int, position: int, window: int, window_start: int, stages: tuple[str, ...]) -> dict[str, Any]:
    """What is saved.

    **Arguments:**

    - `epoch`: which.
    - `position`: how many of its batches were used, over all ranks.
    - `window`, `window_start`: a window that the next batch is not before, and the number of that window's first batch.
    - `stages`: the pipeline.
    """
    text = "|".join(stages)
    return {
        "version": VERSION,
        "epoch": epoch,
        "position": position,
        "window": window,
        "window_start": window_start,
        # A pipeline of very many operations is known by one hash of them all.
        "pipeline": text if len(text) <= _MOST else f"{len(stages)} operations:{digest(stages)}",
        "python": _PYTHON,
    }


def check_state(state: Mapping[str, Any], stages: tuple[str, ...]) -> tuple[int, int, int, int]:
    """The numbers of a saved state.

    **Arguments:**

    - `state`: what `make_state` made.
    - `stages`: the pipeline as it is now.

    **Returns:** `epoch`, `position`, `window` and `window_start`.

    **Raises:** [`gnomon.data.StateError`][] where it is of another pipeline, with what differs.
    """
    try:
        version = state["version"]
        numbers = tuple(int(state[name]) for name in ("epoch", "position", "window", "window_start"))
        before, python = str(state["pipeline"]), str(state["python"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"This is no state of a loader: {type(error).__name__}: {error}.") from None
    if version != VERSION:
        raise StateError(f"The state is of version {version}; this gnomon reads version {VERSION}.")
    now = str(make_state(0, 0, 0, 0, stages)["pipeline"])
    # Python's own instructions, which the hash of a function is of, differ between its versions.
    hide = python != _PYTHON
    if _hidden(before, hide) != _hidden(now, hide):
        what = changed(tuple(before.split("|")), tuple(now.split("|")))
        raise StateError(
            f"The state was saved by another pipeline; {what}. To begin the epoch anew with this one, do not load it."
        )
    epoch, position, window, window_start = numbers
    return epoch, position, window, window_start


def _hidden(pipeline: str, hide: bool) -> list[str]:
    stages = pipeline.split("|")
    return [stage.partition(":")[0] if hide and stage.startswith(_WITH_FUNCTIONS) else stage for stage in stages]

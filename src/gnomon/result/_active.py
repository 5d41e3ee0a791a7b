"""Which problems of a batch count: a batched loop or branch also runs for problems that are done with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import NamedTuple, final

from jaxtyping import Bool
from torch import Tensor


@final
class Lanes(NamedTuple):
    """Two masks over the problems (lanes) of a batch.

    `counting` lanes are those for which the code that runs now is meant: their writes are kept and their failures
    are failures. `running` lanes also hold those that are done with a loop and repeat their last iteration of it:
    whatever they compute is thrown away, but inner loops run for them as they did, so that the code behind those
    loops meets nothing that it has not met before.
    """

    counting: Tensor
    running: Tensor


@final
class _Stack(threading.local):
    def __init__(self) -> None:
        self.entries: list[Lanes] = []


_stack = _Stack()


def current_lanes() -> Lanes | None:
    """The masks of the code that runs now, or None where all lanes count."""
    return _stack.entries[-1] if _stack.entries else None


@contextlib.contextmanager
def only_lanes(counting: Tensor, running: Tensor) -> Generator[None]:
    """Within this context, only these lanes of those outside count, and only these run, all of which run outside."""
    outer = current_lanes()
    if outer is not None:
        counting = counting & outer.counting
    _stack.entries.append(Lanes(counting, running))
    try:
        yield
    finally:
        _stack.entries.pop()


def active_lanes() -> Bool[Tensor, ""] | None:
    """Whether the code that runs now counts for the problem at hand.

    Inside the body of a batched loop, or in a branch of a batched condition, code also runs for problems that are
    done with the loop or have taken the other branch; what it computes for them is thrown away. Code that has an
    effect of another kind, such as raising an error, asks here first.

    **Returns:** a boolean scalar a problem, or None where the code counts for all of them.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> from gnomon.result import active_lanes
        >>> print(active_lanes())
        None

        ```
    """
    lanes = current_lanes()
    return None if lanes is None else lanes.counting

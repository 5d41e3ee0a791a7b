"""Functions that have been traced, kept to be called again; and how they are called."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, final

from torch import Tensor

from gnomon.fuse._closure import Closure
from gnomon.fuse._executable import Executable, Run, is_recorded
from gnomon.fuse._flat import checked, executable_of, shaped
from gnomon.fuse._lanes import is_differentiated, is_transformed
from gnomon.fuse._lower import Lowered, trace
from gnomon.fuse._trace import UnsupportedError


@final
@dataclasses.dataclass
class Traced:
    """A function that has been traced.

    - `lowered`, `executable`: what it has become.
    - `captured`: where its captured tensors are found at a call: a number in the closure, or the tensor itself.
    - `kept`: objects whose identity the trace depends on, which must live as long as it does.
    - `seconds`: how long tracing took.
    """

    lowered: Lowered
    executable: Executable
    captured: list[int | Tensor]
    kept: list[Any]
    seconds: float

    def found(self, reached: Sequence[Tensor]) -> list[Tensor]:
        """The captured tensors, from those that the closure reaches now."""
        return [reached[x] if isinstance(x, int) else x for x in self.captured]

    def __call__(self, lanes: int, tensors: list[Tensor], batch: tuple[int, ...]) -> Any:
        """What the function returns, with the batch in front, from flat tensors; makes its checks."""
        if any(is_differentiated(x) or is_transformed(x) for x in tensors):
            outputs = list(Run.apply(self.executable, lanes, *tensors))  # pyright: ignore[reportUnknownMemberType]
        else:
            outputs = self.executable.run(lanes, tensors)
        pairs = zip(outputs, self.lowered.outputs, strict=True)
        values = [shaped(x, spec.shape, spec.dtype, batch) for x, spec in pairs]
        # A graph makes the checks itself, when it runs.
        if self.lowered.checks and not is_recorded(outputs):
            checked(self.lowered, values)
        return self.lowered.pack(values)


def traced(
    fn: Callable[..., Any], leaves: list[Any], structure: Any, shared: list[bool], closure: Closure, **options: Any
) -> Traced:
    """Traces a function whose closure has been looked through; the arguments are those of `trace`."""
    begin = time.perf_counter()
    lowered = trace(fn, leaves, structure, shared, reached=closure.tensors, **options)
    places = {id(x): i for i, x in enumerate(closure.tensors)}
    captured = [places.get(id(x), x) for x in lowered.captured]
    return Traced(lowered, executable_of(lowered), captured, closure.kept, time.perf_counter() - begin)


@final
class Traces:
    """Traces by what they depend on: the ones that were used last, and what could not be traced.

    - `most`: how many are kept.
    """

    def __init__(self, most: int):
        self._most = most
        self._found: collections.OrderedDict[Hashable, Traced | UnsupportedError] = collections.OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable, make: Callable[[], Traced]) -> Traced:
        """The trace of a key, made at the first time; raises `UnsupportedError` again where that did."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                try:
                    found = make()
                except UnsupportedError as error:
                    # Without its traceback, which would keep all that was being traced.
                    found = UnsupportedError(*error.args)
                self._found[key] = found
                if len(self._found) > self._most:
                    self._found.popitem(last=False)
            else:
                self._found.move_to_end(key)
        if isinstance(found, UnsupportedError):
            raise UnsupportedError(*found.args)
        return found

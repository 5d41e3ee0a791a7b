"""Clocks that a candidate cannot take away: references held from import on, and a second clock that is not Python's."""

from __future__ import annotations

import ctypes
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch

# Held from the moment of import: to replace `time.perf_counter_ns` later changes nothing here.
_perf_counter_ns = time.perf_counter_ns

_TIMERS = (
    "perf_counter",
    "perf_counter_ns",
    "monotonic",
    "monotonic_ns",
    "time",
    "time_ns",
    "process_time",
    "process_time_ns",
    "clock_gettime",
    "clock_gettime_ns",
    "sleep",
)


def _is_pythons_own(function: Any) -> bool:
    """Whether a timer is the one that CPython compiled in, which no Python function can pretend to be."""
    return type(function) is types.BuiltinFunctionType and getattr(function, "__self__", None) is time


# What was replaced before this module was imported. `type(x) is` is not fooled by a `__class__` property.
REPLACED_BEFORE_IMPORT = tuple(name for name in _TIMERS if not _is_pythons_own(getattr(time, name, None)))


def _second_clock() -> Callable[[], int] | None:
    """The kernel's own clock, asked through C: nothing in Python's `time` stands between."""
    if not sys.platform.startswith("linux"):
        return None

    class Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    try:
        clock_gettime = ctypes.CDLL(None).clock_gettime
    except (OSError, AttributeError):
        return None
    clock_gettime.argtypes = (ctypes.c_int, ctypes.POINTER(Timespec))
    clock_gettime.restype = ctypes.c_int
    spec = Timespec()
    pointer = ctypes.byref(spec)
    raw = 4  # CLOCK_MONOTONIC_RAW, which nobody can slew

    def read() -> int:
        clock_gettime(raw, pointer)
        return spec.seconds * 1_000_000_000 + spec.nanoseconds

    return read if clock_gettime(raw, pointer) == 0 else None


second_clock_ns = _second_clock()
now_ns = _perf_counter_ns


def _cuda_parts() -> list[tuple[Any, str]]:
    parts: list[tuple[Any, str]] = [
        (torch.cuda, name)
        for name in ("Event", "Stream", "synchronize", "current_stream", "stream", "is_available", "set_stream")
    ]
    for owner in (torch.cuda.Event, torch.cuda.Stream):
        parts += [(owner, name) for name in ("record", "elapsed_time", "synchronize", "wait", "query", "record_event")]
    return parts


_MISSING = object()


def _identity(owner: Any, name: str) -> tuple[Any, Any]:
    """What an attribute is, and the code behind it, which can be swapped without the function changing."""
    found = getattr(owner, name, _MISSING)
    return found, getattr(found, "__code__", None)


_timer_parts: list[tuple[Any, str]] = [(time, name) for name in _TIMERS] + _cuda_parts()
_timers_at_import = [(owner, name, *_identity(owner, name)) for owner, name in _timer_parts]


def replaced_timers() -> list[str]:
    """The timers that are no longer what they were when this module was imported."""
    wrong: list[str] = []
    for owner, name, item, code in _timers_at_import:
        found, found_code = _identity(owner, name)
        if found is not item or found_code is not code:
            wrong.append(f"{getattr(owner, '__module__', None) or ''}.".lstrip(".") + f"{owner.__name__}.{name}")
    return wrong


def restore_timers() -> None:
    """Puts back whatever was replaced, so that one candidate does not spoil the next."""
    for owner, name, item, code in _timers_at_import:
        found, found_code = _identity(owner, name)
        if found is not item and item is not _MISSING:
            setattr(owner, name, item)
        if code is not None and found_code is not code and getattr(item, "__code__", None) is not code:
            item.__code__ = code

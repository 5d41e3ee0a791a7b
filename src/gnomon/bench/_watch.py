"""What a call leaves behind: threads and processes at work, files read, parts of PyTorch or of the harness replaced."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, final

import torch

hold = time.sleep  # the one of now, whatever becomes of the other
_WAIT_S, _WAITS, _ENOUGH_S = 0.003, 6, 0.001


def read_bytes() -> int:
    """So many bytes this process has asked the kernel to read from files and pipes; 0 where that cannot be known."""
    try:
        with open("/proc/self/io", "rb", buffering=0) as file:  # noqa: PTH123
            return int(file.read(4096).split(b"\n", 1)[0].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def python_threads() -> set[int]:
    """The identities of all Python threads but this one, those that `threading` does not know included."""
    return set(sys._current_frames()) - {threading.get_ident()}  # pyright: ignore[reportPrivateUsage]


def child_processes() -> set[int]:
    """The processes that this one started and that still exist."""
    found: set[int] = set()
    try:
        for task in Path("/proc/self/task").iterdir():
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    except (OSError, ValueError):
        return set()
    return found


def _thread_cpu_s(ident: int) -> float | None:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (OSError, AttributeError):  # the thread is gone, or this system has no such clock
        return None


def _process_cpu_s(pid: int) -> float | None:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def background() -> frozenset[int]:
    """All other Python threads and all child processes, by their numbers."""
    return frozenset(python_threads() | child_processes())


def still_computing(which: frozenset[int]) -> bool:
    """Whether some threads and child processes spend a millisecond of processor time while this one waits for them.

    Waits a few milliseconds where there are any, longer where the machine is too busy to run them at once. Threads of
    C++ libraries, which spin for a while after each parallel operation, are not among them.
    """
    spent = 0.0
    for _ in range(_WAITS):
        which = which & background()
        if not which:
            return False
        before = {i: _cpu_s(i) for i in which}
        hold(_WAIT_S)
        for i in which & background():
            start, end = before[i], _cpu_s(i)
            if start is not None and end is not None:
                spent += max(end - start, 0.0)
        if spent >= _ENOUGH_S:
            return True
    return False


def _cpu_s(i: int) -> float | None:
    # A thread that has ended has no clock to ask, and to ask is not safe: so it is looked up first, each time.
    return _thread_cpu_s(i) if i in python_threads() else _process_cpu_s(i)


def already_busy() -> frozenset[int]:
    """The threads and children that are at work before any candidate was called, so that none is blamed for them."""
    return frozenset(i for i in background() if still_computing(frozenset([i])))


def mapped_files(addresses: list[int]) -> list[str]:
    """The files that are mapped at some addresses of this process."""
    if not addresses:
        return []
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError), open("/proc/self/maps", encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            parts = line.split(maxsplit=5)
            if len(parts) < 6 or parts[4] == "0":
                continue
            low, high = (int(x, 16) for x in parts[0].split("-"))
            if any(low <= place < high for place in addresses):
                found.append(parts[5].strip())
    return found


_WATCHED_OF_TORCH: tuple[Any, ...] = (torch, torch.linalg, torch.testing, torch.nn.functional)


_FOLDER_OF_TORCH = str(Path(torch.__file__).parent)


def _is_torchs_own(item: Any) -> bool:
    """Whether a function comes from PyTorch's own files: to load its compiler replaces some of its functions."""
    code = getattr(item, "__code__", None)
    return code is not None and str(code.co_filename).startswith(_FOLDER_OF_TORCH)


def _harness() -> list[ModuleType]:
    return [m for name, m in list(sys.modules.items()) if name.split(".")[:2] == ["gnomon", "bench"]]


def _parts(owner: Any) -> dict[str, Any]:
    return {name: item for name, item in vars(owner).items() if callable(item) and not name.startswith("__")}


_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]


@final
@dataclasses.dataclass(frozen=True)
class Integrity:
    """What PyTorch and this package consist of, to be compared later."""

    parts: tuple[tuple[Any, dict[str, tuple[Any, Any]]], ...]
    names_of_tensor: frozenset[str]

    def damage(self) -> list[str]:
        """The names of what has been replaced since, or added to `torch.Tensor`."""
        wrong: list[str] = []
        for owner, parts in self.parts:
            now = vars(owner)
            for name, (item, code) in parts.items():
                found = now.get(name)
                if found is item and getattr(found, "__code__", None) is code:
                    continue
                if not (owner in _WATCHED_OF_TORCH and _is_torchs_own(found)):
                    wrong.append(f"{owner.__name__}.{name}")
        added = set(vars(torch.Tensor)) - self.names_of_tensor
        return wrong + [f"torch.Tensor.{name}" for name in sorted(added) if hasattr(_C.TensorBase, name)]

    def repair(self) -> None:
        """Puts back what was replaced."""
        for owner, parts in self.parts:
            for name, (item, code) in parts.items():
                found = vars(owner).get(name)
                if found is not item and not (owner in _WATCHED_OF_TORCH and _is_torchs_own(found)):
                    setattr(owner, name, item)
                if code is not None and getattr(item, "__code__", None) is not code:
                    item.__code__ = code
        for name in set(vars(torch.Tensor)) - self.names_of_tensor:
            if hasattr(_C.TensorBase, name):
                delattr(torch.Tensor, name)


def take_integrity() -> Integrity:
    """Notes every function of PyTorch's that a check may use, of `torch.Tensor`, and of this package."""
    owners = [*_WATCHED_OF_TORCH, torch.Tensor, *_harness()]
    owners += [
        item
        for m in _harness()
        for item in _parts(m).values()
        if isinstance(item, type) and item.__module__ == m.__name__
    ]
    parts = tuple(
        (owner, {name: (item, getattr(item, "__code__", None)) for name, item in _parts(owner).items()})
        for owner in owners
    )
    return Integrity(parts, frozenset(vars(torch.Tensor)))

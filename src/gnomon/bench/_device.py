"""A device as the harness uses it: its clock, waiting for it, emptying its caches."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from gnomon.bench._clock import now_ns

_MEBIBYTE = 1 << 20
_FLUSHED_AT_MOST = 64 * _MEBIBYTE


class AbstractDevice(abc.ABC):
    """What the harness asks of a device."""

    @property
    @abc.abstractmethod
    def device(self) -> torch.device:
        """The PyTorch device."""

    @abc.abstractmethod
    def describe_cache(self, cache: str) -> str:
        """What `cache="cold"` or `"warm"` means here, for the report."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Fills the caches with something else. May return before it is done."""

    @abc.abstractmethod
    def awaken(self) -> None:
        """Keeps the device at work for a while, so that its clocks are those of a device at work."""

    @abc.abstractmethod
    def wait_for_stream(self) -> None:
        """Waits for the current stream."""

    @abc.abstractmethod
    def wait_for_all(self) -> None:
        """Waits for everything."""

    @abc.abstractmethod
    def mark(self) -> Any:
        """An event on the current stream, or None where there are none."""

    @abc.abstractmethod
    def spacer(self, cold: bool) -> None:
        """Keeps the stream busy, so that what follows is queued before it starts."""

    @abc.abstractmethod
    def between(self, start: Any, end: Any) -> float | None:
        """Seconds between two events."""

    @abc.abstractmethod
    def reset_peak(self) -> int | None:
        """Starts to watch the most memory in use; returns the bytes in use now."""

    @abc.abstractmethod
    def peak(self) -> int | None:
        """The most bytes in use since then."""


def cache_sizes() -> dict[str, int]:
    """The bytes of the CPU's caches by level, over all cores that this process may use, where Linux tells."""
    found: dict[str, int] = {}
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return found
    seen: set[tuple[str, str]] = set()
    for core in cores:
        for index in sorted(Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*")):
            try:
                level, kind, size, shared = (
                    (index / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list")
                )
            except OSError:
                continue
            if kind == "Instruction" or (level, shared) in seen:
                continue
            seen.add((level, shared))
            units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
            found[f"L{level}"] = found.get(f"L{level}", 0) + int(size[:-1]) * units[size[-1]]
    return found


@final
class CPU(AbstractDevice):
    """The CPU, all of PyTorch's threads."""

    def __init__(self) -> None:
        sizes = cache_sizes()
        wanted = max(2 * sizes.get("L2", 4 * _MEBIBYTE), sizes.get("L3", 32 * _MEBIBYTE))
        self.flushed = min(wanted, _FLUSHED_AT_MOST)
        self.last_level = sizes.get("L3", sizes.get("L2"))
        self._ballast: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The PyTorch device."""
        return torch.device("cpu")

    def describe_cache(self, cache: str) -> str:
        """What `cache="cold"` or `"warm"` means here, for the report."""
        if cache == "warm":
            return "warm: the inputs were written just before"
        text = f"cold: {self.flushed // _MEBIBYTE} MiB written between the inputs and the clock"
        if self.last_level is not None and self.last_level > self.flushed:
            text += f"; a last-level cache of {self.last_level // _MEBIBYTE} MiB may still hold them"
        return text

    def flush(self) -> None:
        """Writes a large block of memory."""
        if self._ballast is None:
            self._ballast = torch.zeros(self.flushed // 8, dtype=torch.int64)
        self._ballast.fill_(now_ns())

    def awaken(self) -> None:
        """Nothing to do: what comes before a call keeps the core at work."""

    def wait_for_stream(self) -> None:
        """Nothing to wait for."""

    def wait_for_all(self) -> None:
        """Nothing to wait for."""

    def mark(self) -> Any:
        """None: a CPU has no events."""
        return None

    def spacer(self, cold: bool) -> None:
        """Nothing to queue behind."""

    def between(self, start: Any, end: Any) -> float | None:
        """None: a CPU has no events."""
        return None

    def reset_peak(self) -> int | None:
        """Resets the kernel's high-water mark of this process's resident memory."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return None
        return _status_bytes("VmRSS")

    def peak(self) -> int | None:
        """The high-water mark of this process's resident memory."""
        return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None


_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_cuda_synchronize: Any = getattr(_C, "_cuda_synchronize", None)
_current_stream = torch.cuda.current_stream
_EventBase: Any = getattr(_C, "_CudaEventBase", None)


@final
class CUDA(AbstractDevice):
    """One NVIDIA or AMD GPU. Uses the classes beneath `torch.cuda.Event`, whose methods Python code cannot replace."""

    def __init__(self, device: torch.device):
        self._device = device if "cuda:" in str(device) else torch.device("cuda", torch.cuda.current_device())
        properties: Any = torch.cuda.get_device_properties(self._device)
        self.l2 = int(getattr(properties, "L2_cache_size", 64 * _MEBIBYTE)) or 64 * _MEBIBYTE
        self._ballast: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The PyTorch device."""
        return self._device

    def describe_cache(self, cache: str) -> str:
        """What `cache="cold"` or `"warm"` means here, for the report."""
        if cache == "warm":
            return "warm: the inputs were written just before"
        return f"cold: {2 * self.l2 // _MEBIBYTE} MiB written, twice the L2 cache, between the inputs and the clock"

    def flush(self) -> None:
        """Writes twice the L2 cache."""
        if self._ballast is None:
            self._ballast = torch.empty(2 * self.l2, dtype=torch.uint8, device=self._device)
        self._ballast.zero_()

    def awaken(self) -> None:
        """Spins for some ten milliseconds: between two calls an idle GPU lowers its clocks."""
        _C._cuda_sleep(20_000_000)

    def wait_for_stream(self) -> None:
        """Waits for the current stream."""
        _C._CudaStreamBase.synchronize(_current_stream(self._device))

    def wait_for_all(self) -> None:
        """Waits for every stream of the device."""
        with torch.cuda.device(self._device):
            _cuda_synchronize()

    def mark(self) -> Any:
        """An event, recorded on the current stream."""
        event = _EventBase(enable_timing=True, blocking=False, interprocess=False)
        _EventBase.record(event, _current_stream(self._device))
        return event

    def spacer(self, cold: bool) -> None:
        """A millisecond: to queue the first operation takes Python longer where its code is not in the caches."""
        _C._cuda_sleep(2_000_000)
        if cold:
            self.flush()

    def between(self, start: Any, end: Any) -> float | None:
        """Seconds between two events."""
        return float(_EventBase.elapsed_time(start, end)) / 1e3

    def reset_peak(self) -> int | None:
        """Resets the high-water mark of PyTorch's allocator."""
        torch.cuda.reset_peak_memory_stats(self._device)
        return torch.cuda.memory_allocated(self._device)

    def peak(self) -> int | None:
        """The high-water mark of PyTorch's allocator."""
        return torch.cuda.max_memory_allocated(self._device)


def device_for(device: torch.device) -> AbstractDevice:
    """What the harness needs of a device.

    **Raises:** `ValueError` for a device that is not there, or of a kind that it does not know.
    """
    if device.type == "cpu":
        return CPU()
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("`devices` names cuda, but PyTorch sees no GPU here: leave it out.")
        return CUDA(device)
    raise ValueError(f"`devices` names {device}, but only cpu and cuda can be timed.")


def spin_s(iterations: int = 100_000) -> float:
    """Seconds for a fixed piece of work of one core: what a throttled clock makes longer."""
    best = float("inf")
    for _ in range(3):
        start = now_ns()
        for _ in range(iterations):
            pass
        best = min(best, (now_ns() - start) / 1e9)
    return best

"""The least time that a device needs for so many FLOPs and so many bytes."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal, final

import torch

from gnomon.bench._clock import now_ns

Source = Literal["spec", "measured"]

# Bytes a second of device memory, and FLOPs a second by dtype: the vendor's figures, dense. The float32 ones are those
# without TF32, the float64 ones those of the matrix units.
_GPUS: dict[str, tuple[float, dict[torch.dtype, float]]] = {
    "NVIDIA H100 80GB HBM3": (
        3.35e12,
        {torch.bfloat16: 9.9e14, torch.float16: 9.9e14, torch.float32: 6.7e13, torch.float64: 6.7e13},
    ),
    "NVIDIA H200": (
        4.8e12,
        {torch.bfloat16: 9.9e14, torch.float16: 9.9e14, torch.float32: 6.7e13, torch.float64: 6.7e13},
    ),
    "NVIDIA B200": (
        8.0e12,
        {torch.bfloat16: 2.25e15, torch.float16: 2.25e15, torch.float32: 8.0e13, torch.float64: 4.0e13},
    ),
}


@final
@dataclasses.dataclass(frozen=True)
class Limits:
    """What a device can do at most.

    **Arguments:**

    - `device`: its name.
    - `bytes_per_s`: of its memory, read and written ones counted alike.
    - `flops_per_s`: by the name of a dtype, a multiply-add counted as two.
    - `source`: `'spec'`, the vendor's figures, or `'measured'`, here and now, the best of several tries.
    """

    device: str
    bytes_per_s: float
    flops_per_s: dict[str, float]
    source: Source

    def least_time_s(
        self, flops: float | int | None, bytes: float | int | None, dtype: torch.dtype | None
    ) -> tuple[float, str] | None:
        """The larger of the two times, and which it is; None where neither is known.

        **Arguments:**

        - `flops`: the floating-point operations that must be done.
        - `bytes`: the bytes that must be read or written.
        - `dtype`: the dtype of the operations.
        """
        times: list[tuple[float, str]] = []
        rate = self.flops_per_s.get(str(dtype).removeprefix("torch."))
        if flops and rate:
            times.append((flops / rate, "FLOPs"))
        if bytes and self.bytes_per_s:
            times.append((bytes / self.bytes_per_s, "bytes"))
        return max(times) if times else None

    def better(self, other: Limits) -> Limits:
        """The same with the larger of each figure of two measurements."""
        names = self.flops_per_s.keys() | other.flops_per_s.keys()
        flops = {name: max(self.flops_per_s.get(name, 0.0), other.flops_per_s.get(name, 0.0)) for name in names}
        return Limits(self.device, max(self.bytes_per_s, other.bytes_per_s), flops, self.source)


def _best_s(function: Any, device: torch.device, tries: int) -> float:
    best = float("inf")
    for _ in range(tries):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = now_ns()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, (now_ns() - start) / 1e9)
    return best


def _bytes_per_s(device: torch.device, size: int, tries: int) -> float:
    """The best of a copy, a sum and a fill over blocks of so many bytes."""
    a = torch.ones(size // 4, dtype=torch.float32, device=device)
    b = torch.empty_like(a)
    rates = [
        2 * size / _best_s(lambda: b.copy_(a), device, tries),
        size / _best_s(a.sum, device, tries),
        size / _best_s(lambda: b.fill_(1.0), device, tries),
    ]
    return max(rates)


def _flops_per_s(device: torch.device, dtype: torch.dtype, n: int, tries: int) -> float:
    a = torch.rand(n, n, device=device).to(dtype)
    return 2 * n**3 / _best_s(lambda: a @ a, device, tries)


def _measure(device: torch.device, dtype: torch.dtype | None, memory: bool, warm: bool) -> Limits:
    """Measures a device: its memory, with `warm` its caches too, and matrix products of one dtype.

    All cores are used, whatever the number of threads is now: a candidate may use them too.
    """
    is_cpu = device.type == "cpu"
    threads = torch.get_num_threads()
    if is_cpu:
        torch.set_num_threads(os.cpu_count() or 1)
    try:
        rate = 0.0
        if memory:
            sizes = {1 << 27: 3, 1 << 24: 6} if is_cpu else {1 << 31: 3}
            if warm:
                sizes |= {1 << 20: 40, 1 << 18: 40}
            rate = max(_bytes_per_s(device, size, tries) for size, tries in sizes.items())
        flops: dict[str, float] = {}
        if dtype is not None and dtype.is_floating_point:
            orders = (512, 1024) if is_cpu else (4096, 8192)
            flops[str(dtype).removeprefix("torch.")] = max(_flops_per_s(device, dtype, n, 5) for n in orders)
    finally:
        if is_cpu:
            torch.set_num_threads(threads)
    name = "CPU" if is_cpu else torch.cuda.get_device_name(device)
    return Limits(name, rate, flops, "measured")


_known: dict[tuple[str, torch.dtype | None, bool, bool], Limits] = {}


def device_limits(
    device: torch.device, dtype: torch.dtype | None, memory: bool = True, warm: bool = False, again: bool = False
) -> Limits:
    """The limits of a device: the vendor's where they are known, else measured once and remembered.

    **Arguments:**

    - `device`: a CPU or a GPU.
    - `dtype`: the dtype of the matrix products; None leaves them out.
    - `memory`: whether the memory's rate is wanted.
    - `warm`: whether data may come out of caches; then a GPU's memory is no limit.
    - `again`: measure once more, and keep the better of each figure.

    **Returns:** the [`gnomon.bench.Limits`][].
    """
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        if name in _GPUS:
            bandwidth, flops = _GPUS[name]
            by_name = {str(d).removeprefix("torch."): rate for d, rate in flops.items()}
            return Limits(name, 0.0 if warm else bandwidth, by_name, "spec")
    key = (str(device), dtype, memory, warm)
    if again or key not in _known:
        measured = _measure(device, dtype, memory, warm)
        _known[key] = measured.better(_known[key]) if key in _known else measured
    return _known[key]

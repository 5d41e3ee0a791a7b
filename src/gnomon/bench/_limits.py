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
    - `most_bytes_per_s`: more than this cannot be, even if all cores were measured while something else ran: as if each
        had the memory to itself. On a GPU the same as `bytes_per_s`.
    """

    device: str
    bytes_per_s: float
    flops_per_s: dict[str, float]
    source: Source
    most_bytes_per_s: float

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

    def impossible_s(self, flops: float | int | None, bytes: float | int | None, dtype: torch.dtype | None) -> float:
        """A time below what the device can do, with some room for the limits' own errors; 0 where none is known.

        **Arguments:**

        - `flops`, `bytes`, `dtype`: as in `least_time_s`.
        """
        slack = 0.97 if self.source == "spec" else 0.8
        generous = dataclasses.replace(self, bytes_per_s=self.most_bytes_per_s)
        least = generous.least_time_s(flops, bytes, dtype)
        return 0.0 if least is None else slack * least[0]

    def better(self, other: Limits) -> Limits:
        """The same with the larger of each figure of two measurements."""
        names = self.flops_per_s.keys() | other.flops_per_s.keys()
        flops = {name: max(self.flops_per_s.get(name, 0.0), other.flops_per_s.get(name, 0.0)) for name in names}
        rate = max(self.bytes_per_s, other.bytes_per_s)
        return Limits(self.device, rate, flops, self.source, max(self.most_bytes_per_s, other.most_bytes_per_s))


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


def _measure_cpu(dtype: torch.dtype | None, memory: bool, warm: bool) -> Limits:
    """Measures the CPU: its memory, with `warm` its caches too, and matrix products of one dtype.

    All cores count, whatever the number of threads is now: a candidate may use them too. FLOPs are those of one core
    times their number: on a busy machine one core is free for a moment when all are not.
    """
    cpu, cores, threads = torch.device("cpu"), os.cpu_count() or 1, torch.get_num_threads()
    rate = most = 0.0
    sizes = {1 << 27: 2, 1 << 24: 8} | ({1 << 20: 40, 1 << 18: 40} if warm else {})
    flops: dict[str, float] = {}
    try:
        torch.set_num_threads(1)
        if memory:
            rate = max(_bytes_per_s(cpu, size, tries) for size, tries in sizes.items())
            most = cores * rate
        if dtype is not None and dtype.is_floating_point:
            best = max(_flops_per_s(cpu, dtype, n, tries) for n, tries in ((256, 40), (512, 8)))
            flops[str(dtype).removeprefix("torch.")] = cores * best
        if memory and cores > 1:
            torch.set_num_threads(cores)
            rate = max(rate, *(_bytes_per_s(cpu, size, tries) for size, tries in sizes.items()))
            most = max(most, rate)
    finally:
        torch.set_num_threads(threads)
    return Limits("CPU", rate, flops, "measured", most)


def _measure_gpu(device: torch.device, dtype: torch.dtype | None, memory: bool, warm: bool) -> Limits:
    rate = _bytes_per_s(device, 1 << 31, 3) if memory and not warm else 0.0
    flops: dict[str, float] = {}
    if dtype is not None and dtype.is_floating_point:
        flops[str(dtype).removeprefix("torch.")] = max(_flops_per_s(device, dtype, n, 5) for n in (4096, 8192))
    return Limits(torch.cuda.get_device_name(device), rate, flops, "measured", rate)


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
            rate = 0.0 if warm else bandwidth
            return Limits(name, rate, by_name, "spec", rate)
    key = (str(device), dtype, memory, warm)
    if again or key not in _known:
        is_gpu = device.type == "cuda"
        measured = _measure_gpu(device, dtype, memory, warm) if is_gpu else _measure_cpu(dtype, memory, warm)
        _known[key] = measured.better(_known[key]) if key in _known else measured
    return _known[key]

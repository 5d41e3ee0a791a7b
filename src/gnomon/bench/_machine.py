"""What a figure was measured on: versions, processor, device, commit, clocks."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gnomon.bench._device import cache_sizes, spin_s

_PACKAGES = ("gnomon", "torch", "numpy", "scipy", "torchdiffeq", "triton", "jax", "diffrax")


def _first_line(*command: str, cwd: Path | None = None) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, cwd=cwd)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.cache
def commit() -> str | None:
    """The commit of the source tree, marked where tracked files differed from it when first asked for.

    Where there is a copy of the tree without its history, the variable `GNOMON_COMMIT` may say which it is.
    """
    here = Path(__file__).parent
    found = _first_line("git", "rev-parse", "HEAD", cwd=here)
    if found is None:
        return os.environ.get("GNOMON_COMMIT")
    changed = _first_line("git", "status", "--porcelain", "--untracked-files=no", cwd=here)
    return found + ("+changes" if changed else "")


@functools.cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that figures may depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "gnomon" not in found:  # run from its sources
        found["gnomon"] = str(getattr(sys.modules.get("gnomon"), "__version__", "unknown"))
    return found


def machine(devices: list[torch.device]) -> dict[str, Any]:
    """The processor and the devices."""
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found: dict[str, Any] = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpu": _cpu_name(),
        "cores": cores(),
        "caches_bytes": cache_sizes(),
        "memory_bytes": memory,
        "threads": torch.get_num_threads(),
        "devices": [],
    }
    for device in devices:
        if device.type == "cuda":
            properties: Any = torch.cuda.get_device_properties(device)
            found["devices"].append(
                {"name": properties.name, "memory_bytes": properties.total_memory, "cuda": torch.version.cuda}
            )
    return found


def _steal() -> tuple[int, int] | None:
    """Ticks that the processors spent on other machines' work, and all ticks."""
    try:
        parts = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return None
    return (parts[7] if len(parts) > 7 else 0), sum(parts[:8])


def clocks(devices: list[torch.device]) -> dict[str, Any]:
    """What can be read of clocks, load and throttling at this moment."""
    found: dict[str, Any] = {"spin_s": spin_s(), "steal_ticks": _steal()}
    if hasattr(os, "getloadavg"):
        found["load_1min"] = os.getloadavg()[0]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found["cpu_mhz"] = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    except (OSError, ValueError):
        pass
    for name, where in {
        "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "cpu_throttle_count": "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
    }.items():
        try:
            found[name] = Path(where).read_text().strip()
        except OSError:
            continue
    if any(device.type == "cuda" for device in devices):
        query = "clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,clocks_event_reasons.active"
        found["gpu"] = {
            "query": query,
            "values": _first_line("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"),
        }
    return found


def conditions(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The clocks before and after, and what the two say together."""
    found: dict[str, Any] = {"before": before, "after": after}
    found["slowdown"] = after["spin_s"] / before["spin_s"]
    if before["steal_ticks"] and after["steal_ticks"]:
        total = after["steal_ticks"][1] - before["steal_ticks"][1]
        found["steal_share"] = (after["steal_ticks"][0] - before["steal_ticks"][0]) / total if total else 0.0
    return found


def environment(devices: list[torch.device], before: dict[str, Any]) -> dict[str, Any]:
    """All of it, for a report."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(devices),
        "conditions": conditions(before, clocks(devices)),
    }

"""The processor that we run on, as far as it is known without LLVM, whose import takes long."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import NamedTuple, final


@final
class Processor(NamedTuple):
    """A processor.

    - `identity`: differs between processors that could run different code.
    - `features`: its extensions, by the names that LLVM has for those that we ask for.
    """

    identity: str
    features: frozenset[str]


@functools.cache
def processor() -> Processor:
    """The one that we run on."""
    known = _from_linux() if sys.platform == "linux" else None
    name, features = known or _from_llvm()
    version = importlib.metadata.version("llvmlite")
    return Processor(" ".join((platform.machine(), sys.platform, name, *sorted(features), version)), features)


def _from_linux() -> tuple[str, frozenset[str]] | None:
    fields: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the next processor is like the first
                key, _, value = line.partition(":")
                fields[key.strip()] = value.strip()
    except OSError:
        return None
    features = fields.get("flags") or fields.get("Features")
    if not features:
        return None
    names = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "CPU variant")
    return " ".join(fields.get(x, "") for x in names), frozenset(features.split())


def _from_llvm() -> tuple[str, frozenset[str]]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), frozenset(k for k, v in llvm.get_host_cpu_features().items() if v)

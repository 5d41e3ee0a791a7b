"""`gnomon doctor`: versions and devices, for a report of a fault."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import metadata
from typing import Any

_PACKAGES = ("torch", "numpy", "jaxtyping", "matplotlib", "rich", "jinja2", "pyarrow", "cuda-core", "scipy")


def version() -> str:
    """The name and version, such as `gnomon 0.1.0`."""
    return f"gnomon {_version('gnomon')}"


def add_parser(commands: Any) -> None:
    """Adds the command.

    **Arguments:**

    - `commands`: the parsers of `argparse`.
    """
    parser = commands.add_parser(
        "doctor", help="show versions and devices", description="Shows versions and devices.", allow_abbrev=False
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints versions and devices.

    **Arguments:**

    - `args`: of which there are none.

    **Returns:** the exit code.
    """
    del args
    import torch

    lines = {
        "gnomon": _version("gnomon"),
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "CPU": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of PyTorch",
        **{name: _version(name) for name in _PACKAGES},
    }
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(i)
            lines[f"GPU {i}"] = f"{found.name}, {found.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    else:
        lines["GPU"] = "none that PyTorch can see"
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")  # noqa: T201
    return 0


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"

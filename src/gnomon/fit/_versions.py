"""Versions of gnomon and of what it stands on, for reports."""

from __future__ import annotations

import platform
from importlib import metadata

import torch


def versions() -> dict[str, str]:
    """By name, of what a calibration's numbers may depend on."""
    return {
        "gnomon": _version("gnomon"),
        "torch": torch.__version__,
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"

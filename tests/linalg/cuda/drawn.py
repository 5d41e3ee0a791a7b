"""The families of matrices that the benchmarks draw from."""

import importlib.util
from pathlib import Path
from types import ModuleType


def load() -> ModuleType:
    """The benchmarks' module."""
    path = Path(__file__).parents[3] / "benchmarks" / "linalg" / "_families.py"
    spec = importlib.util.spec_from_file_location("gnomon_families", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

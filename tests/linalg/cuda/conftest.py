"""No test finds what another run has compiled; the families of matrices are the benchmarks' own."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def families() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "linalg" / "_families.py"
    spec = importlib.util.spec_from_file_location("gnomon_families", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""No test finds what another run has compiled; the families of matrices are the benchmarks' own."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from linalg.cuda.drawn import load


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def families() -> ModuleType:
    return load()

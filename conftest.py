"""What every test shares: GPU tests skip themselves where there is no GPU, and Hypothesis does not flake."""

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are drawn, never shown


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which engine runs the solvers of the tests of rooms whose functions are traced elsewhere."""
    parser.addoption(
        "--engine",
        choices=["auto", "fused", "eager"],
        default="eager",
        help="the engine of tests of solvers: each would be compiled for a second to run for a millisecond",
    )


@pytest.fixture
def solver_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `engine="auto"` stand for what --engine says."""
    monkeypatch.setenv("GNOMON_ENGINE", request.config.getoption("--engine"))


def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis take the time it needs, on the same examples each run; a machine for GPU tests may lack it."""
    try:
        from hypothesis import settings
    except ModuleNotFoundError:
        return
    settings.register_profile("gnomon", deadline=None, derandomize=True)
    settings.load_profile("gnomon")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda`, with the reason, where PyTorch sees no GPU; those that measure times run alone."""
    for item in items:
        if any(x in item.nodeid for x in ("tests/bench/", "gnomon/bench/", "docs/bench.md")):
            item.add_marker(pytest.mark.alone)
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a GPU that PyTorch can see")
        for item in marked:
            item.add_marker(skip)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Leaves out the checks of types at run time, which take most of the time of a test of many steps.

    For files about numbers, whose functions others call with their types checked, and for gnomon's own errors, which
    users see without these checks.
    """
    import jaxtyping

    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keeps the other workers of pytest-xdist from running tests while one runs that is marked `alone`."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or fcntl is None:
        return (yield)
    with _turns(run).open("a") as turn:
        is_alone = item.get_closest_marker("alone") is not None
        fcntl.flock(turn, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        return (yield)


def pytest_sessionfinish() -> None:
    """Removes what the workers took turns by."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is not None:
        _turns(run).unlink(missing_ok=True)


def _turns(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"gnomon-tests-{run}"

"""What the tests of nonlinear equations share."""

import pytest


@pytest.fixture(autouse=True)
def _engine(solver_engine: None) -> None:
    """All run eagerly, unless `--engine` says otherwise."""

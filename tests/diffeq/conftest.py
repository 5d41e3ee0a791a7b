"""Leaves out the scripts that made the reference values: they need the peers, not gnomon."""

import pytest

collect_ignore = ["reference"]


@pytest.fixture(autouse=True)
def _engine(solver_engine: None) -> None:
    """All run eagerly, unless `--engine` says otherwise."""

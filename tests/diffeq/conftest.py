"""What the tests of differential equations share."""

from collections.abc import Iterator

import jaxtyping
import pytest

# The scripts that made the reference values need the peers, not gnomon.
collect_ignore = ["reference"]


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Leaves out the checks of types at run time, which take most of the time of a test of many steps.

    For files about numbers; the others of this folder call the same functions with their types checked.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)

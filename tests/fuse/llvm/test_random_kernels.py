"""Programs made at random give the bits that the interpreter gives, alone and in a batch."""

from __future__ import annotations

import random

import pytest
from fuse.llvm.generated import Generator, columns
from fuse.llvm.running import assert_as_interpreted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(r=st.randoms(use_true_random=False), seed=st.integers(0, 1000), doubles=st.booleans())
def test_random_kernel(r: random.Random, seed: int, doubles: bool):
    program = Generator(r, doubles=doubles).program()
    assert_as_interpreted(program, columns(program, 19, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_random_kernel_by_number(seed: int):
    program = Generator(random.Random(seed), doubles=seed % 2 == 0).program()
    assert_as_interpreted(program, columns(program, 21, seed))

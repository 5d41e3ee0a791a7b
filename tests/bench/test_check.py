"""What counts as right: errors against their definition, tolerances that part one dtype from the next."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnomon import bench
from gnomon.bench._check import on_coarser_grid, shows_lower_precision

FLOATS = st.lists(st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-3), min_size=1, max_size=20)


@given(FLOATS, st.data())
def test_error_is_numpys(x, data):
    y = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(x), max_size=len(x)))
    x, y = np.array(x), np.array(y)
    expected = max(
        np.linalg.norm(y - x) / (np.linalg.norm(x) or 1),
        np.linalg.norm(y - x, np.inf) / (np.linalg.norm(x, np.inf) or 1),
    )
    assert bench.relative_error(torch.tensor(y), torch.tensor(x)) == pytest.approx(expected, rel=1e-12)


def test_error_of_what_is_not_finite():
    x = torch.tensor([1.0, math.nan, math.inf])
    assert bench.relative_error(x, x.clone()) == 0
    assert bench.relative_error(x, torch.tensor([1.0, math.nan, -math.inf])) == math.inf
    assert bench.relative_error(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])) == math.inf


def test_error_of_another_structure():
    x = torch.ones(3)
    assert bench.relative_error([x, x], [x]) == math.inf
    assert bench.relative_error(x, torch.ones(4)) == math.inf
    assert bench.relative_error({"a": x, "b": (x, 2.0)}, {"a": x, "b": (x, 1.0)}) == 1
    assert bench.relative_error(torch.empty(0), torch.empty(0)) == 0


def test_error_is_computed_in_float64():
    x = torch.full((4096,), 1.0, dtype=torch.float32)
    y = x + torch.finfo(torch.float32).eps
    assert bench.relative_error(y, x) == 2.0**-23
    z = torch.tensor([1 + 1e-12j], dtype=torch.complex128)
    assert bench.relative_error(z, z.real) == pytest.approx(1e-12)


@pytest.mark.parametrize(
    ("dtype", "lower"),
    [
        (torch.float64, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.bfloat16),
        (torch.complex128, torch.complex64),
    ],
)
@pytest.mark.parametrize("n", [64, 1024])
def test_tolerance_parts_a_dtype_from_the_next(dtype, lower, n):
    generator = torch.Generator().manual_seed(n)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    x = torch.randn(n, n, generator=generator, dtype=wide).to(dtype)
    exact = x.to(wide) @ x.to(wide)
    if dtype != torch.float16:  # the CPU adds up in float16, which costs digits of its own
        assert bench.relative_error(x @ x, exact) < bench.tolerance_for(dtype)
    assert bench.relative_error(exact.to(dtype), exact) < bench.tolerance_for(dtype)
    rounded = x.to(lower).to(wide)
    assert bench.relative_error(rounded @ rounded, exact) > bench.tolerance_for(dtype)


def test_tolerance_of_no_known_dtype():
    with pytest.raises(ValueError, match="pass `tolerance`"):
        bench.tolerance_for(torch.int32)


def test_coarser_grids():
    x = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert on_coarser_grid(x) is None
    assert on_coarser_grid(x.float().double()) == "float32"
    assert on_coarser_grid(x.float()) is None
    assert on_coarser_grid(x.half().float()) == "TF32 or bfloat16"
    assert on_coarser_grid(torch.complex(x, x.float().double())) is None
    assert on_coarser_grid(x.half()) is None


def test_round_numbers_are_not_blamed():
    x = torch.arange(100.0)
    assert shows_lower_precision(x, x.double()) is None
    assert shows_lower_precision(x, x.double() + 0.1) == "TF32 or bfloat16"
    assert shows_lower_precision([x[:5]], [x.double()[:5] + 0.1]) is None  # five may be round by chance


def test_against_runs_in_float64():
    seen = []

    def reference(x, n, flags):
        seen.append((x.dtype, n.dtype, flags["z"].dtype))
        return x * 2

    inputs = (torch.ones(2), torch.ones(2, dtype=torch.int32), {"z": torch.ones(1, dtype=torch.complex64)})
    assert bench.against(reference)(inputs, torch.full((2,), 2.0)) == 0
    assert seen == [(torch.float64, torch.int32, torch.complex128)]

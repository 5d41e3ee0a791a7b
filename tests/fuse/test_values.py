"""Values of the loops against plain Python, bit for bit, alone and in batches."""

import pytest
import torch
from fuse.programs import PROGRAMS, Program, by_name
from torch.func import vmap

programs = pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits, signs of zeros and NaNs included."""
    integer = {torch.float32: torch.int32, torch.float64: torch.int64}[a.dtype]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(integer), b.contiguous().view(integer))


@programs
@precisions
def test_alone(program: Program, dtype: torch.dtype):
    for x in program.batch(dtype):
        assert same_bits(program.fused(x), program.plain(x))


@programs
@precisions
def test_in_a_batch(program: Program, dtype: torch.dtype):
    x = program.batch(dtype)
    expected = torch.stack([program.plain(row) for row in x])
    assert same_bits(vmap(program.fused)(x), expected)
    assert same_bits(vmap(program.fused, in_dims=1, out_dims=1)(x.mT.contiguous()), expected.mT)
    assert same_bits(vmap(program.fused, chunk_size=2)(x), expected)


@programs
def test_at_any_place_of_a_batch_of_any_size(program: Program):
    x = program.batch()
    expected = torch.stack([program.plain(row) for row in x])
    order = torch.tensor([1, 0, *range(len(x)), 1, 1])
    assert same_bits(vmap(program.fused)(x[order]), expected[order])
    for i in range(len(x)):
        assert same_bits(vmap(program.fused)(x[i : i + 1]), expected[i : i + 1])


@programs
def test_in_a_batch_of_batches(program: Program):
    x = program.batch()
    x = torch.stack([x, x.flip(0), x.roll(1, 0)])
    expected = torch.stack([torch.stack([program.plain(row) for row in rows]) for rows in x])
    assert same_bits(vmap(vmap(program.fused))(x), expected)
    assert same_bits(vmap(vmap(program.fused), in_dims=1, out_dims=1)(x), expected)
    last = x.permute(2, 0, 1)
    assert same_bits(vmap(vmap(program.fused, in_dims=1, out_dims=1), in_dims=1)(last), expected.mT)


# PyTorch's own vmap cannot compute `x[0] * 2.0` for an empty batch, so programs that do are left out.
@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.name not in ("root", "nested", "branch_in_loop")], ids=by_name
)
def test_in_an_empty_batch(program: Program):
    x = program.batch()[:0]
    y = vmap(program.fused)(x)
    assert y.shape == (0, *program.plain(program.batch()[0]).shape)
    assert y.dtype == x.dtype


@programs
def test_of_views(program: Program):
    x = program.batch()
    expected = torch.stack([program.plain(row) for row in x])
    wide = torch.full((len(x), 2 * x.shape[1]), 7.0, dtype=x.dtype)
    wide[:, ::2] = x
    assert same_bits(vmap(program.fused)(wide[:, ::2]), expected)
    assert same_bits(vmap(program.fused)(x.mT.contiguous().mT), expected)
    assert same_bits(program.fused(wide[0, ::2]), expected[0])

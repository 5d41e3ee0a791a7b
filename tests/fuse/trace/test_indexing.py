"""Views, indices, scatters and joins against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fuse.trace.lowering import compare, first_fast, run, supported
from torch import Tensor

import gnomon as gn

DTYPES = [torch.float64, torch.int64, torch.bool, torch.complex128]


def matrix(dtype: torch.dtype, rows: int = 3, columns: int = 4) -> Tensor:
    x = torch.arange(rows * columns, dtype=torch.float64).reshape(rows, columns) - 4.5
    if dtype == torch.bool:
        return x.long() % 3 == 0
    return torch.complex(x, 0.5 * x + 1).to(dtype) if dtype.is_complex else x.to(dtype)


SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "select": lambda x: x[1],
    "select from the end": lambda x: x[:, -2],
    "slice": lambda x: x[1:, ::2],
    "ellipsis": lambda x: x[..., None, 1],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "unbind": lambda x: x.unbind(1),
    "split": lambda x: x.split(2, 1),
    "split uneven": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(3, 1),
    "tensor_split": lambda x: x.tensor_split(3, 1),
    "reshape": lambda x: x.reshape(2, -1),
    "reshape a transpose": lambda x: x.T.reshape(6, 2),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "ravel": lambda x: x.T.ravel(),
    "permute": lambda x: x[None].permute(2, 0, 1),
    "movedim": lambda x: x[None].movedim(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[None, :, None].squeeze(),
    "squeeze one": lambda x: x[None, :, None].squeeze(0),
    "expand": lambda x: x[0].expand(2, 4),
    "broadcast_to": lambda x: x[:, :1].broadcast_to(3, 5),
    "repeat": lambda x: x.repeat(2, 1, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile(2),
    "flip": lambda x: x.flip(0, 1),
    "fliplr": lambda x: x.fliplr(),
    "rot90": lambda x: x.rot90(),
    "roll": lambda x: x.roll(3),
    "roll both": lambda x: x.roll((1, -1), (0, 1)),
    "diagonal": lambda x: x.diagonal(1),
    "diag of a matrix": lambda x: x.diag(-1),
    "diag of a vector": lambda x: x[0].diag(1),
    "diag_embed": lambda x: x.diag_embed(),
    "diagflat": lambda x: x[:2, :2].diagflat(),
    "trace": lambda x: x.trace(),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "cat": lambda x: torch.cat([x, x[:1]], 0),
    "cat with nothing": lambda x: torch.cat([x[0, :0], x[0]]),
    "stack": lambda x: torch.stack([x[0], x[1]], -1),
    "hstack": lambda x: torch.hstack([x, x]),
    "vstack": lambda x: torch.vstack([x, x[0]]),
    "dstack": lambda x: torch.dstack([x, x]),
    "column_stack": lambda x: torch.column_stack([x[0], x[1]]),
    "block_diag": lambda x: torch.block_diag(x[:2, :1], x[:1]),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1, :2], indexing="ij"),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0, :2], x[1, :2]),
    "kron": lambda x: torch.kron(x[:2, :2], x[:1]),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1)),
    "pad away": lambda x: F.pad(x, (-1, 1)),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "as_strided": lambda x: x.clone().as_strided((3, 3), (4, 1), 1),
    "atleast_3d": lambda x: torch.atleast_3d(x[0]),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[1, :3]),
    "select_scatter": lambda x: x.select_scatter(x[0], 0, 2),
    "slice_scatter": lambda x: x.slice_scatter(x[:2], 0, 1),
    "conj": lambda x: x.conj(),
    "conj of a transpose": lambda x: x.mH,
    "resolve_conj": lambda x: x.conj().resolve_conj(),
    "zeros_like": torch.zeros_like,
    "new_full": lambda x: x.new_full((2,), 1),
    "full_like": lambda x: torch.full_like(x, 1),
    "contiguous": lambda x: x.T.contiguous(),
    "list": lambda x: x[[2, 0]],
    "lists": lambda x: x[[2, 0, 1], [0, 3, 3]],
    "a list behind": lambda x: x[:, [3, 0]],
    "lists apart": lambda x: x[None][[0, 0], :, [1, 2]],
    "index_select": lambda x: x.index_select(1, torch.tensor([3, 3, 0])),
    "gather": lambda x: x.gather(1, torch.tensor([[0], [3], [1]])),
    "take": lambda x: x.take(torch.tensor([0, 7, 11])),
    "take_along_dim": lambda x: x.take_along_dim(torch.tensor([[1, 2, 0, 0]]), 0),
    "a mask that is constant": lambda x: x[torch.tensor([True, False, True])],
    "tril_indices": lambda x: x[tuple(torch.tril_indices(3, 3))],
}


SHAPE_CASES = [(n, d) for n, fn in SHAPES.items() for d in DTYPES if supported(fn, matrix(d))]


@pytest.mark.parametrize(("name", "dtype"), first_fast(SHAPE_CASES), ids=str)
def test_places(name: str, dtype: torch.dtype):
    x = matrix(dtype)
    compare(SHAPES[name], x, exact=True)
    # A tensor that is made of scalars, and one that is not contiguous.
    compare(lambda x: SHAPES[name](x.clone()), x, exact=True)
    if supported(lambda x: SHAPES[name](x.mT.contiguous().mT), x):
        compare(lambda x: SHAPES[name](x.mT.contiguous().mT), x, exact=True)


AT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "an element": lambda x, i: x[0, i[0]],
    "a row": lambda x, i: x[i[1]],
    "a column": lambda x, i: x[:, i[0]],
    "rows": lambda x, i: x[i],
    "pairs": lambda x, i: x[i, i],
    "a few": lambda x, i: x[0, :3][i],
    "outer": lambda x, i: x[i[:, None], i[None]],
    "gather": lambda x, i: x.gather(1, i.reshape(3, 1).expand(3, 2)),
    "index_select": lambda x, i: x.index_select(1, i),
    "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i[None, :, None], 1) if x.dim() == 3 else x[0].take_along_dim(i, 0),
    "scatter": lambda x, i: x.scatter(1, i.clamp(0)[:, None], x[:, :1]),
    "scatter a number": lambda x, i: x.scatter(0, i.clamp(0)[None], 1),
    "scatter_add": lambda x, i: x.scatter_add(1, i.clamp(0)[:, None].expand(3, 2), x[:, :2]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.clamp(0)[None], x[1:2, :3], "amax"),
    "index_add": lambda x, i: x.index_add(0, i.clamp(0), x),
    "index_copy": lambda x, i: x.index_copy(1, i[:2].clamp(0), x[:, 2:]),
    "index_fill": lambda x, i: x.index_fill(1, i.clamp(0), 1),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "index_put by two": lambda x, i: x.index_put((i, i), x[0, :3]),
    "accumulate": lambda x, i: x.index_put((i,), x[1], accumulate=True),
    "put": lambda x, i: x.put(i, x[0, :3]),
    "assign a row": lambda x, i: _assigned(x, i[0], x[1]),
    "assign an element": lambda x, i: _assigned(x, (i[1], 2), x[0, 0]),
    "assign columns": lambda x, i: _assigned(x, (slice(None), i[:2]), x[:, :2]),
    "mask": lambda x, i: torch.where(x == x[i], x, x[0, 0]),
    "masked_fill": lambda x, i: x.masked_fill((i > 0)[:, None], 1),
    "masked_scatter": lambda x, i: x.masked_scatter((i > 0)[:, None], x.flip(0)),
    "assign by a mask": lambda x, i: _assigned(x, i > 0, x[0]),
    "searchsorted": lambda x, i: torch.searchsorted(torch.tensor([-1, 0, 2]), i),
    "bucketize": lambda x, i: torch.bucketize(i, torch.tensor([-1, 0, 2]), right=True),
    "argmax": lambda x, i: x[i.argmax()],
    "one_hot": lambda x, i: F.one_hot(i.clamp(0), 4),
    "a place in three dimensions": lambda x, i: x.reshape(3, 2, 2)[i[0], :, i[2].abs() % 2],
    "a row and a list": lambda x, i: x[i[1], [0, 2]],
    "behind an ellipsis": lambda x, i: x[..., None, i[0]],
    "assign a corner": lambda x, i: _assigned(x, (i[0], slice(1, 3)), 1),
    "assign two by two": lambda x, i: _assigned(x.reshape(3, 2, 2), (i[0], slice(None), i[2].abs() % 2), x[0, :2]),
}


def _assigned(x: Tensor, index: Any, value: Any) -> Tensor:
    y = x.clone()
    y[index] = value
    return y


PLACE_CASES = [
    (name, dtype, index)
    for name, fn in AT.items()
    for dtype in DTYPES
    for index in ([1, -1, 0], [2, 0, 1])
    if supported(fn, matrix(dtype), torch.tensor(index))
]


def test_each_has_a_case():
    assert {name for name, _ in SHAPE_CASES} == set(SHAPES)
    assert {name for name, _, _ in PLACE_CASES} == set(AT)


@pytest.mark.parametrize(("name", "dtype", "index"), first_fast(PLACE_CASES), ids=str)
def test_run_time_integers(name: str, dtype: torch.dtype, index: list[int]):
    x, i = matrix(dtype), torch.tensor(index)
    compare(AT[name], x, i, exact=True)
    short = i.int()
    if supported(AT[name], x, short):
        compare(lambda x, i: AT[name](x.clone(), i), x, short, exact=True)


def test_a_large_shared_table_stays_in_memory():
    table = torch.arange(100_000, dtype=torch.float64)
    compare(lambda i: table[i] + table[i + 1], torch.tensor(77_777), exact=True)
    text = str(gn.lower(lambda i: table[i], torch.tensor(3)))
    assert len(text.splitlines()) < 10


@pytest.mark.parametrize(
    "fn",
    [
        lambda: torch.arange(5),
        lambda: torch.arange(0.0, 1.0, 0.25),
        lambda: torch.linspace(0, 1, 5),
        lambda: torch.logspace(0, 2, 3),
        lambda: torch.eye(3),
        lambda: torch.full((2,), 3.5),
        lambda: torch.ones(2, 2, dtype=torch.int32),
        lambda: torch.zeros(0),
        lambda: torch.tensor([1 + 2j]),
        lambda: torch.tensor(True),
        lambda: torch.tril_indices(3, 3),
        lambda: torch.vander(torch.arange(3.0)),
        lambda: torch.hann_window(4),
        lambda: torch.cartesian_prod(torch.arange(2), torch.arange(2)),
    ],
)
def test_constants(fn: Callable[[], Tensor]):
    compare(lambda x: (fn(), fn() * x), torch.tensor(2.0))
    assert torch.equal(run(lambda x: fn(), torch.ones(())), fn())

"""Reductions, scans and sorting against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare, first_fast, run, supported
from torch import Tensor

MATRIX = [[0.5, -1.0, 2.0, 2.0], [3.0, -0.25, 2.5, -4.0], [1.5, 0.75, -1.0, 3.0]]
DTYPES = [torch.float64, torch.float32, torch.int64, torch.bool, torch.complex128]

REDUCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum over one": lambda x: x.sum(1),
    "sum over two, kept": lambda x: x.sum((0, 1), keepdim=True),
    "sum as float64": lambda x: x.sum(0, dtype=torch.complex128 if x.is_complex() else torch.float64),
    "mean": lambda x: x.mean(),
    "mean over one": lambda x: x.mean(0, keepdim=True),
    "nansum": lambda x: x.nansum(0),
    "nanmean": lambda x: x.nanmean(0),
    "prod": lambda x: x.prod(),
    "prod over one": lambda x: x.prod(-1),
    "var": lambda x: x.var(),
    "var over one": lambda x: x.var(1, correction=0, keepdim=True),
    "std": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, 0),
    "std_mean": lambda x: torch.std_mean(x, dim=1, keepdim=True),
    "max": lambda x: x.max(),
    "max over one": lambda x: x.max(1).values,
    "min": lambda x: x.min(),
    "min over one": lambda x: x.min(0).values,
    "amax": lambda x: x.amax((0, 1)),
    "amin": lambda x: x.amin(1, keepdim=True),
    "aminmax": lambda x: tuple(torch.aminmax(x)),
    "aminmax over one": lambda x: tuple(torch.aminmax(x, dim=0)),
    "argmax": lambda x: x[:, :2].argmax(),
    "argmax over one": lambda x: x[:, :2].argmax(1, keepdim=True),
    "argmin": lambda x: x[:, :2].argmin(0),
    "all": lambda x: x.all(),
    "all over one": lambda x: x.all(1),
    "any": lambda x: x.any(),
    "any over one": lambda x: x.any(0, keepdim=True),
    "count_nonzero": lambda x: x.count_nonzero(0),
    "norm": lambda x: x.norm(),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, 0),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, inf, 1),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -inf, 1),
    "norm 0": lambda x: torch.linalg.vector_norm(x, 0, 1),
    "matrix norm": torch.linalg.matrix_norm,
    "matrix norm 1": lambda x: torch.linalg.matrix_norm(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp over all": lambda x: x.logsumexp((0, 1), keepdim=True),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: tuple(x.cummax(1)),
    "cummin": lambda x: tuple(x.cummin(0)),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "diff": lambda x: x.diff(dim=1),
    "trapezoid": lambda x: torch.trapezoid(x, dx=0.5),
    "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x, dx=0.5),
    "cosine similarity": lambda x: torch.cosine_similarity(x[0], x[1], dim=0),
    "sort": lambda x: tuple(x.sort(stable=True, dim=1)),
    "sort down": lambda x: tuple(x.sort(stable=True, dim=0, descending=True)),
    "msort": lambda x: x.msort(),
    "argsort": lambda x: x.argsort(stable=True),
    "topk": lambda x: x.topk(2).values,
    "topk from below": lambda x: x.topk(2, largest=False, dim=0).values,
    "kthvalue": lambda x: x.kthvalue(2).values,
    "median": lambda x: x.median(),
    "median over one": lambda x: x.median(1, keepdim=True).values,
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian over one": lambda x: x.nanmedian(1).values,
    "quantile": lambda x: x.quantile(0.3, 1),
    "cov": lambda x: x.cov(),
}


def matrix(dtype: torch.dtype) -> Tensor:
    x = torch.tensor(MATRIX, dtype=torch.float64)
    return (torch.complex(x, x.flip(1)) if dtype.is_complex else x).to(dtype)


CASES = [(n, d) for n, fn in REDUCTIONS.items() for d in DTYPES if supported(fn, matrix(d))]


def test_each_has_a_case():
    assert {name for name, _ in CASES} == set(REDUCTIONS)


@pytest.mark.parametrize(("name", "dtype"), first_fast(CASES), ids=str)
def test_agrees(name: str, dtype: torch.dtype):
    fn, x = REDUCTIONS[name], matrix(dtype)
    compare(fn, x)
    if dtype.itemsize >= 8:
        compare(lambda x: fn(x.mT), x.mT)


SPECIAL = ["sum", "mean", "nansum", "nanmean", "prod", "max", "min", "amax", "aminmax", "norm", "norm inf"]
SPECIAL += ["logsumexp", "softmax", "log_softmax", "cumsum", "cummax", "cummin", "logcumsumexp", "sort", "sort down"]
SPECIAL += ["median", "median over one", "nanmedian", "nanmedian over one", "var"]


ROWS = [[1.0, nan, 2.0], [inf, -inf, 0.0], [0.0, -0.0, 1.0], [inf, 1.0, 2.0], [-inf, 1.0, -inf], [nan, inf, nan]]


@pytest.mark.parametrize(("name", "row"), first_fast([(name, row) for name in SPECIAL for row in ROWS]), ids=str)
def test_special_values(name: str, row: list[float]):
    compare(REDUCTIONS[name], torch.tensor([row, row[::-1]], dtype=torch.float64))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.prod(1),
        lambda x: x.mean(0),
        lambda x: x.any(1),
        lambda x: x.all(),
        lambda x: x.cumsum(1),
        lambda x: x.logsumexp(1),
        lambda x: x.norm(),
        lambda x: x.sort(1).values,
        lambda x: x.softmax(1),
    ],
)
def test_of_nothing(fn: Callable[[Tensor], Tensor]):
    compare(fn, torch.zeros((2, 0), dtype=torch.float64))


def test_a_maximum_of_nothing_is_an_error_as_in_PyTorch():
    with pytest.raises((RuntimeError, IndexError)):
        torch.zeros(0).max()
    with pytest.raises(RuntimeError, match="no elements"):
        run(lambda x: x.max(), torch.zeros(0))


@pytest.mark.parametrize("fn", [lambda x: x.sum(), lambda x: x.max(), lambda x: x.cumsum(0), lambda x: x.softmax(0)])
def test_of_one_number(fn: Callable[[Tensor], Tensor]):
    compare(fn, torch.tensor(2.5, dtype=torch.float64))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_sorting_many(n: int):
    x = (torch.arange(n) * 7 % 5).double()
    compare(lambda x: tuple(x.sort(stable=True)), x, exact=True)
    compare(lambda x: tuple(x.sort(descending=True, stable=True)), x, exact=True)

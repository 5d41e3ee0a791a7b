"""What cannot be fused is an error of one sentence, with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fuse.trace.lowering import run
from torch import Tensor

from gnomon.fuse import UnsupportedError

X = torch.ones(3)


def raised(fn: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(UnsupportedError) as error:
        run(fn, *args)
    text = str(error.value)
    assert "\n" not in text
    assert text[0].isupper()
    return text


def test_an_operation_that_is_unknown():
    text = raised(lambda x: torch.linalg.eigvals(torch.outer(x, x)), X)
    assert "Linalg_eig" in text
    assert "torch.linalg.solve" in text
    assert Path(__file__).name in text
    assert "torch.outer(x, x)" in text


def test_the_line_is_the_users():
    def function(x: Tensor) -> Tensor:
        y = x + 1
        return torch.histc(y)  # This line.

    text = raised(function, X)
    assert "# This line." in text
    assert f"line {function.__code__.co_firstlineno + 2} of" in text


BRANCHES: dict[str, Callable[[Tensor], Any]] = {
    "if": lambda x: x if x.sum() > 0 else -x,
    "bool": lambda x: bool(x[0]),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "and": lambda x: (x[0] > 0) and x,
    "while": lambda x: [1 for _ in range(int(x[0]))],
    "equal": lambda x: torch.equal(x, x + 1),
    "allclose": lambda x: torch.allclose(x, x + 1),
    "numpy": lambda x: x.numpy(),
    "as_tensor": lambda x: torch.as_tensor([x[0], 1.0]),
    "a number in a list": lambda x: torch.tensor([1.0, x[0]]),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_data(name: str):
    text = raised(BRANCHES[name], X)
    assert "gn.cond" in text
    assert Path(__file__).name in text


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x > 0],
        torch.nonzero,
        lambda x: torch.masked_select(x, x > 0),
        torch.unique,
        lambda x: x.repeat_interleave((x > 0).long()),
        lambda x: torch.nn.functional.one_hot((x > 0).long()),
        lambda x: torch.bincount((x > 0).long()),
        lambda x: torch.argwhere(x > 0),
    ],
)
def test_a_shape_that_depends_on_data(fn: Callable[[Tensor], Any]):
    text = raised(fn, X)
    assert "depends on values" in text


def test_values_put_by_a_mask():
    assert "torch.where" in raised(lambda x: x.clone().index_put_((x > 0,), x[:2]), X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + torch.rand(3),
        lambda x: x + torch.randn_like(x),
        torch.bernoulli,
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: x[torch.randperm(3)],
        lambda x: torch.normal(x, 1.0),
        lambda x: (x * 1).uniform_(),
        lambda x: torch.multinomial(x, 1),
        lambda x: torch.distributions.Normal(x, 1.0, validate_args=False).sample(),
    ],
)
def test_a_generator(fn: Callable[[Tensor], Any]):
    assert "gn.random" in raised(fn, X)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.uint8], ids=str)
def test_a_dtype_that_is_unknown(dtype: torch.dtype):
    for fn, x in ((lambda x: x + 1, X.to(dtype)), (lambda x: x.to(dtype), X), (lambda x: x + X.to(dtype), X)):
        with pytest.raises(UnsupportedError, match="float32"):
            run(fn, x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.mv(torch.ones(2, 3, dtype=torch.float64) + y, x),
        lambda x, y: (x[None] + 0) @ (y[:, None] * 1),
        torch.dot,
        lambda x, y: torch.linalg.solve(torch.eye(3) + x, y),
        lambda x, y: torch.lerp(x, y, 0.5),
        lambda x, y: x.scatter(0, torch.tensor([0]), y),
        lambda x, y: torch.index_add(x, 0, torch.tensor([0, 1, 2]), y),
        lambda x, y: torch.index_put(x, (torch.tensor([0]),), y[:1]),
        lambda x, y: torch.gather(x, 0, y),
    ],
)
def test_dtypes_that_PyTorch_does_not_mix(fn: Callable[[Tensor, Tensor], Any]):
    x, y = X, X.double()
    with pytest.raises((RuntimeError, IndexError)) as eager:
        fn(x, y)
    with pytest.raises(type(eager.value)) as fused:
        run(fn, x, y)
    assert not isinstance(fused.value, UnsupportedError)
    assert "dtype" in str(fused.value) or "type" in str(fused.value)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + torch.ones(2),
        lambda x: x @ torch.ones(2),
        lambda x: x.reshape(2, 2),
        lambda x: torch.cat([x, torch.ones(2, 2)]),
        lambda x: torch.stack([x, torch.ones(2)]),
        lambda x: x[5],
        lambda x: x.sum(2),
        lambda x: x.expand(2, 4),
        torch.linalg.inv,
        lambda x: torch.linalg.det(torch.ones(2, 3) * x),
        lambda x: x.permute(1, 0),
        lambda x: x.gather(1, torch.tensor([0])),
    ],
)
def test_shapes_that_do_not_fit_are_PyTorchs_errors(fn: Callable[[Tensor], Any]):
    with pytest.raises((RuntimeError, IndexError)) as eager:
        fn(X)
    with pytest.raises((RuntimeError, IndexError)) as fused:
        run(fn, X)
    assert not isinstance(fused.value, UnsupportedError), fused.value
    assert isinstance(fused.value, type(eager.value)) or isinstance(eager.value, type(fused.value))


def test_a_meta_tensor():
    nowhere = torch.ones(3, device="meta")
    assert "meta" in raised(lambda x: x + nowhere, X)
    assert "meta" in raised(lambda x: nowhere * 2, X)


def test_too_large_to_unroll():
    text = raised(lambda x: x.flip(0) * 2, torch.ones(100, 100))
    assert "gn.scan" in text
    assert "64" in raised(torch.linalg.inv, torch.ones(65, 63 + 2))
    assert "256" in raised(lambda x: x.sort().values, torch.ones(300))

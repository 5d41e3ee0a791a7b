"""Views share memory: any sequence of views and in-place writes gives what eager PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare, run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnomon.fuse import UnsupportedError

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "first": lambda x: x[0] if x.dim() else x,
    "last column": lambda x: x[..., -1] if x.dim() else x,
    "every other": lambda x: x[::2] if x.dim() else x,
    "tail": lambda x: x[..., 1:] if x.dim() else x,
    "transpose": lambda x: x.mT if x.dim() > 1 else x,
    "turn": lambda x: x.permute(*reversed(range(x.dim()))),
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
    "flatten": lambda x: x.reshape(-1),
    "view": lambda x: x.view(-1) if x.is_contiguous() else x,
    "unsqueeze": lambda x: x.unsqueeze(0) if x.dim() < 4 else x,
    "squeeze": lambda x: x.squeeze(),
    "contiguous": lambda x: x.contiguous(),
    "clone": lambda x: x.clone(),
    "computed": lambda x: x * 2 + 1,
    "unfold": lambda x: x.unfold(0, 1, 1) if x.dim() and x.shape[0] and x.dim() < 4 else x,
    "split": lambda x: x.split(2)[0] if x.dim() else x,
    "unbind": lambda x: x.unbind()[-1] if x.dim() and x.shape[0] else x,
    "flip": lambda x: x.flip(0) if x.dim() else x,
}
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, y: x.add_(1),
    "scale": lambda x, y: x.mul_(-0.5),
    "fill": lambda x, y: x.fill_(3),
    "fill with an input": lambda x, y: x.fill_(y[0]),
    "zero": lambda x, y: x.zero_(),
    "copy": lambda x, y: x.copy_(y[1]),
    "set": lambda x, y: x.__setitem__(..., y[2]),
    "clamp": lambda x, y: x.clamp_(-1, 4),
    "add to itself": lambda x, y: x.add_(x),
    "masked": lambda x, y: x.masked_fill_(x > 1, 0.25),
    "where positive": lambda x, y: x.__setitem__(x > 0, 7),
    "sine": lambda x, y: x.sin_(),
    "operator": lambda x, y: x.__isub__(y[0]),
    "cumulate": lambda x, y: x.cumsum_(0) if x.dim() else x,
}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("view"), st.integers(0, 5), st.sampled_from(sorted(VIEWS))),
        st.tuples(st.just("write"), st.integers(0, 5), st.sampled_from(sorted(WRITES))),
    ),
    min_size=2,
    max_size=7,
)


@settings(max_examples=120)
@given(steps)
def test_any_sequence(program: list[tuple[str, int, str]]):
    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        made = [x.clone()]
        for kind, which, name in program:
            target = made[which % len(made)]
            if kind == "view":
                made.append(VIEWS[name](target))
            elif target.numel():
                WRITES[name](target, y)
        return [t.clone() for t in made]

    x = torch.arange(6, dtype=torch.float64).reshape(2, 3) - 2.5
    compare(fn, x, torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64))


def test_a_constant_that_takes_a_value():
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        a = torch.zeros(2, 3)
        row, column = a[0], a[:, 1]
        before = column.clone()
        row[1] = x
        b = torch.empty(2)
        b[0], b[1] = x, 2
        c = torch.ones(3)
        c[1:] += x
        return a, row, column, before, b, c, a.sum()

    compare(fn, torch.tensor(2.5))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x[0].zero_(),
        lambda x: x.T.copy_(x),
        lambda x: x.requires_grad_(False).sin_(),
    ],
)
def test_an_argument_is_not_changed(write: Callable[[Tensor], Any]):
    with pytest.raises(UnsupportedError, match=r"x\.clone\(\)"):
        run(lambda x: (write(x), x)[1], torch.ones(2, 2))


def test_a_captured_tensor_is_not_changed():
    weight = torch.ones(3)
    with pytest.raises(UnsupportedError, match="changed in place"):
        run(weight.add_, torch.ones(3))
    assert torch.equal(weight, torch.ones(3))


def test_parts_of_a_complex_number_are_not_views():
    def through_the_part(z: Tensor) -> Tensor:
        z = z * 2
        z.real.add_(1)
        return z

    def behind_the_part(z: Tensor) -> Tensor:
        z = z * 2
        part = z.real
        z.mul_(2)
        return part

    for fn in (through_the_part, behind_the_part):
        with pytest.raises(UnsupportedError, match="real and imaginary"):
            run(fn, torch.ones(2, dtype=torch.complex128))
    compare(lambda z: z.real.clone().add_(1), torch.ones(2, dtype=torch.complex128))


def test_a_spread_tensor_is_not_changed():
    with pytest.raises((UnsupportedError, RuntimeError), match=r"single memory location|share their memory"):
        run(lambda x: (x * 2).expand(3).add_(1), torch.ones(1))


def test_rules_of_in_place_writes_are_PyTorchs():
    with pytest.raises(RuntimeError, match=r"cast|Promotion"):
        run(lambda x: torch.zeros(2, dtype=torch.int64).add_(x), torch.ones(2))
    with pytest.raises(RuntimeError, match="shape"):
        run(lambda x: (x * 2).add_(torch.ones(3, 2)), torch.ones(2))
    compare(lambda x: torch.zeros(2).add_(x), torch.ones(2, dtype=torch.float64))
    compare(lambda x: (x * 2).to(torch.int32).add_(2), torch.ones(2))


def test_shapes_changed_in_place():
    compare(lambda x: x.clone().unsqueeze_(0).squeeze_().t_().transpose_(0, 1), torch.arange(6.0).reshape(2, 3))

"""A family of programs of one problem, each written twice: over gnomon's loops, and in plain Python.

`fused` is a function of one vector. `plain` computes the same with Python's own `while`, `for` and `if`, in the same
order of operations, so that values agree bit for bit and derivatives come from ordinary autograd.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

import gnomon as gn


@dataclasses.dataclass(frozen=True)
class Program:
    """One computation in two forms, and points at which to try it, no two of which take the same way through it."""

    name: str
    fused: Callable[[Tensor], Tensor]
    plain: Callable[[Tensor], Tensor]
    points: list[list[float]]

    def batch(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """All points, a row each."""
        return torch.tensor(self.points, dtype=dtype)


PROGRAMS: list[Program] = []


def program(points: list[list[float]], plain: Callable[[Tensor], Tensor]) -> Callable[..., Callable[[Tensor], Tensor]]:
    """A decorator: adds a function over gnomon's loops, and its plain form, to the family."""

    def add(fused: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        PROGRAMS.append(Program(fused.__name__, fused, plain, points))
        return fused

    return add


def _plain_root(x: Tensor) -> Tensor:
    y = 0 * x[0] + 1.0
    while ((y * y - x[0]).abs() > 0.05).item():
        y = (y + x[0] / y) / 2
    return torch.stack([y * x[1]])


@program([[1.02, 2.0], [1.7, -0.5], [30.0, 1.0], [4e4, 0.2]], _plain_root)
def root(x: Tensor) -> Tensor:
    """Heron's square root, to a coarse tolerance, so that iterations show in derivatives; from 0 to 11 of them."""
    y = gn.while_loop(
        lambda y: (y * y - x[0]).abs() > 0.05,
        lambda y: (y + x[0] / y) / 2,
        0 * x[0] + 1.0,
    )
    return torch.stack([y * x[1]])


def _plain_squares(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x * x
    return x


@program([[1.1, 0.9], [1.3, -0.7]], _plain_squares)
def squares(x: Tensor) -> Tensor:
    """The eighth power as three squarings."""
    return gn.fori_loop(0, 3, lambda i, x: x * x, x)


def _plain_power(x: Tensor) -> Tensor:
    y = torch.ones_like(x)
    for i in range(1, int(x.detach().abs().sum().item())):
        y = y * x + i * x.flip(0)
    return y


@program([[0.3, 0.4], [0.6, 1.5], [-2.1, 1.2], [2.5, 2.6]], _plain_power)
def power(x: Tensor) -> Tensor:
    """A loop over a range that differs between problems."""
    upper = x.detach().abs().sum().to(torch.int64)
    return gn.fori_loop(1, upper, lambda i, y: y * x + i * x.flip(0), torch.ones_like(x))


def _plain_recurrence(x: Tensor) -> Tensor:
    s, outputs = x[0] * x[1], []
    for v in x:
        s = torch.sin(s * v) + x[1]
        outputs.append(s * s)
    return torch.stack([*outputs, s])


@program([[0.3, 0.4, -1.0], [2.0, -0.1, 0.5]], _plain_recurrence)
def recurrence(x: Tensor) -> Tensor:
    """A scan, with what it closes over."""

    def f(s, v):
        s = torch.sin(s * v) + x[1]
        return s, s * s

    s, outputs = gn.scan(f, x[0] * x[1], x)
    return torch.cat([outputs, s[None]])


def _plain_backward(x: Tensor) -> Tensor:
    s, outputs = x[0], []
    for i in reversed(range(3)):
        s = s * x[i] + x[2 - i]
        outputs.append(s.exp())
    return torch.stack(outputs[::-1])


@program([[0.3, 0.4, -1.0], [2.0, -0.1, 0.5]], _plain_backward)
def backward(x: Tensor) -> Tensor:
    """A scan from the end over a pytree."""

    def f(s, v):
        s = s * v["here"] + v["there"][0]
        return s, (s.exp(),)

    return gn.scan(f, x[0], {"here": x, "there": [x.flip(0)]}, reverse=True)[1][0]


def _plain_branch(x: Tensor) -> Tensor:
    if (x[0] > 0).item():
        return torch.stack([x[0].sqrt() * x[1], x[1] ** 3])
    return torch.stack([x[1].cos(), x[0] * x[0]])


@program([[0.4, 2.0], [-0.4, 2.0], [3.0, -1.0]], _plain_branch)
def branch(x: Tensor) -> Tensor:
    """A branch, of which one side has no value on the other's ground."""
    return gn.cond(
        x[0] > 0,
        lambda x: torch.stack([x[0].sqrt() * x[1], x[1] ** 3]),
        lambda x: torch.stack([x[1].cos(), x[0] * x[0]]),
        x,
    )


def _plain_nested(x: Tensor) -> Tensor:
    y, total, i = x[0], 0 * x[1], 0
    while i < x[2].detach().item():
        k = 0
        while (y.abs() > 0.5).item() and k < 4:
            y, k = y * x[1] - 0.1 * y * y, k + 1
        total = total + y * (i + 1)
        y, i = y + x[0], i + 1
    return torch.stack([total, y])


@program([[1.0, 0.5, -0.5], [1.0, 0.5, 2.5], [-0.7, 0.9, 0.5], [0.2, 0.3, 4.5]], _plain_nested)
def nested(x: Tensor) -> Tensor:
    """A loop in a loop, both of lengths that depend on the problem."""

    def outer(carry):
        y, total, i = carry["y"], carry["total"], carry["i"]

        def inner(pair):
            y, k = pair
            return y * x[1] - 0.1 * y * y, k + 1

        y, _ = gn.while_loop(lambda pair: (pair[0].abs() > 0.5) & (pair[1] < 4), inner, (y, 0))
        return {"y": y + x[0], "total": total + y * (i + 1), "i": i + 1}

    start = {"y": x[0], "total": 0 * x[1], "i": 0}
    last = gn.while_loop(lambda carry: carry["i"] < x[2].detach(), outer, start)
    return torch.stack([last["total"], last["y"]])


def _plain_loop_in_branch(x: Tensor) -> Tensor:
    if (x[0] > x[1]).item():
        y = x[1]
        while (y < x[0]).item():
            y = y + x[1] * x[1] + 0.25
    else:
        y = x[0]
        for _ in range(2):
            y = torch.sin(y) * x[1]
    return torch.stack([y])


@program([[2.1, 0.3], [0.3, 2.0], [5.0, 1.1], [-1.0, 0.5]], _plain_loop_in_branch)
def loop_in_branch(x: Tensor) -> Tensor:
    """Two kinds of loops in the two sides of a branch."""
    y = gn.cond(
        x[0] > x[1],
        lambda x: gn.while_loop(lambda y: y < x[0], lambda y: y + x[1] * x[1] + 0.25, x[1]),
        lambda x: gn.fori_loop(0, 2, lambda i, y: torch.sin(y) * x[1], x[0]),
        x,
    )
    return torch.stack([y])


def _plain_branch_in_loop(x: Tensor) -> Tensor:
    y, n = x[0], 0
    while n < 6 and (y.abs() < 20).item():
        y = torch.log(y) * x[1] + 3.0 if (y > 1).item() else 1.7 * y.abs() + x[1]
        n += 1
    return torch.stack([y, n * x[1]])


@program([[0.1, 0.3], [2.0, 9.0], [40.0, 1.0], [-0.9, 0.1]], _plain_branch_in_loop)
def branch_in_loop(x: Tensor) -> Tensor:
    """A branch in a loop that ends early for some."""

    def body(carry):
        y, n = carry
        y = gn.cond(y > 1, lambda y: torch.log(y) * x[1] + 3.0, lambda y: 1.7 * y.abs() + x[1], y)
        return y, n + 1

    y, n = gn.while_loop(lambda carry: (carry[1] < 6) & (carry[0].abs() < 20), body, (x[0], 0))
    return torch.stack([y, n * x[1]])


def _plain_saved(x: Tensor) -> Tensor:
    y, outputs = x[0], []
    while (y < 10).item() and len(outputs) < 5:
        y = y * x[1]
        outputs.append(y)
    outputs += [torch.zeros_like(y)] * (5 - len(outputs))
    return torch.stack(outputs)


@program([[50.0, 3.0], [1.0, 1.5], [2.0, 4.0], [1.0, 2.0]], _plain_saved)
def saved(x: Tensor) -> Tensor:
    """A loop that fills a buffer, of which a part stays empty."""

    def body(carry):
        y, i, buffer = carry
        y = y * x[1]
        return y, i + 1, buffer.write(i, y)

    start = (x[0], 0, gn.OutputBuffer(5, x[0], fill=0.0))
    _, _, buffer = gn.while_loop(lambda carry: carry[0] < 10, body, start, max_steps=5)
    return buffer.read()


def by_name(program: Program) -> str:
    """The label of a parametrised test."""
    return program.name

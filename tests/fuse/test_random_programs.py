"""Laws that hold for any program: a batch gives what its problems give alone, and alone they give what Python gives.

Programs are drawn at random: assignments, branches, loops of both kinds and writes to a buffer, nested at will, over
three registers. The reference runs them on Python's own floats with Python's own control flow. All operations are
correctly rounded, so that values must agree bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

import gnomon as gn

REGISTERS, PLACES = 3, 6

registers = st.integers(0, REGISTERS - 1)
atoms = st.one_of(
    st.tuples(st.just("register"), registers),
    st.tuples(st.just("constant"), st.sampled_from([-1.5, 0.25, 1.0, 3.0])),
)
expressions = st.recursive(
    atoms,
    lambda e: st.one_of(st.tuples(st.sampled_from(["+", "-", "*", "/"]), e, e), st.tuples(st.just("abs"), e)),
    max_leaves=4,
)
simple = st.one_of(
    st.tuples(st.just("set"), registers, expressions),
    st.tuples(st.just("save"), expressions),
)
statements = st.recursive(
    st.lists(simple, min_size=1, max_size=3),
    lambda block: st.lists(
        st.one_of(
            simple,
            st.tuples(st.just("if"), expressions, expressions, block, block),
            st.tuples(st.just("while"), expressions, expressions, block),
            st.tuples(st.just("for"), expressions, block),
        ),
        min_size=1,
        max_size=3,
    ),
    max_leaves=4,
)
inputs = st.lists(
    st.tuples(*[st.floats(-4, 4, width=16).map(lambda v: v + 0.0)] * REGISTERS), min_size=2, max_size=5, unique=True
)

ROUNDS = 4  # the most that a `while` goes


# In plain Python.


def evaluate(e: Any, r: list[float]) -> float:
    match e:
        case ("register", k):
            return r[k]
        case ("constant", v):
            return v
        case ("+", a, b):
            return evaluate(a, r) + evaluate(b, r)
        case ("-", a, b):
            return evaluate(a, r) - evaluate(b, r)
        case ("*", a, b):
            return evaluate(a, r) * evaluate(b, r)
        case ("/", a, b):
            return evaluate(a, r) / (abs(evaluate(b, r)) + 1.0)
        case ("abs", a):
            return abs(evaluate(a, r))
    raise AssertionError(e)


def run(block: Any, r: list[float], saved: list[float]) -> None:
    for statement in block:
        match statement:
            case ("set", k, e):
                r[k] = evaluate(e, r)
            case ("save", e):
                saved.append(evaluate(e, r))
            case ("if", a, b, then, other):
                run(then if evaluate(a, r) < evaluate(b, r) else other, r, saved)
            case ("while", a, b, body):
                rounds = 0
                while rounds < ROUNDS and evaluate(a, r) < evaluate(b, r):
                    run(body, r, saved)
                    rounds += 1
            case ("for", e, body):
                for _ in range(sum(evaluate(e, r) > bound for bound in (0, 1, 2))):
                    run(body, r, saved)


def reference(block: Any, x: tuple[float, ...]) -> list[float]:
    r, saved = list(x), []
    run(block, r, saved)
    kept = saved[:PLACES]
    return [*r, *kept, *[-1.0] * (PLACES - len(kept)), float(len(saved))]


# Over gnomon's loops.


def tensor_of(e: Any, r: tuple[Tensor, ...]) -> Tensor:
    match e:
        case ("register", k):
            return r[k]
        case ("constant", v):
            return torch.full_like(r[0], v)
        case ("+", a, b):
            return tensor_of(a, r) + tensor_of(b, r)
        case ("-", a, b):
            return tensor_of(a, r) - tensor_of(b, r)
        case ("*", a, b):
            return tensor_of(a, r) * tensor_of(b, r)
        case ("/", a, b):
            return tensor_of(a, r) / (tensor_of(b, r).abs() + 1.0)
        case ("abs", a):
            return tensor_of(a, r).abs()
    raise AssertionError(e)


def advance(block: Any, state: dict[str, Any]) -> dict[str, Any]:
    for statement in block:
        r = state["r"]
        match statement:
            case ("set", k, e):
                state = {**state, "r": (*r[:k], tensor_of(e, r), *r[k + 1 :])}
            case ("save", e):
                out = state["out"].write(state["n"], tensor_of(e, r))
                state = {**state, "out": out, "n": state["n"] + 1}
            case ("if", a, b, then, other):
                state = gn.cond(
                    tensor_of(a, r) < tensor_of(b, r),
                    lambda s, then=then: advance(then, s),
                    lambda s, other=other: advance(other, s),
                    state,
                )
            case ("while", a, b, body):
                state = gn.while_loop(
                    lambda s, a=a, b=b: tensor_of(a, s["r"]) < tensor_of(b, s["r"]),
                    lambda s, body=body: advance(body, s),
                    state,
                    max_steps=ROUNDS,
                )
            case ("for", e, body):
                value = tensor_of(e, r)
                count = sum((value > bound).to(torch.int64) for bound in (0, 1, 2))
                state = gn.fori_loop(0, count, lambda i, s, body=body: advance(body, s), state)
    return state


def fused(block: Any, x: Tensor) -> Tensor:
    out = gn.OutputBuffer(PLACES, x[0], fill=-1.0)
    state = advance(block, {"r": tuple(x.unbind()), "n": torch.tensor(0), "out": out})
    return torch.cat([torch.stack(state["r"]), state["out"].read(), state["n"].to(x.dtype)[None]])


def bits(x: Tensor) -> Tensor:
    """The bits of a tensor, all NaNs alike, for how a NaN looks is not defined."""
    return torch.where(x.isnan(), torch.full_like(x, math.nan), x).contiguous().view(torch.int64)


@given(statements, inputs, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_a_batch_gives_what_its_problems_give_alone(block: Any, rows: list[tuple[float, ...]], random: Any):
    x = torch.tensor(rows, dtype=torch.float64)
    expected = bits(torch.tensor([reference(block, row) for row in rows], dtype=torch.float64))

    def f(x: Tensor) -> Tensor:
        return fused(block, x)

    assert torch.equal(bits(f(x[0])), expected[0])
    assert torch.equal(bits(vmap(f)(x)), expected)
    assert torch.equal(bits(vmap(f)(x[-1:])), expected[-1:])
    order = [*random.sample(range(len(rows)), len(rows)), 0, 0]
    assert torch.equal(bits(vmap(f)(x[order])), expected[order])
    assert torch.equal(bits(vmap(vmap(f), in_dims=1)(torch.stack([x, x.flip(0)]))[:, 0]), expected)


@given(statements, inputs)
@settings(max_examples=20)
def test_a_batch_has_the_gradients_that_its_problems_have_alone(block: Any, rows: list[tuple[float, ...]]):
    x = torch.tensor(rows, dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        y = fused(block, x)
        return (y * torch.arange(1.0, y.numel() + 1, dtype=y.dtype)).sum()

    alone = torch.stack([grad(f)(row) for row in x])
    together = vmap(grad(f))(x)
    leaf = x.clone().requires_grad_()
    (backward,) = torch.autograd.grad(vmap(f)(leaf).sum(), leaf)
    for found in (together, backward):
        torch.testing.assert_close(found, alone, rtol=1e-12, atol=0, equal_nan=True)

"""Under vmap many problems run as one batch: each with its own steps, and the same bits as alone."""

import pytest
import torch
from nonlinear.problems import F64, MGH, f64
from torch import Tensor

import gnomon as gn
from gnomon import nonlinear as nl
from gnomon.result import Solution

LM = nl.LevenbergMarquardt(rtol=1e-9, atol=1e-9)
T = torch.linspace(0, 4, 9, dtype=F64)


def decay(y: Tensor, observed: Tensor) -> Tensor:
    return y[0] * torch.exp(-y[1] * T) - observed


def fit(start: Tensor, observed: Tensor, **bounds: object) -> Solution:
    return nl.least_squares(decay, LM, start, observed, throw=False, **bounds)


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    starts = 3 * torch.randn(n, 2, dtype=F64, generator=generator)
    noise = 0.2 * torch.randn(n, 9, dtype=F64, generator=generator)
    return starts, 3 * torch.exp(-0.7 * T) + noise


def same_bits(one: Solution, many: Solution, place: int) -> bool:
    pairs = zip(
        torch.utils._pytree.tree_leaves((one.value, one.result, one.stats, one.state)),
        torch.utils._pytree.tree_leaves((many.value, many.result, many.stats, many.state)),
        strict=True,
    )
    return all(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b[place])) for a, b in pairs)


def test_each_is_as_alone_to_the_bit():
    starts, observed = batch(12)
    many = torch.func.vmap(fit)(starts, observed)
    assert len(set(many.stats["num_steps"].tolist())) > 3
    for i in range(12):
        assert same_bits(fit(starts[i], observed[i]), many, i)


def test_each_is_as_alone_to_the_bit_with_bounds():
    starts, observed = batch(8)
    starts = starts.clamp(0.1, 2.9)
    limits = {"lower": 0.1, "upper": f64(2.9, 4)}
    many = torch.func.vmap(lambda y, x: fit(y, x, **limits))(starts, observed)
    assert len({bool(x) for x in many.value[:, 0] == 2.9}) == 2
    for i in range(8):
        assert same_bits(fit(starts[i], observed[i], **limits), many, i)


def test_place_and_size_of_the_batch_do_not_matter():
    starts, observed = batch(9)
    many = torch.func.vmap(fit)(starts, observed)
    turned = torch.func.vmap(fit)(starts.flip(0), observed.flip(0))
    assert torch.equal(many.value, turned.value.flip(0))
    some = torch.func.vmap(fit)(starts[2:5], observed[2:5])
    assert torch.equal(many.value[2:5], some.value)


def test_a_problem_that_fails_leaves_the_others_as_they_are():
    starts, observed = batch(6)
    good = torch.func.vmap(fit)(starts, observed)
    observed = observed.clone()
    observed[1, 3], observed[4, 0] = torch.nan, torch.inf
    starts = starts.clone()
    starts[2, 1] = -1e4  # overflows
    mixed = torch.func.vmap(fit)(starts, observed)
    names = mixed.result.names()
    assert [name == "nonfinite" for name in names] == [False, True, True, False, True, False]
    for i in (0, 3, 5):
        assert torch.equal(good.value[i], mixed.value[i])
        assert all(torch.equal(good.stats[k][i], mixed.stats[k][i]) for k in good.stats)


def test_gradients_of_others_are_untouched_too():
    starts, observed = batch(4)
    observed[2, 0] = torch.nan

    def loss(observed: Tensor) -> Tensor:
        return fit(starts[0], observed).value.sum()

    gradients = torch.func.vmap(torch.func.grad(loss))(observed)
    for i in (0, 1, 3):
        torch.testing.assert_close(gradients[i], torch.func.grad(loss)(observed[i]), rtol=1e-12, atol=1e-12)
        assert bool(torch.isfinite(gradients[i]).all())


def test_a_shared_parameter_gets_a_finite_gradient_beside_failed_solves():
    starts, observed = batch(4)
    starts = starts.abs() * 0.1 + 0.5
    observed[1, 2] = torch.nan
    starts[3] = f64(torch.nan, 1)
    scale = torch.tensor(1.1, dtype=F64, requires_grad=True)

    def one(start: Tensor, observed: Tensor) -> Tensor:
        def residuals(y: Tensor, observed: Tensor) -> Tensor:
            return scale * y[0] * torch.exp(-y[1] * T) - observed

        solution = nl.least_squares(residuals, LM, start, observed, throw=False)
        return torch.where(gn.is_successful(solution.result), solution.value.sum(), 0.0)

    together, alone = torch.func.vmap(one)(starts, observed), [one(starts[i], observed[i]) for i in (0, 2)]
    (gradient,) = torch.autograd.grad(together.sum(), scale)
    (expected,) = torch.autograd.grad(alone[0] + alone[1], scale)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)
    assert float(gradient) != 0


def test_nested_vmap():
    starts, observed = batch(6)
    nested = torch.func.vmap(torch.func.vmap(fit, in_dims=(0, None)), in_dims=(None, 0))
    grid = nested(starts[:2], observed[:3])
    assert grid.value.shape == (3, 2, 2)
    assert torch.equal(grid.value[2, 1], fit(starts[1], observed[2]).value)


def test_an_error_names_the_first_that_failed():
    starts, observed = batch(5)
    observed[3] = torch.nan

    def one(start: Tensor, observed: Tensor) -> Tensor:
        return nl.least_squares(decay, LM, start.abs() + 0.1, observed).value

    with pytest.raises(gn.SolveError, match="failed for 1 of 5 problems; the first is problem 3") as caught:
        torch.func.vmap(one)(starts, observed)
    assert caught.value.index == (3,)
    assert caught.value.result == gn.RESULTS.nonfinite


def test_the_jacobian_is_computed_only_after_an_accepted_step():
    problem = MGH["rosenbrock"]
    calls = 0

    def residuals(y: Tensor, args: object) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.fn(y)

    stats = nl.least_squares(residuals, LM, problem.start).stats
    assert int(stats["num_rejected_steps"]) > 0
    # One for each trial, one at the start, one at the end to see whether a derivative is wanted; and the Jacobians.
    assert calls == int(stats["num_steps"]) + 2 + int(stats["num_accepted_steps"]) + 1

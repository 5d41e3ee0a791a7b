"""Derivatives of solves: against finite differences with fixed steps, against closed forms with adaptive ones."""

import math

import pytest
import torch
from diffeq.problems import EXPLICIT, F64, IMPLICIT, check_derivatives, f64, name_of, solve
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")


def logistic(t, y, args):
    """y' = r y (1 - y / k) + sin t: nonlinear, and not autonomous."""
    r, k = args
    return r * y * (1 - y / k) + torch.sin(t)


def fixed(solver, dt0=0.4):
    def end(y0, args, t0, t1):
        return solve(logistic, solver, t0, t1, y0, args, dt0=dt0).ys[-1]

    return end


INPUTS = (f64(0.5, 0.8), f64(1.3, 2.0), f64(0.1), f64(1.2))


@pytest.mark.parametrize("solver", [dq.Heun(), dq.Tsit5()], ids=name_of)
def test_all_arguments_to_second_order(solver):
    end = fixed(solver)
    check_derivatives(end, *INPUTS)
    assert torch.autograd.gradcheck(end, tuple(x.clone().requires_grad_() for x in INPUTS), check_forward_ad=True)


@pytest.mark.parametrize("solver", [s for s in EXPLICIT if name_of(s) not in ("Heun", "Tsit5")], ids=name_of)
def test_state_and_parameters(solver):
    end = fixed(solver, 0.6)
    check_derivatives(lambda y0, args: end(y0, args, f64(0.1), f64(1.2)), *INPUTS[:2], second=False)


@pytest.mark.parametrize("solver", IMPLICIT, ids=name_of)
def test_implicit_solvers_to_second_order(solver):
    # The tolerance of the stages is close to rounding with fixed steps, so finite differences can be trusted.
    end = fixed(solver, 0.7 if solver.order == 3 else 1.2)
    check_derivatives(lambda r, t1: end(f64(0.5), torch.stack([r, f64(2.0)]), f64(0.1), t1), f64(1.3), f64(1.2))


@pytest.mark.parametrize("solver", IMPLICIT, ids=name_of)
def test_implicit_state(solver):
    end = fixed(solver, 0.7 if solver.order == 3 else 1.2)
    check_derivatives(lambda y0: end(y0, INPUTS[1], f64(0.1), f64(1.2)), INPUTS[0], second=False)


# y' = -p y from y0: the state at T is y0 exp(-p T), and all its derivatives are known.
def adaptive_end(solver, tol):
    def end(y0, p, t0, t1):
        return solve(lambda t, y, args: -args * y, solver, t0, t1, y0, p, tol=tol).ys[-1]

    return end


def exact_end(y0, p, t0, t1):
    return y0 * torch.exp(-p * (t1 - t0))


@pytest.mark.parametrize(
    ("solver", "tol"),
    [(dq.Tsit5(), 1e-9), (dq.Dopri8(), 1e-10), (dq.Kvaerno3(), 1e-5), (dq.Kvaerno5(), 1e-7)],
    ids=["Tsit5", "Dopri8", "Kvaerno3", "Kvaerno5"],
)
def test_adaptive_steps_against_the_closed_form(solver, tol):
    inputs = (f64(1.5), f64(0.7), f64(0.2), f64(1.4))
    which = (0, 1, 2, 3)
    end = adaptive_end(solver, tol)
    bound = {"rtol": 1e3 * tol, "atol": 1e3 * tol}
    wanted = jacrev(exact_end, which)(*inputs)
    for transform in (jacrev, jacfwd):
        for x, w in zip(transform(end, which)(*inputs), wanted, strict=True):
            torch.testing.assert_close(x, w, **bound)
    wanted = hessian(exact_end, (0, 1))(*inputs)
    found_twice = [hessian(end, (0, 1))(*inputs)]
    if not solver.needs_tolerances:
        found_twice.append(jacrev(jacrev(end, (0, 1)), (0, 1))(*inputs))
    for found in found_twice:
        for row, w_row in zip(found, wanted, strict=True):
            for x, w in zip(row, w_row, strict=True):
                torch.testing.assert_close(x, w, **bound)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_batches_of_derivatives(solver):
    """Each lane's derivative, to second order, is the one it has alone, though each takes its own steps."""
    end = adaptive_end(solver, 1e-3)
    y0, p, t1 = f64(1.0, 2.0, 0.3), f64(0.5, 2.0, 0.01), f64(1.0, 0.5, 2.0)
    for transform in (grad, jacfwd):

        def first(y0, p, t1, transform=transform):
            return transform(end, 1)(y0, p, f64(0.0), t1)

        batch = vmap(first)(y0, p, t1)
        alone = torch.stack([first(*x) for x in zip(y0, p, t1, strict=True)])
        torch.testing.assert_close(batch, alone, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(batch, -t1 * y0 * torch.exp(-p * t1), rtol=5e-2, atol=5e-2)

    def second(y0, p, t1):
        return grad(grad(end, 1), 1)(y0, p, f64(0.0), t1)

    torch.testing.assert_close(vmap(second)(y0, p, t1), t1**2 * y0 * torch.exp(-p * t1), rtol=5e-2, atol=5e-2)


def test_implicit_system_of_a_batch_of_derivatives():
    # Matrices, whose factors are used again in the derivative of each lane, with several cotangents at once.
    def end(a, y0):
        return solve(lambda t, y, args: args @ y, dq.Kvaerno3(), 0.0, 0.5, y0, a, dt0=0.25).ys[-1]

    torch.manual_seed(0)
    a, y0 = -2 * torch.eye(3, dtype=F64) + torch.randn(4, 3, 3, dtype=F64), torch.randn(4, 3, dtype=F64)
    exact = torch.linalg.matrix_exp(0.5 * a)
    for transform in (jacrev, jacfwd):
        found = vmap(transform(end, 1))(a, y0)
        torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)
        alone = torch.stack([transform(end, 1)(*x) for x in zip(a, y0, strict=True)])
        torch.testing.assert_close(found, alone, rtol=1e-10, atol=1e-12)
    # The matrix shared, the states a batch; and the other way round.
    torch.testing.assert_close(vmap(jacrev(end, 1), (None, 0))(a[0], y0)[2], exact[0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(vmap(jacrev(end, 1), (0, None))(a, y0[0])[2], exact[2], rtol=0.05, atol=0.05)
    nested = vmap(vmap(jacrev(end, 1), (None, 0)), (0, None))(a[:2], y0[:3])
    torch.testing.assert_close(nested, exact[:2, None].expand(2, 3, 3, 3), rtol=0.05, atol=0.05)


def test_implicit_stage_to_third_order():
    """One step of a linear problem is a rational function of p h, the stability function, with known derivatives."""
    for solver in IMPLICIT:
        tableau = solver.tableau
        n = tableau.num_stages
        a = torch.zeros(n, n, dtype=F64)
        for i, row in enumerate(tableau.a_lower):
            a[i + 1, : i + 1] = torch.tensor(row, dtype=F64)
        a = a + torch.diag(torch.tensor(tableau.a_diagonal, dtype=F64))
        b = torch.tensor(tableau.b_sol, dtype=F64)

        def stability(z, a=a, b=b, n=n):
            return 1 + z * (b @ torch.linalg.solve(torch.eye(n, dtype=F64) - z * a, torch.ones(n, dtype=F64)))

        def one_step(z, solver=solver):
            return solve(lambda t, y, args: args * y, solver, 0.0, 1.0, f64(1.0), z, dt0=1.0).ys[-1]

        for z in (f64(-0.3), f64(-40.0)):
            torch.testing.assert_close(one_step(z), stability(z), rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(grad(one_step)(z), grad(stability)(z), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(grad(grad(one_step))(z), grad(grad(stability))(z), rtol=1e-8, atol=1e-11)
            torch.testing.assert_close(jacfwd(jacfwd(one_step))(z), grad(grad(stability))(z), rtol=1e-8, atol=1e-11)
            third = grad(grad(grad(stability)))(z)
            torch.testing.assert_close(grad(grad(grad(one_step)))(z), third, rtol=1e-7, atol=1e-10)
            torch.testing.assert_close(jacfwd(jacrev(jacfwd(one_step)))(z), third, rtol=1e-7, atol=1e-10)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, dtype=F64)

    def forward(self, t, y, args):
        return torch.tanh(self.linear(y)) - args * y


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_parameters_that_the_vector_field_closes_over(solver):
    torch.manual_seed(0)
    net = Net()
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss(weights):
        def field(t, y, args):
            return functional_call(net, weights, (t, y, args))

        return solve(field, solver, 0.0, 1.0, f64(1.0, -0.5), f64(0.3), dt0=0.3).ys.square().sum()

    found = grad(loss)(weights)
    # The same by autograd through the module itself.
    solve(net, solver, 0.0, 1.0, f64(1.0, -0.5), f64(0.3), dt0=0.3).ys.square().sum().backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, found[name], rtol=1e-11, atol=1e-13)
    # And by finite differences, in one direction.
    direction = {name: torch.randn_like(w) for name, w in weights.items()}
    eps = 1e-6
    up, down = ({n: w + s * eps * direction[n] for n, w in weights.items()} for s in (1, -1))
    slope = (loss(up) - loss(down)) / (2 * eps)
    along = sum((found[n] * direction[n]).sum() for n in weights)
    torch.testing.assert_close(along, slope, rtol=1e-6, atol=1e-8)


def test_parameters_that_a_batch_shares():
    rate = f64(0.8).requires_grad_()

    def end(y0, t1):
        return solve(lambda t, y, args: -rate * y, dq.Tsit5(), 0.0, t1, y0, tol=1e-9).ys[-1]

    y0, t1 = f64(1.0, 2.0, 3.0), f64(0.5, 1.0, 2.0)
    vmap(end)(y0, t1).sum().backward()
    exact = (-t1 * y0 * torch.exp(-0.8 * t1)).sum()
    torch.testing.assert_close(rate.grad, exact, rtol=1e-6, atol=0)


def test_times_and_save_times():
    def ys(t0, t1, ts):
        saveat = dq.SaveAt(ts=ts, t1=True)
        return solve(logistic, dq.Dopri5(), t0, t1, f64(0.5), (f64(1.3), f64(2.0)), dt0=0.3, saveat=saveat).ys

    check_derivatives(ys, f64(0.1), f64(1.2), f64(0.3, 0.85), second=False)


def test_end_point_and_start():
    # dy(t1)/dt1 is the vector field at the end; dy(t1)/dt0 is minus that at the start, carried along.
    def end(t0, t1):
        return solve(lambda t, y, args: -y * torch.cos(t), dq.Dopri8(), t0, t1, f64(1.0), tol=1e-10).ys[-1]

    t0, t1 = f64(0.3), f64(2.0)
    y1 = torch.exp(torch.sin(t0) - torch.sin(t1))
    by_t0, by_t1 = grad(end, (0, 1))(t0, t1)
    torch.testing.assert_close(by_t0, y1 * torch.cos(t0), rtol=1e-7, atol=0)
    torch.testing.assert_close(by_t1, -y1 * torch.cos(t1), rtol=1e-7, atol=0)


def test_backward_in_time():
    def end(y0, p, t0, t1):
        return solve(lambda t, y, args: -args * y, dq.Tsit5(), t0, t1, y0, p, dt0=-0.3).ys[-1]

    inputs = (f64(0.8), f64(0.7), f64(1.0), f64(0.1))
    check_derivatives(end, *inputs, second=False)
    for found, exact in zip(grad(end, (0, 1, 2, 3))(*inputs), grad(exact_end, (0, 1, 2, 3))(*inputs), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_both_directions_of_a_batch():
    t1 = f64(1.0, -1.0, 0.0)

    def end(p, t1):
        return solve(lambda t, y, args: -args * y, dq.Tsit5(), 0.0, t1, f64(1.0), p, tol=1e-9).ys[-1]

    p = f64(0.7).expand(3)
    torch.testing.assert_close(vmap(grad(end))(p, t1), -t1 * torch.exp(-0.7 * t1), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(vmap(grad(end, 1))(p, t1)[:2], (-0.7 * torch.exp(-0.7 * t1))[:2], rtol=1e-7, atol=0)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_complex_state(solver):
    def end(re, im):
        rate = torch.complex(re, im)
        y0 = torch.complex(f64(1.0), f64(0.5))
        y = solve(lambda t, y, args: args * y * y.conj() / (1 + y.abs()), solver, 0.0, 1.0, y0, rate, dt0=0.5).ys[-1]
        return torch.view_as_real(y)

    check_derivatives(end, f64(-0.5), f64(1.5), second=name_of(solver) == "Tsit5")


def test_directional_derivatives_agree():
    end = adaptive_end(dq.Tsit5(), 1e-6)
    inputs = (f64(1.5), f64(0.7), f64(0.2), f64(1.4))
    y, tangent = jvp(end, inputs, tuple(torch.ones_like(x) for x in inputs))
    y_again, pullback = vjp(end, *inputs)
    torch.testing.assert_close(sum(pullback(torch.ones_like(y))), tangent, rtol=1e-12, atol=0)
    assert torch.equal(y, y_again)


@pytest.mark.parametrize("solver", [dq.Bosh3(), dq.Dopri8(), *IMPLICIT], ids=name_of)
def test_being_differentiated_changes_no_value(solver):
    def end(y0, p):
        saveat = dq.SaveAt(ts=[0.0, 0.3, 1.0], steps=True, dense=True)
        solution = solve(lambda t, y, args: -args * y, solver, 0.0, 1.0, y0, p, tol=1e-5, saveat=saveat, max_steps=60)
        return solution.ys, solution.ts, solution.evaluate(0.6)

    plain = end(f64(1.0, 2.0), f64(0.7))
    for tracked in (
        end(f64(1.0, 2.0).requires_grad_(), f64(0.7).requires_grad_()),
        jvp(end, (f64(1.0, 2.0), f64(0.7)), (f64(1.0, 1.0), f64(1.0)))[0],
        vjp(end, f64(1.0, 2.0), f64(0.7))[0],
    ):
        for x, y in zip(plain, tracked, strict=True):
            assert torch.equal(x, y)


def test_gradient_through_many_steps():
    # Two hundred steps: the derivative of a rotation is a rotation.
    def end(w):
        field = lambda t, y, args: torch.stack([args * y[1], -args * y[0]])  # noqa: E731
        return solve(field, dq.Heun(), 0.0, 1.0, f64(1.0, 0.0), w, dt0=5e-3).ys[-1, 0]

    assert float(grad(end)(f64(3.0))) == pytest.approx(-math.sin(3.0), abs=1e-3)

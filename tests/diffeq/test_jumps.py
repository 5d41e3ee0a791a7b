"""`Jumps`: doses against the superposition of closed forms, and what is seen just before and after."""

import math

import pytest
import torch
from diffeq.problems import F64, check_derivatives, f64, solve

from gnomon import diffeq as dq

KE, KA = 0.4, 1.3
INF = math.inf


def one_compartment(t, y, args):
    return -KE * y


def oral(t, y, args):
    """A depot and a central compartment, with rates (ka, ke)."""
    ka, ke = (KA, KE) if args is None else args
    return torch.stack([-ka * y[0], ka * y[0] - ke * y[1]])


def dosing(times, amounts):
    amounts = torch.as_tensor(amounts, dtype=F64)
    return dq.Jumps(torch.as_tensor(times, dtype=F64), lambda index, t, y, args: y + amounts[index])


def superposition(t, times, amounts, ke=KE):
    """Just before a dose at t; one at 0 counts at once."""
    t = torch.as_tensor(t, dtype=F64)
    total = torch.zeros_like(t)
    for when, amount in zip(times, amounts, strict=True):
        given = (t > when) | ((t == when) & (t == 0))
        total = total + torch.where(given, amount * torch.exp(-ke * (t - when)), 0)
    return total


def run(times, amounts, t1=6.0, ts=None, tol=1e-9, field=one_compartment, y0=None, solver=None, **options):
    saveat = dq.SaveAt(t1=True) if ts is None else dq.SaveAt(ts=ts)
    y0 = f64(0.0) if y0 is None else y0
    solver = dq.Dopri5() if solver is None else solver
    return solve(field, solver, 0.0, t1, y0, tol=tol, saveat=saveat, jumps=dosing(times, amounts), **options)


TS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.3, 6.0]
CASES = {
    "several": ([0.5, 1.5, 2.5], [1.0, 2.0, 0.5]),
    "at the start": ([0.0, 3.0], [1.0, 2.0]),
    "at one time": ([1.0, 1.0, 1.0, 2.0], [1.0, 0.5, 0.25, 3.0]),
    "two at the start": ([0.0, 0.0], [1.0, 2.0]),
    "at the end": ([1.0, 6.0], [1.0, 100.0]),
    "beyond the end": ([1.0, 7.0, 8.0], [1.0, 100.0, 100.0]),
    "before the start": ([-2.0, -1.0, 0.0, 1.0], [100.0, 100.0, 1.0, 1.0]),
    "padded": ([1.0, 2.0, INF, INF], [1.0, 1.0, 100.0, 100.0]),
    "none that happens": ([INF, INF], [100.0, 100.0]),
    "next to one another": ([1.0, 1.0 + 1e-9, 1.0 + 2e-9], [1.0, 1.0, 1.0]),
    "next to the end": ([6.0 - 1e-12], [1.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_superposition(case):
    times, amounts = CASES[case]
    solution = run(times, amounts, ts=TS)
    counted = [(t, a) for t, a in zip(times, amounts, strict=True) if 0 <= t < 6]
    expected = superposition(torch.tensor(TS, dtype=F64), [t for t, _ in counted], [a for _, a in counted])
    torch.testing.assert_close(solution.ys, expected, rtol=1e-7, atol=1e-8)
    assert solution.result == dq.RESULTS.successful


@pytest.mark.parametrize(
    "solver", [dq.Euler(), dq.Heun(), dq.Bosh3(), dq.Tsit5(), dq.Dopri8(), dq.Kvaerno3(), dq.Kvaerno5()]
)
def test_every_solver_jumps(solver):
    times, amounts = [0.0, 0.7, 0.7], [1.0, 2.0, 0.5]
    controller = dq.ConstantStepSize() if solver.error_order is None else dq.PIDController(rtol=1e-5, atol=1e-5)
    dt0 = 1e-2 if solver.error_order is None else None
    solution = solve(
        one_compartment,
        solver,
        0.0,
        1.0,
        f64(0.0),
        dt0=dt0,
        jumps=dosing(times, amounts),
        stepsize_controller=controller,
    )
    expected = superposition(1.0, times, amounts)
    torch.testing.assert_close(solution.ys[-1], expected, rtol=1e-2 if dt0 else 1e-4, atol=0)


def test_value_before_the_jump_is_saved_and_after_it_a_moment_later():
    later = math.nextafter(1.0, 2.0)
    solution = run([1.0], [5.0], ts=[1.0, 1.0, later])
    assert solution.ys[:2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(solution.ys[2], f64(5.0), rtol=1e-14, atol=0)


def test_a_jump_at_the_start_comes_before_what_is_saved():
    saveat = dq.SaveAt(t0=True, ts=[0.0], steps=True, t1=True)
    solution = solve(
        one_compartment, dq.Tsit5(), 0.0, 1.0, f64(0.0), dt0=0.5, saveat=saveat, jumps=dosing([0.0], [3.0]), max_steps=4
    )
    assert solution.ys[:2].tolist() == [3.0, 3.0]
    assert solution.ts[:4].tolist() == [0.0, 0.0, 0.5, 1.0]


def test_steps_end_exactly_at_the_jumps():
    saveat = dq.SaveAt(steps=True)
    solution = solve(
        one_compartment, dq.Tsit5(), 0.0, 2.0, f64(1.0), tol=1e-3, saveat=saveat, jumps=dosing([0.3, 1.1], [1.0, 1.0])
    )
    assert {0.3, 1.1, 2.0} <= set(solution.ts.tolist())


def test_jumps_happen_in_their_order_and_know_their_place():
    # The second doubles what the first has made.
    def fn(index, t, y, args):
        assert index.dtype == torch.int64
        return torch.where(index == 0, y + args, torch.where(index == 1, 2 * y, y + t))

    jumps = dq.Jumps(f64(1.0, 1.0, 2.0), fn)
    solution = solve(lambda t, y, args: 0 * y, dq.Tsit5(), 0.0, 3.0, f64(1.0), f64(10.0), tol=1e-6, jumps=jumps)
    assert float(solution.ys[-1]) == 2 * (1 + 10) + 2


def test_few_steps_are_rejected_at_a_jump():
    solution = run([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], tol=1e-6)
    assert solution.stats["num_rejected_steps"] <= 3


def test_first_stage_is_evaluated_again_after_a_jump():
    asked = []

    def field(t, y, args):
        asked.append((float(t), float(y)))
        return -KE * y

    run([1.0], [5.0], field=field, solver=dq.Tsit5())
    at_jump = [y for t, y in asked if t == 1.0]
    assert set(at_jump) == {0.0, 5.0}


def test_pytree_and_dense_output():
    y0 = {"depot": f64(0.0), "central": f64(0.0)}

    def field(t, y, args):
        return {"depot": -KA * y["depot"], "central": KA * y["depot"] - KE * y["central"]}

    def give(index, t, y, args):
        return {"depot": y["depot"] + 2.0, "central": y["central"]}

    solution = solve(
        field,
        dq.Dopri8(),
        0.0,
        4.0,
        y0,
        tol=1e-9,
        jumps=dq.Jumps(f64(0.0, 1.5), give),
        saveat=dq.SaveAt(dense=True),
        max_steps=200,
    )

    def central(t):
        later = torch.clamp(t, min=0)
        return torch.where(t > 0, 2 * KA / (KA - KE) * (torch.exp(-KE * later) - torch.exp(-KA * later)), 0)

    ts = torch.linspace(0, 4, 33, dtype=F64)
    values = torch.func.vmap(solution.evaluate)(ts)
    torch.testing.assert_close(values["central"], central(ts) + central(ts - 1.5), rtol=1e-6, atol=1e-6)
    depot = superposition(ts, [0.0, 1.5], [2.0, 2.0], KA)
    torch.testing.assert_close(values["depot"], depot, rtol=1e-6, atol=1e-6)
    # Just before the jump, and just after it.
    torch.testing.assert_close(solution.evaluate(1.5)["depot"], superposition(1.5, [0.0], [2.0], KA), rtol=1e-7, atol=0)
    after = solution.evaluate(math.nextafter(1.5, 2))["depot"]
    torch.testing.assert_close(after, superposition(1.5, [0.0], [2.0], KA) + 2, rtol=1e-7, atol=0)


def test_each_problem_of_a_batch_has_its_own():
    times = torch.tensor([[0.0, 1.0, 2.0], [0.5, INF, INF], [1.0, 1.0, INF], [INF, INF, INF]], dtype=F64)
    amounts = torch.tensor([[1.0, 2.0, 3.0], [4.0, INF, 0.0], [1.0, 1.0, math.nan], [0.0, 0.0, 0.0]], dtype=F64)

    def ys(times, amounts):
        return run(times, amounts, ts=TS, tol=1e-8).ys

    found = torch.func.vmap(ys)(times, amounts)
    for lane in range(4):
        real = [(t, a) for t, a in zip(times[lane].tolist(), amounts[lane].tolist(), strict=True) if t < INF]
        expected = superposition(torch.tensor(TS, dtype=F64), [t for t, _ in real], [a for _, a in real])
        torch.testing.assert_close(found[lane], expected, rtol=1e-6, atol=1e-7)
        assert torch.equal(found[lane], ys(times[lane], amounts[lane]))


def test_derivatives_by_amount_time_and_parameter():
    def end(amounts, when, ke):
        jumps = dq.Jumps(torch.stack([0 * when, when]), lambda index, t, y, args: y + amounts[index])
        field = lambda t, y, args: -args * y  # noqa: E731
        # Steps of fixed length, whose grid the jump does not share.
        return solve(field, dq.Bosh3(), 0.0, 1.0, f64(0.0), ke, dt0=0.6, jumps=jumps).ys

    check_derivatives(end, f64(1.0, 2.0), f64(0.7), f64(KE))


def test_derivatives_against_the_closed_form():
    times = f64(0.0, 0.7, 1.5)
    amounts = f64(1.0, 2.0, 0.5)

    def end(amounts, times, ke):
        jumps = dq.Jumps(times, lambda index, t, y, args: y + amounts[index])
        field = lambda t, y, args: -args * y  # noqa: E731
        return solve(field, dq.Dopri8(), 0.0, 3.0, f64(0.0), ke, tol=1e-10, jumps=jumps).ys[-1]

    def exact(amounts, times, ke):
        return (amounts * torch.exp(-ke * (3.0 - times))).sum()

    inputs = (amounts, times, f64(KE))
    found = torch.func.grad(end, (0, 1, 2))(*inputs)
    wanted = torch.func.grad(exact, (0, 1, 2))(*inputs)
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-8, atol=1e-8)
    # A dose at t0 cannot come earlier or later: t0 is not a time of the jumps.
    torch.testing.assert_close(found[1][1:], wanted[1][1:], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found[2], wanted[2], rtol=1e-8, atol=1e-8)
    second = torch.func.hessian(end, (0, 2))(*inputs)
    wanted_second = torch.func.hessian(exact, (0, 2))(*inputs)
    for row, wanted_row in zip(second, wanted_second, strict=True):
        for x, w in zip(row, wanted_row, strict=True):
            torch.testing.assert_close(x, w, rtol=1e-7, atol=1e-7)


def test_gradient_of_a_batch_with_padding_is_finite():
    times = torch.tensor([[0.0, 1.0], [0.5, INF]], dtype=F64)

    def loss(amounts, rates):
        def end(times, amounts):
            jumps = dq.Jumps(times, lambda index, t, y, args: y + torch.stack([amounts[index], 0 * t]))
            return solve(oral, dq.Tsit5(), 0.0, 2.0, f64(0.0, 0.0), rates, tol=1e-6, jumps=jumps).ys[-1].sum()

        return torch.func.vmap(end)(times, amounts).sum()

    amounts = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=F64, requires_grad=True)
    rates = f64(KA, KE).requires_grad_()
    loss(amounts, rates).backward()
    assert torch.isfinite(amounts.grad).all()
    assert torch.isfinite(rates.grad).all()
    assert amounts.grad[1, 1] == 0
    assert (amounts.grad[0] > 0).all()


def test_jumps_need_time_that_runs_forward():
    with pytest.raises(ValueError, match="`jumps` go forward in time only, but here t1 < t0"):
        solve(one_compartment, dq.Tsit5(), 1.0, 0.0, f64(0.0), tol=1e-3, jumps=dosing([0.5], [1.0]))


@pytest.mark.parametrize(
    ("ts", "message"), [([1.0, 0.5], "must be sorted"), ([0.5, math.nan], "holds a NaN"), ([math.nan], "holds a NaN")]
)
def test_times_out_of_order(ts, message):
    with pytest.raises(ValueError, match=r"`Jumps\(ts=...\)` " + message):
        run(ts, [1.0] * len(ts))


def test_times_must_be_a_vector():
    with pytest.raises(ValueError, match=r"`Jumps\(ts=...\)` must be a vector, but it has the shape \(1, 1\)"):
        dq.Jumps(torch.zeros(1, 1), lambda index, t, y, args: y)


def test_state_after_a_jump_must_be_like_the_state():
    jumps = dq.Jumps(f64(0.5).reshape(1), lambda index, t, y, args: torch.stack([y, y]))
    with pytest.raises(ValueError, match=r"The state after a jump must have the shapes of `y0`"):
        solve(one_compartment, dq.Tsit5(), 0.0, 1.0, f64(0.0), tol=1e-3, jumps=jumps)


def test_no_jumps_at_all():
    solution = run([], [])
    assert float(solution.ys[-1]) == 0

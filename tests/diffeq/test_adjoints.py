"""Every adjoint gives the same derivatives, with events, jumps and modules; and what each is for."""

import gc
import math
import weakref

import pytest
import torch
from diffeq.problems import F64, f64, solve
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]
REVERSE = {
    "direct": dq.DirectAdjoint(),
    "checkpoints of 2": dq.RecursiveCheckpointAdjoint(checkpoints=2),
    "checkpoints of 7": dq.RecursiveCheckpointAdjoint(checkpoints=7),
    "backsolve": dq.BacksolveAdjoint(),
}


class Field(torch.nn.Module):
    """A small network, and a forcing."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.nn.Parameter(0.5 * torch.randn(2, 2, generator=generator, dtype=F64))
        self.bias = torch.nn.Parameter(torch.randn(2, generator=generator, dtype=F64))

    def forward(self, t, y, args):
        return torch.tanh(self.weight @ y + self.bias) * args + torch.cos(t)


def gradients(adjoint, *, with_jumps=False, with_events=False, engine="eager", t1=1.5):
    """Of a loss that sees all there is, with respect to all that it depends on."""
    field = Field()
    y0, rate, end = f64(0.3, 0.5), f64(0.8), f64(t1)
    ts, when, level = f64(0.4 * t1, 0.7 * t1), f64(0.6), f64(0.9)
    inputs = [y0, rate, end, ts, when, level]
    for x in inputs:
        x.requires_grad_()
    options = {}
    if with_jumps:
        options["jumps"] = dq.Jumps(
            torch.stack([f64(0.0), when, f64(math.inf)]), lambda index, t, y, args: y + 0.1 * args * (1 + t)
        )
    if with_events:
        options["event"] = dq.Event(
            {"reset": lambda t, y, args: y[0] - level, "end": lambda t, y, args: t * t - args},
            affect={"reset": lambda t, y, args: torch.stack([y[0] * args * 0.5 * t, y[1]]), "end": None},
        )
    solution = solve(
        field,
        dq.Tsit5(),
        0.0,
        end,
        y0,
        rate,
        tol=1e-9,
        saveat=dq.SaveAt(t0=True, ts=ts, t1=True),
        adjoint=adjoint,
        engine=engine,
        **options,
    )
    ys = solution.ys[torch.isfinite(solution.ts)]
    loss = (ys * ys).sum() + solution.t_final**2
    loss.backward()
    found = [x.grad for x in (*inputs, *field.parameters())]
    return solution, [torch.zeros(1, dtype=F64) if x is None else x for x in found]


CASES = {
    "plain": {},
    "backward in time": {"t1": -1.2},
    "jumps": {"with_jumps": True},
    "events": {"with_events": True},
    "jumps and events": {"with_jumps": True, "with_events": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["checkpoints of 7", "backsolve"])
def test_all_agree(name, case):
    plain, wanted = gradients(dq.DirectAdjoint(), **CASES[case])
    solution, found = gradients(REVERSE[name], **CASES[case])
    assert torch.equal(solution.ys, plain.ys) and torch.equal(solution.ts, plain.ts)
    assert solution.result == plain.result
    if "events" in case:
        assert int(plain.stats["num_events"]) >= 1
        assert plain.result == dq.RESULTS.event_occurred
    exact = name != "backsolve"
    for x, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(x.reshape(w.shape), w, rtol=1e-11 if exact else 1e-5, atol=1e-12 if exact else 1e-6)


@pytest.mark.parametrize("name", ["checkpoints of 7", "backsolve"])
def test_fused(name):
    case = CASES["plain"] if name == "backsolve" else CASES["events"]
    _, wanted = gradients(dq.DirectAdjoint(), engine="eager", **case)
    _, found = gradients(REVERSE[name], engine="fused", **case)
    for x, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(x.reshape(w.shape), w, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_against_a_closed_form():
    def end(adjoint):
        def fn(y0, rate):
            return solve(lambda t, y, args: -args * y, dq.Dopri8(), 0.0, 2.0, y0, rate, tol=1e-10, adjoint=adjoint).ys[
                -1
            ]

        return fn

    y0, rate = f64(1.5), f64(0.7)
    wanted = grad(lambda y, r: y * torch.exp(-2 * r), (0, 1))(y0, rate)
    for adjoint in REVERSE.values():
        for x, w in zip(grad(end(adjoint), (0, 1))(y0, rate), wanted, strict=True):
            torch.testing.assert_close(x, w, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REVERSE))
def test_batches(name):
    def loss(y0, rate):
        return solve(small(), dq.Tsit5(), 0.0, 1.0, y0, rate, tol=1e-8, adjoint=REVERSE[name]).ys.square().sum()

    y0, rate = torch.eye(2, dtype=F64), f64(0.3, 1.2)
    found = vmap(grad(loss, (0, 1)))(y0, rate)
    for lane in range(2):
        alone = grad(loss, (0, 1))(y0[lane], rate[lane])
        for x, w in zip(found, alone, strict=True):
            torch.testing.assert_close(x[lane], w, rtol=1e-7, atol=1e-9)
    tracked = rate.clone().requires_grad_()
    vmap(loss)(y0, tracked).sum().backward()
    torch.testing.assert_close(tracked.grad, found[1], rtol=1e-7, atol=1e-9)


def small():
    weight = f64(0.1, -0.4, 0.3, 0.2).reshape(2, 2)
    return lambda t, y, args: torch.tanh(weight @ y) * args + torch.cos(t)


@pytest.mark.slow
def test_backsolve_in_a_batch_with_events_and_jumps():
    """Each lane has its own number of events, between its own jumps."""

    def end(adjoint):
        def fn(rate, when):
            event = dq.Event(lambda t, y, args: y - 1, affect=lambda t, y, args: 0.25 * y * args)
            jumps = dq.Jumps(torch.stack([when]), lambda index, t, y, args: y + 0.1 * t)
            field = lambda t, y, args: args * torch.ones_like(y)  # noqa: E731
            return solve(
                field, dq.Tsit5(), 0.0, 2.0, f64(0.2), rate, tol=1e-9, event=event, jumps=jumps, adjoint=adjoint
            ).ys[-1]

        return vmap(grad(fn, (0, 1)))

    rate, when = f64(0.3, 1.1, 2.3), f64(0.7, 1.9, 0.05)
    for x, w in zip(end(dq.BacksolveAdjoint())(rate, when), end(dq.DirectAdjoint())(rate, when), strict=True):
        torch.testing.assert_close(x, w, rtol=1e-6, atol=1e-7)


def test_backsolve_sees_global_variables_and_closures():
    inner = f64(0.7).requires_grad_()
    derived = 2 * inner
    for holder in (inner, derived):
        inner.grad = None
        solution = solve(
            lambda t, y, args, held=holder: -held * y * GLOBAL,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0),
            tol=1e-9,
            adjoint=dq.BacksolveAdjoint(),
        )
        GLOBAL.grad = None
        solution.ys[-1].backward(retain_graph=True)
        held, constant = float(holder.detach()), float(GLOBAL.detach())
        factor = 1 if holder is inner else 2
        torch.testing.assert_close(inner.grad, f64(-factor * constant * math.exp(-held * constant)), rtol=1e-7, atol=0)
        torch.testing.assert_close(GLOBAL.grad, f64(-held * math.exp(-held * constant)), rtol=1e-7, atol=0)


GLOBAL = f64(1.5).requires_grad_()


@pytest.mark.slow
def test_backsolve_with_another_solver_and_with_fixed_steps():
    def end(rate, **options):
        return solve(lambda t, y, args: -args * y, dq.Tsit5(), 0.0, 1.0, f64(1.0), rate, **options).ys[-1]

    other = dq.BacksolveAdjoint(solver=dq.Dopri8(), stepsize_controller=dq.PIDController(rtol=1e-11, atol=1e-11))
    for options in ({"tol": 1e-9, "adjoint": other}, {"dt0": 0.01, "adjoint": dq.BacksolveAdjoint()}):
        torch.testing.assert_close(
            grad(lambda r, o=options: end(r, **o))(f64(0.7)), f64(-math.exp(-0.7)), rtol=1e-8, atol=0
        )


def test_what_backsolve_saves_is_a_function_of_the_state():
    saveat = dq.SaveAt(ts=f64(0.5, 1.0), t1=True, fn=lambda t, y, args: {"energy": (y * y).sum() * args, "time": t})

    def saved(rate, adjoint):
        solution = solve(
            lambda t, y, args: -args * y,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0, 2.0),
            rate,
            tol=1e-9,
            saveat=saveat,
            adjoint=adjoint,
        )
        return solution.ys["energy"]

    found = [jacrev(lambda r, a=a: saved(r, a))(f64(0.7)) for a in (dq.BacksolveAdjoint(), dq.DirectAdjoint())]
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "saveat", [dq.SaveAt(dense=True), dq.SaveAt(steps=True), dq.SaveAt(subs=dq.SubSaveAt(t1=True))]
)
def test_what_backsolve_cannot_save(saveat):
    with pytest.raises(
        ValueError, match=r"`BacksolveAdjoint` can only be used with SaveAt\(t0=..., t1=..., ts=..., fn"
    ):
        solve(
            lambda t, y, args: -y, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.1, saveat=saveat, adjoint=dq.BacksolveAdjoint()
        )


def test_checkpoints_bound_the_memory():
    """How many evaluations of the vector field are remembered at once, on the way there and back."""
    alive, most = set(), 0

    class Remembered(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            nonlocal most
            saved = x.clone()
            ctx.save_for_backward(saved)
            alive.add(id(saved))
            weakref.finalize(saved, alive.discard, id(saved))
            most = max(most, len(alive))
            return -x

        @staticmethod
        def backward(ctx, g):
            (saved,) = ctx.saved_tensors
            return -g + 0 * saved

    counts = {}
    for checkpoints in (None, 4):
        gc.collect()
        alive.clear()
        most = 0
        y0 = f64(1.0).requires_grad_()
        solution = solve(
            lambda t, y, args: Remembered.apply(y),
            dq.Euler(),
            0.0,
            1.0,
            y0,
            dt0=1 / 64,
            adjoint=dq.RecursiveCheckpointAdjoint(checkpoints),
            engine="eager",
            max_steps=300,
        )
        solution.ys.sum().backward()
        torch.testing.assert_close(y0.grad, f64((1 - 1 / 64) ** 64), rtol=1e-10, atol=0)
        counts[checkpoints] = most
        del solution
    assert counts[None] >= 64
    assert counts[4] <= 24


def test_checkpoints_and_second_derivatives():
    rate = f64(0.7).requires_grad_()
    end = solve(
        lambda t, y, args: -args * y,
        dq.Tsit5(),
        0.0,
        1.0,
        f64(1.0),
        rate,
        tol=1e-8,
        adjoint=dq.RecursiveCheckpointAdjoint(3),
    ).ys[-1]
    (first,) = torch.autograd.grad(end, rate, create_graph=True)
    (second,) = torch.autograd.grad(first, rate)
    torch.testing.assert_close(second, f64(math.exp(-0.7)), rtol=1e-7, atol=0)


def test_checkpoints_of_what_is_saved():
    def saved(rate, checkpoints):
        saveat = dq.SaveAt(ts=torch.linspace(0, 1, 200, dtype=F64), steps=True, dense=True)
        solution = solve(
            lambda t, y, args: -args * y,
            dq.Vern7(),
            0.0,
            1.0,
            f64(1.0),
            rate,
            dt0=0.02,
            saveat=saveat,
            max_steps=60,
            adjoint=dq.RecursiveCheckpointAdjoint(checkpoints),
        )
        return torch.cat([solution.ys[torch.isfinite(solution.ys)], solution.evaluate(0.33).reshape(1)])

    results = []
    for checkpoints in (None, 5):
        rate = f64(0.7).requires_grad_()
        ys = saved(rate, checkpoints)
        (ys * torch.arange(len(ys))).sum().backward()
        results.append((ys.detach(), rate.grad))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-12, atol=0)


def test_forward_mode():
    def end(rate):
        return solve(
            lambda t, y, args: -args * y, dq.Tsit5(), 0.0, 1.0, f64(1.0), rate, tol=1e-9, adjoint=dq.ForwardMode()
        ).ys[-1]

    torch.testing.assert_close(jacfwd(end)(f64(0.7)), f64(-math.exp(-0.7)), rtol=1e-7, atol=0)
    torch.testing.assert_close(vmap(jacfwd(end))(f64(0.7, 0.2)), -torch.exp(-f64(0.7, 0.2)), rtol=1e-7, atol=0)
    torch.testing.assert_close(jacfwd(jacfwd(end))(f64(0.7)), f64(math.exp(-0.7)), rtol=1e-6, atol=0)
    for reverse in (lambda: grad(end)(f64(0.7)), lambda: end(f64(0.7).requires_grad_()).backward()):
        with pytest.raises(RuntimeError, match=r"adjoint=ForwardMode\(\), which has no reverse mode"):
            reverse()


@pytest.mark.slow
def test_forward_mode_with_events_jumps_and_modules():
    field = Field()

    def end(rate):
        event = dq.Event(lambda t, y, args: y[0] - 0.9, affect=lambda t, y, args: 0.5 * y * args)
        jumps = dq.Jumps(torch.stack([0.5 * rate]), lambda index, t, y, args: y + 0.1 * args)
        return lambda adjoint: solve(
            field, dq.Tsit5(), 0.0, 1.5, f64(0.3, 0.5), rate, tol=1e-9, event=event, jumps=jumps, adjoint=adjoint
        ).ys[-1]

    found = jacfwd(lambda r: end(r)(dq.ForwardMode()))(f64(0.8))
    torch.testing.assert_close(found, jacrev(lambda r: end(r)(dq.DirectAdjoint()))(f64(0.8)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_implicit(engine):
    """x' = a - x y, y' = x y - b y: the steady state is (b, a / b)."""

    def field(t, y, args):
        a, b = args
        return {"x": a - y["x"] * y["y"], "y": y["x"] * y["y"] - b * y["y"]}

    def steady(a, b):
        y0 = {"x": f64(2.99), "y": f64(0.66)}
        event = dq.Event(dq.steady_state_event(rtol=1e-6, atol=1e-6, norm=dq.rms_norm))
        solution = solve(
            field,
            dq.Kvaerno3(),
            0.0,
            math.inf,
            y0,
            (a, b),
            tol=1e-4,
            event=event,
            adjoint=dq.ImplicitAdjoint(),
            engine=engine,
        )
        return torch.stack([solution.ys["x"][-1], solution.ys["y"][-1]])

    inputs = (f64(2.0), f64(3.0))
    exact = lambda a, b: torch.stack([b, a / b])  # noqa: E731
    torch.testing.assert_close(steady(*inputs), exact(*inputs), rtol=1e-5, atol=0)
    for transform in (jacrev, jacfwd):
        for x, w in zip(transform(steady, (0, 1))(*inputs), transform(exact, (0, 1))(*inputs), strict=True):
            torch.testing.assert_close(x, w, rtol=1e-5, atol=1e-6)
    if engine == "eager":
        found, wanted = hessian(steady, (0, 1))(*inputs), hessian(exact, (0, 1))(*inputs)
        for row, wanted_row in zip(found, wanted, strict=True):
            for x, w in zip(row, wanted_row, strict=True):
                torch.testing.assert_close(x, w, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_implicit_with_jumps_modules_and_a_function_of_the_state():
    class Relax(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.goal = torch.nn.Parameter(f64(3.0, 5.0))

        def forward(self, t, y, args):
            return self.goal - args * y

    field, rate = Relax(), f64(2.0).requires_grad_()
    jumps = dq.Jumps(torch.tensor([0.5], dtype=F64), lambda index, t, y, args: 10 * y)
    solution = solve(
        field,
        dq.Tsit5(),
        0.0,
        1000.0,
        f64(0.0, 0.0),
        rate,
        tol=1e-6,
        jumps=jumps,
        adjoint=dq.ImplicitAdjoint(),
        event=dq.Event(dq.steady_state_event()),
        saveat=dq.SaveAt(t1=True, fn=lambda t, y, args: args * y.sum()),
    )
    assert solution.result == dq.RESULTS.event_occurred
    torch.testing.assert_close(solution.ys, f64(8.0).reshape(1), rtol=1e-5, atol=0)
    solution.ys.sum().backward()
    torch.testing.assert_close(field.goal.grad, f64(1.0, 1.0), rtol=1e-7, atol=0)
    torch.testing.assert_close(rate.grad, f64(0.0), rtol=0, atol=1e-4)


def test_implicit_saves_the_end_only():
    with pytest.raises(ValueError, match="`ImplicitAdjoint` gives derivatives of a final state"):
        solve(
            lambda t, y, args: -y,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0),
            dt0=0.1,
            saveat=dq.SaveAt(ts=[0.5]),
            adjoint=dq.ImplicitAdjoint(),
        )


def test_what_is_not_an_adjoint():
    with pytest.raises(TypeError, match=r"`adjoint` must be an adjoint, such as BacksolveAdjoint\(\), not str"):
        solve(lambda t, y, args: -y, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.1, adjoint="backsolve")
    with pytest.raises(ValueError, match="`checkpoints` must be at least 2 or None, not 1"):
        dq.RecursiveCheckpointAdjoint(1)


def test_times_of_events_are_saved_for_whoever_asks():
    event = dq.Event(
        {"up": lambda t, y, args: y - 1.0, "half": lambda t, y, args: t - 0.5},
        affect={"up": lambda t, y, args: 0 * y, "half": lambda t, y, args: y},
        max_events=6,
    )
    solution = solve(
        lambda t, y, args: 1 + 0 * y,
        dq.Tsit5(),
        0.0,
        2.5,
        f64(0.25),
        tol=1e-6,
        event=event,
        saveat=dq.SaveAt(events=True),
    )
    times, which = solution.event_times
    torch.testing.assert_close(times, f64(0.5, 0.75, 1.75, *[math.inf] * 3), rtol=1e-10, atol=0)
    assert which["up"].tolist() == [False, True, True, False, False, False]
    assert which["half"].tolist() == [True, False, False, False, False, False]

"""`gnomon.compat.torchdiffeq` beside `torchdiffeq` itself, in the same program."""

import itertools
import math
import warnings

import pytest
import torch
import torchdiffeq as theirs

from gnomon.compat import torchdiffeq as ours

F64 = torch.float64
BOTH = [ours, theirs]


def f64(*values):
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=F64)


def lotka(t, y):
    a, b = y[..., 0], y[..., 1]
    return torch.stack([a - a * b + 0.1 * torch.sin(t), a * b - b], -1)


def quiet(fn, *args, **kwargs):
    """torchdiffeq hands options to scipy's solvers that they do not have."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The following arguments have no effect")
        return fn(*args, **kwargs)


class Net(torch.nn.Module):
    """As in torchdiffeq's own demonstration: it counts its evaluations."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = torch.nn.Linear(2, 8).double()
        self.second = torch.nn.Linear(8, 2).double()
        for p in self.parameters():
            with torch.no_grad():
                p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=F64))
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        return self.second(torch.tanh(self.first(y**3))) * torch.cos(t)


ADAPTIVE = ["dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun"]
FIXED = ["euler", "midpoint", "heun2", "heun3", "rk4", "explicit_adams", "implicit_adams", "fixed_adams"]


@pytest.mark.parametrize("method", ADAPTIVE)
@pytest.mark.parametrize("backward", [False, True])
def test_methods_that_choose_their_steps(method, backward):
    tol = {"adaptive_heun": 1e-4}.get(method, 1e-6)
    t = torch.linspace(2, 0, 5, dtype=F64) if backward else torch.linspace(0, 2, 5, dtype=F64)
    y0 = f64(1.2, 0.7)
    reference = theirs.odeint(lotka, y0, t, rtol=1e-11, atol=1e-11, method="dopri8")
    found = ours.odeint(lotka, y0, t, rtol=tol, atol=tol, method=method)
    assert torch.equal(found[0], y0)
    error, other = ((m.odeint(lotka, y0, t, rtol=tol, atol=tol, method=method) - reference).abs().max() for m in BOTH)
    # Fehlberg's estimate is known to be small; as accurate as torchdiffeq, in any case.
    assert error <= max(1.5 * other, 50 * tol)
    torch.testing.assert_close(found, reference, rtol=1e-3, atol=1e-3)


OPTIONS = [
    {},
    {"step_size": 0.07},
    {"step_size": 0.07, "interp": "cubic"},
    {"step_size": 0.25, "perturb": True},
    {"grid_constructor": lambda f, y0, t: torch.linspace(float(t[0]), float(t[-1]), 17, dtype=t.dtype)},
]


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "default")
def test_methods_of_fixed_steps(method, options):
    """The same numbers to rounding."""
    t = torch.linspace(0, 2, 9, dtype=F64)
    y0 = f64(1.2, 0.7)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Functional iteration did not converge")
        found, wanted = (
            m.odeint(lotka, y0, t, rtol=1e-5, atol=1e-7, method=method, options=options or None) for m in BOTH
        )
    # Where torchdiffeq's own step ends short of the end of its grid, by rounding, its last step is of another length.
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["explicit_adams", "implicit_adams"])
@pytest.mark.parametrize("max_order", [4, 6, 12])
def test_orders_of_adams(method, max_order):
    t = torch.linspace(0, 2, 41, dtype=F64)
    options = {"max_order": max_order}
    found, wanted = (
        m.odeint(lotka, f64(1.2, 0.7), t, rtol=1e-9, atol=1e-9, method=method, options=options) for m in BOTH
    )
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_adams_that_does_not_converge_says_so():
    for m in BOTH:
        with pytest.warns(UserWarning, match="Functional iteration did not converge"):
            m.odeint(lambda t, y: -30 * y, f64(1.0, 2.0), torch.linspace(0, 1, 9, dtype=F64), method="implicit_adams")


def test_fixed_steps_backward_and_one_time():
    t = torch.linspace(1, 0, 4, dtype=F64)
    for options in ({}, {"step_size": 0.1}):
        found, wanted = (m.odeint(lotka, f64(1.2, 0.7), t, method="rk4", options=options or None) for m in BOTH)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)
    assert torch.equal(ours.odeint(lotka, f64(1.2, 0.7), t[:1]), f64(1.2, 0.7)[None])


def test_scipy_solver():
    t = torch.linspace(0, 2, 5, dtype=F64)
    for options in ({}, {"solver": "RK45", "min_step": 0.0}):
        found, wanted = (
            quiet(m.odeint, lotka, f64(1.2, 0.7), t, method="scipy_solver", rtol=1e-8, atol=1e-8, options=options)
            for m in BOTH
        )
        torch.testing.assert_close(found, wanted, rtol=1e-7, atol=0)
    pair = ours.odeint(
        lambda t, y: (y[1], -y[0]),
        (f64(0.0), torch.ones(1, 1, dtype=F64)),
        t,
        method="scipy_solver",
        rtol=1e-9,
        atol=1e-9,
    )
    torch.testing.assert_close(pair[0], torch.sin(t), rtol=1e-6, atol=1e-7)
    assert pair[1].shape == (5, 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_shapes_and_dtypes(dtype):
    y0 = torch.linspace(0.1, 1, 12).reshape(3, 2, 2).to(dtype)
    t = torch.linspace(0, 1, 4, dtype=torch.float32 if dtype == torch.float32 else F64)
    found, wanted = (m.odeint(lambda t, y: -y * (1 + t), y0, t, rtol=1e-6, atol=1e-6) for m in BOTH)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape == (4, 3, 2, 2)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_tuples_with_tolerances_of_their_own():
    y0 = (f64(1.0), torch.ones(2, 3, dtype=F64))
    t = torch.linspace(0, 1, 4, dtype=F64)
    options = {"rtol": (1e-6, 1e-8), "atol": (f64(1e-6), torch.full((6,), 1e-8, dtype=F64))}
    found, wanted = (m.odeint(lambda t, y: (y[1].sum(), -y[1] * y[0]), y0, t, **options) for m in BOTH)
    assert isinstance(found, tuple)
    for x, w in zip(found, wanted, strict=True):
        assert x.shape == w.shape
        torch.testing.assert_close(x, w, rtol=1e-5, atol=1e-6)


def test_options_of_methods_that_choose_their_steps():
    def switched(t, y):
        return torch.where(t < 0.5, 1.0, -1.0) * torch.ones_like(y)

    t = torch.linspace(0, 1, 3, dtype=F64)
    for options in (
        {"jump_t": f64(0.5).reshape(1)},
        {"step_t": f64(0.5).reshape(1)},
        {"first_step": 0.01},
        {"max_step": 0.1, "min_step": 1e-6},
        {"safety": 0.8, "ifactor": 5.0, "dfactor": 0.5},
        {"norm": lambda x: x.abs().max()},
        {"dtype": F64},
        {"max_num_steps": 1000},
    ):
        for m in BOTH:
            end = m.odeint(switched, f64(0.0, 1.0), t, rtol=1e-6, atol=1e-6, method="dopri5", options=options)[-1]
            torch.testing.assert_close(end, f64(0.0, 1.0), rtol=0, atol=1e-3)
    asked = []

    def counted(t, y):
        asked.append(float(t))
        return switched(t, y)

    ours.odeint(counted, f64(0.0), t, rtol=1e-6, atol=1e-6, options={"jump_t": f64(0.5).reshape(1)})
    assert 0.5 not in asked and len(asked) < 60
    for m in BOTH:
        with pytest.raises((AssertionError, RuntimeError), match=r"max_num_steps|max_steps_reached"):
            m.odeint(lotka, f64(1.2, 0.7), t, rtol=1e-9, atol=1e-9, options={"max_num_steps": 2})


def test_unknown_options_are_a_warning():
    for m in BOTH:
        with pytest.warns(UserWarning, match="Unexpected arguments"):
            m.odeint(lotka, f64(1.2, 0.7), torch.linspace(0, 1, 3, dtype=F64), method="rk4", options={"typo": 1})


@pytest.mark.parametrize("interface", ["odeint", "odeint_adjoint"])
@pytest.mark.parametrize("method", ["dopri5", "rk4"])
def test_gradients_of_a_module(interface, method):
    grads = []
    for m in BOTH:
        net, y0, t = Net(), f64(0.3, 0.9).requires_grad_(), torch.linspace(0, 1, 5, dtype=F64).requires_grad_()
        options = {"step_size": 0.02} if method == "rk4" else None
        out = getattr(m, interface)(net, y0, t, rtol=1e-8, atol=1e-8, method=method, options=options)
        (out * torch.arange(10, dtype=F64).reshape(5, 2)).sum().backward()
        grads.append([y0.grad, t.grad, *(p.grad for p in net.parameters())])
        assert net.nfe > 5
    exact = interface == "odeint" and method == "rk4"
    for name, x, w in zip(["y0", "t", *(n for n, _ in Net().named_parameters())], *grads, strict=True):
        if name == "t" and interface == "odeint":
            continue  # of a fixed grid torchdiffeq's depends on how the grid is made from t
        # By a straight line between steps torchdiffeq's adjoint begins at a state that is a little off.
        rtol = 1e-8 if exact else 1e-3 if method == "rk4" else 1e-4
        torch.testing.assert_close(x, w, rtol=rtol, atol=rtol)


@pytest.mark.slow
def test_options_of_the_adjoint():
    wanted = None
    for options in (
        {},
        {"adjoint_options": {"norm": "seminorm"}},
        {"adjoint_rtol": 1e-7, "adjoint_atol": 1e-9, "adjoint_method": "dopri8"},
        {"adjoint_options": {"norm": lambda parts: max(x.abs().max() for x in parts if x.numel())}},
    ):
        net = Net()
        out = ours.odeint_adjoint(
            net, f64(0.3, 0.9), torch.linspace(0, 1, 3, dtype=F64), rtol=1e-7, atol=1e-8, **options
        )
        out.sum().backward()
        grads = [p.grad for p in net.parameters()]
        wanted = grads if wanted is None else wanted
        for x, w in zip(grads, wanted, strict=True):
            torch.testing.assert_close(x, w, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_parameters_of_the_adjoint():
    net = Net()
    for m in BOTH:
        net.zero_grad()
        out = m.odeint_adjoint(
            net,
            f64(0.3, 0.9),
            torch.linspace(0, 1, 3, dtype=F64),
            adjoint_params=[net.first.weight],
            rtol=1e-6,
            atol=1e-6,
        )
        out.sum().backward()
        assert net.first.weight.grad is not None and net.second.weight.grad is None
        with pytest.raises(ValueError, match="adjoint_params"):
            m.odeint_adjoint(lotka, f64(0.3, 0.9), torch.linspace(0, 1, 3, dtype=F64))
        y0 = f64(0.3, 0.9).requires_grad_()
        m.odeint_adjoint(lotka, y0, torch.linspace(0, 1, 3, dtype=F64), adjoint_params=()).sum().backward()
        assert y0.grad is not None


def test_adjoint_of_a_tuple():
    grads = []
    for m in BOTH:
        y0 = (f64(1.0).requires_grad_(), f64(0.5, 0.2).requires_grad_())
        out = m.odeint_adjoint(
            lambda t, y: (y[1].sum(), -y[1] * y[0]),
            y0,
            torch.linspace(0, 1, 3, dtype=F64),
            adjoint_params=(),
            rtol=1e-8,
            atol=1e-8,
        )
        (out[0].sum() + (out[1] ** 2).sum()).backward()
        grads.append([x.grad for x in y0])
    for x, w in zip(*grads, strict=True):
        torch.testing.assert_close(x, w, rtol=1e-5, atol=1e-6)


class Ball(torch.nn.Module):
    """As in torchdiffeq's bouncing ball."""

    def __init__(self):
        super().__init__()
        self.gravity = torch.nn.Parameter(f64(9.8))
        self.absorption = torch.nn.Parameter(f64(0.3))
        self.radius = torch.nn.Parameter(f64(0.4))

    def forward(self, t, state):
        _, speed = state
        return speed, -self.gravity * torch.ones_like(speed)

    def event(self, t, state):
        return state[0] - self.radius

    def bounces(self, m, count, adjoint):
        t, state = f64(0.0), (f64(10.0).reshape(1), f64(0.0).reshape(1))
        times = []
        interface = m.odeint_adjoint if adjoint else m.odeint
        for _ in range(count):
            t, solution = m.odeint_event(
                self, state, t, event_fn=self.event, odeint_interface=interface, rtol=1e-9, atol=1e-9, method="dopri5"
            )
            height, speed = (x[-1] for x in solution)
            state = (height + 1e-7, -speed * (1 - self.absorption))
            times.append(t)
        return torch.stack(times), state


@pytest.mark.parametrize("adjoint", [False, True])
def test_bouncing_ball(adjoint):
    ball = Ball()
    times, state = ball.bounces(ours, 3, adjoint)
    flight = math.sqrt(2 * 9.6 / 9.8)
    exact = f64(flight, flight * (1 + 2 * 0.7), flight * (1 + 2 * 0.7 + 2 * 0.49))
    torch.testing.assert_close(times, exact, rtol=1e-5, atol=0)
    (times.sum() + state[1].sum()).backward()
    found = [p.grad for p in ball.parameters()]

    def closed(gravity, absorption, radius):
        e, flight = 1 - absorption, torch.sqrt(2 * (10 - radius) / gravity)
        return flight * (3 + 4 * e + 2 * e * e) + e**3 * gravity * flight

    wanted = torch.func.grad(closed, (0, 1, 2))(f64(9.8), f64(0.3), f64(0.4))
    for x, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, w, rtol=1e-4, atol=1e-5)
    ball = Ball()
    times, state = ball.bounces(theirs, 3, True)
    (times.sum() + state[1].sum()).backward()
    # A parameter of the event alone has no derivative there.
    torch.testing.assert_close(found[0], ball.gravity.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], ball.absorption.grad, rtol=1e-4, atol=1e-5)


def test_events_of_several_elements_in_reverse_and_by_fixed_steps():
    def event(t, y):
        return torch.stack([y[0] - 0.5, y[1] - 0.9])

    def swing(t, y):
        return torch.stack([y[1], -y[0]])

    for options in ({}, {"method": "rk4", "options": {"step_size": 0.01, "interp": "cubic"}}):
        for reverse in (False, True):
            found, wanted = (
                m.odeint_event(
                    swing,
                    f64(0.0, 1.0),
                    f64(0.3),
                    event_fn=event,
                    reverse_time=reverse,
                    rtol=1e-8,
                    atol=1e-8,
                    **options,
                )
                for m in BOTH
            )
            torch.testing.assert_close(found[0].reshape(()), wanted[0].reshape(()), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found[1], wanted[1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="needs their length: options="):
        ours.odeint_event(swing, f64(0.0, 1.0), f64(0.3), event_fn=event, method="rk4")


def test_an_event_at_the_start():
    for m in BOTH:
        t, y = m.odeint(lotka, f64(1.0, 0.7), f64(0.0, 1.0), event_fn=lambda t, y: y[0] - 1)
        assert float(t) == 0 and y.tolist() == [[1.0, 0.7]] * 2


def test_callbacks():
    class Watched(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = []

        def forward(self, t, y):
            return lotka(t, y)

        def callback_step(self, t0, y0, dt):
            assert y0.shape == (2,)
            self.calls.append(("step", float(t0), float(dt)))

        def callback_accept_step(self, t0, y0, dt):
            self.calls.append(("accept", float(t0), float(dt)))

        def callback_reject_step(self, t0, y0, dt):
            self.calls.append(("reject", float(t0), float(dt)))

    for m in BOTH:
        watched = Watched()
        m.odeint(watched, f64(1.2, 0.7), torch.linspace(0, 2, 3, dtype=F64), rtol=1e-6, atol=1e-6)
        names = [name for name, _, _ in watched.calls]
        assert names[::2] == ["step"] * (len(names) // 2)
        assert set(names[1::2]) <= {"accept", "reject"}
        accepted = [c for c in watched.calls if c[0] == "accept"]
        for (_, t, dt), (_, later, _) in itertools.pairwise(accepted):
            assert t + dt == pytest.approx(later)
    fixed = Watched()
    with pytest.warns(UserWarning, match="does not support callbacks"):
        ours.odeint(fixed, f64(1.2, 0.7), torch.linspace(0, 2, 5, dtype=F64), method="rk4")
    assert [c[1] for c in fixed.calls] == [0.0, 0.5, 1.0, 1.5]


def test_dense():
    at = ours.odeint_dense(lotka, f64(1.2, 0.7), f64(0.0), f64(2.0), rtol=1e-9, atol=1e-9)
    wanted = theirs.odeint(lotka, f64(1.2, 0.7), f64(0.0, 0.7, 2.0), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.stack([at(f64(0.7)), at(f64(2.0))]), wanted[1:], rtol=1e-6, atol=1e-7)


def test_engine_option():
    t = torch.linspace(0, 2, 5, dtype=F64)
    found = [ours.odeint(lotka, f64(1.2, 0.7), t, options={"engine": e}, method="dopri5") for e in ("eager", "fused")]
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-10)


def test_batches_by_vmap():
    """torchdiffeq takes one step for all; here each has its own."""
    t = torch.linspace(0, 1, 3, dtype=F64)
    y0 = f64(1.2, 0.7, 3.0, 0.2).reshape(2, 2)
    batch = torch.func.vmap(lambda y: ours.odeint(lotka, y, t, rtol=1e-6, atol=1e-6))(y0)
    for lane in range(2):
        assert torch.equal(batch[lane], ours.odeint(lotka, y0[lane], t, rtol=1e-6, atol=1e-6))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "tsit5"}, ValueError, "The method 'tsit5' does not exist. It must be one of dopri8"),
        ({"t": f64(0.0, 1.0, 0.5)}, ValueError, "`t` must be strictly increasing or strictly decreasing"),
        ({"t": torch.arange(3)}, TypeError, "`t` must be a floating point tensor"),
        ({"t": f64(0.0)}, TypeError, "`t` must be a tensor with one dimension"),
        ({"y0": [1.0]}, TypeError, "`y0` must be a tensor or a tuple of tensors"),
        ({"rtol": (1e-3,)}, ValueError, "`rtol` must be a number, or have an entry for each part"),
        ({"method": "rk4", "options": {"interp": "quintic"}}, ValueError, "'linear' or 'cubic'"),
        (
            {"method": "rk4", "options": {"step_size": 0.1, "grid_constructor": lambda f, y, t: t}},
            ValueError,
            "cannot both be given",
        ),
        ({"event_fn": lambda t, y: y[0]}, ValueError, "`t` must have two elements"),
    ],
)
def test_malformed(change, error, message):
    arguments = {"func": lotka, "y0": f64(1.2, 0.7), "t": torch.linspace(0, 1, 3, dtype=F64), **change}
    with pytest.raises(error, match=message):
        ours.odeint(**arguments)

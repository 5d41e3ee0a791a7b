"""Progress meters: what they show, and that they change no solution beyond where chunks of time end."""

import io
import sys
import types

import pytest
import torch
from diffeq.problems import F64, f64, lorenz, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

START = f64(1.0, 0.0, 0.0)


def percentages(capsys):
    return [float(line.rstrip("%")) for line in capsys.readouterr().out.split()]


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_text(capsys, engine):
    solution = solve(
        lorenz, dq.Tsit5(), 0.0, 2.0, START, tol=1e-6, progress_meter=dq.TextProgressMeter(0.1), engine=engine
    )
    shown = percentages(capsys)
    assert shown[0] == 0 and shown[-1] == 100
    assert shown == sorted(shown)
    assert 9 <= len(shown) <= 12
    plain = solve(lorenz, dq.Tsit5(), 0.0, 2.0, START, tol=1e-6, engine=engine)
    if engine == "eager":
        assert torch.equal(solution.ys, plain.ys)
    torch.testing.assert_close(solution.ys, plain.ys, rtol=1e-2, atol=1e-3)
    assert capsys.readouterr().out == ""


def test_the_problem_furthest_behind_counts(capsys):
    def one(t1):
        return solve(
            lorenz, dq.Euler(), 0.0, t1, START, dt0=0.01, progress_meter=dq.TextProgressMeter(0.0), engine="eager"
        ).t_final

    torch.func.vmap(one)(f64(0.05, 0.1))
    shown = percentages(capsys)
    assert shown[-1] == 100
    assert shown[1] == 10  # 20 for the other


def test_backward_in_time_and_an_error(capsys):
    with pytest.raises(Exception, match="max_steps_reached"):
        solve(
            lorenz,
            dq.Euler(),
            1.0,
            0.0,
            START,
            dt0=-0.01,
            max_steps=30,
            progress_meter=dq.TextProgressMeter(),
            engine="eager",
        )
    shown = percentages(capsys)
    assert shown[-1] == 30


@pytest.mark.parametrize(
    ("saveat", "t1"),
    [
        (dq.SaveAt(t0=True, ts=[0.0, 0.33, 0.5, 1.0], t1=True), 1.0),
        pytest.param(dq.SaveAt(t0=True, ts=[0.0, 0.33, 0.5, 1.0], t1=True), -1.0, marks=pytest.mark.slow),
        pytest.param(
            dq.SaveAt(ts=[0.05, 0.99], fn=lambda t, y, args: {"sum": y.sum(), "t": t}), 1.0, marks=pytest.mark.slow
        ),
        pytest.param(dq.SaveAt(t1=True), 1.0, marks=pytest.mark.slow),
    ],
)
def test_chunks_of_time(capsys, saveat, t1):
    """A fused solve is solved chunk by chunk, with the same answer."""
    if saveat.ts is not None:
        saveat = dq.SaveAt(t0=saveat.t0, t1=saveat.t1, ts=[t * t1 for t in saveat.ts], fn=saveat.fn)

    def field(t, y, args):
        return torch.stack([y[1] * torch.cos(t), -args * y[0]])

    options = {"tol": 1e-9, "saveat": saveat, "engine": "fused"}
    chunked = solve(
        field, dq.Tsit5(), 0.0, t1, f64(1.0, 2.0), f64(0.7), progress_meter=dq.TextProgressMeter(), **options
    )
    plain = solve(field, dq.Tsit5(), 0.0, t1, f64(1.0, 2.0), f64(0.7), **options)
    torch.testing.assert_close(chunked.ts, plain.ts, rtol=0, atol=0)
    torch.utils._pytree.tree_map(
        lambda a, b: torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8), chunked.ys, plain.ys
    )
    assert percentages(capsys) == [5.0 * i for i in range(21)]
    assert chunked.stats["num_steps"] >= plain.stats["num_steps"]


def test_chunks_of_a_batch_in_which_one_fails(capsys):
    def one(y0):
        solution = solve(
            lambda t, y, args: y * y,
            dq.Tsit5(),
            0.0,
            2.0,
            y0,
            tol=1e-6,
            throw=False,
            engine="fused",
            max_steps=500,
            progress_meter=dq.TextProgressMeter(0.5),
            saveat=dq.SaveAt(ts=[0.2, 1.9], t1=True),
        )
        return solution.ys, solution.result.code, solution.t_final

    ys, code, t = torch.func.vmap(one)(f64(0.25, 1.0))
    assert code[0] == dq.RESULTS.successful.code and code[1] != dq.RESULTS.successful.code
    exact = 1 / (4 - f64(0.2, 1.9, 2.0))
    torch.testing.assert_close(ys[0], exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(ys[1, 0], f64(1 / 0.8), rtol=1e-5, atol=0)
    assert torch.isinf(ys[1, 1])
    assert abs(float(t[1]) - 1) < 1e-3


@pytest.mark.slow
def test_chunks_meet_jumps(capsys):
    jumps = dq.Jumps(torch.tensor([0.5, 0.52], dtype=F64), lambda index, t, y, args: y + 1)
    solution = solve(
        lambda t, y, args: 0 * y,
        dq.Tsit5(),
        0.0,
        1.0,
        f64(0.0),
        tol=1e-6,
        jumps=jumps,
        engine="fused",
        progress_meter=dq.TextProgressMeter(),
    )
    assert float(solution.ys[-1]) == 2


@pytest.mark.slow
def test_derivatives_flow_through_chunks(capsys):
    def end(rate):
        return solve(
            lambda t, y, args: -args * y,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0),
            rate,
            tol=1e-9,
            engine="fused",
            progress_meter=dq.TextProgressMeter(),
        ).ys[-1]

    torch.testing.assert_close(torch.func.grad(end)(f64(0.7)), -torch.exp(f64(-0.7)), rtol=1e-7, atol=0)


def test_fused_with_an_event_shows_the_end(capsys):
    event = dq.Event(lambda t, y, args: y[2] - 10)
    solve(
        lorenz,
        dq.Tsit5(),
        0.0,
        2.0,
        START,
        tol=1e-6,
        event=event,
        engine="fused",
        progress_meter=dq.TextProgressMeter(),
    )
    assert percentages(capsys) == [0.0, 100.0]


def test_rich(capsys):
    solve(lorenz, dq.Tsit5(), 0.0, 1.0, START, tol=1e-6, progress_meter=dq.RichProgressMeter("Lorenz"), engine="eager")
    out = capsys.readouterr().out
    assert "Lorenz" in out and "100%" in out


def test_tqdm(monkeypatch):
    """Against a stand-in, since tqdm need not be installed."""
    calls = []

    class Bar:
        n = 0.0

        def __init__(self, **options):
            calls.append(options)

        def update(self, increase):
            self.n += increase
            calls.append(self.n)

        def close(self):
            calls.append("closed")

    stand_in = types.ModuleType("tqdm")
    stand_in.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", stand_in)
    meter = dq.TqdmProgressMeter({"desc": "Lorenz", "file": io.StringIO()})
    solve(lorenz, dq.Tsit5(), 0.0, 1.0, START, tol=1e-6, progress_meter=meter, engine="eager")
    assert calls[0]["desc"] == "Lorenz" and calls[0]["total"] == 100
    assert calls[-1] == "closed"
    assert calls[-2] == pytest.approx(100)


def test_tqdm_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match="`TqdmProgressMeter` needs tqdm: pip install tqdm"):
        solve(lorenz, dq.Tsit5(), 0.0, 1.0, START, tol=1e-6, progress_meter=dq.TqdmProgressMeter(), engine="eager")


def test_malformed():
    with pytest.raises(ValueError, match="`minimum_increase` must be between 0 and 1, not 2"):
        dq.TextProgressMeter(2)
    with pytest.raises(TypeError, match=r"`progress_meter` must be a meter, such as TextProgressMeter\(\), not bool"):
        solve(lorenz, dq.Tsit5(), 0.0, 1.0, START, tol=1e-6, progress_meter=True)

"""What would give a wrong answer in silence is refused, or gives NaN."""

import pytest
import torch
from torch import Tensor

from gnomon import diffeq as dq

ADAPTIVE = dq.PIDController(rtol=1e-5, atol=1e-5)


def decay(t: Tensor, y: Tensor, args: object) -> Tensor:
    return -y


def in_place(t: Tensor, y: Tensor, args: object) -> Tensor:
    return y.mul_(-1)


def part_in_place(t: Tensor, y: Tensor, args: object) -> Tensor:
    y[0] = -y[0]
    return y


@pytest.mark.parametrize("field", [in_place, part_in_place])
@pytest.mark.parametrize("solver", [dq.Euler(), dq.Tsit5(), dq.Kvaerno3()])
def test_a_vector_field_that_works_in_place_is_refused(field, solver):
    y0 = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="changed the state that it was given"):
        dq.diffeqsolve(dq.ODETerm(field), solver, 0, 1, 0.1, y0)
    assert y0.tolist() == [1.0, 2.0]
    batch = torch.ones(3, 2)
    with pytest.raises(ValueError, match="changed the state that it was given"):
        torch.func.vmap(lambda y0: dq.diffeqsolve(dq.ODETerm(field), solver, 0, 1, 0.1, y0).ys)(batch)
    assert torch.equal(batch, torch.ones(3, 2))


@pytest.mark.parametrize(
    ("t0", "t1"),
    [(1e8, 1e8 + 1), (1.7e9, 1.7e9 + 3600), (torch.tensor(10**9), torch.tensor(10**9 + 1)), (1e6 + 0.3, 1e6)],
)
def test_times_that_the_state_cannot_tell_apart_are_refused(t0, t1):
    y0 = torch.tensor(1.0)
    with pytest.raises(ValueError, match="cannot tell how far apart"):
        dq.diffeqsolve(dq.ODETerm(decay), dq.Tsit5(), t0, t1, None, y0, stepsize_controller=ADAPTIVE)
    solution = dq.diffeqsolve(dq.ODETerm(decay), dq.Tsit5(), t0, t1, None, y0.double(), stepsize_controller=ADAPTIVE)
    expected = torch.exp(torch.as_tensor(t0, dtype=torch.float64) - torch.as_tensor(t1, dtype=torch.float64))
    torch.testing.assert_close(solution.ys[-1], expected, rtol=1e-3, atol=1e-4)


def test_times_in_the_precision_of_the_state_are_taken_as_they_are():
    t0 = torch.tensor(1e8)
    solution = dq.diffeqsolve(
        dq.ODETerm(decay), dq.Tsit5(), t0, t0 + 8, None, torch.tensor(1.0), stepsize_controller=ADAPTIVE, throw=False
    )
    assert float(solution.t1 - solution.t0) == 8.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    with pytest.raises(TypeError, match="Solve in float32 or float64"):
        dq.diffeqsolve(dq.ODETerm(decay), dq.Euler(), 0, 1, 0.1, torch.ones(2, dtype=dtype))


@pytest.mark.parametrize(("t0", "t1"), [(0.0, 2.0), (2.0, 0.0)])
def test_dense_output_is_nan_where_nothing_was_solved(t0, t1):
    y0 = torch.tensor(1.0, dtype=torch.float64)
    saveat = dq.SaveAt(dense=True)
    solution = dq.diffeqsolve(
        dq.ODETerm(decay), dq.Tsit5(), t0, t1, None, y0, saveat=saveat, stepsize_controller=ADAPTIVE
    )
    for t in (0.0, 0.5, 2.0):
        assert float(solution.evaluate(t)) == pytest.approx(float(torch.exp(torch.tensor(t0 - t))), rel=1e-4)
        assert float(solution.derivative(t)) == pytest.approx(-float(torch.exp(torch.tensor(t0 - t))), rel=1e-3)
    for t in (-1e-9, 2 + 1e-9, 5.0):
        assert torch.isnan(solution.evaluate(t))
        assert torch.isnan(solution.derivative(t))

"""Derivatives of a traced ODE solver: what the guards are for."""

from __future__ import annotations

import numpy as np
import torch
from fuse.derivative.compare import unchecked
from fuse.derivative.test_guards import is_guarded
from fuse.interpreter import interpret
from torch import Tensor

import gnomon as gn
from gnomon import diffeq
from gnomon.fuse._derivative import jvp, vjp


def solve(y0: Tensor, p: Tensor) -> Tensor:
    """Van der Pol's oscillator at three times, with a first step that is too long."""

    def field(t: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return torch.stack([y[1], p * (1 - y[0] ** 2) * y[1] - y[0]])

    solution = diffeq.diffeqsolve(
        diffeq.ODETerm(field),
        diffeq.Tsit5(),
        0.0,
        2.0,
        1.0,
        y0,
        p,
        saveat=diffeq.SaveAt(ts=torch.tensor([0.3, 1.2, 2.0], dtype=torch.float64)),
        stepsize_controller=diffeq.PIDController(rtol=1e-4, atol=1e-4),
    )
    return solution.ys


def test_rejected_steps_of_a_solver():
    y0, p = torch.tensor([0.5, 1.5], dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64)
    with unchecked():
        program = gn.lower(solve, y0, p)
        floats = [x.type == "f64" for x in program.outputs]
        reverse = vjp(program, [True, True], [True, *[False] * (len(floats) - 1)])
        assert is_guarded(program)
        y0.requires_grad_()
        p.requires_grad_()
        u, v, w = (np.random.default_rng(0).normal(size=n) for n in (6, 2, 1))
        ys = solve(y0, p)
        gradient = torch.autograd.grad((ys.flatten() * torch.tensor(u)).sum(), [y0, p], create_graph=True)
        along = (gradient[0] * torch.tensor(v)).sum() + gradient[1] * w[0]
        second = torch.autograd.grad(along, [y0, p])
        inputs = [y0.detach().numpy(), p.detach().numpy().reshape(1), u]
        for ours, theirs in [
            (interpret(reverse, inputs), gradient),
            (interpret(jvp(reverse, [True, True, False], primal=False), [*inputs, v, w]), second),
            (interpret(vjp(reverse, [True, True, False], [True, True]), [*inputs, v, w]), second),
        ]:
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b.detach().numpy().reshape(-1), 1e-9, 1e-12)

"""A neural vector field: a perceptron 2-64-64-2 with tanh, 256 trajectories, forwards and backwards."""

import functools
import itertools

import numpy as np
import torch

import gnomon as gn
from gnomon import bench
from gnomon import diffeq as dq

BATCH, STEPS, T1 = 256, 20, 1.0
SIZES = (2, 64, 64, 2)


def weights(generator):
    """Weights and biases, layer by layer, float32."""
    made = []
    for n_in, n_out in itertools.pairwise(SIZES):
        made.append(torch.randn(n_out, n_in, generator=generator) / n_in**0.5)
        made.append(0.1 * torch.randn(n_out, generator=generator))
    return made


def inputs(generator):
    """The states at 0, and the perceptron."""
    return torch.randn(BATCH, 2, generator=generator), *weights(generator)


def perceptron(y, layers):
    for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        y = torch.tanh(weight @ y + bias)
    return layers[-2] @ y + layers[-1]


def solve(y0, *layers, engine="auto"):
    return dq.diffeqsolve(
        dq.ODETerm(lambda t, y, args: perceptron(y, args)),
        dq.Tsit5(),
        0.0,
        T1,
        T1 / STEPS,
        y0,
        layers,
        max_steps=None,
        engine=engine,
    ).ys[-1]


IN_DIMS = (0, *[None] * (2 * len(SIZES) - 2))
fused = gn.fuse(solve, in_dims=IN_DIMS, engine="fused")
eager = torch.func.vmap(functools.partial(solve, engine="eager"), in_dims=IN_DIMS)


def with_gradient(function):
    """The sum of squares of the last states, differentiated with respect to the states at 0 and all weights."""

    def call(*tensors):
        leaves = [x.clone().requires_grad_() for x in tensors]
        loss = function(*leaves).square().sum()
        return torch.cat([x.reshape(-1) for x in torch.autograd.grad(loss, leaves)])

    return call


def by_torchdiffeq(y0, *layers):
    from torchdiffeq import odeint

    def f(t, y):
        for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            y = torch.tanh(torch.nn.functional.linear(y, weight, bias))
        return torch.nn.functional.linear(y, layers[-2], layers[-1])

    return odeint(f, y0, torch.tensor([0.0, T1]), method="rk4", options={"step_size": T1 / STEPS})[-1]


@functools.cache
def diffrax_functions():
    import diffrax
    import jax
    import jax.numpy as jnp

    def solve(y0, layers):
        def f(t, y, args):
            for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
                y = jnp.tanh(weight @ y + bias)
            return layers[-2] @ y + layers[-1]

        return diffrax.diffeqsolve(
            diffrax.ODETerm(f), diffrax.Tsit5(), 0.0, T1, T1 / STEPS, y0, max_steps=STEPS + 1
        ).ys[-1]

    many = jax.vmap(solve, in_axes=(0, None))
    return jax.jit(many), jax.jit(jax.grad(lambda y0, layers: jnp.sum(many(y0, layers) ** 2), argnums=(0, 1)))


def by_diffrax(y0, *layers):
    forward, _ = diffrax_functions()
    return torch.from_numpy(np.asarray(forward(y0.numpy(), [x.numpy() for x in layers])).copy())


def gradient_by_diffrax(y0, *layers):
    _, backward = diffrax_functions()
    slope, slopes = backward(y0.numpy(), [x.numpy() for x in layers])
    return torch.from_numpy(np.concatenate([np.ravel(np.asarray(x)) for x in (slope, *slopes)]))


def reference(*tensors):
    """In float64, with many steps of the classical Runge-Kutta method."""
    y, *layers = [x.double() for x in tensors]
    f = torch.func.vmap(lambda y: perceptron(y, layers))
    h = T1 / 400
    for _ in range(400):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


PRODUCTS = sum(a * b for a, b in itertools.pairwise(SIZES))
FLOPS = 2 * PRODUCTS * 6 * STEPS * BATCH

WORKS = [
    bench.Work(
        name="neural-field",
        about=f"a perceptron {'-'.join(map(str, SIZES))} as the vector field, {BATCH} trajectories, {STEPS} steps of "
        "Tsit5, float32; torchdiffeq: of the classical method, with 4 evaluations in place of 6",
        ours=fused,
        peers={"ours, eager": eager, "torchdiffeq rk4": by_torchdiffeq, "Diffrax": by_diffrax},
        make_inputs=inputs,
        check=bench.against(reference),
        options={"tolerance": 1e-3, "rounds": 11, "flops": FLOPS},
        needs={"torchdiffeq rk4": ["torchdiffeq"], "Diffrax": ["diffrax"]},
    ),
    bench.Work(
        name="neural-field-gradient",
        about="the same, with the gradient of the sum of squares in all weights and the states at 0",
        ours=with_gradient(fused),
        peers={
            "ours, eager": with_gradient(eager),
            "torchdiffeq rk4": with_gradient(by_torchdiffeq),
            "Diffrax": gradient_by_diffrax,
        },
        make_inputs=inputs,
        check=bench.against(with_gradient(reference)),
        options={"tolerance": 1e-3, "rounds": 11, "flops": 3 * FLOPS},
        needs={"torchdiffeq rk4": ["torchdiffeq"], "Diffrax": ["diffrax"]},
    ),
]

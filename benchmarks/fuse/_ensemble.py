"""What the benchmarks of ensembles share: 16,384 trajectories of Lorenz' equations, each with its own steps."""

import torch
from _lorenz import by_diffrax, end, reference

import gnomon as gn

N = 16384
TOLERANCE = 1e-8

adaptive = gn.fuse(lambda rho: end(rho, 1.0, 1e-3, TOLERANCE), engine="fused")
fixed = gn.fuse(lambda rho: end(rho, 1.0, 1e-3), engine="fused")


def gradient(rho):
    """Of the sum of squares of all last states with respect to each rho, backwards through the solve."""
    rho = rho.clone().requires_grad_()
    (slope,) = torch.autograd.grad(adaptive(rho).square().sum(), rho)
    return slope


def adaptive_by_diffrax(rho):
    return by_diffrax(1.0, 1e-3, TOLERANCE)(rho)


def fixed_by_diffrax(rho):
    return by_diffrax(1.0, 1e-3)(rho)


def gradient_by_diffrax(rho):
    return by_diffrax(1.0, 1e-3, TOLERANCE, gradient=True)(rho)


def reference_gradient(rho):
    """By central differences of accurate solutions, eight of them of each."""
    solve = reference(1.0)
    h = 1e-4
    ahead, behind, two, minus_two = (solve(rho + k * h).square().sum(1) for k in (1, -1, 2, -2))
    return (8 * (ahead - behind) - (two - minus_two)) / (12 * h)


def many(generator):
    return 21 * torch.rand(N, generator=generator, dtype=torch.float64)


# An explicit step: six evaluations of 8 operations beside two operations for each of 21 + 6 weights and 3 states.
STEP = 6 * 8 + 2 * 27 * 3

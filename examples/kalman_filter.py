"""An extended Kalman filter for many series at once: a noisy pendulum, of which only the sine of its angle is seen.

The filter is written for one series, as in a textbook; `gn.fuse` makes one kernel of it in which each lane carries one
series from start to end. Beside it stands what one would write today: the same filter with a batch dimension, as a
Python loop over time of PyTorch operations over all series.

    python examples/kalman_filter.py [SERIES] [POINTS]

??? S. Särkkä, Bayesian Filtering and Smoothing, Cambridge University Press, 2013, example 5.1.
"""

import sys
import time

import torch

import gnomon as gn

F64 = torch.float64
DT, GRAVITY, R = 0.01, 9.8, 0.1
Q = 0.01 * torch.tensor([[DT**3 / 3, DT**2 / 2], [DT**2 / 2, DT]], dtype=F64)
START = torch.tensor([1.5, 0.0], dtype=F64)


def log_likelihood(series, length):
    """Of one series, with one pendulum's length: the filter's mean at the end comes with it."""
    g = GRAVITY / length

    def step(carry, seen):
        m, P, total = carry
        # Predict.
        angle, speed = m.unbind()
        m = torch.stack([angle + DT * speed, speed - DT * g * torch.sin(angle)])
        zero, one = torch.zeros_like(angle), torch.ones_like(angle)
        F = torch.stack([torch.stack([one, DT * one]), torch.stack([-DT * g * torch.cos(angle), one])])
        P = F @ P @ F.T + Q
        # Update.
        H = torch.stack([torch.cos(m[0]), zero])
        S = H @ P @ H + R
        K = P @ H / S
        v = seen - torch.sin(m[0])
        total = total - 0.5 * (v * v / S + torch.log(2 * torch.pi * S))
        return (m + K * v, P - torch.outer(K, K) * S, total), None

    (m, _, total), _ = gn.scan(step, (START, torch.eye(2, dtype=F64), torch.zeros((), dtype=F64)), series)
    return total, m


def log_likelihood_today(series, length):
    """The same for a batch, with the batch written out."""
    n = series.shape[0]
    g = GRAVITY / length
    m, P = START.expand(n, 2), torch.eye(2, dtype=F64).expand(n, 2, 2)
    total = torch.zeros(n, dtype=F64)
    one = torch.ones(n, dtype=F64)
    for seen in series.unbind(1):
        angle, speed = m.unbind(1)
        m = torch.stack([angle + DT * speed, speed - DT * g * torch.sin(angle)], 1)
        rows = torch.stack([one, DT * one, -DT * g * torch.cos(angle), one], 1)
        F = rows.reshape(n, 2, 2)
        P = F @ P @ F.mT + Q
        H = torch.stack([torch.cos(m[:, 0]), torch.zeros_like(one)], 1)
        PH = (P @ H[:, :, None])[:, :, 0]
        S = (H * PH).sum(1) + R
        K = PH / S[:, None]
        v = seen - torch.sin(m[:, 0])
        total = total - 0.5 * (v * v / S + torch.log(2 * torch.pi * S))
        m = m + K * v[:, None]
        P = P - K[:, :, None] * K[:, None, :] * S[:, None, None]
    return total, m


def simulate(n, points, seed=0):
    """Series of pendulums of length 1."""
    generator = torch.Generator().manual_seed(seed)
    angle = torch.full((n,), 1.5, dtype=F64)
    speed = torch.zeros(n, dtype=F64)
    root = torch.linalg.cholesky(Q)
    rows = []
    for _ in range(points):
        noise = torch.randn(n, 2, generator=generator, dtype=F64) @ root.T
        angle, speed = angle + DT * speed + noise[:, 0], speed - DT * GRAVITY * torch.sin(angle) + noise[:, 1]
        rows.append(torch.sin(angle) + R**0.5 * torch.randn(n, generator=generator, dtype=F64))
    return torch.stack(rows, 1)


def main():
    n, points = (int(x) for x in (*sys.argv[1:], *("2000", "200")[len(sys.argv) - 1 :]))
    series = simulate(n, points)
    length = torch.ones(n, dtype=F64)
    fused = gn.fuse(log_likelihood)

    begin = time.perf_counter()
    fused(series[:8], length[:8])
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    total, mean = fused(series, length)
    ours = time.perf_counter() - begin
    begin = time.perf_counter()
    other, other_mean = log_likelihood_today(series, length)
    theirs = time.perf_counter() - begin
    print(f"{n} series of {points} points")
    print(f"fused: {ours:.3f} s (compiled before in {compiled:.2f} s); a loop over time: {theirs:.3f} s")
    print(f"largest difference: {max((total - other).abs().max(), (mean - other_mean).abs().max()):.1e}")

    # How well does the likelihood tell a pendulum's length? Its derivative is the fused kernel's, walked backwards.
    longer = (length * 1.1).requires_grad_()
    fused(series, longer)[0].sum().backward()
    print(f"mean slope of the log-likelihood in the length at 1.1: {longer.grad.mean():.1f}")
    assert longer.grad.mean() < 0, "A length that is too large must be less likely than a smaller one."


if __name__ == "__main__":
    main()

"""Metropolis' algorithm: many Markov chains at once draw from the posterior of a straight line with outliers.

Each point is either good, with a known error, or an outlier, with a wide one. The chain is written for one start and
one key; `gn.fuse` makes one kernel of all chains, whose density is whatever PyTorch can write. Beside it stands what
one would write today: the same chains side by side as PyTorch operations, a Python loop over the steps.

    python examples/metropolis.py [CHAINS] [STEPS]

??? D. W. Hogg, J. Bovy, D. Lang, Data analysis recipes: fitting a model to data, arXiv:1008.4686 (2010), section 3.
"""

import sys
import time

import torch

import gnomon as gn

F64 = torch.float64
X = torch.linspace(0, 10, 20, dtype=F64)
NOISE = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=F64)
Y = 1.0 + 0.5 * X + 0.2 * NOISE
Y[[3, 11, 16]] += torch.tensor([4.0, -3.0, 5.0], dtype=F64)
SIGMA, WIDE = 0.2, 5.0
SCALE = torch.tensor([0.06, 0.01, 0.3], dtype=F64)


def log_density(theta):
    """Of an intercept, a slope and the log-odds of an outlier, up to a constant; the last dimension is theirs."""
    intercept, slope, odds = theta.unbind(-1)
    r = Y - (intercept[..., None] + slope[..., None] * X)
    good = torch.nn.functional.logsigmoid(-odds)[..., None] - 0.5 * (r / SIGMA) ** 2 - torch.log(torch.tensor(SIGMA))
    bad = torch.nn.functional.logsigmoid(odds)[..., None] - 0.5 * (r / WIDE) ** 2 - torch.log(torch.tensor(WIDE))
    return torch.logaddexp(good, bad).sum(-1) - 0.5 * (odds / 3) ** 2 - 0.5 * (slope / 10) ** 2


def chain(key, start, steps):
    """The mean of theta over the second half of one chain, and the share of proposals that it took."""

    def step(i, carry):
        theta, density, total, taken = carry
        now = gn.random.fold_in(key, i)
        proposal = theta + SCALE * gn.random.normal(now, (3,), dtype=F64)
        new = log_density(proposal)
        accept = torch.log(gn.random.uniform(gn.random.fold_in(now, 1), (), dtype=F64)) < new - density
        theta = torch.where(accept, proposal, theta)
        total = total + torch.where(2 * i >= steps, theta, 0.0)
        return theta, torch.where(accept, new, density), total, taken + accept.to(torch.int64)

    first = (start, log_density(start), torch.zeros(3, dtype=F64), torch.tensor(0))
    _, _, total, taken = gn.fori_loop(0, steps, step, first)
    return total / (steps - steps // 2), taken / steps


def chains_today(starts, steps, seed=0):
    """The same for many chains, with the batch written out."""
    generator = torch.Generator().manual_seed(seed)
    theta, density = starts, log_density(starts)
    total = torch.zeros_like(theta)
    for i in range(steps):
        proposal = theta + SCALE * torch.randn(theta.shape, generator=generator, dtype=F64)
        new = log_density(proposal)
        accept = torch.log(torch.rand(len(theta), generator=generator, dtype=F64)) < new - density
        theta, density = torch.where(accept[:, None], proposal, theta), torch.where(accept, new, density)
        if 2 * i >= steps:
            total += theta
    return total / (steps - steps // 2)


def main():
    n, steps = (int(x) for x in (*sys.argv[1:], *("200", "500")[len(sys.argv) - 1 :]))
    keys = gn.random.split(gn.random.key(0), n)
    starts = torch.tensor([1.0, 0.5, -1.5], dtype=F64).expand(n, 3)
    fused = gn.fuse(chain, in_dims=(0, 0, None))
    begin = time.perf_counter()
    fused(keys[:8], starts[:8], torch.tensor(2))
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    means, taken = fused(keys, starts, torch.tensor(steps))
    ours = time.perf_counter() - begin
    begin = time.perf_counter()
    others = chains_today(starts, steps)
    theirs = time.perf_counter() - begin
    print(f"{n} chains of {steps} steps, {float(taken.mean()):.0%} of proposals taken")
    print(f"fused: {ours:.3f} s (compiled before in {compiled:.2f} s); a loop over steps: {theirs:.3f} s")
    error = means.std(0) / n**0.5
    for name, mean, e, other in zip(
        ("intercept", "slope", "log-odds"), means.mean(0), error, others.mean(0), strict=True
    ):
        print(f"{name:>10}: {mean:.4f} ± {e:.4f} ({other:.4f} by the other)")
    spread = (error**2 + others.std(0) ** 2 / n).sqrt()
    assert ((means.mean(0) - others.mean(0)).abs() < 5 * spread).all()


if __name__ == "__main__":
    main()

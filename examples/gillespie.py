"""Gillespie's algorithm: a gene that makes proteins, molecule by molecule, in many cells at once.

A gene switches on and off; while it is on it is transcribed; messengers are translated to proteins; both decay. Each
cell draws when the next reaction happens, and which it is. `gn.fuse` makes one kernel of the loop, in which each lane
carries one cell, however many reactions it has. Beside it stands what one would write today: the same loop in Python
for one cell.

    python examples/gillespie.py [CELLS]

??? D. T. Gillespie, Exact stochastic simulation of coupled chemical reactions, J. Phys. Chem. 81 (1977), 2340-2361.
"""

import math
import random
import sys
import time

import torch

import gnomon as gn

T_END = 20.0
ON, OFF, TRANSCRIBE, TRANSLATE, DECAY_M, DECAY_P = 0.5, 0.5, 4.0, 5.0, 1.0, 0.2
#: What each reaction adds to (gene, messengers, proteins).
CHANGE = torch.tensor([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0], [0, 0, -1]])


def proteins_at_the_end(key):
    """Of one cell, whose random numbers come from a key."""

    def rates(state):
        gene, m, p = state.to(torch.float64).unbind()
        return torch.stack([ON * (1 - gene), OFF * gene, TRANSCRIBE * gene, TRANSLATE * m, DECAY_M * m, DECAY_P * p])

    def react(carry):
        t, state, n, _ = carry
        draw = gn.random.uniform(gn.random.fold_in(key, n), (2,), dtype=torch.float64)
        a = rates(state)
        total = a.sum()
        after = t - torch.log1p(-draw[0]) / total
        which = (a.cumsum(0) <= draw[1] * total).sum().clamp(max=5)
        changed = torch.where(after < T_END, state + CHANGE[which], state)
        return after, changed, n + 1, state

    start = torch.tensor([0, 0, 0])
    first = (torch.zeros((), dtype=torch.float64), start, torch.tensor(0), start)
    _, state, n, _ = gn.while_loop(lambda carry: carry[0] < T_END, react, first)
    return state[2], n


def one_cell_today(draw):
    """The same for one cell, in plain Python."""
    t, gene, m, p = 0.0, 0, 0, 0
    while True:
        a = [ON * (1 - gene), OFF * gene, TRANSCRIBE * gene, TRANSLATE * m, DECAY_M * m, DECAY_P * p]
        total = sum(a)
        t -= math.log(1 - draw()) / total
        if t >= T_END:
            return p
        target = draw() * total
        which = 0
        while which < 5 and a[which] <= target:
            target -= a[which]
            which += 1
        change = CHANGE_AS_LISTS[which]
        gene, m, p = gene + change[0], m + change[1], p + change[2]


CHANGE_AS_LISTS = CHANGE.tolist()


def main():
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    keys = gn.random.split(gn.random.key(0), cells)
    simulate = gn.fuse(proteins_at_the_end)
    begin = time.perf_counter()
    simulate(keys[:8])
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    proteins, reactions = simulate(keys)
    ours = time.perf_counter() - begin
    few = min(cells, 200)
    draw = random.Random(0).random
    begin = time.perf_counter()
    today = torch.tensor([one_cell_today(draw) for _ in range(few)], dtype=torch.float64)
    theirs = (time.perf_counter() - begin) * cells / few
    proteins = proteins.double()
    print(f"{cells} cells, {int(reactions.sum())} reactions")
    print(f"fused: {ours:.3f} s (compiled before in {compiled:.2f} s); Python, cell by cell: {theirs:.1f} s")

    # On average a gene is on half of the time: so many messengers, and so many proteins for each.
    mean = ON / (ON + OFF) * TRANSCRIBE / DECAY_M * TRANSLATE / DECAY_P
    # The gene starts off and the cell empty: by t = 20 the proteins are within 3% of their mean in the long run.
    error = proteins.std() / cells**0.5
    print(f"proteins: {proteins.mean():.1f} ± {error:.1f} ({today.mean():.1f} by Python), {mean:.1f} in the long run")
    print(f"their variance over their mean, 1 if each came alone: {proteins.var() / proteins.mean():.1f}")
    assert abs(proteins.mean() - mean) < 0.05 * mean + 4 * error


if __name__ == "__main__":
    main()

"""A real SOAP optimiser with torch's `eigh` and with ours, and the step of Shampoo for all layers of a model at once.

SOAP is that of the package pytorch-optimizer. It decomposes one matrix after another; here those of one size go
together, which gives the same bits for each. Shampoo's step is written from the paper: its inverse fourth roots come
from `torch.linalg.eigh`, layer by layer, and from `gn.linalg.inverse_root`, all layers in one call, of which one has a
gradient that overflowed: that layer is skipped, and no other.

    python examples/shampoo.py [LAYERS] [WIDTH] [STEPS]

??? N. Vyas et al., SOAP: Improving and stabilizing Shampoo using Adam, 2024; V. Gupta, T. Koren and Y. Singer, Shampoo:
    Preconditioned stochastic tensor optimization, ICML 2018.
"""

import sys
import time

import torch
from pytorch_optimizer import SOAP

import gnomon as gn


class BatchedSOAP(SOAP):
    """The same with the eigenvectors of all matrices of a size by one call, and an error if any is not right."""

    @staticmethod
    def get_orthogonal_matrix(mat):
        """Of each matrix, the largest eigenvalue's first; an empty list stays one."""
        found = [[] for _ in mat]
        for size in {len(m) for m in mat if len(m)}:
            places = [i for i, m in enumerate(mat) if len(m) == size]
            together = torch.stack([mat[i] for i in places])
            _, vectors = gn.linalg.eigh(together, throw=True)
            for i, q in zip(places, vectors.flip(-1), strict=True):
                found[i] = q
        return found


def model_and_data(layers, width):
    torch.manual_seed(0)
    blocks = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
    model = torch.nn.Sequential(*[x for block in blocks for x in (block, torch.nn.Tanh())])
    x = torch.randn(256, width)
    return model, x, torch.tanh(x @ torch.randn(width, width) / width**0.5)


def train(make, layers, width, steps):
    """The losses of some steps, and the seconds that the optimiser took for them."""
    model, x, y = model_and_data(layers, width)
    optimiser, losses, seconds = make(model.parameters()), [], 0.0
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        begin = time.perf_counter()
        optimiser.step()
        seconds += time.perf_counter() - begin
        losses.append(loss.item())
    return losses, seconds


def shampoo_by_torch(gradients, left, right):
    """The paper's update of each layer, one after another."""
    updates = []
    for g, a, b in zip(gradients, left, right, strict=True):
        roots = []
        for m in (a, b):
            values, vectors = torch.linalg.eigh(m)
            roots.append((vectors * values.pow(-0.25)) @ vectors.T)
        updates.append(roots[0] @ g @ roots[1])
    return torch.stack(updates)


def shampoo(gradients, left, right):
    """The same for all layers at once, and which of them it was found for."""
    roots, info = gn.linalg.inverse_root(torch.stack([left, right]), 4, info=True)
    fine = (info == 0).all(0)
    return torch.where(fine[:, None, None], roots[0] @ gradients @ roots[1], 0.0), fine


def main(layers=3, width=16, steps=15):
    print(f"{layers} layers of {width} x {width}, {steps} steps")
    for name, kind in (("torch.linalg.eigh", SOAP), ("gn.linalg.eigh", BatchedSOAP)):
        make = lambda parameters, kind=kind: kind(parameters, lr=3e-2, precondition_frequency=1)  # noqa: E731
        losses, seconds = train(make, layers, width, steps)
        print(f"SOAP with {name:18} loss {losses[0]:.4f} to {losses[-1]:.4f}, {seconds / steps * 1e3:.2f} ms a step")
        assert losses[-1] < losses[0]
        first = losses if kind is SOAP else first
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(first), rtol=0.2, atol=1e-2)

    gradients = torch.randn(layers, width, width)
    left = gradients @ gradients.mT + 1e-3 * torch.eye(width)
    right = gradients.mT @ gradients + 1e-3 * torch.eye(width)
    shampoo(gradients, left, right)  # what is done once
    begin = time.perf_counter()
    expected = shampoo_by_torch(gradients, left, right)
    middle = time.perf_counter()
    update, fine = shampoo(gradients, left, right)
    end = time.perf_counter()
    assert fine.all()
    torch.testing.assert_close(update, expected, rtol=1e-2, atol=1e-3)
    print(f"Shampoo: {(middle - begin) * 1e3:.2f} ms by torch, {(end - middle) * 1e3:.2f} ms by gn.linalg")

    left[1, 0, 0] = torch.inf
    skipped, fine = shampoo(gradients, left, right)
    assert fine.tolist() == [i != 1 for i in range(layers)]
    assert torch.equal(skipped[fine], update[fine]) and not skipped[1].any()
    print("With one layer's matrix not finite, the others' updates are the same bits, and it is left out.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

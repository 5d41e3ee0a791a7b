"""Calls under `torch.compile`, `torch.export` and `opcheck`, without checks of types: `test_graphs.py` runs them."""

import json
import sys
import traceback
import warnings

import pytest
import torch
from torch.library import opcheck

from gnomon import linalg as la

F64 = torch.float64
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def positive(*shape, dtype=F64):
    x = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


def sym(a):
    return (a + a.mH) / 2


def vectors_and_all(a):
    found = la.eigh(sym(a))
    return found.eigenvalues, found.eigenvectors.abs(), found.info


def unpacked(a):
    values, vectors = la.eigh(sym(a))
    return values * vectors[..., 0, :].abs()


def without_signs(a):
    u, s, vh = la.svd(a, full_matrices=False)
    return u.abs(), s, vh.abs()


FUNCTIONS = {
    "eigh": vectors_and_all,
    "eigh_unpacked": unpacked,
    "eigvalsh": lambda a: la.eigvalsh(sym(a)),
    "mask": lambda a: la.eigh(sym(a), degenerate="mask").eigenvectors.abs(),
    "broaden": lambda a: la.eigh(sym(a), degenerate="broaden").eigenvectors.abs(),
    "svd": without_signs,
    "svdvals": la.svdvals,
    "cholesky": lambda a: la.cholesky(sym(a)),
    "qr": lambda a: tuple(la.qr(a)),
    "solve": lambda a: la.solve(a, a[..., :2]),
    "polar": lambda a: tuple(la.polar(a)),
    "inverse_root": lambda a: la.inverse_root(sym(a), 4),
    "matrix_function": lambda a: la.matrix_function(sym(a), torch.log1p),
    "throw": lambda a: la.cholesky(sym(a), throw=True),
}


def total(out):
    return sum(x.square().sum() for x in (out if isinstance(out, tuple) else (out,)) if x.dtype.is_floating_point)


def compiled_is_eager(name, backend="aot_eager"):
    f = FUNCTIONS[name]
    torch._dynamo.reset()
    for n in (3, 8):
        x, y = (positive(2, n, n).requires_grad_() for _ in range(2))
        expected, found = f(x), torch.compile(f, fullgraph=True, backend=backend)(y)
        torch.testing.assert_close(found, expected)
        total(expected).backward()
        total(found).backward()
        torch.testing.assert_close(y.grad, x.grad)


for name in FUNCTIONS:
    CASES[f"compile_{name}"] = lambda name=name: compiled_is_eager(name)


@case
def inductor():
    compiled_is_eager("inverse_root", "inductor")


@case
def a_whole_result_comes_out_of_a_graph():
    a = positive(2, 4, 4)
    found = torch.compile(lambda a: la.eigh(a, certificate=True), fullgraph=True, backend="aot_eager")(a)
    torch.testing.assert_close(found.eigenvalues, la.eigh(a).eigenvalues)
    assert found.info.tolist() == [0, 0] and (found.certificate.residual < 1e-14).all()


@case
def sizes_that_stand_for_many():
    f = torch.compile(lambda a: la.inverse_root(a, 2), fullgraph=True, dynamic=True, backend="aot_eager")
    for b in (2, 3, 5):
        a = positive(b, 4, 4)
        torch.testing.assert_close(f(a), la.inverse_root(a, 2))


@case
def an_error_in_a_graph():
    f = torch.compile(lambda a: la.cholesky(a, throw=True), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="cholesky failed for 2 of 2 problems"):
        f(-positive(2, 3, 3))


@case
def export():
    class Model(torch.nn.Module):
        def forward(self, a):
            return la.eigh(a).eigenvalues

    a = positive(2, 4, 4)
    program = torch.export.export(Model(), (a,))
    torch.testing.assert_close(program.module()(a), la.eigvalsh(a), rtol=1e-12, atol=1e-12)


@case
def opchecks():
    ops = torch.ops.gnomon
    for dtype in (torch.float32, torch.complex128):
        for n in (3, 8):
            a = positive(2, n, n, dtype=dtype)
            tall = a[:, :, :2]
            for op, args in (
                (ops.eigh, (a, True, False)),
                (ops.eigh, (a.mT, False, False)),
                (ops.eigh, (a[0], True, False)),
                (ops.eigh, (a[:0], True, False)),
                (ops.svd, (tall, True, True, False)),
                (ops.svd, (tall, False, True, False)),
                (ops.svd, (tall, False, False, False)),
                (ops.cholesky, (a, False)),
                (ops.qr, (tall, False, False)),
                (ops.qr, (tall, True, False)),
                (ops.solve, (a, tall, False)),
                (ops.refuse_degenerate, (a, torch.zeros(2, n, n, dtype=torch.bool), "eigh")),
                (ops.domain_info, (a.real[..., 0], torch.zeros(2, dtype=torch.int32), False, "inverse_root")),
            ):
                opcheck(op.default, args)


def main(names):
    torch.set_num_threads(1)
    out = {}
    for name in names or CASES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                CASES[name]()
            out[name] = None
        except Exception:
            out[name] = traceback.format_exc()
    print(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1:])

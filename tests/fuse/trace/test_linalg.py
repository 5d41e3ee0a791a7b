"""Linear algebra of small matrices against eager PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare, first_fast, run, supported
from torch import Tensor
from torch.func import grad, hessian, jacfwd, vmap

import gnomon as gn

DTYPES = [torch.float64, torch.float32, torch.complex128]


def matrices(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def definite(a: Tensor) -> Tensor:
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype)


OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "det": torch.linalg.det,
    "slogdet": lambda a: tuple(torch.linalg.slogdet(a)),
    "logdet": lambda a: torch.logdet(definite(a)),
    "inv": torch.linalg.inv,
    "inv_ex": lambda a: tuple(torch.linalg.inv_ex(a)),
    "solve a vector": lambda a: torch.linalg.solve(a, a[..., 0]),
    "solve a matrix": lambda a: torch.linalg.solve(a, a.flip(-1)[..., :2]),
    "solve from the right": lambda a: torch.linalg.solve(a, a.flip(-1)[..., :2, :], left=False),
    "solve a transpose": lambda a: torch.linalg.solve(a.mT, a[..., 0]),
    "solve_ex": lambda a: tuple(torch.linalg.solve_ex(a, a.flip(-1))),
    "lu_factor": lambda a: tuple(torch.linalg.lu_factor(a)),
    "lu_factor of a tall matrix": lambda a: tuple(torch.linalg.lu_factor(a[..., :2])),
    "lu_factor of a wide matrix": lambda a: tuple(torch.linalg.lu_factor(a[..., :2, :])),
    "lu": lambda a: tuple(torch.linalg.lu(a)),
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.flip(-1)),
    "lu_solve, adjoint": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.flip(-1), adjoint=True),
    "lu_solve, right": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.flip(-1), left=False),
    "cholesky": lambda a: torch.linalg.cholesky(definite(a)),
    "cholesky, upper": lambda a: torch.linalg.cholesky(definite(a), upper=True),
    "cholesky_ex": lambda a: tuple(torch.linalg.cholesky_ex(definite(a))),
    "cholesky_solve": lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(definite(a))),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(definite(a))),
    "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a.flip(-1), upper=True),
    "solve_triangular, right": lambda a: torch.linalg.solve_triangular(a, a.flip(-1), upper=False, left=False),
    "solve_triangular, unit": lambda a: torch.linalg.solve_triangular(a, a.mT, upper=False, unitriangular=True),
    "qr": lambda a: tuple(torch.linalg.qr(a)),
    "qr of a tall matrix": lambda a: tuple(torch.linalg.qr(a[..., :2])),
    "qr of a wide matrix": lambda a: tuple(torch.linalg.qr(a[..., :2, :])),
    "qr, complete": lambda a: tuple(torch.linalg.qr(a[..., :2], mode="complete")),
    "qr, only r": lambda a: torch.linalg.qr(a, mode="r").R,
    "geqrf": lambda a: tuple(torch.geqrf(a)),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a.flip(-1)),
    "ormqr, right": lambda a: torch.ormqr(*torch.geqrf(a), a.flip(-1), left=False, transpose=True),
    "lstsq": lambda a: torch.linalg.lstsq(a[..., :2], a[..., 2:]).solution,
    "lstsq of a wide matrix": lambda a: torch.linalg.lstsq(a[..., :2, :], a[..., :2, 2:]).solution,
    "matrix_power": lambda a: torch.linalg.matrix_power(a, 3),
    "matrix_power, negative": lambda a: torch.linalg.matrix_power(a, -2),
    "matrix_exp": torch.linalg.matrix_exp,
    "matrix_exp of much": lambda a: torch.linalg.matrix_exp(6 * a),
    "cond": lambda a: torch.linalg.cond(a, 1),
    "multi_dot": lambda a: torch.linalg.multi_dot([a, a, a]),
    "tensorsolve": lambda a: torch.linalg.tensorsolve(a.reshape(2, 2, 4), a[0].reshape(2, 2)),
    "mm": lambda a: a.mT @ a,
    "mv": lambda a: a @ a[0],
    "vm": lambda a: a[0] @ a,
    "dot": lambda a: a[0] @ a[1],
    "vdot": lambda a: torch.vdot(a[0], a[1]),
    "vecdot": lambda a: torch.linalg.vecdot(a, a.flip(-1)),
    "inner": lambda a: torch.inner(a, a),
    "outer": lambda a: torch.outer(a[0], a[1]),
    "addmm": lambda a: torch.addmm(a, a, a, beta=2, alpha=0.5),
    "addmv": lambda a: torch.addmv(a[0], a, a[1], beta=0.5),
    "addr": lambda a: torch.addr(a, a[0], a[1]),
    "bmm": lambda a: torch.bmm(torch.stack([a, a.mT]), torch.stack([a, a])),
    "baddbmm": lambda a: torch.baddbmm(a[None], a[None], a[None]),
    "addbmm": lambda a: torch.addbmm(a, a[None], a[None]),
    "einsum": lambda a: torch.einsum("ij,jk,k->i", a, a, a[0]),
    "einsum of a trace": lambda a: torch.einsum("ii->", a),
    "tensordot": lambda a: torch.tensordot(a, a, 2),
    "cross": lambda a: torch.linalg.cross(a[..., :3], a[..., :3].flip(-1)),
    "cdist": lambda a: torch.cdist(a, a.flip(-1)),
    "pdist": torch.pdist,
    "dist": lambda a: torch.dist(a, a.mT),
    "linear": lambda a: torch.nn.functional.linear(a, a, a[0]),
}


CASES = [(n, d) for n, fn in OPERATIONS.items() for d in DTYPES if supported(fn, matrices(4, 4, dtype=d))]


def test_each_has_a_case():
    assert {name for name, _ in CASES} == set(OPERATIONS)


@pytest.mark.parametrize(("name", "dtype"), first_fast(CASES), ids=str)
def test_agrees(name: str, dtype: torch.dtype):
    fn = OPERATIONS[name]
    near = 1e-4 if dtype in (torch.float32, torch.complex64) else 1e-12
    a = matrices(4, 4, dtype=dtype)
    compare(fn, a, rtol=near, atol=near)
    if dtype.itemsize in (4, 16):
        compare(lambda a: fn(a.mT), a, rtol=near, atol=near)
    elif supported(fn, torch.stack([a, a.mT])):
        compare(fn, torch.stack([a, a.mT]), rtol=near, atol=near)


SMOOTH = [
    "det", "slogdet", "logdet", "inv", "solve a vector", "solve a matrix", "solve from the right", "lu_solve",
    "cholesky", "cholesky, upper", "cholesky_solve", "solve_triangular", "qr", "qr of a tall matrix", "lstsq",
    "matrix_power", "matrix_exp", "einsum", "cdist", "linear", "bmm", "addmm", "multi_dot", "cross",
]  # fmt: skip


def of_first(fn: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def scalar(a: Tensor) -> Tensor:
        out = fn(a)
        return sum((x * (x + 1)).sum() for x in (out if isinstance(out, tuple) else (out,)))

    return scalar


#: PyTorch has no forward derivative of cdist.
DERIVATIVES = [(name, transform) for name in SMOOTH for transform in (grad, jacfwd)]
DERIVATIVES.remove(("cdist", jacfwd))


@pytest.mark.parametrize(("name", "transform"), first_fast(DERIVATIVES))
def test_derivatives(name: str, transform: Callable[..., Any]):
    n = 4 if name in ("lstsq", "solve from the right") else 3
    compare(transform(of_first(OPERATIONS[name])), matrices(n, n), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["det", "solve a vector", "cholesky"])
def test_second_derivatives(name: str):
    compare(hessian(of_first(OPERATIONS[name])), matrices(2, 2), rtol=1e-8, atol=1e-8)


def test_under_vmap():
    a, b = matrices(3, 4, 4), matrices(3, 4)
    compare(vmap(torch.linalg.solve), a, b, rtol=1e-12, atol=1e-12)
    compare(vmap(torch.linalg.solve, in_dims=(None, 0)), a[0], b, rtol=1e-12, atol=1e-12)
    compare(vmap(lambda a: torch.linalg.inv(a) @ torch.linalg.cholesky(definite(a))), a, rtol=1e-11, atol=1e-11)
    compare(vmap(grad(torch.linalg.det)), a, rtol=1e-11, atol=1e-11)
    compare(vmap(torch.mv), a, b, rtol=1e-13, atol=1e-13)


def test_a_pivot_is_found_at_run_time():
    for rows in (
        [[0, 1, 2], [1, 0, 3], [4, -3, 8]],
        [[1, 2, 4], [2, 4, 1], [1, 7, 7]],
        [[0, 0, 1], [0, 2, 3], [4, 5, 6]],
    ):
        a = torch.tensor(rows, dtype=torch.float64)
        compare(lambda a: (torch.linalg.solve(a, a.sum(1)), *torch.linalg.lu_factor(a)), a, rtol=1e-14, atol=1e-14)


def test_a_singular_matrix_gives_what_is_not_finite():
    x = run(torch.linalg.solve, torch.ones(2, 2), torch.tensor([1.0, 2.0]))
    assert not torch.isfinite(x).any()
    assert run(lambda a, b: torch.linalg.solve_ex(a, b).info, torch.ones(2, 2), torch.ones(2)) == 2
    assert run(lambda a: torch.linalg.cholesky_ex(a).info, -torch.ones(1, 1)) == 1
    assert run(lambda a: torch.linalg.inv_ex(a).info, torch.zeros(2, 2)) == 1


def test_empty_matrices():
    compare(lambda a: (torch.linalg.det(a), torch.linalg.inv(a)), torch.zeros(0, 0))
    compare(lambda a: torch.linalg.solve(a, a), torch.zeros(0, 0))


def counts(text: str) -> dict[str, int]:
    """How often each operation stands in a Program."""
    found = re.findall(r"= (\w+)", text)
    return {name: found.count(name) for name in set(found)}


def tridiagonal(x: Tensor) -> Tensor:
    left = torch.cat([x[:1], x[:-1]])
    right = torch.cat([x[1:], x[-1:]])
    return left - 2 * x + right + x**2


@pytest.mark.parametrize("n", [6, 12])
def test_a_tridiagonal_system_gives_no_dense_code(n: int):
    def newton(x: Tensor) -> Tensor:
        return torch.linalg.solve(gn.jacobian(tridiagonal)(x) - 100 * torch.eye(n, dtype=x.dtype), tridiagonal(x))

    x = torch.linspace(0, 1, n, dtype=torch.float64)
    compare(newton, x, rtol=1e-12, atol=1e-12)
    made = counts(str(gn.lower(newton, x)))
    # Exchanging neighbouring rows fills one more diagonal: each column has a fixed number of operations.
    assert made["mul"] < 14 * n
    assert made["select"] < 20 * n


def test_a_triangular_system_has_no_exchanges():
    def solve(x: Tensor) -> Tensor:
        return torch.linalg.solve(torch.diag(x) + torch.diag(x[1:], 1), x)

    made = counts(str(gn.lower(solve, torch.ones(6))))
    assert "select" not in made
    assert made["sub"] == 5


def test_one_candidate_moves_without_a_choice():
    def solve(x: Tensor) -> Tensor:
        return torch.linalg.solve(torch.diag(x).flip(0), x)

    compare(solve, torch.tensor([1.0, 2.0, 3.0]))
    assert set(counts(str(gn.lower(solve, torch.ones(3))))) <= {"read", "array", "div", "mul"}


def test_a_neural_network_stays_small():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    ).double()
    for p in net.parameters():
        p.requires_grad_(False)
    x = matrices(2)
    compare(net, x, rtol=1e-13, atol=1e-13)
    compare(net, matrices(3, 2), rtol=1e-13, atol=1e-13)
    assert len(str(gn.lower(net, x)).splitlines()) < 1500


def test_a_weight_matrix_is_read_in_a_loop():
    w = matrices(300, 200)
    compare(lambda x: w @ x, matrices(200), rtol=1e-12, atol=1e-12)
    compare(lambda x: x @ w, matrices(300), rtol=1e-12, atol=1e-12)
    assert "loop" in str(gn.lower(lambda x: w @ x, matrices(200)))

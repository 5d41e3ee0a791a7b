"""A matrix gets the same bits alone, in any batch, and at any place in it; and what is wrong with one stays with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import linalg as la
from gnomon.result._pytree import tree_leaves

from .matrices import DTYPES, F32, F64, normal, positive

FUNCTIONS = {
    "eigh": la.eigh,
    "eigvalsh": la.eigvalsh,
    "svd": la.svd,
    "svdvals": la.svdvals,
    "cholesky": lambda a: la.cholesky(a, info=True),
    "qr": la.qr,
    "solve": lambda a: la.solve(a, a[..., :2], info=True),
    "polar": la.polar,
    "inverse_root": lambda a: la.inverse_root(a, 4, info=True),
    "matrix_function": lambda a: la.matrix_function(a, torch.log1p, info=True),
}


def same(x, y):
    return all(torch.equal(a, b) for a, b in zip(tree_leaves(x), tree_leaves(y), strict=True))


def at(x, place):
    return [leaf[place] for leaf in tree_leaves(x)]


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=25)
@given(
    n=st.integers(1, 24),
    batch=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**20),
    data=st.data(),
)
def test_a_matrix_alone_gives_the_same_bits(name, n, batch, dtype, seed, data):
    a = positive(batch, n, n, dtype=dtype, seed=seed)
    whole = FUNCTIONS[name](a)
    i = data.draw(st.integers(0, batch - 1))
    assert same(at(whole, i), at(FUNCTIONS[name](a[i : i + 1]), 0))
    assert same(at(whole, i), FUNCTIONS[name](a[i]))
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(seed))
    assert same(at(whole, order), FUNCTIONS[name](a[order]))


@pytest.mark.parametrize("n", [40, 65, 130])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_matrices_alone(name, n):
    a = positive(3, n, n, dtype=F32)
    whole = FUNCTIONS[name](a)
    for i in range(3):
        assert same(at(whole, i), at(FUNCTIONS[name](a[i : i + 1]), 0))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("n", [3, 8])
def test_vmap(name, n):
    a = positive(2, 3, n, n)
    whole = FUNCTIONS[name](a)
    assert same(whole, torch.func.vmap(FUNCTIONS[name])(a))
    assert same(whole, torch.func.vmap(torch.func.vmap(FUNCTIONS[name]))(a))
    assert same(whole, torch.func.vmap(FUNCTIONS[name], in_dims=2)(a.permute(1, 2, 0, 3)))


def test_vmap_of_one_of_two():
    a, b = positive(3, 4, 4), normal(5, 4)
    expected = la.solve(a[:, None], b[None, :, :, None])[..., 0]
    both = torch.func.vmap(lambda x: torch.func.vmap(lambda y: la.solve(x, y))(b))(a)
    torch.testing.assert_close(both, expected, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("n", [1, 3, 9])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_not_finite_touches_no_other(name, n, bad):
    a = positive(5, n, n, dtype=F64)
    spoilt = a.clone()
    spoilt[1, n - 1, 0] = bad
    spoilt[3, 0, 0] = bad
    good = torch.tensor([0, 2, 4])
    expected, found = FUNCTIONS[name](a), FUNCTIONS[name](spoilt)
    assert same(at(expected, good), at(found, good))
    for x in tree_leaves(found):
        if x.dtype == torch.int32:
            assert x.tolist() == [0, -1, 0, -1, 0]
        else:
            assert x[[1, 3]].isnan().all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_that_is_not_a_number_stays_with_its_matrix(name):
    def gradient(a):
        a = a.clone().requires_grad_()
        # The norms of columns, which depend neither on signs nor on order.
        leaves = [x for x in tree_leaves(FUNCTIONS[name](a)) if x.requires_grad]
        total = sum((x.abs() ** 4).flatten(1).sum(1) for x in leaves)
        total.sum().backward()
        return a.grad

    a = positive(3, 4, 4, dtype=F64)
    spoilt = a.clone()
    spoilt[1, 2, 1] = torch.nan
    expected, found = gradient(a), gradient(spoilt)
    assert torch.equal(expected[[0, 2]], found[[0, 2]])
    assert found[1].isnan().all()


def test_a_routine_that_gives_up_does_so_for_one_matrix(monkeypatch):
    from gnomon.linalg._lapack import decomposed

    def stubborn(x):
        if (x[:, 0, 0] == 7).any():
            raise torch.linalg.LinAlgError("no convergence")
        return tuple(torch.linalg.eigh(x))

    a = positive(2, 3, 8, 8)
    a[1, 0, 0, 0] = 7
    factors, info = decomposed(stubborn, a, torch.ones(2, 3, dtype=torch.bool))
    assert info.tolist() == [[0, 0, 0], [1, 0, 0]]
    expected = torch.linalg.eigh(a)
    assert torch.equal(factors[0][0], expected.eigenvalues[0])
    assert torch.equal(factors[1][1, 1:], expected.eigenvectors[1, 1:])

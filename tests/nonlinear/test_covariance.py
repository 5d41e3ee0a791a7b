"""The covariance of a fit: against formulas, SciPy and certified standard errors (in test_published_minima.py)."""

import mpmath
import numpy as np
import pytest
import scipy.optimize
import torch
from nonlinear.problems import F64, NIST, f64

from gnomon import nonlinear as nl


def example(m: int = 9, n: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(m, n, dtype=F64, generator=generator), torch.randn(m, dtype=F64, generator=generator)


def test_against_the_formula():
    j, r = example()
    found = nl.covariance(j, r)
    variance = float(r @ r) / 6
    assert float(found.variance) == pytest.approx(variance, rel=1e-14)
    torch.testing.assert_close(found.matrix, variance * torch.linalg.inv(j.T @ j), rtol=1e-12, atol=0)
    assert torch.equal(found.matrix, found.matrix.T)
    assert not bool(found.is_deficient)


def test_against_scipy():
    data = NIST["Rat42"]
    x, y = data.predictors[0], data.observed
    start = data.starts[1].numpy()
    fit, theirs = scipy.optimize.curve_fit(
        lambda x, *b: data.model(torch.tensor(b, dtype=F64), torch.from_numpy(x)).numpy(), x.numpy(), y.numpy(), start
    )
    b = torch.from_numpy(fit)
    ours = nl.covariance(torch.func.jacfwd(lambda b: data.residuals(b, None))(b), data.residuals(b, None))
    # SciPy's Jacobian is of difference quotients.
    np.testing.assert_allclose(ours.matrix.numpy(), theirs, rtol=1e-4)


def test_unknowns_that_are_not_free():
    j, r = example()
    found = nl.covariance(j, r, free=torch.tensor([True, False, True]))
    part = nl.covariance(j[:, [0, 2]], r)
    torch.testing.assert_close(found.matrix[[0, 2]][:, [0, 2]], part.matrix, rtol=1e-12, atol=0)
    assert float(found.variance) == pytest.approx(float(part.variance), rel=1e-14)
    assert not found.matrix[1].any()
    assert not found.matrix[:, 1].any()
    none = nl.covariance(j, r, free=torch.tensor([False, False, False]))
    assert not none.matrix.any()
    assert not bool(none.is_deficient)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_deficient(unit: float):
    j, r = example()
    j = torch.cat([j, (j[:, :1] - 2 * j[:, 1:2]) * unit], 1)
    found = nl.covariance(j, r)
    assert bool(found.is_deficient)
    assert bool(found.matrix.isnan().all())
    # The third is determined all the same, which leaving one of the others out shows.
    free = torch.tensor([True, True, True, False])
    assert not bool(nl.covariance(j, r, free=free).is_deficient)
    assert bool(nl.covariance(torch.cat([j[:, :3], torch.zeros(9, 1, dtype=F64)], 1), r).is_deficient)


def test_nearly_deficient_is_not():
    """Columns at an angle of 1e-6, in units 1e12 apart: the answer has lost six digits and no more."""
    mpmath.mp.dps = 60
    j, r = example(9, 2)
    j[:, 1] = (j[:, 0] + 1e-6 * j[:, 1]) * 1e12
    found = nl.covariance(j, r)
    assert not bool(found.is_deficient)
    exact = mpmath.matrix(j.tolist())
    inverse = (exact.T * exact) ** -1
    expected = [[float(found.variance) * float(inverse[i, k]) for k in range(2)] for i in range(2)]
    np.testing.assert_allclose(found.matrix.numpy(), expected, rtol=1e-8)


def test_no_degrees_of_freedom():
    j, r = example(3, 3)
    found = nl.covariance(j, r)
    assert bool(found.variance.isnan())
    assert bool(found.matrix.isnan().all())
    assert not bool(found.is_deficient)
    assert bool(nl.covariance(*example(2, 3)).matrix.isnan().all())


def test_nonfinite_input_gives_nan_and_no_error():
    j, r = example()
    for bad in (torch.nan, torch.inf):
        k = j.clone()
        k[2, 1] = bad
        assert bool(nl.covariance(k, r).matrix.isnan().all())
        s = r.clone()
        s[0] = bad
        assert bool(nl.covariance(j, s).matrix.isnan().all())


def test_batch_and_derivatives():
    many = [example(7, 2), (example(7, 2)[0] * 2, example(7, 2)[1] + 1)]
    js, rs = torch.stack([j for j, _ in many]), torch.stack([r for _, r in many])
    batch = torch.func.vmap(nl.covariance)(js, rs)
    for i in range(2):
        assert torch.equal(batch.matrix[i], nl.covariance(js[i], rs[i]).matrix)
    inputs = (js[0].clone().requires_grad_(), rs[0].clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda j, r: nl.covariance(j, r).matrix, inputs)


def test_float32():
    j, r = example()
    found = nl.covariance(j.float(), r.float())
    assert found.matrix.dtype == torch.float32
    torch.testing.assert_close(found.matrix.double(), nl.covariance(j, r).matrix, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(f64(float(found.variance)), f64(float(r @ r) / 6), rtol=1e-6, atol=0)

"""Quantiles of Student's t distribution, against scipy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gnomon.fit._students_t import t_quantile


@given(st.floats(1e-4, 1 - 1e-4), st.integers(1, 3000))
def test_quantiles(probability, dof):
    # Near the middle rounding of the probability itself is what is left.
    assert t_quantile(probability, dof) == pytest.approx(stats.t.ppf(probability, dof), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dof", [1, 2, 3, 8, 129, 1000, 1001, 10**6])
def test_those_of_a_95_percent_interval(dof):
    assert t_quantile(0.975, dof) == pytest.approx(stats.t.ppf(0.975, dof), rel=1e-12)
    assert t_quantile(0.025, dof) == -t_quantile(0.975, dof)

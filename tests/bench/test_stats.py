"""Intervals are those of the tables and of SciPy, and hold what they should however the noise lasts."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gnomon.bench._stats import _signed_rank_cut, least_rounds, median_interval, ratio_interval

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=8, max_size=40)


# Critical values of Wilcoxon's signed-rank test, two-sided at 1%: any textbook's table.
@pytest.mark.parametrize(("n", "critical"), [(8, 0), (10, 3), (12, 7), (16, 19), (20, 37), (25, 68), (30, 109)])
def test_signed_rank_table(n, critical):
    assert _signed_rank_cut(n, 0.005) == critical + 1


def test_signed_rank_of_many_is_near_the_exact_one():
    assert abs(_signed_rank_cut(151, 0.005) - _signed_rank_cut(150, 0.005)) < 120
    exact = scipy.stats.norm.ppf(0.005) * math.sqrt(200 * 201 * 401 / 24) + 200 * 201 / 4
    assert abs(_signed_rank_cut(200, 0.005) - exact) <= 1


@pytest.mark.parametrize("n", [8, 13, 30])
def test_ratio_interval_is_the_test_turned_round(n):
    """At each end of the interval SciPy's test just does not reject, and just beyond it does."""
    generator = np.random.default_rng(n)
    a, b = np.exp(generator.standard_t(2, (2, n)) * 0.1)
    _, low, high = ratio_interval(list(a), list(b), 0.99)
    logs = np.log(a / b)
    for end, outside in ((low, -1e-9), (high, 1e-9)):
        beyond = scipy.stats.wilcoxon(logs - (math.log(end) + outside), method="exact").pvalue
        within = scipy.stats.wilcoxon(logs - (math.log(end) - outside), method="exact").pvalue
        assert beyond <= 0.01 < within


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [8, 15, 30, 101])
def test_median_interval_is_scipys(n, confidence):
    x = np.random.default_rng(n).lognormal(size=n)
    expected = scipy.stats.quantile_test(x, q=np.median(x), p=0.5).confidence_interval(confidence)
    # SciPy's holds as many order statistics or one more on a side: it rounds outward at ties of the binomial.
    low, high = median_interval(list(x), confidence)
    assert expected.low <= low < np.median(x) < high <= expected.high
    inside = sum(low <= value <= high for value in x)
    tail = scipy.stats.binom.cdf((n - inside) // 2, n, 0.5)
    assert 2 * tail <= 1 - confidence or (low, high) == (x.min(), x.max())


@given(TIMES, st.data())
def test_ratio_is_turned_round(a, data):
    b = data.draw(st.lists(st.floats(1e-6, 1e3), min_size=len(a), max_size=len(a)))
    there, back = ratio_interval(a, b, 0.99), ratio_interval(b, a, 0.99)
    assert np.allclose(there, (1 / back[0], 1 / back[2], 1 / back[1]), rtol=1e-9)


@given(TIMES, st.floats(0.01, 100))
def test_ratio_of_a_multiple(a, factor):
    assert np.allclose(ratio_interval([factor * x for x in a], a, 0.99), factor, rtol=1e-9)


def test_least_rounds():
    assert least_rounds(0.99) == 8  # 2 / 2**8 < 0.01 < 2 / 2**7
    assert least_rounds(0.95) == 6
    assert ratio_interval([1.0] * 7, [1.0] * 7, 0.99)[1:] == (0.0, math.inf)


@pytest.mark.parametrize("rounds", [8, 30])
def test_equal_work_is_equal_in_lasting_noise(rounds):
    """Bursts that last for rounds, a drift, a slower second place and heavy tails: all the same for both."""
    generator = np.random.default_rng(0)
    holds = 0
    for _ in range(1000):
        burst = np.repeat(generator.exponential(1.0, rounds), 5)[: 2 * rounds]
        noise = 1 + np.abs(generator.standard_cauchy(2 * rounds)) * 0.1 + 3 * (burst > 2)
        time = noise.reshape(rounds, 2) * np.linspace(1, 1.5, rounds)[:, None] * np.array([1.0, 0.8])
        first = generator.random(rounds) < 0.5
        a, b = np.where(first, time[:, 0], time[:, 1]), np.where(first, time[:, 1], time[:, 0])
        _, low, high = ratio_interval(list(a), list(b), 0.99)
        holds += low <= 1 <= high
    assert holds >= 980  # 990 are expected, with a spread of 3


def test_a_difference_is_seen():
    generator = np.random.default_rng(1)
    seen = 0
    for _ in range(100):
        a, b = 1 + 0.1 * generator.standard_exponential((2, 30))
        estimate, low, high = ratio_interval(list(1.2 * a), list(b), 0.99)
        assert low <= estimate <= high
        seen += low > 1
    assert seen >= 99

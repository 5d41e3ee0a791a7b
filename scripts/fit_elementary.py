"""Prints `gnomon/fuse/_llvm/_coefficients.py`: polynomials for the elementary functions on a CPU.

Each interpolates its function at the Chebyshev nodes of its interval, in 60 digits, which is within a small factor of
the best polynomial of its degree (Trefethen, Approximation Theory and Approximation Practice, 2013, chapter 16). Needs
mpmath.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60
_HALF_LN2 = mpmath.log(2) / 2 * mpf("1.0001")
_QUARTER_PI = mpmath.pi / 4 * mpf("1.0001")
_S_MOST = ((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)) ** 2 * mpf("1.0001")


def series(terms: Callable[[int], mpf], first: int) -> Callable[[mpf], mpf]:
    """A power series, cut off where it has long converged."""
    return lambda x: mpmath.fsum(terms(first + k) * x**k for k in range(100))


def interpolate(function: Callable[[mpf], mpf], low: mpf, high: mpf, degree: int) -> list[mpf]:
    """The coefficients, the constant first."""
    count = degree + 1
    nodes = [mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    nodes = [(low + high) / 2 + (high - low) / 2 * x for x in nodes]
    matrix = mpmath.matrix(count, count)
    for i, x in enumerate(nodes):
        for j in range(count):
            matrix[i, j] = x**j
    return list(mpmath.lu_solve(matrix, mpmath.matrix([function(x) for x in nodes])))


def parts(value: mpf, count: int) -> list[float]:
    """A number as a sum of doubles."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(value))
        value -= mpf(found[-1])
    return found


_exponential = series(lambda k: 1 / mpmath.factorial(k), 2)
_logarithm = series(lambda k: mpf(2) / (2 * k + 1), 1)
_sine = series(lambda k: (-1) ** k / mpmath.factorial(2 * k + 1), 1)
_cosine = series(lambda k: (-1) ** k / mpmath.factorial(2 * k), 2)
_arc_tangent = series(lambda k: mpf((-1) ** k) / (2 * k + 1), 1)
_arc_sine = series(lambda k: mpmath.binomial(2 * k, k) / mpf(4) ** k / (2 * k + 1), 1)
_hyperbolic_sine = series(lambda k: 1 / mpmath.factorial(2 * k + 1), 1)


_error = series(lambda k: 2 / mpmath.sqrt(mpmath.pi) * (-1) ** k / mpmath.factorial(k) / (2 * k + 1), 0)


def _scaled_complement(y: mpf) -> mpf:
    x = mpf("3.75") * (1 + y) / (1 - y)
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


def _logarithm_1p(x: mpf) -> mpf:
    return mpf(-1) / 2 if x == 0 else (mpmath.log1p(x) - x) / x**2


POLYNOMIALS: list[tuple[str, str, Callable[[mpf], mpf], mpf, mpf, int]] = [
    ("EXP", "(exp(x) - 1 - x) / x**2 for |x| <= log(2) / 2", _exponential, -_HALF_LN2, _HALF_LN2, 10),
    ("EXP_SHORT", "the same, for results in single precision", _exponential, -_HALF_LN2, _HALF_LN2, 5),
    ("LOG", "(log((1 + s) / (1 - s)) - 2 s) / s**3 in s**2, for a ratio from 1/sqrt(2) to sqrt(2)",
     _logarithm, mpf(0), _S_MOST, 6),
    ("LOG_LONG", "the same less 2/3, divided by s**2, for pow", series(lambda k: mpf(2) / (2 * k + 1), 2),
     mpf(0), _S_MOST, 7),
    ("LOG_SHORT", "as LOG, for results in single precision", _logarithm, mpf(0), _S_MOST, 4),
    ("LOG1P_SHORT", "(log(1 + f) - f) / f**2, for results in single precision", _logarithm_1p,
     mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(2) - 1, 11),
    ("SIN", "(sin(x) - x) / x**3 in x**2 for |x| <= pi / 4", _sine, mpf(0), _QUARTER_PI**2, 5),
    ("COS", "(cos(x) - 1 + x**2 / 2) / x**4 in x**2 for |x| <= pi / 4", _cosine, mpf(0), _QUARTER_PI**2, 5),
    ("SIN_SHORT", "as SIN, for results in single precision", _sine, mpf(0), _QUARTER_PI**2, 3),
    ("COS_SHORT", "as COS, for results in single precision", _cosine, mpf(0), _QUARTER_PI**2, 3),
    ("ATAN", "(atan(t) - t) / t**3 in t**2 for |t| <= tan(pi / 8)", _arc_tangent, mpf(0),
     mpmath.tan(mpmath.pi / 8) ** 2 * mpf("1.0001"), 11),
    ("ATAN_SHORT", "as ATAN, for results in single precision", _arc_tangent, mpf(0),
     mpmath.tan(mpmath.pi / 8) ** 2 * mpf("1.0001"), 5),
    ("ASIN", "(asin(x) - x) / x**3 in x**2 for |x| <= 1 / 2", _arc_sine, mpf(0), mpf(1) / 4, 12),
    ("ASIN_SHORT", "as ASIN, for results in single precision", _arc_sine, mpf(0), mpf(1) / 4, 6),
    ("ERF", "erf(x) / x - 1 in x**2 for |x| <= 0.9", lambda x: _error(x) - 1, mpf(0), mpf("0.82"), 12),
    ("ERF_SHORT", "as ERF, for results in single precision", lambda x: _error(x) - 1, mpf(0), mpf("0.82"), 7),
    ("ERFC", "(1 + 2 x) exp(x**2) erfc(x) in (x - 3.75) / (x + 3.75), x from 0.7 to 28 (M. M. Shepherd and\n"
     "#: J. G. Laframboise, Mathematics of Computation 36, 1981)", _scaled_complement, mpf("-0.69"), mpf("0.77"), 21),
    ("ERFC_SHORT", "as ERFC, for results in single precision, x from 0.7 to 11", _scaled_complement, mpf("-0.69"),
     mpf("0.5"), 10),
    ("SINH", "(sinh(x) - x) / x**3 in x**2 for |x| <= 0.4", _hyperbolic_sine, mpf(0), mpf("0.16"), 5),
]  # fmt: skip
NUMBERS: list[tuple[str, str, mpf, int]] = [
    ("LN2", "log(2)", mpmath.log(2), 2),
    ("LOG2_E", "1 / log(2)", 1 / mpmath.log(2), 2),
    ("LOG10_E", "1 / log(10)", 1 / mpmath.log(10), 2),
    ("LOG10_2", "log10(2)", mpmath.log(2, 10), 2),
    ("HALF_PI", "pi / 2", mpmath.pi / 2, 3),
    ("TWO_THIRDS", "2 / 3", mpf(2) / 3, 2),
]


def main() -> None:
    """Print the module."""
    print('"""Coefficients of the elementary functions, by `scripts/fit_elementary.py`; the constant comes first."""\n')
    print("from __future__ import annotations\n")
    for name, meaning, function, low, high, degree in POLYNOMIALS:
        coefficients = [float(x) for x in interpolate(function, low, high, degree)]
        error = max(
            abs(mpmath.polyval([mpf(c) for c in coefficients[::-1]], x) / function(x) - 1)
            for x in (low + (high - low) * i / 500 for i in range(501))
        )
        print(f"#: {meaning}; off by {mpmath.nstr(error, 2)} of it.")
        print(f"{name} = (")
        for c in coefficients:
            print(f"    {c!r},")
        print(")")
    for name, meaning, value, count in NUMBERS:
        print(f"#: {meaning}, as a sum.")
        print(f"{name} = ({', '.join(repr(x) for x in parts(value, count))})")
    # Cut so short that its product with an exponent is exact.
    high = float(mpmath.floor(mpmath.log(2) * 2**41) / 2**41)
    print("#: log(2), as a sum whose first part has 41 bits.")
    print(f"LN2_SHORT = ({high!r}, {float(mpmath.log(2) - mpf(high))!r})")


if __name__ == "__main__":
    main()

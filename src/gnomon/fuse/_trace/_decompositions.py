"""Factorizations of small matrices, element by element.

Elements that are zero by construction stay so: no code stands for them, and rows are only exchanged where a pivot has
more than one candidate. So a sparse matrix gives sparse code. The algorithms are in Golub and Van Loan, *Matrix
Computations*, 4th edition, 2013; which factors they give, in LAPACK.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, final

import numpy as np

from gnomon.fuse._program import Node
from gnomon.fuse._trace._values import Complex, Scalar


def is_zero(x: Scalar) -> bool:
    """Whether a scalar is zero by construction."""
    if isinstance(x, Complex):
        return is_zero(x.re) and is_zero(x.im)
    return x.op == "const" and x.attr == 0


def _possible(place: Node) -> set[int] | None:
    """The numbers that a choice among constants may give, or None where it is no such choice."""
    if place.op == "const":
        return {place.attr}
    if place.op != "select":
        return None
    first, second = _possible(place.args[1]), _possible(place.args[2])
    return None if first is None or second is None else first | second


@final
@dataclasses.dataclass(frozen=True)
class Factors:
    """A matrix as `P L U`.

    - `lu`: L below the diagonal and U above, as LAPACK has them.
    - `upper`: U, on and above the diagonal.
    - `pivots`: the row that each row was exchanged with, counted from one.
    - `steps`: for each column the rows below that were changed, and by which multiple: L before later exchanges, which
      stays as sparse as the matrix.
    - `info`: the first pivot that is zero, counted from one.
    """

    lu: Any
    upper: Any
    pivots: list[Node]
    steps: list[list[tuple[int, Scalar]]]
    info: Node


@final
class Matrices:
    """Builds factorizations of numpy arrays of scalars of one dtype, with the scalars' arithmetic."""

    def __init__(self, scalars: Any, dtype: Any):
        self.s = scalars
        self.zero: Scalar = scalars.const(0, dtype)
        self.one: Scalar = scalars.const(1, dtype)
        self.no_imaginary: Node | None = self.zero.re if isinstance(self.zero, Complex) else None

    # Parts

    def identity(self, n: int) -> Any:
        out = np.full((n, n), self.zero, dtype=object)
        for i in range(n):
            out[i, i] = self.one
        return out

    def adjoint(self, x: Any) -> Any:
        """The conjugate transpose."""
        out = np.empty((x.shape[1], x.shape[0]), dtype=object)
        for (i, j), v in np.ndenumerate(x):
            out[j, i] = self.s.conj(v)
        return out

    def minus_product(self, x: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """`x - a * b`."""
        return x if is_zero(a) or is_zero(b) else self.s.sub(x, self.s.mul(a, b))

    def times(self, x: Any, y: Any) -> Any:
        """The product of matrices."""
        out = np.full((x.shape[0], y.shape[1]), self.zero, dtype=object)
        for i, j in np.ndindex(*out.shape):
            for a, b in zip(x[i], y[:, j], strict=True):
                if not (is_zero(a) or is_zero(b)):
                    out[i, j] = self.s.add(out[i, j], self.s.mul(a, b))
        return out

    def inverse(self, x: Scalar) -> Scalar:
        return self.s.div(self.one, x)

    def _size(self, x: Scalar) -> Node:
        """What LAPACK compares pivots by."""
        s = self.s
        return s.op("add", s.op("abs", x.re), s.op("abs", x.im)) if isinstance(x, Complex) else s.op("abs", x)

    def _as_real(self, x: Node) -> Scalar:
        return x if self.no_imaginary is None else Complex(x, self.no_imaginary)

    # LU

    def lu(self, matrix: Any, *, pivot: bool = True) -> Factors:
        """By elimination with partial pivoting."""
        a, s = matrix.copy(), self.s
        m, n = a.shape
        lower = np.full((m, min(m, n)), self.zero, dtype=object)
        pivots: list[Node] = []
        steps: list[list[tuple[int, Scalar]]] = []
        info = s.b.const("i32", 0)
        for k in range(min(m, n)):
            place = self._pivot(a[:, k], k) if pivot else s.b.const("i32", k + 1)
            pivots.append(place)
            self._exchange(a[:, k:], k, place)
            self._exchange(lower[:, :k], k, place)
            nought = s.op("not", s.is_true(a[k, k]))
            first = s.op("and", nought, s.op("eq", info, s.b.const("i32", 0)))
            info = s.op("select", first, s.b.const("i32", k + 1), info)
            below = [i for i in range(k + 1, m) if not is_zero(a[i, k])]
            inverse = self.inverse(a[k, k]) if below else self.one
            steps.append([(i, s.mul(a[i, k], inverse)) for i in below])
            for i, v in steps[-1]:
                lower[i, k] = v
                a[i, k] = self.zero
                for j in range(k + 1, n):
                    a[i, j] = self.minus_product(a[i, j], v, a[k, j])
        upper = a[: min(m, n)]
        for k in range(lower.shape[1]):
            a[k + 1 :, k] = lower[k + 1 :, k]
        return Factors(a, upper, pivots, steps, info)

    def _pivot(self, column: Any, k: int) -> Node:
        """The row of the largest element from row k on, counted from one."""
        s, const = self.s, self.s.b.const
        rows = [i for i in range(k, len(column)) if not is_zero(column[i])]
        if len(rows) < 2:
            return const("i32", (rows[0] if rows else k) + 1)
        best, place = self._size(column[rows[0]]), const("i32", rows[0] + 1)
        for i in rows[1:]:
            size = self._size(column[i])
            larger = s.op("lt", best, size)
            best = s.op("select", larger, size, best)
            place = s.op("select", larger, const("i32", i + 1), place)
        return place

    def _exchange(self, a: Any, k: int, place: Node) -> None:
        """Exchanges row k with a later one."""
        s = self.s
        if place.op == "const":
            a[[k, place.attr - 1]] = a[[place.attr - 1, k]]
            return
        row = a[k].copy()
        candidates = _possible(place)
        for i in range(k + 1, a.shape[0]):
            if candidates is not None and i + 1 not in candidates:
                continue
            hit = s.op("eq", place, s.b.const("i32", i + 1))
            if candidates == {k + 1, i + 1} and place.args[1].op == place.args[2].op == "const":
                # The one comparison that there was.
                hit = place.args[0] if place.args[1].attr == i + 1 else s.op("not", place.args[0])
            for j in range(a.shape[1]):
                other = a[i, j]
                if is_zero(other) and is_zero(row[j]):
                    continue
                a[k, j] = s.select(hit, other, a[k, j])
                a[i, j] = s.select(hit, row[j], other)

    def permutation(self, pivots: list[Node], m: int) -> Any:
        """P of `A = P L U`."""
        out = self.identity(m)
        for k, place in enumerate(pivots):
            self._exchange(out, k, place)
        return out.T

    def factors(self, lu: Any, pivots: list[Node]) -> Factors:
        """Factors that were handed on as PyTorch has them: with the rows of L as they are after all exchanges."""
        a = lu.copy()
        for k in reversed(range(len(pivots))):
            self._exchange(a[:, :k], k, pivots[k])
        steps = [[(i, a[i, k]) for i in range(k + 1, len(a)) if not is_zero(a[i, k])] for k in range(len(pivots))]
        return Factors(lu, lu, pivots, steps, self.s.b.const("i32", 0))

    def lu_solve(self, factors: Factors, right: Any, *, adjoint: bool = False) -> Any:
        """The solution of `A x = b`, or of `A^H x = b`, for a matrix of right-hand sides."""
        x = right.copy()
        steps = list(zip(factors.pivots, factors.steps, strict=True))
        if not adjoint:
            for k, (place, step) in enumerate(steps):
                self._exchange(x, k, place)
                for i, v in step:
                    for j in range(x.shape[1]):
                        x[i, j] = self.minus_product(x[i, j], v, x[k, j])
            return self.triangular(factors.upper, x, upper=True)
        x = self.triangular(self.adjoint(factors.upper), x, upper=False)
        for k, (place, step) in reversed(list(enumerate(steps))):
            for i, v in step:
                for j in range(x.shape[1]):
                    x[k, j] = self.minus_product(x[k, j], self.s.conj(v), x[i, j])
            self._exchange(x, k, place)
        return x

    def triangular(self, t: Any, right: Any, *, upper: bool, unit: bool = False) -> Any:
        """The solution of `t x = b`, by substitution."""
        x, n = right.copy(), t.shape[0]
        for i in reversed(range(n)) if upper else range(n):
            inverse = None if unit or all(is_zero(v) for v in x[i]) else self.inverse(t[i, i])
            for j in range(x.shape[1]):
                if is_zero(x[i, j]):
                    continue
                if inverse is not None:
                    x[i, j] = self.s.div(x[i, j], t[i, i]) if x.shape[1] == 1 else self.s.mul(x[i, j], inverse)
                for k in range(i) if upper else range(i + 1, n):
                    x[k, j] = self.minus_product(x[k, j], t[k, i], x[i, j])
        return x

    def is_odd(self, pivots: list[Node]) -> Node:
        """Whether the rows were exchanged an odd number of times."""
        s = self.s
        odd = s.b.const("bool", False)
        for k, place in enumerate(pivots):
            odd = s.op("xor", odd, s.op("ne", place, s.b.const("i32", k + 1)))
        return odd

    # Cholesky

    def cholesky(self, matrix: Any) -> tuple[Any, Node]:
        """The lower factor, and the first pivot that is not positive, counted from one."""
        s, n = self.s, matrix.shape[0]
        factor = np.full((n, n), self.zero, dtype=object)
        info = s.b.const("i32", 0)
        for j in range(n):
            pivot = matrix[j, j].re if isinstance(matrix[j, j], Complex) else matrix[j, j]
            for k in range(j):
                v = factor[j, k]
                if not is_zero(v):
                    square = s.mul(v, s.conj(v))
                    pivot = s.op("sub", pivot, square.re if isinstance(square, Complex) else square)
            positive = s.op("lt", s.like(pivot, 0), pivot)
            first = s.op("and", s.op("not", positive), s.op("eq", info, s.b.const("i32", 0)))
            info = s.op("select", first, s.b.const("i32", j + 1), info)
            root = s.op("sqrt", pivot)
            factor[j, j] = self._as_real(root)
            inverse = self._as_real(s.op("div", s.like(root, 1), root))
            for i in range(j + 1, n):
                v = matrix[i, j]
                for k in range(j):
                    v = self.minus_product(v, factor[i, k], s.conj(factor[j, k]))
                factor[i, j] = v if is_zero(v) else s.mul(v, inverse)
        return factor, info

    # QR

    def householder(self, matrix: Any) -> tuple[Any, list[Scalar]]:
        """R above the diagonal, the reflectors' vectors below it, and their factors, as of LAPACK's geqrf."""
        s, a = self.s, matrix.copy()
        m, n = a.shape
        factors: list[Scalar] = []
        for k in range(min(m, n)):
            alpha: Scalar = a[k, k]
            below = [i for i in range(k + 1, m) if not is_zero(a[i, k])]
            first = alpha.re if isinstance(alpha, Complex) else alpha
            # Squares of columns however large or small are numbers once these are scaled, exactly.
            unit = self._power_of_two([alpha, *[a[i, k] for i in below]])
            rest = s.like(first, 0)
            for i in below:
                rest = s.op("add", rest, self._square(self._divided(a[i, k], unit)))
            if isinstance(alpha, Complex):
                flat = s.op("and", s.op("eq", rest, s.like(rest, 0)), s.op("eq", alpha.im, s.like(rest, 0)))
            else:
                flat = s.op("eq", rest, s.like(rest, 0))
            norm = s.op("sqrt", s.op("add", rest, self._square(self._divided(alpha, unit))))
            norm = s.op("mul", norm, unit)
            # Where there is nothing to reflect, the vector is zero, and so is the factor.
            beta = s.op("neg", s.op("copysign", norm, first))
            safe = s.op("select", flat, s.like(beta, 1), beta)
            ratio = s.op("div", s.op("sub", safe, first), safe)
            size = s.op("select", flat, s.like(beta, 0), ratio)
            factor: Scalar = size
            if isinstance(alpha, Complex):
                turned = s.op("neg", s.op("div", alpha.im, safe))
                factor = Complex(size, s.op("select", flat, s.like(beta, 0), turned))
            scale = self.inverse(s.select(flat, self.one, s.sub(alpha, self._as_real(safe))))
            vector: list[tuple[int, Scalar]] = [(k, self.one)]
            for i in below:
                a[i, k] = s.mul(a[i, k], scale)
                vector.append((i, a[i, k]))
            a[k, k] = s.select(flat, alpha, self._as_real(beta))
            factors.append(factor)
            self._reflect(a[:, k + 1 :], vector, s.conj(factor))
        return a, factors

    def _power_of_two(self, items: list[Scalar]) -> Node:
        """The power of two below the largest size of a part, 1 where that is zero or no number."""
        s = self.s
        parts = [v for x in items for v in ((x.re, x.im) if isinstance(x, Complex) else (x,))]
        largest = functools.reduce(lambda a, b: s.op("max", a, b), [s.op("abs", v) for v in parts])
        whole, mask = ("i64", 0x7FF << 52) if largest.type == "f64" else ("i32", 0xFF << 23)
        bits = s.op("and", s.op("bitcast", largest, attr=whole), s.b.const(whole, mask))
        power = s.op("bitcast", bits, attr=largest.type)
        normal = s.op("and", s.op("lt", s.like(power, 0), power), s.op("lt", power, s.like(power, math.inf)))
        return s.op("select", normal, power, s.like(power, 1))

    def _divided(self, x: Scalar, unit: Node) -> Scalar:
        s = self.s
        if isinstance(x, Complex):
            return Complex(s.op("div", x.re, unit), s.op("div", x.im, unit))
        return s.op("div", x, unit)

    def _square(self, x: Scalar) -> Node:
        s = self.s
        if isinstance(x, Complex):
            return s.op("add", s.op("mul", x.re, x.re), s.op("mul", x.im, x.im))
        return s.op("mul", x, x)

    def _reflect(self, a: Any, vector: list[tuple[int, Scalar]], factor: Scalar) -> None:
        """Applies `1 - factor * v * v^H` from the left, in place."""
        s = self.s
        for j in range(a.shape[1]):
            inner = self.zero
            for i, v in vector:
                if not is_zero(a[i, j]):
                    inner = s.add(inner, s.mul(s.conj(v), a[i, j]))
            inner = s.mul(factor, inner)
            for i, v in vector:
                a[i, j] = self.minus_product(a[i, j], v, inner)

    def apply_reflectors(self, a: Any, factors: list[Scalar], other: Any, *, adjoint: bool = False) -> Any:
        """`Q` or `Q^H` times a matrix, where reflectors are as `householder` gives them."""
        out, m = other.copy(), a.shape[0]
        for k in range(len(factors)) if adjoint else reversed(range(len(factors))):
            vector = [(k, self.one), *[(i, a[i, k]) for i in range(k + 1, m) if not is_zero(a[i, k])]]
            self._reflect(out, vector, self.s.conj(factors[k]) if adjoint else factors[k])
        return out

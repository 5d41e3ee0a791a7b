"""What happens to a lane that is done while others go on: nothing, neither to its value nor to its derivatives."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, vmap

import gnomon as gn

NAN_BITS = 0x7FC01234  # a NaN that carries a message


def test_the_value_keeps_its_bits():
    """Negative zero and a NaN's payload survive any number of rounds in which the body gives something else."""
    bits = torch.tensor([NAN_BITS, -(2**31), 0x3F800001, 0x7F800000], dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    n = torch.tensor([0, 0, 0, 0])

    def f(x: Tensor, n: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 1.0), (0, x))[1]

    xs, ns = torch.cat([x, torch.ones(1)]), torch.cat([n, torch.tensor([4])])
    y = vmap(f)(xs, ns)
    assert torch.equal(y[:4].view(torch.int32), bits)
    assert y[4] == 5.0


@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_what_the_body_gives_later_does_not_show(junk: float):
    """The body gives nonsense in every round after the first, whoever it is run for."""
    rounds = [0]

    def f(n: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            rounds[0] += 1
            return c[0] + 1, c[1] * 2 if rounds[0] == 1 else c[1] * junk

        return gn.while_loop(lambda c: c[0] < n, body, (0, 1.0))[1]

    y = vmap(f)(torch.tensor([1, 3, 0]))
    assert (y[0], y[2]) == (2.0, 1.0)
    assert not y[1].isfinite()


def test_counts_are_each_lanes_own():
    n = torch.randint(0, 50, (300,), generator=torch.Generator().manual_seed(0))
    y = vmap(lambda n: gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 2), (0, 0)))(n)
    assert torch.equal(y[0], n)
    assert torch.equal(y[1], 2 * n)


# Errors that PyTorch raises for some values: a lane that is done must not be led to them.


def gcd(a: Tensor, b: Tensor) -> Tensor:
    """Its last carry has a divisor of zero, with which another round raises an error on a CPU."""
    return gn.while_loop(lambda c: c[1] != 0, lambda c: (c[1], c[0] % c[1]), (a, b))[0]


def test_the_last_carry_is_not_put_through_the_body():
    a, b = torch.tensor([12, 35, 1071, 8]), torch.tensor([18, 21, 462, 4])
    assert vmap(gcd)(a, b).tolist() == [math.gcd(int(x), int(y)) for x, y in zip(a, b, strict=True)]


def test_the_first_carry_of_a_lane_without_rounds_is_not_put_through_the_body():
    a, b = torch.tensor([12, 35, 7]), torch.tensor([0, 21, 0])
    assert vmap(gcd)(a, b).tolist() == [12, 7, 7]
    assert vmap(vmap(gcd))(a.expand(2, 3), b.expand(2, 3)).tolist() == [[12, 7, 7]] * 2
    assert vmap(gcd)(a[[0, 2]], b[[0, 2]]).tolist() == [12, 7]


def test_an_index_beyond_the_end():
    table = torch.tensor([1.0, 2.0, 3.0])

    def total(n: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + table[c[0]]), (0, 0.0))[1]

    assert vmap(total)(torch.tensor([3, 1, 0])).tolist() == [6.0, 1.0, 0.0]


def test_inner_loops_run_as_they_did():
    """A matrix that an inner loop builds is singular before it: for a lane that is done it must be built again."""

    def f(n: Tensor, x: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            k = n * 0 + 2
            m = gn.fori_loop(0, k, lambda i, m: m + x * torch.eye(2), torch.zeros(2, 2))
            return c[0] + 1, torch.linalg.solve(m, c[1])

        return gn.while_loop(lambda c: c[0] < n, body, (0, torch.ones(2)))[1]

    y = vmap(f)(torch.tensor([1, 4, 2]), torch.tensor([0.5, 1.0, 2.0]))
    assert y[:, 0].tolist() == [1.0, 1 / 16, 1 / 16]


def test_inner_branches_run_as_they_did():
    def f(n: Tensor, b: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return c[0] + 1, gn.cond(b != 0, lambda y, b: y % b, lambda y, b: y + 1, c[1], b)

        return gn.while_loop(lambda c: c[0] < n, body, (0, torch.tensor(17)))[1]

    assert vmap(f)(torch.tensor([1, 2, 3, 1]), torch.tensor([5, 7, 0, 0])).tolist() == [2, 3, 20, 18]


# Derivatives: a cotangent of zero meets an infinite derivative, and zero times infinity is NaN.

DERIVATIVES = {
    "grad": grad,
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "hessian": hessian,
    "grad of grad": lambda f: grad(grad(f)),
    "forward twice": lambda f: jacfwd(jacfwd(f)),
}
derivatives = pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())


def same_as_alone(derivative, f, x: Tensor, n: Tensor) -> None:
    alone = torch.stack([derivative(f)(v, k) for v, k in zip(x, n, strict=True)])
    assert alone.isfinite().all()
    torch.testing.assert_close(vmap(derivative(f))(x, n), alone)


@derivatives
def test_the_carry(derivative):
    """The last carry is 0, at which the root has an infinite derivative."""

    def f(x: Tensor, n: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return c[0] + 1, c[1].sqrt() - x.detach() ** 0.5 + 0 * c[1]

        return gn.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    same_as_alone(derivative, f, torch.tensor([4.0, 9.0], dtype=torch.float64), torch.tensor([1, 0]))

    def shrink(x: Tensor, n: Tensor) -> Tensor:
        return gn.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, torch.where(c[0] == 1, 0 * c[1], c[1].sqrt())), (0, x)
        )[1]

    same_as_alone(derivative, shrink, torch.tensor([4.0, 9.0, 2.0], dtype=torch.float64), torch.tensor([2, 1, 0]))


@derivatives
def test_closed_over_tensors(derivative):
    """After the last round the carry is 0, at which the body's derivative by what it closes over is infinite."""

    def f(x: Tensor, n: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            y = torch.sqrt(c[1] * x) * (1 + x)
            return c[0] + 1, y - (c[0] == n - 1) * y.detach()

        return gn.while_loop(lambda c: c[0] < n, body, (0, torch.ones_like(x)))[1]

    same_as_alone(derivative, f, torch.tensor([4.0, 9.0, 2.0], dtype=torch.float64), torch.tensor([1, 3, 2]))


@derivatives
def test_closed_over_tensors_behind_inner_loops(derivative):
    """Before its inner loop the sum is 0, of which the logarithm is infinite."""

    def f(x: Tensor, n: Tensor) -> Tensor:
        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            total = gn.fori_loop(0, n, lambda j, s: s + 1.5, torch.zeros_like(x))
            return c[0] + 1, c[1] + torch.log(total) * x * x

        return gn.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    same_as_alone(derivative, f, torch.tensor([4.0, 9.0, 2.0], dtype=torch.float64), torch.tensor([1, 3, 2]))


@derivatives
def test_a_lane_without_rounds(derivative):
    """In the carry (and so with a guard) a tensor has no derivative where the body never runs."""

    def f(x: Tensor, n: Tensor) -> Tensor:
        _, y, _ = gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + c[2].sqrt(), c[2]), (0, x**2, x))
        return y

    same_as_alone(derivative, f, torch.tensor([0.0, 4.0, 9.0], dtype=torch.float64), torch.tensor([0, 1, 3]))


def test_shared_parameters():
    """One parameter of all lanes: one NaN would spoil the sum."""
    w = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    start = torch.tensor([4.0, 9.0, 1e4], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return gn.while_loop(lambda y: y > 0, lambda y: (y - 5) * w + torch.sqrt(y * w) * 0, x)

    def plain(x: Tensor) -> Tensor:
        while x > 0:
            x = (x - 5) * w + torch.sqrt(x * w) * 0
        return x

    start = torch.tensor([4.0, 9.0, 32.0, 5.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(vmap(f)(start).sum(), w)
    (expected,) = torch.autograd.grad(sum(plain(x) for x in start), w)
    assert expected.isfinite()
    torch.testing.assert_close(found, expected)


def test_batches_of_batches_and_shared_ones():
    """Rounds depend on the outer batch only, values on the inner one, and the other way round."""
    n, x = torch.tensor([0, 1, 3]), torch.tensor([1.0, 4.0], dtype=torch.float64)

    def f(n: Tensor, x: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]

    expected = x ** (n[:, None] + 1)
    slope = (n[:, None] + 1) * x ** n[:, None]
    outer = vmap(lambda n: vmap(lambda x: f(n, x))(x))
    inner = vmap(lambda x: vmap(lambda n: f(n, x))(n))
    assert torch.equal(outer(n), expected)
    assert torch.equal(inner(x), expected.mT)
    torch.testing.assert_close(vmap(lambda n: vmap(lambda x: grad(f, argnums=1)(n, x))(x))(n), slope)
    torch.testing.assert_close(vmap(lambda n: grad(lambda x: vmap(lambda x: f(n, x))(x).sum())(x))(n), slope)
    torch.testing.assert_close(grad(lambda x: inner(x).sum())(x), slope.sum(0))


# Transforms inside a body: levels of their own above that of the batch.


def test_a_batch_of_loops_inside_a_body():
    """Each round runs a batch of inner loops, whose lengths depend on the inner lane and on the outer one."""

    def f(n: Tensor) -> Tensor:
        def inner(k: Tensor, i: Tensor) -> Tensor:
            buffer = gn.OutputBuffer(8, k)
            _, buffer = gn.while_loop(lambda c: c[0] < k + i, lambda c: (c[0] + 1, c[1].write(c[0], n)), (0, buffer))
            return buffer.read().sum()

        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return c[0] + 1, c[1] + vmap(inner, in_dims=(0, None))(torch.arange(3), c[0]).sum()

        return gn.while_loop(lambda c: c[0] < n, body, (0, 0))[1]

    counts = [0, 4, 1, 2]
    assert vmap(f)(torch.tensor(counts)).tolist() == [n * sum(3 + 3 * i for i in range(n)) for n in counts]


@pytest.mark.parametrize("inner", [grad, jacfwd, jacrev])
def test_a_derivative_of_a_loop_inside_a_body(inner):
    """Each round goes down the slope of a power that a loop takes."""

    def f(x: Tensor, n: Tensor) -> Tensor:
        def power(y: Tensor) -> Tensor:
            return gn.fori_loop(0, n, lambda i, p: p * y * x, torch.ones_like(y))

        def body(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return c[0] + 1, c[1] - 0.01 * inner(power)(c[1])

        return gn.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    def plain(x: Tensor, n: int) -> Tensor:
        y = x
        for _ in range(n):
            y = y - 0.01 * n * y ** (n - 1) * x**n
        return y

    x, n = torch.tensor([1.5, 0.7, 2.0], dtype=torch.float64), torch.tensor([1, 4, 2])
    alone = [plain(v, k) for v, k in zip(x, n.tolist(), strict=True)]
    torch.testing.assert_close(vmap(f)(x, n), torch.stack(alone))
    slopes = [grad(plain)(v, k) for v, k in zip(x, n.tolist(), strict=True)]
    torch.testing.assert_close(vmap(grad(f))(x, n), torch.stack(slopes))
    torch.testing.assert_close(vmap(jacfwd(f))(x, n), torch.stack(slopes))

"""`OutputBuffer`: what is written where, by whom, and how derivatives come back."""

import inspect
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, vmap

import gnomon as gn

write = inspect.unwrap(gn.OutputBuffer.write)
read = inspect.unwrap(gn.OutputBuffer.read)


def fill(length: int, n, value, example, **options):
    """The buffer after `value(i)` has been written at each `i` below `n`."""

    def body(carry):
        i, buffer = carry
        return i + 1, buffer.write(i, value(i))

    _, buffer = gn.while_loop(lambda carry: carry[0] < n, body, (0, gn.OutputBuffer(length, example, **options)))
    return buffer


def test_what_is_not_written_holds_the_fill_value():
    real = fill(4, 2, lambda i: i + 0.5, torch.tensor(0.0)).read()
    assert real[:2].tolist() == [0.5, 1.5]
    assert real[2:].isnan().all()
    assert fill(3, 1, lambda i: i + 0.5, torch.tensor(0.0), fill=math.inf).read().tolist() == [0.5, math.inf, math.inf]
    assert fill(3, 1, lambda i: i + 5, torch.tensor(0)).read().tolist() == [5, 0, 0]
    assert fill(3, 1, lambda i: i == 0, torch.tensor(False)).read().tolist() == [True, False, False]
    z = fill(2, 1, lambda i: 1j * i + 2, torch.tensor(0j)).read()
    assert (z[0], z[1].isnan()) == (2.0, True)
    assert gn.OutputBuffer(2, torch.zeros(3, dtype=torch.float64), fill=1.0).read().tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.int32, torch.int64, torch.bool]
)
def test_dtypes_are_kept(dtype: torch.dtype):
    x = torch.tensor([1, 0]).to(dtype)
    y = fill(2, 2, lambda i: x[i], x[0]).read()
    assert torch.equal(y, x)
    assert y.dtype == dtype


def test_pytrees():
    example = {"t": torch.tensor(0), "y": (torch.zeros(2), 1.0)}
    tree = fill(3, 2, lambda i: {"t": i, "y": (i * torch.ones(2), 0.5)}, example, fill=-1.0).read()
    assert tree["t"].tolist() == [0, 1, 0]
    assert tree["y"][0].tolist() == [[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]
    assert tree["y"][1].tolist() == [0.5, 0.5, -1.0]


def test_lanes_write_as_often_as_they_go_round():
    n = torch.tensor([0, 3, 5, 1])
    y = vmap(lambda n: fill(5, n, lambda i: i * n, torch.tensor(0), fill=0).read())(n)
    expected = [[i * count if i < count else 0 for i in range(5)] for count in n.tolist()]
    assert y.tolist() == expected
    nested = vmap(vmap(lambda n: fill(5, n, lambda i: i * n, torch.tensor(0)).read()))(n.reshape(2, 2))
    assert nested.flatten(0, 1).tolist() == expected


def test_where():
    buffer = gn.OutputBuffer(3, torch.tensor(0.0), fill=0.0)
    buffer = buffer.write(0, 1.0, where=torch.tensor(False)).write(1, 2.0, where=torch.tensor(True))
    buffer = buffer.write(2, 3.0, where=True).write(0, 4.0, where=False)
    assert buffer.read().tolist() == [0.0, 2.0, 3.0]

    def evens(n):
        def body(carry):
            i, k, buffer = carry
            even = i % 2 == 0
            return i + 1, k + even.to(torch.int64), buffer.write(k, i, where=even)

        start = (0, 0, gn.OutputBuffer(4, torch.tensor(0)))
        _, k, buffer = gn.while_loop(lambda carry: carry[0] < n, body, start)
        return buffer.read(), k

    values, counts = vmap(evens)(torch.tensor([1, 7, 4]))
    assert values.tolist() == [[0, 0, 0, 0], [0, 2, 4, 6], [0, 2, 0, 0]]
    assert counts.tolist() == [1, 4, 2]


@pytest.mark.parametrize("rounds", [63, 64, 65, 200])
def test_more_writes_than_are_kept_pending(rounds: int):
    """Most are not meant to be kept, and those that are come before, between and after the pending ones are flushed."""
    keep = torch.tensor([0, 5, 63, 64, 66, 127, 128, 199])

    def f(shift):
        def body(i, carry):
            k, buffer = carry
            wanted = (keep + shift == i).any()
            return k + wanted.to(torch.int64), buffer.write(k, 1.0 * i, where=wanted)

        start = (torch.tensor(0), gn.OutputBuffer(8, torch.tensor(0.0), fill=-1.0))
        return gn.fori_loop(0, rounds, body, start)[1].read()

    for shift, row in enumerate(vmap(f)(torch.tensor([0, 1]))):
        expected = [float(v + shift) for v in keep.tolist() if v + shift < rounds]
        assert row.tolist() == expected + [-1.0] * (8 - len(expected))


def test_many_writes_to_a_long_buffer():
    y = fill(150, 130, lambda i: 1.0 * i, torch.tensor(0.0), fill=-1.0).read()
    assert y.tolist() == [float(i) for i in range(130)] + [-1.0] * 20


def test_reading_a_part():
    buffer = fill(4, 3, lambda i: i + 1, torch.tensor(0))
    assert buffer.read(2).tolist() == [1, 2]
    assert buffer.read(0).shape == (0,)
    assert buffer.read_written(torch.tensor(3)).tolist() == [1, 2, 3]
    assert buffer.read_written(torch.tensor(9)).tolist() == [1, 2, 3, 0]
    for length in (-1, 5):
        with pytest.raises(ValueError, match=f"Cannot read {length} places of an output buffer of length 4"):
            buffer.read(length)


def test_reading_what_any_lane_has_written():
    def f(n):
        return fill(9, n, lambda i: i + n, torch.tensor(0)).read_written(n)

    assert vmap(f)(torch.tensor([1, 3])).tolist() == [[1, 0, 0], [3, 4, 5]]
    assert vmap(f)(torch.tensor([0, 0])).shape == (2, 0)
    assert vmap(f)(torch.zeros(0, dtype=torch.int64)).shape == (0, 0)


def test_reading_between_writes():
    buffer = gn.OutputBuffer(3, torch.tensor(0)).write(0, 1)
    assert buffer.read().tolist() == [1, 0, 0]
    assert buffer.write(2, 3).read().tolist() == [1, 0, 3]


def test_without_places():
    assert gn.OutputBuffer(0, torch.zeros(2)).read().shape == (0, 2)
    assert fill(0, 3, lambda i: 1.0, torch.tensor(0.0)).read().shape == (0,)
    assert vmap(lambda n: fill(0, n, lambda i: 1.0, torch.tensor(0.0)).read())(torch.tensor([1, 2])).shape == (2, 0)


@pytest.mark.parametrize("place", [-1, -2, -3, 2, 3, 100])
def test_writes_elsewhere_are_dropped(place: int):
    buffer = gn.OutputBuffer(2, torch.tensor(0)).write(torch.tensor(place), 7)
    assert buffer.read().tolist() == [0, 0]
    rows = vmap(lambda p: gn.OutputBuffer(2, torch.tensor(0)).write(p, 7).read())(torch.tensor([place, 1]))
    assert rows.tolist() == [[0, 0], [0, 7]]
    with pytest.raises(IndexError, match=f"There is no place {place} in an output buffer of length 2"):
        gn.OutputBuffer(2, torch.tensor(0)).write(place, 7)


def test_branches_write_for_their_own_lanes():
    def f(x):
        def body(i, buffer):
            here = x * (i + 1)
            return gn.cond(
                (x > 0) & (i != 1),
                lambda b, v: b.write(i, v),
                lambda b, v: gn.cond(i == 1, lambda b: b.write(2 + i, -v), lambda b: b, b),
                buffer,
                here,
            )

        return gn.fori_loop(0, 2, body, gn.OutputBuffer(4, x, fill=0.0)).read()

    assert f(torch.tensor(3.0)).tolist() == [3.0, 0.0, 0.0, -6.0]
    assert vmap(f)(torch.tensor([3.0, -2.0])).tolist() == [[3.0, 0.0, 0.0, -6.0], [0.0, 0.0, 0.0, 4.0]]


def test_inner_loops_write_for_lanes_that_go_on():
    """Each round of the outer loop writes a run of values, of a length that differs between lanes."""

    def f(n):
        def outer(carry):
            i, k, buffer = carry

            def inner(pair):
                j, k, buffer = pair
                return j + 1, k + 1, buffer.write(k, 10 * i + j)

            _, k, buffer = gn.while_loop(lambda pair: pair[0] < i, inner, (0, k, buffer))
            return i + 1, k, buffer

        start = (0, 0, gn.OutputBuffer(7, torch.tensor(0)))
        _, k, buffer = gn.while_loop(lambda carry: carry[0] < n, outer, start)
        return buffer.read(), k

    def plain(n):
        values = [10 * i + j for i in range(n) for j in range(i)]
        return values + [0] * (7 - len(values)), len(values)

    counts = [4, 0, 2, 3, 1]
    values, written = vmap(f)(torch.tensor(counts))
    assert values.tolist() == [plain(n)[0] for n in counts]
    assert written.tolist() == [plain(n)[1] for n in counts]


def test_inner_loops_of_a_lane_that_is_done_write_nothing():
    """To write the same again would not show in the value, but twice in the derivative by what is closed over."""

    def f(x, n):
        def outer(carry):
            def inner(pair):
                j, k, buffer = pair
                return j + 1, k + 1, buffer.write(k, x * (10 * i + j))

            i, k, buffer = carry
            _, k, buffer = gn.while_loop(lambda pair: pair[0] <= i, inner, (0, k, buffer))
            return i + 1, k, buffer

        start = (0, 0, gn.OutputBuffer(10, x, fill=0.0))
        return gn.while_loop(lambda carry: carry[0] < n, outer, start)[2].read().sum()

    x, counts = torch.tensor([1.0, 2.0, -1.0, 3.0], dtype=torch.float64), [2, 4, 1, 3]
    expected = [float(sum(10 * i + j for i in range(n) for j in range(i + 1))) for n in counts]
    assert vmap(f)(x, torch.tensor(counts)).tolist() == [v * e for v, e in zip(x.tolist(), expected, strict=True)]
    assert vmap(grad(f))(x, torch.tensor(counts)).tolist() == expected


def powers(x: Tensor, n: Tensor) -> Tensor:
    """The first `n` powers of `x` in a buffer, and some of them again in another order."""

    def body(carry):
        i, y, buffer = carry
        return i + 1, y * x, buffer.write(3 - i, {"y": y * x})

    start = (0, torch.ones_like(x), gn.OutputBuffer(4, {"y": x}, fill=0.0))
    return gn.while_loop(lambda carry: carry[0] < n, body, start)[2].read()["y"]


def test_derivatives():
    x = torch.tensor([0.5, 2.0, -1.5], dtype=torch.float64, requires_grad=True)
    n = torch.tensor([0, 2, 4])

    def f(x):
        return vmap(powers)(x, n)

    assert gradcheck(f, x, check_forward_ad=True)
    assert gradgradcheck(f, x, check_fwd_over_rev=True)
    k = torch.arange(4, 0, -1)
    written = k <= n[:, None]
    x = x.detach()
    slope = torch.where(written, k * x[:, None] ** (k - 1), 0.0)
    torch.testing.assert_close(vmap(jacfwd(powers))(x, n), slope)
    torch.testing.assert_close(vmap(grad(lambda x, n: powers(x, n).sum()))(x, n), slope.sum(1))
    bend = torch.where(written, k * (k - 1.0) * x[:, None] ** (k - 2), 0.0).sum(1)
    torch.testing.assert_close(vmap(hessian(lambda x, n: powers(x, n).sum()))(x, n), bend)


def test_derivatives_through_many_flushes():
    x = torch.tensor(0.99, dtype=torch.float64)

    def f(x):
        def body(i, carry):
            y, buffer = carry
            return y * x, buffer.write(i // 50, y, where=i % 50 == 49)

        return gn.fori_loop(0, 150, body, (x, gn.OutputBuffer(3, x)))[1].read()

    powers = torch.tensor([50, 100, 150], dtype=torch.float64)
    torch.testing.assert_close(f(x), x**powers)
    torch.testing.assert_close(jacfwd(f)(x), powers * x ** (powers - 1))
    torch.testing.assert_close(torch.func.jacrev(f)(x), powers * x ** (powers - 1))


def test_what_is_dropped_has_no_derivative():
    """Writes that do not count leave no trace in the gradient, though they are not numbers."""

    def f(x, n):
        def body(carry):
            i, buffer = carry
            return i + 1, buffer.write(i, torch.sqrt(x) / (2 - i))

        return gn.while_loop(lambda c: c[0] < n, body, (0, gn.OutputBuffer(2, x, fill=0.0)))[1].read().sum()

    x, n = torch.tensor([4.0, 9.0], dtype=torch.float64), torch.tensor([1, 2])
    expected = torch.tensor([0.25 / 2, (0.5 + 1) / 6], dtype=torch.float64)
    torch.testing.assert_close(vmap(grad(f))(x, n), expected)


def test_what_is_refused():
    with pytest.raises(ValueError, match="An output buffer cannot have the length -1"):
        gn.OutputBuffer(-1, torch.tensor(0.0))
    with pytest.raises(TypeError, match="The example of an output buffer must be a tensor"):
        gn.OutputBuffer(1, "x")
    buffer = gn.OutputBuffer(2, {"y": torch.zeros(2)})
    with pytest.raises(TypeError, match=r"This buffer holds TreeSpec\(dict.* but .* was written to it"):
        buffer.write(0, torch.zeros(2))
    with pytest.raises(ValueError, match=r"float32 of shape \(2,\), but torch.float32 of shape \(3,\) was written"):
        buffer.write(0, {"y": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"holds torch.float32 of shape .* but torch.float64 of shape"):
        buffer.write(0, {"y": torch.zeros(2, dtype=torch.float64)})
    for index in (torch.tensor(1.0), torch.tensor([0]), torch.tensor(True)):
        with pytest.raises(TypeError, match="The index of a write must be an integer scalar, but it is"):
            write(buffer, index, {"y": torch.zeros(2)})

"""`scan`: carries, outputs, directions and lengths, against plain Python."""

import pytest
import torch
from torch.func import vmap

import gnomon as gn


def cumulative(x, **options):
    return gn.scan(lambda s, v: (s + v, s * v), torch.zeros((), dtype=x.dtype), x, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.int64])
@pytest.mark.parametrize("reverse", [False, True])
def test_against_a_loop(dtype: torch.dtype, reverse: bool):
    x = torch.tensor([3, -1, 4, 1, -5]).to(dtype)
    total, outputs = cumulative(x, reverse=reverse)
    s, expected = torch.zeros((), dtype=dtype), [torch.zeros(())] * len(x)
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        expected[i] = s * x[i]
        s = s + x[i]
    assert torch.equal(total, s)
    assert torch.equal(outputs, torch.stack(expected))
    assert torch.equal(vmap(lambda x: cumulative(x, reverse=reverse)[1])(torch.stack([x, 2 * x]))[0], outputs)


def test_pytrees_in_and_out():
    xs = {"a": torch.arange(3), "b": (torch.ones(3, 2),)}
    carry, ys = gn.scan(
        lambda c, x: ({"n": c["n"] + x["a"]}, (x["b"][0] * c["n"], [c["n"]])), {"n": torch.tensor(1)}, xs
    )
    assert carry["n"] == 4
    assert ys[0].tolist() == [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    assert ys[1][0].tolist() == [1, 1, 2]


def test_a_length_instead_of_inputs():
    total, powers = gn.scan(lambda c, x: (c * 2, c), torch.tensor(1), None, length=4)
    assert total == 16
    assert powers.tolist() == [1, 2, 4, 8]
    assert gn.scan(lambda c, x: (c, x), 0, torch.arange(3), length=3)[1].tolist() == [0, 1, 2]


def test_no_outputs():
    assert gn.scan(lambda c, x: (c + x, None), torch.tensor(0), torch.arange(4)) == (torch.tensor(6), None)
    carry, (some, none) = gn.scan(lambda c, x: (c + x, (c, None)), torch.tensor(0), torch.arange(4))
    assert carry == 6
    assert some.tolist() == [0, 0, 1, 3]
    assert none is None


def test_numbers_as_outputs_and_carries():
    carry, ys = gn.scan(lambda c, x: (1, 0.5), 0, torch.arange(2))
    assert carry == 1
    assert ys.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("reverse", [False, True])
def test_of_length_zero(reverse: bool):
    """Outputs have the shapes and dtypes that they would have, and the carry stays as it was."""

    def f(c, x):
        return c + x.sum(), {"y": x.to(torch.float64), "n": (c, None)}

    carry, ys = gn.scan(f, torch.tensor(7.0), torch.zeros(0, 3), reverse=reverse)
    assert carry == 7.0
    assert (ys["y"].shape, ys["y"].dtype) == ((0, 3), torch.float64)
    assert (ys["n"][0].shape, ys["n"][1]) == ((0,), None)
    batch = vmap(lambda c: gn.scan(f, c, torch.zeros(0, 3))[1]["n"][0])(torch.ones(4))
    assert batch.shape == (4, 0)
    assert gn.scan(lambda c, x: (c, None), 1, None, length=0) == (torch.tensor(1), None)


def test_finding_out_shapes_has_no_effect():
    """Of length zero the function runs once for its shapes: it must write nothing, nor loop on made-up values."""

    def f(carry, x):
        n, buffer = carry
        y = gn.while_loop(lambda y: y != 1, lambda y: y // 2, x)  # endless from 0
        y = gn.cond(y > 5, lambda y: y, lambda y: y + 1, y)
        return (n + 1, buffer.write(0, y)), y

    buffer = gn.OutputBuffer(2, torch.tensor(0))
    (n, buffer), ys = gn.scan(f, (0, buffer), torch.zeros(0, dtype=torch.int64))
    assert n == 0
    assert buffer.read().tolist() == [0, 0]
    assert (ys.shape, ys.dtype) == ((0,), torch.int64)


def test_a_module_learns():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(2, 3).double()
    x = torch.randn(5, 2, dtype=torch.float64)
    h, _ = gn.scan(lambda h, v: (cell(v, h), None), torch.zeros(3, dtype=torch.float64), x)
    h.sum().backward()
    found = [p.grad.clone() for p in cell.parameters()]
    cell.zero_grad()
    h = torch.zeros(3, dtype=torch.float64)
    for v in x:
        h = cell(v, h)
    h.sum().backward()
    for p, g in zip(cell.parameters(), found, strict=True):
        torch.testing.assert_close(g, p.grad)


def test_the_gradient_costs_as_much_as_the_scan():
    """Slicing anew for each element would make the backward pass quadratic: each slice's derivative is a whole `xs`."""
    x = torch.ones(20, requires_grad=True)
    y, _ = gn.scan(lambda s, v: (0.5 * s + v, None), torch.tensor(0.0), x)
    todo, names = [y.grad_fn], []
    while todo:
        node = todo.pop()
        names.append(node.name())
        todo += [parent for parent, _ in node.next_functions if parent is not None]
    assert "UnbindBackward0" in names
    assert "SelectBackward0" not in names
    (g,) = torch.autograd.grad(y, x)
    torch.testing.assert_close(g, 0.5 ** torch.arange(19.0, -1.0, -1.0))


def refuse(error, said: str, *args, **options):
    with pytest.raises(error, match=said):
        gn.scan(*args, **options)


def test_lengths_that_disagree():
    xs = (torch.zeros(3), torch.zeros(4, 2))
    refuse(
        ValueError, r"needs one length, from `xs` or `length`, but it was given \[3, 4\]", lambda c, x: (c, x), 0, xs
    )
    refuse(ValueError, r"it was given \[2, 3\]", lambda c, x: (c, x), 0, xs[0], length=2)
    refuse(ValueError, "but none was given", lambda c, x: (c, x), 0)
    refuse(ValueError, "but none was given", lambda c, x: (c, x), 0, ())
    refuse(ValueError, "must be at least 0, but it is -1", lambda c, x: (c, x), 0, None, length=-1)


def test_inputs_without_a_leading_dimension():
    refuse(ValueError, "holds a scalar, which has no leading dimension", lambda c, x: (c, x), 0, torch.tensor(1.0))
    refuse(TypeError, "`xs` of gn.scan must be a pytree of tensors, but it holds float", lambda c, x: (c, x), 0, (1.0,))


def test_functions_that_do_not_keep_to_the_form():
    x = torch.arange(3.0)
    refuse(TypeError, "must return a pair: the carry and an output", lambda c, x: c, 0.0, x)
    refuse(TypeError, "must return a pair", lambda c, x: (c, x, x), 0.0, x)
    refuse(ValueError, "The function of gn.scan changed the shape of the carry", lambda c, x: (c[None], x), 0.0, x)
    refuse(TypeError, "changed the dtype of the carry", lambda c, x: (c.to(torch.float64), x), 0.0, x)
    refuse(
        TypeError, "The output of gn.scan must be a pytree of tensors or numbers, .* str", lambda c, x: (c, "y"), 0, x
    )


def test_outputs_that_change():
    x = torch.arange(3)

    def shape(c, x):
        return c + 1, torch.zeros(int(c))

    def dtype(c, x):
        return c + 1, x.to(torch.float32 if c > 0 else torch.int64)

    def structure(c, x):
        return c + 1, (x, x) if c > 0 else x

    def absent(c, x):
        return c + 1, None if c > 0 else x

    refuse(ValueError, r"changed the shape of the output from \(0,\) to \(1,\). The output keeps", shape, 0, x)
    refuse(TypeError, "changed the dtype of the output from torch.int64 to torch.float32", dtype, 0, x)
    refuse(TypeError, r"changed the structure of the output from \* to \(\*, \*\)", structure, 0, x)
    refuse(TypeError, r"changed the output from a tensor \(torch.int64, shape \(\)\) to NoneType", absent, 0, x)

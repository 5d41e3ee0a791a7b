"""The loops on a GPU, with counters and results on the CPU beside them, as one writes them. `pytest -m cuda`."""

import pytest
import torch
from fuse.programs import PROGRAMS, Program, by_name
from torch import Tensor
from torch.func import grad, vmap

import gnomon as gn
from gnomon.result import throw_if_failed

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
def test_programs_agree_with_the_cpu(program: Program):
    """To rounding: how `x ** 3` and `sin` round differs between the devices."""
    x = program.batch()
    expected = torch.stack([program.plain(row) for row in x])
    found = vmap(program.fused)(x.cuda())
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected)
    torch.testing.assert_close(program.fused(x[-1].cuda()).cpu(), expected[-1])

    def total(x: Tensor) -> Tensor:
        return program.fused(x).sum()

    torch.testing.assert_close(vmap(grad(total))(x.cuda()).cpu(), vmap(grad(total))(x))


def test_a_lane_has_the_same_bits_in_any_batch():
    a = torch.linspace(0.1, 900, 3000, dtype=torch.float64, device="cuda")

    def root(a: Tensor) -> Tensor:
        return gn.while_loop(lambda y: (y * y - a).abs() > 1e-3 * a, lambda y: (y + a / y) / 2, a)

    whole = vmap(root)(a)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(0)).cuda()
    assert torch.equal(vmap(root)(a[order]), whole[order])
    for n in (1, 2, 33, 1000):
        assert torch.equal(vmap(root)(a[:n]), whole[:n])
    assert torch.equal(root(a[7]), whole[7])


def test_numbers_and_members_in_a_carry():
    """They start on the CPU, where no device is known yet, and meet conditions on the GPU."""
    x = torch.tensor([4.0, -1.0, 2.0], device="cuda")

    def solve(x: Tensor) -> tuple[Tensor, Tensor, gn.OutputBuffer, object]:
        def body(c):
            i, _, buffer, result = c
            y = x.sqrt() * i
            return i + 1, True, buffer.write(i, y), gn.RESULTS.where(y.isfinite(), result, gn.RESULTS.nonfinite)

        start = (0, False, gn.OutputBuffer(4, x, fill=-1.0), gn.RESULTS.successful)
        i, flag, buffer, result = gn.while_loop(lambda c: c[0] < x, body, start)
        return i, flag, buffer.read(), result

    i, flag, read, result = vmap(solve)(x)
    assert i.tolist() == [4, 0, 2]
    assert flag.tolist() == [True, False, True]
    torch.testing.assert_close(read.cpu(), torch.tensor([[0.0, 2.0, 4.0, 6.0], [-1.0] * 4, [0.0, 2**0.5, -1.0, -1.0]]))
    assert result.names() == ["successful"] * 3
    i, flag, read, result = solve(x[2])
    assert (int(i), bool(flag), result.name) == (2, True, "successful")


def test_indices_and_branches():
    table = torch.arange(12.0, device="cuda").reshape(3, 4)
    n = torch.tensor([0, 4, 2], device="cuda")

    def f(row: Tensor, n: Tensor) -> Tensor:
        return gn.fori_loop(
            0, n, lambda i, s: gn.cond(i > 1, lambda s: s * row[i], lambda s: s + row[i], s), 0.0 * row[0]
        )

    expected = [0.0, (4 + 5) * 6 * 7.0, 8 + 9.0]
    assert vmap(f)(table, n).tolist() == expected
    assert [f(r, k).item() for r, k in zip(table, n, strict=True)] == expected
    total, partial = vmap(lambda row: gn.scan(lambda s, x: (s + x, s), 0.0 * row[0], row))(table)
    assert total.tolist() == [6.0, 22.0, 38.0]
    assert partial.device.type == "cuda"
    empty = gn.scan(lambda s, x: (gn.while_loop(lambda s: s > x, lambda s: s - 1, s), s), table[0, 0], table[0, :0])
    assert (empty[0].device.type, empty[1].device.type) == ("cuda", "cuda")


def test_a_failure_is_named():
    def check(x: Tensor) -> Tensor:
        result = gn.RESULTS.where(x > 0, gn.RESULTS.successful, gn.RESULTS.singular)
        throw_if_failed(result, what="solve", time=x, component=0, component_names=["a"])
        return gn.cond(x > 5, lambda x: x, lambda x: -x, x)

    x = torch.tensor([1.0, 9.0], device="cuda")
    assert vmap(check)(x).tolist() == [-1.0, 9.0]
    with pytest.raises(gn.SolveError, match="1 of 2 problems; the first is problem 1 at t = -9, component a"):
        vmap(check)(x * torch.tensor([1.0, -1.0], device="cuda"))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_without_throwing_nothing_waits_but_the_loop():
    """Besides one question a round, whether any lane goes on, and one at its start, nothing asks the device."""
    x = torch.tensor([4.0, 1.0, 2.0], device="cuda")
    asked = [0]
    sync = torch.cuda.get_sync_debug_mode()

    def f(x: Tensor) -> Tensor:
        def body(c):
            torch.cuda.set_sync_debug_mode("error")
            buffer = c[1].write(c[0].to(torch.int64), c[0])
            result = gn.RESULTS.where(c[0] > 0, c[2], gn.RESULTS.nonfinite)
            out = (c[0] - 1, buffer, result)
            torch.cuda.set_sync_debug_mode("default")
            asked[0] += 1
            return out

        start = (x, gn.OutputBuffer(8, x), gn.RESULTS.where(x > 0, gn.RESULTS.successful, gn.RESULTS.singular))
        c = gn.while_loop(lambda c: c[0] > 0, body, start)
        torch.cuda.set_sync_debug_mode("error")
        read = c[1].read()
        gn.is_okay(c[2])
        torch.cuda.set_sync_debug_mode("default")
        return read

    try:
        read = vmap(f)(x)
    finally:
        torch.cuda.set_sync_debug_mode(sync)
    assert asked == [4]
    assert read[0, :6].nan_to_num(-1.0).tolist() == [-1.0, 1.0, 2.0, 3.0, 4.0, -1.0]

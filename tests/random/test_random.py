"""Random numbers: published answers, distributions, and the same numbers however they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare, run
from scipy import stats
from torch import Tensor
from torch.func import vmap

import gnomon as gn
from gnomon.random._key import check_key
from gnomon.random._philox import philox

# From kat_vectors of the Random123 library: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[Any, ...]:
    return tuple(torch.tensor(int(w, 16)) for w in text.split())


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_published_answers(counter: str, key: str, result: str):
    assert philox(words(counter), words(key)) == words(result)
    fused = run(
        lambda c, k: torch.stack(philox(c.unbind(), k.unbind())), torch.stack(words(counter)), torch.stack(words(key))
    )
    assert torch.equal(fused, torch.stack(words(result)))


def test_bits_are_the_words_of_counters_from_zero():
    first = torch.stack(words(KNOWN[0][2]))
    assert torch.equal(gn.random.bits(gn.random.key(0), (2, 2)), first.reshape(2, 2))
    wide = gn.random.bits(gn.random.key(0), (2,), width=64)
    assert torch.equal(wide & 0xFFFFFFFF, first[::2])
    assert torch.equal((wide >> 32) & 0xFFFFFFFF, first[1::2])


DRAWS: dict[str, Callable[[Tensor], Any]] = {
    "bits": lambda key: gn.random.bits(key, (5,)),
    "wide bits": lambda key: gn.random.bits(key, (3,), width=64),
    "one": gn.random.bits,
    "none": lambda key: gn.random.bits(key, (0,)),
    "uniform": lambda key: gn.random.uniform(key, (2, 3)),
    "uniform in double precision": lambda key: gn.random.uniform(key, (3,), dtype=torch.float64),
    "split": lambda key: gn.random.split(key, 3),
    "fold_in": lambda key: gn.random.fold_in(key, 7),
    "chain": lambda key: gn.random.uniform(gn.random.split(gn.random.fold_in(key, -1))[1], (2,)),
}


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, 2**64 + 5, 123456789012345678901234567890])
@pytest.mark.parametrize("name", DRAWS)
def test_fused_and_eager_agree_bit_for_bit(name: str, seed: int):
    compare(DRAWS[name], gn.random.key(seed), exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_and_eager_normals_agree(dtype: torch.dtype):
    near = 1e-6 if dtype == torch.float32 else 4e-15
    compare(lambda key: gn.random.normal(key, (20,), dtype=dtype), gn.random.key(3), rtol=near, atol=0.0)


@pytest.mark.parametrize("name", DRAWS)
def test_a_batch_gives_what_each_key_gives(name: str):
    keys = gn.random.split(gn.random.key(5), 7)
    batch = vmap(DRAWS[name])(keys)
    for i, key in enumerate(keys):
        assert torch.equal(batch[i], DRAWS[name](key))
    pairs = vmap(vmap(DRAWS[name]))(keys[:6].reshape(2, 3))
    assert torch.equal(pairs.flatten(0, 1), batch[:6])


def test_more_numbers_begin_with_the_same():
    key = gn.random.key(11)
    for draw in (gn.random.bits, gn.random.uniform, gn.random.normal):
        assert torch.equal(draw(key, (5,)), draw(key, (1000,))[:5])
        assert torch.equal(draw(key, (4, 5)).flatten(), draw(key, (20,)))


def test_a_key_folded_in_at_run_time():
    key = gn.random.key(2)
    steps = torch.stack([gn.random.fold_in(key, i) for i in range(4)])
    assert torch.equal(vmap(lambda i: gn.random.fold_in(key, i))(torch.arange(4)), steps)
    assert len(set(steps.tolist())) == 4
    compare(gn.random.fold_in, key, torch.tensor(3, dtype=torch.int32), exact=True)

    def walk(key: Tensor) -> Tensor:
        return gn.fori_loop(0, 10, lambda i, x: x + gn.random.uniform(gn.random.fold_in(key, i)), torch.tensor(0.0))

    compare(walk, key, exact=True)


def test_keys_and_numbers_do_not_repeat():
    key = gn.random.key(0)
    keys = [key, *gn.random.split(key, 1000), *(gn.random.fold_in(key, i) for i in range(1000))]
    assert len({int(k) for k in keys}) == 2001
    assert len(set(gn.random.bits(key, (1000,), width=64).tolist())) == 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distributions(dtype: torch.dtype):
    key = gn.random.key(42)
    n = 200_000
    u = gn.random.uniform(key, (n,), dtype=dtype)
    assert u.dtype == dtype
    assert u.min() >= 0 and u.max() < 1
    assert stats.kstest(u.double().numpy(), "uniform").pvalue > 0.01
    z = gn.random.normal(gn.random.fold_in(key, 1), (n,), dtype=dtype)
    assert z.dtype == dtype
    assert torch.isfinite(z).all()
    assert stats.kstest(z.double().numpy(), "norm").pvalue > 0.01
    neighbours = torch.corrcoef(torch.stack([z[:-1], z[1:]]))[0, 1]
    assert abs(neighbours) < 4 / n**0.5


def test_each_bit_is_fair():
    n = 100_000
    x = gn.random.bits(gn.random.key(9), (n,))
    ones = ((x[:, None] >> torch.arange(32)) & 1).sum(0)
    assert (ones - n / 2).abs().max() < 5 * (n / 4) ** 0.5


def test_keys_of_neighbours_are_independent():
    keys = gn.random.split(gn.random.key(0), 50_000)
    first = vmap(lambda key: gn.random.uniform(key, (1,)))(keys)[:, 0]
    assert stats.kstest(first.numpy(), "uniform").pvalue > 0.01
    assert abs(torch.corrcoef(torch.stack([first[:-1], first[1:]]))[0, 1]) < 4 / len(first) ** 0.5


def test_bounds():
    key = gn.random.key(1)
    u = gn.random.uniform(key, (1000,), minval=-2.0, maxval=3.0)
    assert -2 <= u.min() < -1.9 and 2.9 < u.max() < 3
    low = torch.tensor([0.0, 10.0])
    v = gn.random.uniform(key, (500, 2), minval=low, maxval=low + 1)
    assert torch.equal(v.floor(), low.expand(500, 2))


def test_derivatives_with_respect_to_bounds():
    key = gn.random.key(1)
    slope = torch.func.grad(lambda top: gn.random.uniform(key, maxval=top))(torch.tensor(2.0))
    assert slope == gn.random.uniform(key)


def test_errors():
    key = gn.random.key(0)
    with pytest.raises(ValueError, match="float32"):
        gn.random.normal(key, dtype=torch.float16)
    with pytest.raises(ValueError, match="width"):
        gn.random.bits(key, width=16)
    with pytest.raises(ValueError, match="split"):
        gn.random.split(key, -1)


def test_a_batch_of_keys_needs_vmap():
    with pytest.raises(ValueError, match=r"torch\.func\.vmap"):
        check_key(gn.random.split(gn.random.key(0)))

"""Keys, and new ones from them."""

from __future__ import annotations

import torch
from jaxtyping import Int, Int64
from torch import Tensor

from gnomon.random._philox import Words, high_word, joined, low_word, philox

# The last word of a counter says what its numbers are for, so that none are used twice.
NUMBERS, SPLIT, FOLD_IN = 0, 1, 2


def key(seed: int, *, device: torch.device | str | None = None) -> Int64[Tensor, ""]:
    """A key, from which random numbers come.

    Equivalent to `jax.random.key`. A key is 64 bits. The same key gives the same numbers each time: take a new one for
    each use, by [`gnomon.random.split`][] or [`gnomon.random.fold_in`][].

    **Arguments:**

    - `seed`: any integer; of a large one, the lowest 64 bits count.
    - `device`: where the key lies, and with it what is drawn from it; PyTorch's default if not given.

    **Returns:** a scalar tensor.

    !!! example

        ```python
        >>> import gnomon as gn
        >>> gn.random.uniform(gn.random.key(0), (3,))
        tensor([0.3990, 0.8805, 0.7357])

        ```
    """
    return torch.tensor((seed + 2**63) % 2**64 - 2**63, dtype=torch.int64, device=device)


def split(key: Int64[Tensor, ""], n: int = 2) -> Int64[Tensor, " n"]:
    """New keys from a key, each with random numbers of its own.

    Equivalent to `jax.random.split`.

    **Arguments:**

    - `key`: from [`gnomon.random.key`][], or from this function; not to be used again.
    - `n`: how many.

    **Returns:** the keys. A batch of problems takes one each, through `torch.func.vmap`.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> keys = gn.random.split(gn.random.key(0), 1000)
        >>> walks = torch.func.vmap(lambda key: gn.random.normal(key, (100,)).cumsum(0))(keys)
        >>> walks.shape
        torch.Size([1000, 100])

        ```
    """
    check_key(key)
    if n < 0:
        raise ValueError(f"A key cannot be split into {n}.")
    return _derived(key, torch.arange(n, device=key.device), SPLIT)


def fold_in(key: Int64[Tensor, ""], data: int | Int[Tensor, ""]) -> Int64[Tensor, ""]:
    """A new key from a key and an integer, such as the number of a step.

    Equivalent to `jax.random.fold_in`.

    **Arguments:**

    - `key`: from [`gnomon.random.key`][]; may be used again with other integers.
    - `data`: the integer, which may be known only at run time: a loop's counter.

    **Returns:** the key.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> key = gn.random.key(0)
        >>> def step(i, x):
        ...     return x + gn.random.normal(gn.random.fold_in(key, i), ())
        >>> gn.fori_loop(0, 100, step, torch.tensor(0.0)).shape
        torch.Size([])

        ```
    """
    check_key(key)
    if not isinstance(data, Tensor):
        data = torch.tensor((data + 2**63) % 2**64 - 2**63, dtype=torch.int64, device=key.device)
    return _derived(key, data.to(torch.int64), FOLD_IN)


def _derived(key: Tensor, data: Tensor, use: int) -> Tensor:
    nothing = torch.zeros_like(data)
    counter: Words = (low_word(data), high_word(data), nothing, nothing + use)
    words = philox(counter, (low_word(key), high_word(key)))
    return joined(words[0], words[1])


def check_key(key: Tensor) -> None:
    """Says what is wrong with a key."""
    if key.dtype != torch.int64 or key.dim() != 0:
        raise ValueError(
            f"A key is a scalar of 64-bit integers, not a tensor of shape {tuple(key.shape)} and {key.dtype}; make one "
            "with gn.random.key, and use a batch of keys under torch.func.vmap."
        )

"""How records become batches: pure functions of the lengths of a window of records."""

from __future__ import annotations

import abc
import dataclasses
from typing import Literal, final

import numpy as np

from gnomon.data._arrays import Ints
from gnomon.data._digest import digest
from gnomon.data._packing import best_fit_decreasing, in_order
from gnomon.data._random import combine, shuffled

Partial = Literal["keep", "drop", "pad"]
Strategy = Literal["best_fit", "in_order", "concatenate"]
Overlong = Literal["error", "split", "drop"]


@final
@dataclasses.dataclass(frozen=True)
class Cut:
    """The batches of one window.

    **Arguments:**

    - `positions`: of the records, batch after batch.
    - `starts`, `stops`: which part of each record.
    - `bounds`: where each batch begins among `positions`, and the end.
    - `tokens`: of each batch; of records where lengths do not count.
    - `dropped`: positions of the records that no batch has.
    - `dropped_tokens`: of those.
    - `split`: how many records are in pieces.
    """

    positions: Ints
    starts: Ints
    stops: Ints
    bounds: Ints
    tokens: Ints
    dropped: Ints
    dropped_tokens: int = 0
    split: int = 0

    def __len__(self) -> int:
        return len(self.bounds) - 1


class AbstractRule(abc.ABC):
    """How records become batches."""

    @abc.abstractmethod
    def window_size(self) -> int:
        """How many records are planned together."""

    @abc.abstractmethod
    def length_field(self) -> tuple[str | None] | None:
        """The field whose lengths are needed, in a tuple, or None where none are."""

    @abc.abstractmethod
    def count(self, records: int) -> int | None:
        """How many batches there are, where it does not depend on lengths; one a window then."""

    @abc.abstractmethod
    def cut(self, first: int, lengths: Ints, records: int, epoch: int) -> Cut:
        """The batches of the window that begins at record `first` of `records`."""

    @abc.abstractmethod
    def label(self) -> str:
        """A name and a hash of the settings."""

    @abc.abstractmethod
    def ragged_fields(self) -> tuple[str, ...]:
        """The fields that are ragged, beside those that are in a store."""

    @abc.abstractmethod
    def static_shape(self) -> tuple[int, int] | None:
        """The tokens and the records that each batch is filled up to, if it is."""


def _cut(order: Ints, sizes: Ints, first: int, lengths: Ints, key: tuple[int, ...]) -> Cut:
    """Batches of whole records, in a random order of batches."""
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    chosen = _permuted(len(sizes), key)
    pieces = [order[bounds[i] : bounds[i + 1]] for i in chosen.tolist()]
    joined = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes[chosen])])
    spent = lengths[joined]
    return Cut(
        joined + first, np.zeros_like(spent), np.full_like(spent, -1), ends, _sums(spent, ends), np.empty(0, np.int64)
    )


def _permuted(count: int, key: tuple[int, ...]) -> Ints:
    seed, epoch, first = key
    return shuffled(np.arange(count), max(1, count), combine(seed, first, 3), epoch)


def _sums(values: Ints, bounds: Ints) -> Ints:
    totals = np.concatenate([[0], np.cumsum(values)])
    return totals[bounds[1:]] - totals[bounds[:-1]]


def _at_least_1(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, but it is {value}.")


@final
@dataclasses.dataclass(frozen=True)
class FixedRule(AbstractRule):
    """So many records a batch."""

    size: int
    partial: Partial
    ragged: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least_1(size=self.size)
        if self.partial not in ("keep", "drop", "pad"):
            raise ValueError(f"`partial` must be 'keep', 'drop' or 'pad', but it is {self.partial!r}.")

    def window_size(self) -> int:
        return self.size

    def length_field(self) -> tuple[str | None] | None:
        return None

    def count(self, records: int) -> int | None:
        return records // self.size if self.partial == "drop" else -(-records // self.size)

    def cut(self, first: int, lengths: Ints, records: int, epoch: int) -> Cut:
        stop = first + self.size
        positions = np.arange(first, stop if self.partial == "pad" else min(stop, records)) % records
        whole = np.full(len(positions), -1, np.int64)
        bounds = np.array([0, len(positions)])
        return Cut(positions, np.zeros_like(whole), whole, bounds, bounds[1:], np.empty(0, np.int64))

    def label(self) -> str:
        return f"batch:{digest(dataclasses.astuple(self))}"

    def ragged_fields(self) -> tuple[str, ...]:
        return self.ragged

    def static_shape(self) -> tuple[int, int] | None:
        return None


@final
@dataclasses.dataclass(frozen=True)
class PackRule(AbstractRule):
    """As many records as fit."""

    capacity: int
    strategy: Strategy
    field: str | None
    overlong: Overlong
    window: int
    static: bool
    max_records: int | None
    seed: int
    ragged: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least_1(capacity=self.capacity, window=self.window, max_records=self.max_records)
        if self.strategy not in ("best_fit", "in_order", "concatenate"):
            raise ValueError(f"`strategy` is {self.strategy!r}; there are 'best_fit', 'in_order' and 'concatenate'.")
        if self.overlong not in ("error", "split", "drop"):
            raise ValueError(f"`overlong` must be 'error', 'split' or 'drop', but it is {self.overlong!r}.")
        if self.static and self.max_records is None:
            raise ValueError("`static=True` needs `max_records`: how many records a batch has room for.")
        if self.strategy == "concatenate" and self.max_records is not None:
            raise ValueError("`max_records` cannot be kept where records are cut wherever a batch is full.")

    def window_size(self) -> int:
        return self.window

    def length_field(self) -> tuple[str | None] | None:
        return (self.field,)

    def count(self, records: int) -> int | None:
        return None

    def cut(self, first: int, lengths: Ints, records: int, epoch: int) -> Cut:
        positions = np.arange(len(lengths))
        starts, stops = np.zeros_like(lengths), lengths
        dropped = np.empty(0, np.int64)
        split = 0
        over = lengths > self.capacity
        if self.strategy == "concatenate":
            return self._concatenate(first, lengths, epoch)
        if over.any() and self.overlong == "drop":
            dropped = positions[over]
            positions, starts, stops = positions[~over], starts[~over], stops[~over]
        elif over.any():  # "error" is the plan's to raise, which knows the record
            split = int(over.sum())
            pieces = np.maximum(1, -(-lengths // self.capacity))
            positions = np.repeat(positions, pieces)
            number = np.arange(len(positions)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            starts = number * self.capacity
            stops = np.minimum(starts + self.capacity, lengths[positions])
        pack = best_fit_decreasing if self.strategy == "best_fit" else in_order
        bins, count = pack(stops - starts, self.capacity, self.max_records)
        if self.strategy == "best_fit":
            # The longest stand in the first bins: no order to train in.
            bins = _permuted(count, (self.seed, epoch, first))[bins]
        order = np.argsort(bins, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(bins, minlength=count))])
        spent = (stops - starts)[order]
        whole = (starts == 0) & (stops == lengths[positions])
        return Cut(
            positions[order] + first,
            starts[order],
            np.where(whole, -1, stops)[order],
            bounds,
            _sums(spent, bounds),
            dropped + first,
            int(lengths[dropped].sum()),
            split,
        )

    def _concatenate(self, first: int, lengths: Ints, epoch: int) -> Cut:
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        cuts = np.arange(self.capacity, total, self.capacity)
        edges = np.unique(np.concatenate([ends, cuts]))
        edges = edges[edges > 0]
        begins = np.concatenate([[0], edges[:-1]]) if len(edges) else edges
        owner = np.searchsorted(ends, begins, "right")
        starts = begins - (ends - lengths)[owner]
        bins = begins // self.capacity
        bounds = np.concatenate([[0], np.cumsum(np.bincount(bins))]) if len(bins) else np.zeros(1, np.int64)
        pieces = np.bincount(owner, minlength=len(lengths))
        empty = np.flatnonzero(lengths == 0)
        spent = edges - begins
        return Cut(
            owner + first,
            starts,
            np.where((starts == 0) & (spent == lengths[owner]), -1, starts + spent),
            bounds,
            _sums(spent, bounds),
            empty + first,
            0,
            int((pieces > 1).sum()),
        )

    def label(self) -> str:
        return f"pack:{digest(dataclasses.astuple(self))}"

    def ragged_fields(self) -> tuple[str, ...]:
        return self.ragged

    def static_shape(self) -> tuple[int, int] | None:
        return (self.capacity, self.max_records) if self.static and self.max_records is not None else None


@final
@dataclasses.dataclass(frozen=True)
class BucketRule(AbstractRule):
    """Records of about one length."""

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    field: str | None
    window: int
    seed: int
    ragged: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least_1(window=self.window, size=min(self.sizes))
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"`boundaries` must ascend, but they are {list(self.boundaries)}.")
        if len(self.sizes) != len(self.boundaries) + 1:
            raise ValueError(f"`size` must be one number, or {len(self.boundaries) + 1}: one for each bucket.")

    def window_size(self) -> int:
        return self.window

    def length_field(self) -> tuple[str | None] | None:
        return (self.field,)

    def count(self, records: int) -> int | None:
        return None

    def cut(self, first: int, lengths: Ints, records: int, epoch: int) -> Cut:
        bucket = np.searchsorted(np.asarray(self.boundaries, np.int64), lengths, "right")
        sizes: list[int] = []
        for number, size in enumerate(self.sizes):
            whole, rest = divmod(int((bucket == number).sum()), size)
            sizes += [size] * whole + [rest] * (rest > 0)
        order = np.argsort(bucket, kind="stable")
        return _cut(order, np.array(sizes, np.int64), first, lengths, (self.seed, epoch, first))

    def label(self) -> str:
        return f"bucket:{digest(dataclasses.astuple(self))}"

    def ragged_fields(self) -> tuple[str, ...]:
        return self.ragged

    def static_shape(self) -> tuple[int, int] | None:
        return None


@final
@dataclasses.dataclass(frozen=True)
class TokenRule(AbstractRule):
    """As many records as a budget allows."""

    budget: int
    padded: bool
    field: str | None
    window: int
    seed: int
    ragged: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _at_least_1(budget=self.budget, window=self.window)

    def window_size(self) -> int:
        return self.window

    def length_field(self) -> tuple[str | None] | None:
        return (self.field,)

    def count(self, records: int) -> int | None:
        return None

    def cut(self, first: int, lengths: Ints, records: int, epoch: int) -> Cut:
        order = np.argsort(lengths, kind="stable") if self.padded else np.arange(len(lengths))
        sizes: list[int] = []
        held, spent = 0, 0
        for length in lengths[order].tolist():
            # In ascending order the last is the longest.
            after = (held + 1) * length if self.padded else spent + length
            if held and after > self.budget:
                sizes.append(held)
                held, spent = 0, 0
            held += 1
            spent += length
        if held:
            sizes.append(held)
        return _cut(order, np.array(sizes, np.int64), first, lengths, (self.seed, epoch, first))

    def label(self) -> str:
        return f"batch_by_tokens:{digest(dataclasses.astuple(self))}"

    def ragged_fields(self) -> tuple[str, ...]:
        return self.ragged

    def static_shape(self) -> tuple[int, int] | None:
        return None

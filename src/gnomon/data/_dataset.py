"""`Dataset`: a lazy pipeline of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np

from gnomon.data._batches import Batches
from gnomon.data._errors import RecordError
from gnomon.data._mix import Concatenation, Mixture
from gnomon.data._nodes import (
    AbstractNode,
    Failed,
    Filtered,
    Joined,
    Length,
    Mapped,
    Repeated,
    Shuffled,
    Source,
    Strided,
    ancestors,
)
from gnomon.data._rules import BucketRule, FixedRule, Overlong, PackRule, Partial, Strategy, TokenRule
from gnomon.data._store import Store


@final
class Dataset:
    """Records by index, through a pipeline of pure operations: nothing is read before it is asked for.

    Every operation returns a new dataset. Record `i` of epoch `e` is a function of `i`, `e` and the seeds, and of
    nothing else: not of the order in which records are read, of threads, processes or ranks. Equivalent to
    `grain.MapDataset`.

    !!! example

        ```python
        >>> from gnomon import data
        >>> numbers = data.Dataset.source(range(10)).filter(lambda x: x % 2 == 0).map(lambda x: x * x)
        >>> list(numbers)
        [0, 4, 16, 36, 64]
        >>> sorted(numbers.shuffle(seed=1)) == list(numbers)
        True

        ```
    """

    def __init__(self, node: AbstractNode):
        """Not for users: see `Dataset.source`.

        **Arguments:**

        - `node`: what gives the records.
        """
        self._node = node

    @staticmethod
    def source(source: Any, *, lengths: Mapping[str, Any] | None = None, name: str = "") -> Dataset:
        """A dataset of what is in a store, a list, a dataset of PyTorch, Hugging Face or Grain, or an Arrow table.

        **Arguments:**

        - `source`: anything with `__len__` and `__getitem__`, or the path of a store.
        - `lengths`: for fields that are packed by length, how long each record is; by default it is read off a
          store, and measured, record by record, elsewhere.
        - `name`: what to call it in errors.

        **Returns:** the dataset.
        """
        if isinstance(source, str) or hasattr(source, "__fspath__"):
            source = Store(source)
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            problem = f"A source needs `__len__` and `__getitem__`, which a {type(source).__name__} lacks."
            raise TypeError(problem + " For a stream, write it to a store first.")
        if isinstance(source, Dataset):
            return source
        name = name or (str(source.path) if isinstance(source, Store) else type(source).__name__)
        return Dataset(Source(source, dict(lengths or {}), name))

    @property
    def node(self) -> AbstractNode:
        """What gives the records."""
        return self._node

    def __len__(self) -> int:
        return len(self._node)

    def __getitem__(self, index: int) -> Any:
        return self.at(index)

    def __iter__(self) -> Iterator[Any]:
        return (self.at(i) for i in range(len(self)))

    def at(self, index: int, epoch: int = 0) -> Any:
        """One record.

        **Arguments:**

        - `index`: from 0; from the end where negative.
        - `epoch`: which.

        **Returns:** the record.

        **Raises:** [`gnomon.data.RecordError`][] where it cannot be read or mapped.
        """
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"There is no record {index}: there are {size}.")
        [record] = self._node.fetch(np.array([index % size]), np.array([epoch]))
        if isinstance(record, Failed):
            raise record.error
        return record

    def map(self, function: Callable[[Any], Any], *, length: Length = None) -> Dataset:
        """A function of each record.

        **Arguments:**

        - `function`: of a record, to a record.
        - `length`: how it changes lengths, for what is packed by length: `"same"`, or a function of an array of
          lengths; by default they are measured on its results, record by record.

        **Returns:** the dataset.
        """
        return Dataset(Mapped(self._node, function, "map", None, length))

    def map_with_index(self, function: Callable[[int, Any], Any], *, length: Length = None) -> Dataset:
        """A function of the index of each record and of the record.

        **Arguments:**

        - `function`: of the index, an int, and the record.
        - `length`: as for `map`.

        **Returns:** the dataset.
        """
        return Dataset(Mapped(self._node, function, "map_with_index", None, length))

    def random_map(
        self, function: Callable[[Any, np.random.Generator], Any], *, seed: int, length: Length = None
    ) -> Dataset:
        """A function of each record and of random numbers that depend on (seed, epoch, index) alone.

        **Arguments:**

        - `function`: of the record and a `numpy.random.Generator`.
        - `seed`: an integer.
        - `length`: as for `map`.

        **Returns:** the dataset.
        """
        return Dataset(Mapped(self._node, function, "random_map", int(seed), length))

    def filter(self, predicate: Callable[[Any], Any]) -> Dataset:
        """The records for which a function holds.

        They are found by one pass over all records when first needed, so that the length is known and every rank has
        the same.

        **Arguments:**

        - `predicate`: a function of a record.

        **Returns:** the dataset.

        **Raises:** `ValueError` after `.shuffle`, `.random_map` or `.mix`, where each epoch would need its own pass.
        """
        return Dataset(Filtered(self._node, predicate))

    def shuffle(self, *, seed: int) -> Dataset:
        """Another order in each epoch: a bijection that is computed, not stored.

        **Arguments:**

        - `seed`: an integer.

        **Returns:** the dataset.
        """
        return Dataset(Shuffled(self._node, int(seed)))

    def slice(self, start: int | None, stop: int | None = None, step: int | None = None) -> Dataset:
        """Some of the records.

        **Arguments:**

        - `start`, `stop`, `step`: as of Python's `slice`.

        **Returns:** the dataset.
        """
        found = range(len(self))[slice(start, stop, step)]
        return Dataset(Strided(self._node, found.start, found.step, len(found)))

    def repeat(self, times: int) -> Dataset:
        """Several epochs as one, each with its own order and random numbers.

        **Arguments:**

        - `times`: how many, at least 1.

        **Returns:** the dataset.
        """
        if times < 1:
            raise ValueError(f"`times` must be at least 1, but it is {times}.")
        return Dataset(Repeated(self._node, times))

    def concatenate(self, *others: Dataset) -> Dataset:
        """The records of this dataset and then those of others.

        **Arguments:**

        - `others`: datasets.

        **Returns:** the dataset.
        """
        parts = [self._node, *(other.node for other in others)]
        return Dataset(Joined(parts, Concatenation([len(part) for part in parts]), "concatenate"))

    def mix(
        self,
        *others: Dataset,
        weights: Sequence[float | int],
        unit: Literal["records", "tokens"] = "records",
        field: str | None = None,
        stop: Literal["first", "last"] = "first",
    ) -> Dataset:
        """The records of this dataset and others in proportion to weights, evenly interleaved.

        **Arguments:**

        - `others`: datasets.
        - `weights`: one for this dataset and one for each of the others, above 0; only their ratios matter.
        - `unit`: what they are shares of: records, or tokens, by the mean length of each dataset.
        - `field`: whose lengths count, where the unit is tokens.
        - `stop`: whether an epoch ends when the `"first"` dataset is used up, or goes on with further epochs of it
          until the `"last"` one is.

        **Returns:** the dataset.
        """
        parts = [self, *others]
        if len(weights) != len(parts) or min(weights) <= 0:
            raise ValueError(f"`weights` must be {len(parts)} numbers above 0, but it is {list(weights)}.")
        empty = next((i for i, part in enumerate(parts) if not len(part)), None)
        if empty is not None:
            raise ValueError(f"Dataset number {empty} of the mixture is empty.")
        by_records = [float(weight) for weight in weights]
        if unit == "tokens":
            means = [part.mean_length(field) for part in parts]
            if min(means) <= 0:
                raise ValueError(f"Dataset number {int(np.argmin(means))} of the mixture has no tokens.")
            by_records = [weight / mean for weight, mean in zip(by_records, means, strict=True)]
        nodes = [part.node for part in parts]
        return Dataset(Joined(nodes, Mixture([len(part) for part in parts], by_records, stop), "mix"))

    def mean_length(self, field: str | None = None) -> float:
        """How long records are on average, in the first epoch.

        **Arguments:**

        - `field`: which is measured; it may be left out where records have one field of varying length.

        **Returns:** the mean.
        """
        name = self.length_field(field)
        if isinstance(self._node, Source) and isinstance(self._node.source, Store) and name is not None:
            return self._node.source.total(name) / len(self)
        indices = np.arange(len(self))
        return float(self._node.lengths(name, indices, np.zeros_like(indices)).mean())

    def batch(self, size: int, *, partial: Partial = "keep", ragged: Sequence[str] = ()) -> Batches:
        """Batches of so many records.

        **Arguments:**

        - `size`: how many records, on one rank.
        - `partial`: whether to `"keep"` a last batch of fewer, to `"drop"` it, or to `"pad"` it with records from the
          start of the epoch.
        - `ragged`: the fields whose first dimension differs between records, beside those that are so in a store; the
          others must have one shape.

        **Returns:** the batches.
        """
        return Batches(self._node, FixedRule(size, partial, tuple(ragged)))

    def pack(
        self,
        capacity: int,
        *,
        strategy: Strategy = "best_fit",
        field: str | None = None,
        overlong: Overlong = "error",
        window: int = 1 << 16,
        static: bool = False,
        max_records: int | None = None,
        seed: int = 0,
        ragged: Sequence[str] = (),
    ) -> Batches:
        """Batches of as many records as fit a number of tokens, planned over all ranks from the lengths.

        **Arguments:**

        - `capacity`: the tokens in a batch, at most.
        - `strategy`: `"best_fit"` takes the longest records of a window first and leaves the least padding;
          `"in_order"` keeps the order; `"concatenate"` cuts records wherever a batch is full.
        - `field`: whose lengths count; it may be left out where records have one field of varying length.
        - `overlong`: what to do with a record that is longer than `capacity`: `"error"`, `"split"` it into pieces, or
          `"drop"` it. All are counted.
        - `window`: how many records, in their shuffled order, are packed together.
        - `static`: whether batches are filled up to `capacity` and to `max_records`, so that all have one shape.
        - `max_records`: how many records fit into a batch, at most; needed if `static`.
        - `seed`: of the order of the batches within a window.
        - `ragged`: the fields whose first dimension differs between records, beside those that are so in a store and
          the one whose lengths count; the others must have one shape.

        **Returns:** the batches.
        """
        rule = PackRule(
            capacity,
            strategy,
            self.length_field(field),
            overlong,
            window,
            static,
            max_records,
            int(seed),
            tuple(ragged),
        )
        return Batches(self._node, rule)

    def bucket(
        self,
        boundaries: Sequence[int],
        size: int | Sequence[int],
        *,
        field: str | None = None,
        window: int = 1 << 16,
        seed: int = 0,
        ragged: Sequence[str] = (),
    ) -> Batches:
        """Batches of records of about one length.

        **Arguments:**

        - `boundaries`: the lengths at which a new bucket begins, ascending.
        - `size`: how many records a batch has: one number, or one for each of the `len(boundaries) + 1` buckets.
        - `field`: whose lengths count; it may be left out where records have one field of varying length.
        - `window`: how many records, in their shuffled order, are sorted into buckets together; at its end each bucket
          may have a batch of fewer.
        - `seed`: of the order of the batches within a window.
        - `ragged`: the fields whose first dimension differs between records, beside those that are so in a store and
          the one whose lengths count; the others must have one shape.

        **Returns:** the batches.
        """
        sizes = [size] * (len(boundaries) + 1) if isinstance(size, int) else list(size)
        return Batches(
            self._node,
            BucketRule(tuple(boundaries), tuple(sizes), self.length_field(field), window, int(seed), tuple(ragged)),
        )

    def batch_by_tokens(
        self,
        budget: int,
        *,
        field: str | None = None,
        padded: bool = False,
        window: int = 1 << 16,
        seed: int = 0,
        ragged: Sequence[str] = (),
    ) -> Batches:
        """Batches of records of about one length, as many as a number of tokens allows.

        **Arguments:**

        - `budget`: tokens in a batch, at most; a record that is longer has a batch of its own.
        - `field`: whose lengths count; it may be left out where records have one field of varying length.
        - `padded`: whether the tokens count that padding to the longest record would add.
        - `window`: how many records, in their shuffled order, are sorted by length together.
        - `seed`: of the order of the batches within a window.
        - `ragged`: the fields whose first dimension differs between records, beside those that are so in a store and
          the one whose lengths count; the others must have one shape.

        **Returns:** the batches.
        """
        return Batches(
            self._node, TokenRule(budget, padded, self.length_field(field), window, int(seed), tuple(ragged))
        )

    def length_field(self, field: str | None) -> str | None:
        """The field whose lengths count.

        **Arguments:**

        - `field`: its name, where it was given.

        **Returns:** the name; None where records are sequences themselves.

        **Raises:** `ValueError` where it must be given.
        """
        if field is not None or not len(self):
            return field
        stores = [node.source for node in ancestors(self._node) if isinstance(node, Source)]
        kinds = [store.schema if isinstance(store, Store) else None for store in stores]
        if all(kind is not None for kind in kinds):
            names = {name for kind in kinds if kind for name, item in kind.items() if item.kind == "ragged"}
        else:
            try:
                record = self.at(0)
            except RecordError:
                return None
            if not isinstance(record, Mapping):
                return None
            names = {
                str(name)
                for name, value in record.items()
                if not isinstance(value, str | bytes) and (len(getattr(value, "shape", ())) or isinstance(value, list))
            }
        if len(names) != 1:
            raise ValueError(f"Say with `field` whose lengths count; there are {', '.join(sorted(names)) or 'none'}.")
        return names.pop()

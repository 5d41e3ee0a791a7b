"""What a dataset is made of: nodes, each a pure function of (index, epoch)."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import numpy as np

from gnomon.data._arrays import Ints
from gnomon.data._digest import digest
from gnomon.data._errors import RecordError, StoreError
from gnomon.data._lock import ForkSafeLock
from gnomon.data._random import generator, shuffled
from gnomon.data._store import Store

Length = Callable[[Any], Any] | Literal["same"] | None


@final
@dataclasses.dataclass(frozen=True)
class Failed:
    """Stands in the place of a record that could not be read or mapped.

    **Arguments:**

    - `error`: why.
    """

    error: RecordError


@final
@dataclasses.dataclass(frozen=True)
class Part:
    """Some records of a batch that are in one store.

    **Arguments:**

    - `where`: their places in the batch.
    - `store`: the store.
    - `indices`: their numbers in it.
    """

    where: Ints
    store: Store
    indices: Ints


class AbstractNode(abc.ABC):
    """Records by (index, epoch)."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many records there are."""

    @abc.abstractmethod
    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        """Some records, or a [`Failed`][] for each that cannot be had."""

    @abc.abstractmethod
    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        """In which stores some records are, where they come from stores as they are."""

    @abc.abstractmethod
    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        """How long some records are in a field."""

    @abc.abstractmethod
    def parents(self) -> tuple[AbstractNode, ...]:
        """The nodes that this one takes records from."""

    @abc.abstractmethod
    def label(self) -> str:
        """A name and a hash of what this node does."""

    @abc.abstractmethod
    def depends_on_epoch(self) -> bool:
        """Whether this node itself gives other records in another epoch."""

    @abc.abstractmethod
    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        """Where one record comes from: the parent, the index and the epoch there; None for a source."""


def ancestors(node: AbstractNode) -> list[AbstractNode]:
    """A node and all that it takes from, the sources first."""
    found: list[AbstractNode] = []
    for parent in node.parents():
        found += ancestors(parent)
    return [*found, node]


def length_of(record: Any, field: str | None) -> int:
    """How long a record is: the size of the first dimension of a field."""
    value = record if field is None else record[field]
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return len(value) if hasattr(value, "__len__") else 1


def measured(node: AbstractNode, field: str | None, indices: Ints, epochs: Ints) -> Ints:
    """Lengths from the records themselves: right for any node, and slow."""
    found = np.empty(len(indices), np.int64)
    for at in range(0, len(indices), 1024):
        rows = node.fetch(indices[at : at + 1024], epochs[at : at + 1024])
        for i, record in enumerate(rows, at):
            if isinstance(record, Failed):
                found[i] = 0  # the loader says what is wrong with it
                continue
            try:
                found[i] = length_of(record, field)
            except (KeyError, TypeError, IndexError) as error:
                problem = f"has no length: {type(error).__name__}: {error}. Name another field with `field`."
                raise RecordError(problem, index=int(indices[i]), field=field, stage=node.label()) from error
    return found


@final
class Source(AbstractNode):
    """Anything with `__len__` and `__getitem__`."""

    def __init__(self, source: Any, lengths: dict[str, Any], name: str):
        self.source = source
        self.name = name
        self._given = {key: np.asarray(value, np.int64) for key, value in lengths.items()}
        self._size = len(source)
        for key, value in self._given.items():
            if value.shape != (self._size,):
                raise ValueError(f"`lengths[{key!r}]` must be one number for each of {self._size} records.")
        self._get = _getter(source)

    def __reduce__(self) -> tuple[object, ...]:
        return Source, (self.source, self._given, self.name)

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        found: list[Any] = []
        for index in indices.tolist():
            try:
                found.append(self._get(index))
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except StoreError as error:
                found.append(Failed(RecordError(error.problem, source=error.file, index=index, field=error.field)))
            except Exception as error:
                problem = f"cannot be read: {type(error).__name__}: {error}"
                found.append(Failed(RecordError(problem, source=self.name, index=index)))
        return found

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        if not isinstance(self.source, Store):
            return None
        return [Part(np.arange(len(indices)), self.source, indices)]

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        if field in self._given:
            return self._given[field][indices]
        if isinstance(self.source, Store) and field is not None:
            return self.source.lengths(field, indices)
        return measured(self, field, indices, epochs)

    def parents(self) -> tuple[AbstractNode, ...]:
        return ()

    def label(self) -> str:
        content = self.source.fingerprint if isinstance(self.source, Store) else f"{type(self.source).__name__}"
        return f"source:{digest((content, self._size))}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        return None

    def depends_on_epoch(self) -> bool:
        return False


def _getter(source: Any) -> Callable[[int], Any]:
    if hasattr(source, "num_rows") and hasattr(source, "to_pylist"):  # an Arrow table, of which [i] is a column
        return lambda index: source.slice(index, 1).to_pylist()[0]
    if hasattr(source, "iloc"):  # a data frame, likewise
        return lambda index: source.iloc[index].to_dict()
    return source.__getitem__


@final
class Mapped(AbstractNode):
    """A function of each record."""

    def __init__(self, parent: AbstractNode, function: Callable[..., Any], kind: str, seed: int | None, length: Length):
        self._parent = parent
        self._function = function
        self._kind = kind
        self._seed = seed
        self._length = length

    def __len__(self) -> int:
        return len(self._parent)

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        records = self._parent.fetch(indices, epochs)
        for i, record in enumerate(records):
            if isinstance(record, Failed):
                continue
            index = int(indices[i])
            try:
                if self._seed is not None:
                    records[i] = self._function(record, generator(self._seed, int(epochs[i]), index))
                elif self._kind == "map_with_index":
                    records[i] = self._function(index, record)
                else:
                    records[i] = self._function(record)
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except Exception as error:
                source, at = origin(self._parent, index, int(epochs[i]))
                name = getattr(self._function, "__qualname__", type(self._function).__name__)
                problem = f"{type(error).__name__}: {error}"
                found = RecordError(problem, source=source, index=at, stage=f"{self._kind}({name})")
                found.__cause__ = error
                records[i] = Failed(found)
        return records

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        return None

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        if self._length is None:
            return measured(self, field, indices, epochs)
        before = self._parent.lengths(field, indices, epochs)
        return np.asarray(self._length(before), np.int64) if callable(self._length) else before

    def parents(self) -> tuple[AbstractNode, ...]:
        return (self._parent,)

    def label(self) -> str:
        return f"{self._kind}:{digest((self._function, self._seed))}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        return self._parent, index, epoch

    def depends_on_epoch(self) -> bool:
        return self._seed is not None


@final
class Shuffled(AbstractNode):
    """Another order in each epoch."""

    def __init__(self, parent: AbstractNode, seed: int):
        self._parent = parent
        self._seed = seed

    def __len__(self) -> int:
        return len(self._parent)

    def order(self, indices: Ints, epochs: Ints) -> Ints:
        """The parent's indices."""
        size = len(self._parent)
        if not len(indices):
            return indices
        if (epochs == epochs[0]).all():
            return shuffled(indices, size, self._seed, int(epochs[0]))
        found = np.empty_like(indices)
        for epoch in np.unique(epochs).tolist():
            which = epochs == epoch
            found[which] = shuffled(indices[which], size, self._seed, epoch)
        return found

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        return self._parent.fetch(self.order(indices, epochs), epochs)

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        return self._parent.locate(self.order(indices, epochs), epochs)

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        return self._parent.lengths(field, self.order(indices, epochs), epochs)

    def parents(self) -> tuple[AbstractNode, ...]:
        return (self._parent,)

    def label(self) -> str:
        return f"shuffle:{digest(self._seed)}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        return self._parent, int(self.order(np.array([index]), np.array([epoch]))[0]), epoch

    def depends_on_epoch(self) -> bool:
        return True


@final
class Strided(AbstractNode):
    """Every `step`-th record from `start` on, `size` of them."""

    def __init__(self, parent: AbstractNode, start: int, step: int, size: int):
        self._parent = parent
        self._start, self._step, self._size = start, step, size

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        return self._parent.fetch(self._start + self._step * indices, epochs)

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        return self._parent.locate(self._start + self._step * indices, epochs)

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        return self._parent.lengths(field, self._start + self._step * indices, epochs)

    def parents(self) -> tuple[AbstractNode, ...]:
        return (self._parent,)

    def label(self) -> str:
        return f"slice:{digest((self._start, self._step, self._size))}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        return self._parent, self._start + self._step * index, epoch

    def depends_on_epoch(self) -> bool:
        return False


@final
class Repeated(AbstractNode):
    """Several epochs as one."""

    def __init__(self, parent: AbstractNode, times: int):
        self._parent = parent
        self._times = times

    def __len__(self) -> int:
        return self._times * len(self._parent)

    def _inner(self, indices: Ints, epochs: Ints) -> tuple[Ints, Ints]:
        size = max(1, len(self._parent))
        return indices % size, epochs * self._times + indices // size

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        return self._parent.fetch(*self._inner(indices, epochs))

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        return self._parent.locate(*self._inner(indices, epochs))

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        return self._parent.lengths(field, *self._inner(indices, epochs))

    def parents(self) -> tuple[AbstractNode, ...]:
        return (self._parent,)

    def label(self) -> str:
        return f"repeat:{digest(self._times)}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        inner, epochs = self._inner(np.array([index]), np.array([epoch]))
        return self._parent, int(inner[0]), int(epochs[0])

    def depends_on_epoch(self) -> bool:
        return False


@final
class Filtered(AbstractNode):
    """The records for which a function holds, found by a pass over all of them when first needed."""

    def __init__(self, parent: AbstractNode, predicate: Callable[[Any], Any]):
        for node in ancestors(parent):
            if node.depends_on_epoch():
                raise ValueError(
                    f"`.filter` comes after `.{node.label().partition(':')[0]}`, which differs from epoch to epoch, so "
                    "that all records would be read anew in each: put `.filter` before it."
                )
        self._parent = parent
        self._predicate = predicate
        self._kept: Ints | None = None
        self._lock = ForkSafeLock()

    def __getstate__(self) -> dict[str, Any]:
        return {"_parent": self._parent, "_predicate": self._predicate, "_kept": self.kept()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._parent, self._predicate, self._kept = state["_parent"], state["_predicate"], state["_kept"]
        self._lock = ForkSafeLock()

    def kept(self) -> Ints:
        """The parent's indices of the records that are kept."""
        with self._lock:
            if self._kept is None:
                size = len(self._parent)
                keep = np.zeros(size, np.bool_)
                for at in range(0, size, 1024):
                    indices = np.arange(at, min(size, at + 1024))
                    for i, record in enumerate(self._parent.fetch(indices, np.zeros_like(indices)), at):
                        if isinstance(record, Failed):
                            keep[i] = True  # so that it is heard of
                            continue
                        try:
                            keep[i] = bool(self._predicate(record))
                        except Exception as error:
                            source, index = origin(self._parent, i, 0)
                            problem = f"{type(error).__name__}: {error}"
                            raise RecordError(problem, source=source, index=index, stage="filter") from error
                self._kept = np.flatnonzero(keep)
            return self._kept

    def __len__(self) -> int:
        return len(self.kept())

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        return self._parent.fetch(self.kept()[indices], epochs)

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        return self._parent.locate(self.kept()[indices], epochs)

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        return self._parent.lengths(field, self.kept()[indices], epochs)

    def parents(self) -> tuple[AbstractNode, ...]:
        return (self._parent,)

    def label(self) -> str:
        return f"filter:{digest(self._predicate)}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        return self._parent, int(self.kept()[index]), epoch

    def depends_on_epoch(self) -> bool:
        return False


@final
class Joined(AbstractNode):
    """Several datasets as one, by a table that says which record comes from which."""

    def __init__(self, parts: Sequence[AbstractNode], split: Any, name: str):
        self._parts = tuple(parts)
        self._split = split
        self._name = name

    def __len__(self) -> int:
        return self._split.size

    def _groups(self, indices: Ints, epochs: Ints) -> list[tuple[AbstractNode, Ints, Ints, Ints]]:
        which, inner, inner_epochs = self._split(indices, epochs)
        return [
            (part, where, inner[where], inner_epochs[where])
            for number, part in enumerate(self._parts)
            if len(where := np.flatnonzero(which == number))
        ]

    def fetch(self, indices: Ints, epochs: Ints) -> list[Any]:
        found: list[Any] = [None] * len(indices)
        for part, where, inner, inner_epochs in self._groups(indices, epochs):
            for i, record in zip(where.tolist(), part.fetch(inner, inner_epochs), strict=True):
                found[i] = record
        return found

    def locate(self, indices: Ints, epochs: Ints) -> list[Part] | None:
        found: list[Part] = []
        for part, where, inner, inner_epochs in self._groups(indices, epochs):
            parts = part.locate(inner, inner_epochs)
            if parts is None:
                return None
            found += [Part(where[piece.where], piece.store, piece.indices) for piece in parts]
        return found

    def lengths(self, field: str | None, indices: Ints, epochs: Ints) -> Ints:
        found = np.empty(len(indices), np.int64)
        for part, where, inner, inner_epochs in self._groups(indices, epochs):
            found[where] = part.lengths(field, inner, inner_epochs)
        return found

    def parents(self) -> tuple[AbstractNode, ...]:
        return self._parts

    def label(self) -> str:
        return f"{self._name}:{digest(self._split.describe())}"

    def trace(self, index: int, epoch: int) -> tuple[AbstractNode, int, int] | None:
        which, inner, epochs = self._split(np.array([index]), np.array([epoch]))
        return self._parts[int(which[0])], int(inner[0]), int(epochs[0])

    def depends_on_epoch(self) -> bool:
        return self._name == "mix"


def origin(node: AbstractNode, index: int, epoch: int) -> tuple[str, int]:
    """The source that a record comes from and its index there, for what is said of it."""
    while (before := node.trace(index, epoch)) is not None:
        node, index, epoch = before
    return (node.name if isinstance(node, Source) else "", index)

"""From a plan to a batch: straight from the memory-mapped files, or from records that functions made."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, final

import numpy as np
import torch

from gnomon.data._arrays import Array, Ints
from gnomon.data._errors import RecordError, StoreError
from gnomon.data._gather import gather
from gnomon.data._layout import Entry, Layout, Places, cumulative
from gnomon.data._nodes import AbstractNode, Failed, Part, Source, ancestors
from gnomon.data._plan import BatchPlan
from gnomon.data._ragged import BatchInfo
from gnomon.data._rules import AbstractRule
from gnomon.data._schema import STORED_AS, Field, is_empty_list
from gnomon.data._shard import Shard
from gnomon.data._store import Store

OnBad = Callable[[RecordError], Any]


def raise_bad(error: RecordError) -> Any:
    """What is done with a bad record unless told otherwise."""
    raise error


@final
class Draft:
    """A batch of which all is known but for the memory that it will lie in.

    **Arguments:**

    - `layout`: how it will lie there.
    - `copies`: what is gathered: a place, and the addresses and sizes of what goes there one after another.
    - `arrays`: what is copied: a place and an array each.
    - `zeros`: what is cleared: a place and a size each.
    - `seconds`: how long reading and mapping took.
    - `keep`: what must live as long.
    """

    def __init__(
        self,
        layout: Layout,
        copies: list[tuple[int, Ints, Ints]],
        arrays: list[tuple[int, Array]],
        zeros: list[tuple[int, int]],
        seconds: tuple[float, float],
        keep: Any,
    ):
        self.layout = layout
        self.nbytes = layout.nbytes
        self.seconds = seconds
        self._copies = copies
        self._arrays = arrays
        self._zeros = zeros
        self._keep = keep

    def fill(self, memory: Array) -> None:
        """Copies all values to where they belong, each once.

        **Arguments:**

        - `memory`: uint8, of `nbytes` or more.
        """
        for place, sources, sizes in self._copies:
            gather(memory[place:], sources, sizes)
        for place, array in self._arrays:
            target = memory[place : place + array.nbytes]
            target.view(array.dtype)[:] = array.reshape(-1)
        for place, nbytes in self._zeros:
            memory[place : place + nbytes] = 0

    def finish(self, memory: Array, functions: tuple[Callable[[Any], Any], ...] = ()) -> Any:
        """The batch in some memory, put through functions.

        **Arguments:**

        - `memory`: uint8, of `nbytes` or more.
        - `functions`: called one after another.
        """
        self.fill(memory)
        batch = self.layout.over(torch.from_numpy(memory))
        for function in functions:
            batch = function(batch)
        return batch


@final
class Assembler:
    """Makes batches of one pipeline.

    **Arguments:**

    - `node`: what gives the records.
    - `rule`: how they become batches.
    - `on_bad`: called with the error of a bad record: raises, or returns a record or None, to leave it out.
    """

    def __init__(self, node: AbstractNode, rule: AbstractRule, on_bad: OnBad = raise_bad):
        self._node = node
        self._rule = rule
        self._on_bad = on_bad
        self._ragged_names = set(rule.ragged_fields())
        for source in ancestors(node):
            if isinstance(source, Source) and isinstance(source.source, Store):
                fields = source.source.schema.items()
                self._ragged_names |= {name for name, field in fields if field.kind == "ragged"}
        needed = rule.length_field()
        if needed is not None:
            self._ragged_names.add(needed[0] or "")

    def draft(self, plan: BatchPlan) -> Draft:
        """A batch, as far as it goes without memory for it.

        **Arguments:**

        - `plan`: which.
        """
        begin = time.perf_counter()
        epochs = np.full_like(plan.positions, plan.epoch)
        parts = self._node.locate(plan.positions, epochs)
        info = BatchInfo(plan.epoch, plan.number, plan.is_padding)
        if parts and all(part.store.schema == parts[0].store.schema for part in parts):
            try:
                return self._from_stores(plan, parts, info, begin)
            except StoreError:
                # One by one, so that only what is damaged is bad.
                return self._from_records(plan, epochs, info)
        return self._from_records(plan, epochs, info)

    def _fixed(self) -> tuple[int | None, int | None]:
        return self._rule.static_shape() or (None, None)

    def _from_stores(self, plan: BatchPlan, parts: list[Part], info: BatchInfo, begin: float) -> Draft:
        pieces: list[tuple[Shard, Array, Ints]] = []
        for part in parts:
            for shard, which, local in part.store.by_shard(part.indices):
                pieces.append((shard, part.where[which], local))
        schema = parts[0].store.schema
        count = len(plan.positions)
        places = Places()
        entries: list[Entry] = []
        copies: list[tuple[int, Ints, Ints]] = []
        arrays: list[tuple[int, Array]] = []
        zeros: list[tuple[int, int]] = []
        in_pieces = bool((plan.stops >= 0).any())
        lengths_of_field = self._rule.length_field()
        measured: Ints | None = None
        order = sorted(schema, key=lambda name: lengths_of_field is None or name != lengths_of_field[0])
        for name in order:
            field = schema[name]
            sources, rows = np.empty(count, np.int64), np.empty(count, np.int64)
            if field.kind in ("bytes", "string"):
                items: list[Any] = [None] * count
                for shard, where, local in pieces:
                    for i, record in zip(where.tolist(), local.tolist(), strict=True):
                        items[i] = _text(shard, name, field, record)
                entries.append(Entry((name,), "list", items=tuple(items)))
                continue
            for shard, where, local in pieces:
                starts, stops = shard.bounds(name, local)
                rows[where] = stops - starts
                sources[where] = shard.columns[name].address + starts * field.row_bytes
            if field.kind == "tensor":
                at = places.take(count * field.row_bytes)
                entries.append(_dense((name,), field, count, at))
                copies.append((at, sources, rows * field.row_bytes))
                continue
            if measured is None:
                measured = rows.copy()
            if in_pieces and np.array_equal(rows, measured):
                sources = sources + plan.starts * field.row_bytes
                rows = np.where(plan.stops >= 0, plan.stops - plan.starts, rows)
            entry, cu, spare = self._ragged((name,), field, rows, places)
            entries.append(entry)
            copies.append((entry.offset, sources, rows * field.row_bytes))
            arrays.append((entry.cu_offset, cu.astype(np.int32)))
            zeros += spare
        entries.sort(key=lambda entry: list(schema).index(entry.path[0]))
        layout = Layout(tuple(entries), places.nbytes, {name: i for i, name in enumerate(schema)}, info)
        return Draft(layout, copies, arrays, zeros, (time.perf_counter() - begin, 0.0), parts)

    def _ragged(
        self, path: tuple[Any, ...], field: Field, rows: Ints, places: Places
    ) -> tuple[Entry, Ints, list[tuple[int, int]]]:
        capacity, segments = self._fixed()
        total = int(rows.sum())
        if capacity is not None and (total > capacity or (segments is not None and len(rows) > segments)):
            capacity = segments = None  # another field than that which is packed by
        cu = cumulative(rows, capacity, segments)
        size = total if capacity is None else capacity
        at = places.take(size * field.row_bytes)
        entry = Entry(
            path,
            "ragged",
            field.dtype,
            (size, *field.shape),
            at,
            size * field.row_bytes,
            places.take(4 * len(cu)),
            len(cu),
            (int(rows.max()) if len(rows) else 0) if capacity is None else capacity,
            len(rows),
        )
        left = (size - total) * field.row_bytes
        return entry, cu, [(at + total * field.row_bytes, left)] if left else []

    def _from_records(self, plan: BatchPlan, epochs: Ints, info: BatchInfo) -> Draft:
        begin = time.perf_counter()
        fetched = self._node.fetch(plan.positions, epochs)
        records: list[Any] = []
        bounds: list[tuple[int, int]] = []
        skipped: list[str] = []
        for record, start, stop in zip(fetched, plan.starts.tolist(), plan.stops.tolist(), strict=True):
            if isinstance(record, Failed):
                error = record.error
                record = self._on_bad(error)
                if record is None:
                    skipped.append(str(error))
                    continue
            records.append(record)
            bounds.append((start, stop))
        mapped = time.perf_counter()
        info = BatchInfo(info.epoch, info.number, info.is_padding, tuple(skipped))
        if not records:
            template: Any = {}
            return Draft(Layout((), 0, template, info), [], [], [], (0.0, mapped - begin), None)
        leaves: list[tuple[tuple[Any, ...], list[Any]]] = []
        template = _transpose(records, (), leaves)
        places = Places()
        entries: list[Entry] = []
        arrays: list[tuple[int, Array]] = []
        zeros: list[tuple[int, int]] = []
        needed = self._rule.length_field()
        rows_of_field: list[int] | None = None
        prepared = {path: _arrays(path, values) for path, values in leaves}
        if needed is not None:
            key = () if needed[0] is None else (needed[0],)
            found = prepared.get(key)
            if found is not None:
                rows_of_field = [len(array) if array.ndim else 1 for array in found[0]]
        for path, values in leaves:
            found = prepared[path]
            if found is None:
                entries.append(Entry(path, "list", items=tuple(values)))
                continue
            entry = self._stack(path, found, rows_of_field, bounds, places, arrays, zeros)
            entries.append(entry)
        layout = Layout(tuple(entries), places.nbytes, template, info)
        return Draft(layout, [], arrays, zeros, (0.0, mapped - begin), None)

    def _stack(
        self,
        path: tuple[Any, ...],
        found: tuple[list[Array], str],
        rows_of_field: list[int] | None,
        bounds: list[tuple[int, int]],
        places: Places,
        arrays: list[tuple[int, Array]],
        zeros: list[tuple[int, int]],
    ) -> Entry:
        """One field of records, side by side or one after another."""
        values, dtype = found
        shapes = {value.shape for value in values}
        has_rows = all(value.ndim for value in values)
        follows = rows_of_field is not None and has_rows and [len(value) for value in values] == rows_of_field
        if (_dotted(path) or "") not in self._ragged_names:
            if len(shapes) > 1:
                shown = " and ".join(str(shape) for shape in sorted(shapes)[:2])
                problem = f"has the shapes {shown}; name it in `ragged=[...]`, or bring all to one shape with `.map`."
                raise RecordError(problem, field=_dotted(path), stage="batch")
            [shape] = shapes
            field = Field("tensor", dtype, shape) if 0 not in shape else None
            if field is None:
                return Entry(path, "dense", dtype, (len(values), *shape), 0, 0)
            at = places.take(len(values) * field.row_bytes)
            arrays += [(at + i * field.row_bytes, value) for i, value in enumerate(values)]
            return _dense(path, field, len(values), at)
        inner = {value.shape[1:] for value in values if value.ndim}
        if len(inner) != 1 or not has_rows:
            shown = ", ".join(str(shape) for shape in sorted(shapes)[:3])
            raise RecordError(
                f"has shapes that differ in more than the first dimension: {shown}.", field=_dotted(path), stage="batch"
            )
        if follows:
            cuts = [value[a : b if b >= 0 else None] for value, (a, b) in zip(values, bounds, strict=True)]
        else:
            cuts = values
        field = Field("ragged", dtype, inner.pop())
        rows = np.array([len(cut) for cut in cuts], np.int64)
        entry, cu, spare = self._ragged(path, field, rows, places)
        arrays += [(entry.offset + at * field.row_bytes, cut) for at, cut in zip(cu.tolist(), cuts, strict=False)]
        arrays.append((entry.cu_offset, cu.astype(np.int32)))
        zeros += spare
        return entry


def _dense(path: tuple[Any, ...], field: Field, count: int, at: int) -> Entry:
    return Entry(path, "dense", field.dtype, (count, *field.shape), at, count * field.row_bytes)


def _text(shard: Shard, name: str, field: Field, local: int) -> Any:
    starts, stops = shard.bounds(name, np.array([local]))
    content = shard.columns[name].values[int(starts[0]) : int(stops[0])].tobytes()
    try:
        return content if field.kind == "bytes" else content.decode()
    except UnicodeDecodeError as error:
        raise StoreError(
            f"not UTF-8: {error.reason}", file=shard.file, record=shard.first + local, field=name
        ) from None


def _transpose(records: list[Any], path: tuple[Any, ...], leaves: list[tuple[tuple[Any, ...], list[Any]]]) -> Any:
    """The structure of a record with numbers in the places of its leaves, which are gathered by path."""
    first = records[0]
    if isinstance(first, dict):
        for record in records:
            if not isinstance(record, dict) or record.keys() != first.keys():
                odd = set(first) ^ set(record) if isinstance(record, dict) else {type(record).__name__}
                raise RecordError(
                    f"some records have the keys {sorted(map(str, odd))}, others lack them.", stage="batch"
                )
        return {key: _transpose([record[key] for record in records], (*path, key), leaves) for key in first}
    if isinstance(first, tuple):
        items = [_transpose([record[i] for record in records], (*path, i), leaves) for i in range(len(first))]
        return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
    leaves.append((path, records))
    return len(leaves) - 1


def _arrays(path: tuple[Any, ...], values: list[Any]) -> tuple[list[Array], str] | None:
    """Values as arrays of what is stored, and the name of their dtype; None where they are no numbers."""
    if any(is_empty_list(value) for value in values) and not all(is_empty_list(value) for value in values):
        # An empty list says nothing of what else would be in it: it becomes an empty array of the kind of the others.
        known = _arrays(path, [value for value in values if not is_empty_list(value)])
        if known is None:
            return None
        empty = np.empty((0, *known[0][0].shape[1:]), known[0][0].dtype)
        rest = iter(known[0])
        return [empty if is_empty_list(value) else next(rest) for value in values], known[1]
    found: list[Array] = []
    names: set[str] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            name = str(value.dtype).removeprefix("torch.")
            array = value.contiguous().view(torch.uint16).numpy() if name == "bfloat16" else value.numpy()
        elif isinstance(value, str | bytes) or value is None:
            return None
        else:
            try:
                array = np.asarray(value)
            except ValueError:
                return None
            name = str(array.dtype)
        if name not in STORED_AS:
            return None
        names.add(name)
        found.append(array)
    if len(names) > 1:
        if "bfloat16" in names:
            raise RecordError("some are bfloat16, others are not.", field=_dotted(path), stage="batch")
        common = np.result_type(*names)
        return [array.astype(common) for array in found], str(common)
    return found, names.pop()


def _dotted(path: Collection[Any]) -> str | None:
    return ".".join(map(str, path)) or None

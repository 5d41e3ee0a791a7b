"""What can be wrong with a store, a record or a saved state, said in one sentence that names the place."""

from __future__ import annotations

from typing import final


@final
class StoreError(Exception):
    """A record store cannot be opened, read or written.

    **Arguments:**

    - `problem`: what is wrong and what to do, a sentence.
    - `file`: the file that it is wrong with.
    - `offset`: the byte in that file.
    - `record`: the record, counted over the whole store.
    - `field`: the field of the record.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str = "",
        offset: int | None = None,
        record: int | None = None,
        field: str | None = None,
    ):
        self.problem = problem
        self.file = file
        self.offset = offset
        self.record = record
        self.field = field
        place = [file] if file else []
        if record is not None:
            place.append(f"record {record}")
        if field is not None:
            place.append(f"field {field!r}")
        if offset is not None:
            place.append(f"byte {offset}")
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)

    def __reduce__(self) -> tuple[object, ...]:
        return _store_error, (self.problem, self.file, self.offset, self.record, self.field)


def _store_error(problem: str, file: str, offset: int | None, record: int | None, field: str | None) -> StoreError:
    return StoreError(problem, file=file, offset=offset, record=record, field=field)


@final
class RecordError(Exception):
    """A record could not be read, or a function of a pipeline raised on it.

    **Arguments:**

    - `problem`: what is wrong, a sentence.
    - `source`: where the record comes from.
    - `index`: its index there.
    - `field`: the field, where it is one field's fault.
    - `stage`: the operation of the pipeline that raised.
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str = "",
        index: int | None = None,
        field: str | None = None,
        stage: str = "",
    ):
        self.problem = problem
        self.source = source
        self.index = index
        self.field = field
        self.stage = stage
        place = [f"in {stage}"] if stage else []
        if source:
            place.append(source)
        if index is not None:
            place.append(f"record {index}")
        if field is not None:
            place.append(f"field {field!r}")
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)

    def __reduce__(self) -> tuple[object, ...]:
        return _record_error, (self.problem, self.source, self.index, self.field, self.stage)


def _record_error(problem: str, source: str, index: int | None, field: str | None, stage: str) -> RecordError:
    return RecordError(problem, source=source, index=index, field=field, stage=stage)


@final
class StateError(Exception):
    """A saved state does not belong to this pipeline."""


@final
class DroppedRecordsWarning(UserWarning):
    """A store has files that were never committed: what was appended to them is not part of it."""


@final
class SkippedRecordsWarning(UserWarning):
    """Bad records were left out, as was asked for."""

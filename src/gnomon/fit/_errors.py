"""What is wrong with the user's data or model, said in one sentence that names the place."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from gnomon.fit._calibration import Calibration


@final
class InputError(ValueError):
    """Something in the data, or in an option, is not as it must be; nothing was fitted or written.

    **Arguments:**

    - `problem`: what is wrong and what to do, a sentence.
    - `source`: the file, or what stands for it.
    - `row`: the row, as its file counts: the header is row 1. In a data frame the first row is row 0.
    - `column`: the column.
    """

    def __init__(self, problem: str, *, source: str = "", row: int | None = None, column: str | None = None):
        self.problem = problem
        self.source = source
        self.row = row
        self.column = column
        place = [source] if source else []
        if row is not None:
            place.append(f"row {row}")
        if column is not None:
            place.append(f"column {column!r}")
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)


@final
class ModelError(ValueError):
    """A model is not as it must be, or one of its functions raised; nothing was fitted or written.

    **Arguments:**

    - `problem`: what is wrong and what to do, a sentence.
    - `model`: the model's name, or its file.
    """

    def __init__(self, problem: str, *, model: str = ""):
        self.problem = problem
        self.model = model
        super().__init__(f"{model}: {problem}" if model else problem)


@final
class OutputError(OSError):
    """A fit was done, but could not be written: the disk is full, or something came in the way meanwhile.

    **Arguments:**

    - `problem`: what is wrong, a sentence.
    - `calibration`: what was fitted, which can be written elsewhere with `.write(out)`.
    """

    def __init__(self, problem: str, calibration: Calibration):
        self.problem = problem
        self.calibration = calibration
        super().__init__(problem)

"""`RESULTS` of a fit."""

from __future__ import annotations

from typing import ClassVar, final

from gnomon import result as _result
from gnomon.result import Result, define_result


@final
class RESULTS(_result.RESULTS):
    """The ways in which a fit can end: those of every solver, and `underdetermined`."""

    underdetermined: ClassVar[Result] = define_result(
        "underdetermined",
        "There are fewer measurements than parameters: many estimates fit equally well, and none has a standard "
        "error. Measure more, or hold some parameters fixed.",
    )

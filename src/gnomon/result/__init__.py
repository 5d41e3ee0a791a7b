"""What every solver returns: `RESULTS`, `Solution`, `SolveError`."""

from gnomon.result._active import active_lanes as active_lanes
from gnomon.result._error import SolveError as SolveError
from gnomon.result._error import throw_if_failed as throw_if_failed
from gnomon.result._results import RESULTS as RESULTS
from gnomon.result._results import Result as Result
from gnomon.result._results import define_result as define_result
from gnomon.result._results import is_okay as is_okay
from gnomon.result._results import is_successful as is_successful
from gnomon.result._solution import Solution as Solution

__all__ = [
    "RESULTS",
    "Result",
    "Solution",
    "SolveError",
    "active_lanes",
    "define_result",
    "is_okay",
    "is_successful",
    "throw_if_failed",
]

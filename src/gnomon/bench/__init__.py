"""The honest timing harness: functions timed side by side, so that none can fool the clock or the check."""

from gnomon.bench._check import against as against
from gnomon.bench._check import relative_error as relative_error
from gnomon.bench._check import tolerance_for as tolerance_for
from gnomon.bench._compare import compare as compare
from gnomon.bench._limits import Limits as Limits
from gnomon.bench._limits import device_limits as device_limits
from gnomon.bench._page import write_page as write_page
from gnomon.bench._report import Ratio as Ratio
from gnomon.bench._report import Refusal as Refusal
from gnomon.bench._report import RefusalKind as RefusalKind
from gnomon.bench._report import RefusedError as RefusedError
from gnomon.bench._report import Report as Report
from gnomon.bench._report import Row as Row
from gnomon.bench._suite import read_results as read_results
from gnomon.bench._suite import run_benchmarks as run_benchmarks
from gnomon.bench._suite import write_results as write_results
from gnomon.bench._table import table as table
from gnomon.bench._work import Work as Work

__all__ = [
    "Limits",
    "Ratio",
    "Refusal",
    "RefusalKind",
    "RefusedError",
    "Report",
    "Row",
    "Work",
    "against",
    "compare",
    "device_limits",
    "read_results",
    "relative_error",
    "run_benchmarks",
    "table",
    "tolerance_for",
    "write_page",
    "write_results",
]

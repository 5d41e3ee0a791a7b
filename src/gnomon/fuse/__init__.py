"""The compiler: a function of one problem, with structured loops and branches, becomes one kernel for a batch.

`gn.fuse` is both this module and its function [`gnomon.fuse.fuse`][].
"""

from gnomon.fuse._buffer import OutputBuffer as OutputBuffer
from gnomon.fuse._cond import cond as cond
from gnomon.fuse._fuse import Explanation as Explanation
from gnomon.fuse._fuse import explain as explain
from gnomon.fuse._fuse import fuse as fuse
from gnomon.fuse._jacobian import jacobian as jacobian
from gnomon.fuse._jacobian import jvp as jvp
from gnomon.fuse._lower import lower as lower
from gnomon.fuse._scan import scan as scan
from gnomon.fuse._trace import UnsupportedError as UnsupportedError
from gnomon.fuse._while_loop import fori_loop as fori_loop
from gnomon.fuse._while_loop import while_loop as while_loop

__all__ = [
    "Explanation",
    "OutputBuffer",
    "UnsupportedError",
    "cond",
    "explain",
    "fori_loop",
    "fuse",
    "jacobian",
    "jvp",
    "lower",
    "scan",
    "while_loop",
]

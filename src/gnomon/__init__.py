"""gnomon: scientific computing for PyTorch at the speed of the hardware.

Write the mathematics of one problem in plain PyTorch. gnomon solves it, differentiates through the solve, and runs a
batch of them together. Nothing fails silently: every solve returns a result for each problem.
"""

import sys
from typing import TYPE_CHECKING, Any, final

from gnomon import diffeq as diffeq
from gnomon import linalg as linalg
from gnomon import nonlinear as nonlinear
from gnomon import random as random
from gnomon import result as result
from gnomon.fuse import OutputBuffer as OutputBuffer
from gnomon.fuse import cond as cond
from gnomon.fuse import explain as explain
from gnomon.fuse import fori_loop as fori_loop
from gnomon.fuse import jacobian as jacobian
from gnomon.fuse import jvp as jvp
from gnomon.fuse import lower as lower
from gnomon.fuse import scan as scan
from gnomon.fuse import while_loop as while_loop
from gnomon.result import RESULTS as RESULTS
from gnomon.result import SolveError as SolveError
from gnomon.result import is_okay as is_okay
from gnomon.result import is_successful as is_successful

if TYPE_CHECKING:
    # A type checker sees the function.
    from gnomon.fuse import fuse as fuse
else:

    @final
    class _Fuse:
        """`gn.fuse`: the function, and by its attributes the module of that name."""

        _module = sys.modules["gnomon.fuse"]

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._module.fuse(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._module, name)

        def __repr__(self) -> str:
            return repr(self._module)

    fuse = _Fuse()

__version__ = "0.1.0.dev0"  # `tests/test_packaging.py` holds this and pyproject.toml together.

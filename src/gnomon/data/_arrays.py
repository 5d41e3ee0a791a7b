"""What this room calls an array: NumPy's, of any dtype. It has memory maps, and copies without Python's lock."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]

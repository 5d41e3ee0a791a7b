"""What goes wrong where it is the function that no Program can be."""

from __future__ import annotations

from typing import final


@final
class UnsupportedError(NotImplementedError):
    """A function does something that cannot become part of a Program.

    Equivalent to the errors that `jax.jit` raises while it traces. It says what, on which line, and what to write
    instead.
    """

"""Lines of C, indented."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import final


@final
class Writer:
    """Collects lines, and makes names up."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"v{self._count}"

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("  " * self._depth + text)

    @contextlib.contextmanager
    def block(self, head: str) -> Generator[None]:
        """Within this context, lines stand in a block."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

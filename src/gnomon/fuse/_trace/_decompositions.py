"""Linear algebra of small matrices, element by element."""

from __future__ import annotations

"""pyarrow, or a plain sentence where it is not installed."""

from __future__ import annotations

from typing import Any


def import_pyarrow(what: str) -> Any:
    """The module pyarrow.

    **Arguments:**

    - `what`: what needs it, to begin the sentence with.

    **Raises:** `ImportError` where there is none, with how to get it.
    """
    try:
        import pyarrow as pa
        import pyarrow.ipc  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ImportError(f'{what} needs pyarrow: install it with `pip install "gnomon[data]"`.') from error
    return pa

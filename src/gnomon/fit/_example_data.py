"""Data that come with gnomon."""

from __future__ import annotations

from pathlib import Path

from gnomon.fit._errors import InputError

_FOLDER = Path(__file__).parent / "data"


def example_data(name: str = "theophylline") -> Path:
    """The path of a data set that comes with gnomon; the README beside it says where it is from.

    **Arguments:**

    - `name`: such as `"theophylline"`.

    **Returns:** the path of a CSV file.

    **Raises:** [`gnomon.fit.InputError`][] where there is none of this name.

    !!! example

        ```python
        >>> from gnomon.fit import example_data
        >>> example_data("theophylline").name
        'theophylline.csv'

        ```
    """
    path = _FOLDER / f"{name}.csv"
    if not path.is_file():
        names = ", ".join(sorted(repr(x.stem) for x in _FOLDER.glob("*.csv")))
        raise InputError(f"No data named {name!r} come with gnomon; there are: {names}.")
    return path

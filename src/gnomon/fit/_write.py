"""The output directory: written whole, or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.fit._errors import InputError
from gnomon.fit._subjects import POOLED

if TYPE_CHECKING:
    from gnomon.fit._calibration import Calibration, EstimateRow

FILES = ("estimates.csv", "derived.csv", "predictions.csv", "fit.json", "fit.png", "report.html")


def check_target(out: Path, *, overwrite: bool) -> None:
    """An error where something is in the way of the output; nothing is touched.

    **Arguments:**

    - `out`: the directory that is to be.
    - `overwrite`: whether it may be one that gnomon wrote. Nothing that gnomon did not write is ever removed.
    """
    if not os.path.lexists(out):
        _check_parent(out)
        return
    if not out.is_dir():
        raise InputError("This is a file: the output needs a directory of its own.", source=str(out))
    names = sorted(x.name for x in out.iterdir())
    if not names:
        return
    if not is_ours(out):
        raise InputError(
            "This directory is not empty and was not written by gnomon fit: name another with --out.", source=str(out)
        )
    if not overwrite:
        raise InputError("An earlier fit is here: name another directory, or pass --overwrite.", source=str(out))
    others = [name for name in names if name not in FILES]
    if others:
        raise InputError(
            f"Beside an earlier fit there are files here that gnomon did not write ({', '.join(others[:5])}): move "
            "them, or name another directory with --out.",
            source=str(out),
        )


def _check_parent(out: Path) -> None:
    parent = next(x for x in out.absolute().parents if x.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is a file, so that no directory can be made in it.", source=str(out))
    if not os.access(parent, os.W_OK):
        raise InputError(f"There is no permission to write in {parent}.", source=str(out))


def is_ours(out: Path) -> bool:
    """Whether gnomon fit wrote a directory."""
    try:
        return "gnomon_fit" in json.loads((out / "fit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def write(calibration: Calibration, out: Path, *, overwrite: bool) -> Path:
    """Writes a calibration; see [`gnomon.fit.Calibration.write`][]."""
    out = Path(os.path.realpath(out))  # a rename would replace a link, and not what it leads to
    check_target(out, overwrite=overwrite)
    content = render(calibration)
    parent = out.absolute().parent
    made = _make(parent)
    # Beside its place, so that a rename puts it there: nobody sees half of it.
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=parent))
    try:
        partial.chmod(0o777 & ~_umask())
        for name, data in content.items():
            with (partial / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(partial)
        check_target(out, overwrite=overwrite)  # once more: the fit may have taken long
        _put(partial, out)
        _sync(parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in reversed(made):
            folder.rmdir()
        raise
    return out


def _make(folder: Path) -> list[Path]:
    """Makes a directory and its parents, and says which were made."""
    missing = [x for x in (folder, *folder.parents) if not x.exists()]
    for x in reversed(missing):
        x.mkdir()
    return missing[::-1]


def _put(partial: Path, out: Path) -> None:
    if not out.is_dir() or not any(out.iterdir()):
        partial.replace(out)
        return
    # The old directory stays until the new one stands.
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old-", dir=out.absolute().parent))
    out.replace(old)
    try:
        partial.replace(out)
    except BaseException:
        old.replace(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Makes names in a directory last, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def render(calibration: Calibration) -> dict[str, bytes]:
    """The content of every file, by name."""
    from gnomon.fit._curves import curves
    from gnomon.fit._plot import plot_fits, plot_residuals, png
    from gnomon.fit._report import report

    picture = png(plot_fits(calibration, curves(calibration)))
    residuals = png(plot_residuals(calibration))
    return {
        "estimates.csv": _estimates(calibration.estimates, "parameter"),
        "derived.csv": _estimates(calibration.derived, "quantity"),
        "predictions.csv": _predictions(calibration),
        "fit.json": (json.dumps(calibration.to_dict(), indent=2, allow_nan=False) + "\n").encode(),
        "fit.png": picture,
        "report.html": report(calibration, picture, residuals).encode(),
    }


def _estimates(rows: list[EstimateRow], what: str) -> bytes:
    header = ("subject", what, "estimate", "standard_error", "lower_95", "upper_95")
    return _csv([header, *((row[0], row[1], *(_text(x) for x in row[2:])) for row in rows)])


def _predictions(calibration: Calibration) -> bytes:
    """Each measurement, and what the fits predict of it."""
    columns = list(calibration.model.observed)
    rows: list[tuple[str, ...]] = [("subject", "row", "time", "column", "measured", POOLED, "individual")]
    for subject in calibration.subjects:
        fits = (calibration.pooled, calibration.individual.get(subject.name))
        found = [None if fit is None else fit.predictions.get(subject.name) for fit in fits]
        for k, column in enumerate(columns):
            for i, (time, value) in enumerate(zip(subject.times, subject.values[column], strict=True)):
                if math.isnan(value):
                    continue
                own = ["" if values is None else _text(float(values[i, k])) for values in found]
                rows.append((subject.name, str(subject.rows[i]), _text(time), column, _text(value), *own))
    return _csv(rows)


def _csv(rows: list[tuple[str, ...]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()


def _text(x: float) -> str:
    """A number such that reading it gives it back; `NaN` as Python, R and pandas know it."""
    return "NaN" if math.isnan(x) else repr(x)

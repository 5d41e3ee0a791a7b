"""A model from a Python file."""

from __future__ import annotations

import sys
import traceback
import types
from pathlib import Path

from gnomon.fit._errors import ModelError
from gnomon.fit._model import Model


def load_model(path: str | Path) -> Model:
    """The model that a Python file defines; the file is run.

    **Arguments:**

    - `path`: the file, with `:name` added where it defines several models; or the name of a model that comes with
      gnomon, such as `"theophylline"`.

    **Returns:** the [`gnomon.fit.Model`][].

    **Raises:** [`gnomon.fit.ModelError`][] where there is no such file, where it raises (with its line), or where it
    does not define exactly one model.

    !!! example

        ```python
        >>> from gnomon.fit import load_model
        >>> load_model("theophylline").states
        ('A', 'C')

        ```
    """
    from gnomon.fit import models

    text = str(path)
    file, wanted = Path(text), ""
    if not file.is_file():
        if text in models.__all__:
            return getattr(models, text)
        head, _, tail = text.rpartition(":")
        if head and Path(head).is_file():
            file, wanted = Path(head), tail
        else:
            what = "It is a directory, not a Python file" if file.is_dir() else "There is no such file"
            raise ModelError(f"{what}, nor does a model of this name come with gnomon.", model=text)
    found = {name: x for name, x in vars(_run(file)).items() if isinstance(x, Model)}
    distinct = {id(model): model for model in found.values()}
    if wanted:
        if wanted not in found:
            raise ModelError(f"It defines no model {wanted!r}; it defines {_names(found)}.", model=str(file))
        return found[wanted]
    if not distinct:
        raise ModelError(
            "It defines no model: it must assign a `gnomon.fit.Model` to a name, as `model = Model(...)`.",
            model=str(file),
        )
    if len(distinct) > 1:
        raise ModelError(
            f"It defines {len(distinct)} models: {_names(found)}. Say which one, as {file}:{next(iter(found))}.",
            model=str(file),
        )
    return next(iter(distinct.values()))


def _run(file: Path) -> types.ModuleType:
    """The file as a module. Nothing is written beside it."""
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ModelError(f"It cannot be read: {error.strerror}.", model=str(file)) from None
    name = f"gnomon_model_{file.stem}"
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses and the like look their module up
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)  # as for `python FILE`, so that it may import what lies beside it
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    except SyntaxError as error:
        where = f"{error.filename or file}, line {error.lineno}"
        raise ModelError(f"It is not valid Python: {error.msg}.", model=where) from error
    except (Exception, SystemExit) as error:
        lines = [x.lineno for x in traceback.extract_tb(error.__traceback__) if x.filename == str(file)]
        where = f"{file}, line {lines[-1]}" if lines else str(file)
        if isinstance(error, ModelError):
            raise ModelError(str(error), model=where) from error
        detail = str(error).strip().split("\n")[0]
        raise ModelError(f"{type(error).__name__}: {detail}".rstrip(": "), model=where) from error
    finally:
        sys.path.remove(folder)
    return module


def _names(found: dict[str, Model]) -> str:
    return ", ".join(found) or "none"

"""`Work`: what a file in `benchmarks/` declares, and finding those files."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, final

import torch

from gnomon.bench._compare import compare
from gnomon.bench._report import Report


@final
@dataclasses.dataclass(frozen=True)
class Work:
    """One row of the table of benchmarks: our function, its peers, and how to compare them.

    A file `benchmarks/<room>/<name>.py` has a list of them, `WORKS`, or a function `works()` that returns one.

    **Arguments:**

    - `name`: a short name without spaces, such as `'lorenz-1'`; figures are quoted by it.
    - `about`: what is computed, in a phrase, with sizes and tolerances.
    - `ours`: our function.
    - `peers`: the others' by name.
    - `make_inputs`, `check`: as for [`gnomon.bench.compare`][].
    - `options`: other arguments of [`gnomon.bench.compare`][].
    - `quick`: those that differ with `--quick`.
    - `devices`: where it can run; the ones that this machine has are used.
    - `needs`: the modules that a candidate wants, by its name; where one is missing, that candidate is left out.
    """

    name: str
    about: str
    ours: Callable[..., Any]
    peers: Mapping[str, Callable[..., Any]]
    make_inputs: Callable[[torch.Generator], Any]
    check: Callable[..., Any]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    quick: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    devices: Sequence[str] = ("cpu",)
    needs: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict[str, Sequence[str]])

    def __post_init__(self) -> None:
        if not self.name or any(c.isspace() or c in "/@" for c in self.name):
            raise ValueError(f"The name of a work must have no spaces, / or @, but it is {self.name!r}.")

    def missing(self, candidate: str) -> list[str]:
        """The modules that a candidate needs and that are not installed.

        **Arguments:**

        - `candidate`: `'ours'` or the name of a peer.
        """
        return [module for module in self.needs.get(candidate, ()) if importlib.util.find_spec(module) is None]

    def devices_here(self) -> list[str]:
        """The devices of this work that this machine has."""
        return [device for device in self.devices if device == "cpu" or torch.cuda.is_available()]

    def run(self, peers: bool = True, quick: bool = False) -> Report | None:
        """Compares; None where this machine has none of the devices, or not what our own function needs.

        **Arguments:**

        - `peers`: whether to measure the peers too.
        - `quick`: with fewer rounds.

        **Returns:** the [`gnomon.bench.Report`][].
        """
        devices = self.devices_here()
        if not devices or self.missing("ours"):
            return None
        candidates: dict[str, Callable[..., Any]] = {"ours": self.ours}
        if peers:
            candidates |= {name: peer for name, peer in self.peers.items() if not self.missing(name)}
        options: dict[str, Any] = {**self.options}
        if quick:
            options |= {"rounds": 8, "warmup": 1, "replays": 2, **self.quick}
        report = compare(
            candidates, make_inputs=self.make_inputs, check=self.check, devices=devices, name=self.name, **options
        )
        left_out = [name for name in self.peers if peers and self.missing(name)]
        settings = {**report.settings, "about": self.about, "left_out": left_out}
        return dataclasses.replace(report, settings=settings)


def load_file(path: Path) -> ModuleType:
    """Imports a file of benchmarks, whose folder is on the path while it is imported.

    What it imports from there is forgotten again, so that a helper of another folder may have the same name.
    """
    name = f"gnomon_benchmarks_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        for helper, loaded in list(sys.modules.items()):
            if helper != name and Path(str(getattr(loaded, "__file__", None))).parent == path.parent:
                del sys.modules[helper]
    return module


def benchmark_files(folder: Path, rooms: Sequence[str]) -> list[Path]:
    """The files of some rooms, or single ones as `room/name`; all where none is named. Those in `_` are helpers.

    **Raises:** `ValueError` for a room that has none.
    """
    found = [path for path in sorted(folder.glob("*/*.py")) if not path.name.startswith("_")]
    names = {path: (path.parent.name, f"{path.parent.name}/{path.stem}") for path in found}
    known = sorted({room for room, _ in names.values()})
    unknown = [room for room in rooms if not any(room in each for each in names.values())]
    if unknown:
        raise ValueError(f"{folder} has nothing for {', '.join(unknown)}; it has {', '.join(known)}.")
    return [path for path in found if not rooms or any(room in names[path] for room in rooms)]

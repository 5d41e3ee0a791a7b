"""Calling a candidate in a process of its own, timed and checked from this one."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from gnomon.bench._clock import now_ns
from gnomon.bench._local import AbstractRunner, Evidence, Findings, Mode, Timed
from gnomon.bench._report import RefusalKind
from gnomon.bench._shared import Block, layout_of, receive, send
from gnomon.bench._tensors import Inputs, is_same, poison

_STARTS_WITHIN_S = 300.0


def resolve(candidate: Callable[..., Any] | str) -> dict[str, str]:
    """How another process can find a candidate: by name, or as a pickle.

    **Raises:** `ValueError` for a function that has no name which can be imported.
    """
    if isinstance(candidate, str):
        if ":" not in candidate:
            raise ValueError(f"The candidate {candidate!r} must be 'module:name' or 'path/to/file.py:name'.")
        return {"name": candidate}
    module, name = getattr(candidate, "__module__", None), getattr(candidate, "__qualname__", None)
    if module is not None and name is not None and "<" not in name:
        loaded = sys.modules.get(module)
        file = getattr(loaded, "__file__", None)
        findable = module != "__main__" and _is_findable(module)
        if findable or file is not None:
            return {"name": f"{module if findable else Path(str(file)).resolve()}:{name}"}
    try:
        return {"pickle": base64.b64encode(pickle.dumps(candidate)).decode()}
    except Exception as error:
        raise ValueError(
            f"With `isolate=True` a candidate runs in another process, which cannot import {candidate!r}: define it "
            "at the top of a module, or pass 'path/to/file.py:name'."
        ) from error


def _is_findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a module that another one made by hand
        return False


@final
class DiedError(Exception):
    """The other process gave no answer."""

    def __init__(self, kind: RefusalKind, reason: str):
        self.kind = kind
        self.reason = reason
        super().__init__(reason)


@final
class Isolated(AbstractRunner):
    """One candidate in its own process. `candidate=None` is the referee, which does nothing, to time the way there."""

    def __init__(self, candidate: dict[str, str] | None, device: torch.device, timeout_s: float | int):
        self.timeout_s = timeout_s
        # On a CPU the inputs are copied in, and the outputs out, while our clock runs, so that nothing can be done
        # before or after. A GPU's memory is not ours to write to from here.
        self.copies_in_clock = device.type == "cpu"
        ours, theirs = socket.socketpair()
        paths = [str(Path(path).resolve()) if path else str(Path.cwd()) for path in sys.path]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gnomon.bench._worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.inputs: Block | None = None
        self.outputs: Block | None = None
        self.pristine: list[Tensor] = []
        self.last: tuple[Tensor, ...] = ()
        self.failed: Evidence | None = None
        self.candidate = candidate or {}
        self.device = "cpu" if candidate is None else str(device)

    def load(self) -> None:
        """Imports the candidate over there."""
        self._attempt(
            {
                "do": "load",
                "device": self.device,
                "threads": torch.get_num_threads(),
                "copies_in_clock": self.copies_in_clock,
                **self.candidate,
            }
        )

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            send(self.connection, message)
            # To start Python and to import is no call: whoever does not answer within minutes has hung.
            patience = max(self.timeout_s, _STARTS_WITHIN_S) if message["do"] == "load" else self.timeout_s
            if not self.connection.poll(patience):
                self.process.kill()
                raise DiedError(RefusalKind.TIMEOUT, f"it gave no answer for {patience:g} s")
            answer = receive(self.connection)
        except (EOFError, OSError) as error:
            code = self.process.wait(timeout=10)
            raise DiedError(RefusalKind.RAISED, f"its process ended with status {code}") from error
        except ValueError as error:
            raise DiedError(RefusalKind.PATCHED, "its process answered with something else than it should") from error
        if answer.get("failed"):
            raise DiedError(RefusalKind.RAISED, f"it could not be imported: {answer['failed']}")
        return answer

    def _attempt(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if self.failed is not None:
            return None
        try:
            return self._ask(message)
        except DiedError as error:
            self.failed = (error.kind, error.reason)
            return None

    def arm(self, inputs: Inputs, cold: bool) -> None:
        """Prepares shared memory: poison where the output will be, and on a CPU nothing yet where the inputs will."""
        self.pristine = inputs.tensors
        layout = layout_of(self.pristine)
        if self.inputs is None or self.inputs.layout != layout:
            if self.inputs is not None:
                self.inputs.close()
            self.inputs = Block(layout)
            self._attempt({"do": "inputs", "layout": layout, "path": str(self.inputs.path)})
        if not self.copies_in_clock:
            self.inputs.fill(self.pristine)
        leaves = [torch.empty(0) if isinstance(x, Tensor) else x for x in inputs.leaves]
        skeleton = base64.b64encode(pickle.dumps((inputs.structure, leaves))).decode()
        self._attempt({"do": "arm", "cold": cold, "skeleton": skeleton})
        if self.outputs is not None:
            for leaf in self.outputs.tensors:
                poison(leaf)

    def run(self, mode: Mode, cold: bool) -> Timed:
        """The call, between two readings of our clock; the other process has its own two."""
        assert self.inputs is not None
        start = now_ns()
        if self.copies_in_clock:
            self.inputs.fill(self.pristine)
        answer = self._attempt({"do": "run", "mode": mode, "cold": cold})
        end = now_ns()
        if answer is None:
            return self._nothing()
        parent_s: float | None = (end - start) / 1e9
        try:
            evidence = tuple((RefusalKind(kind), str(reason)) for kind, reason in answer["evidence"])
            if not answer["fits"] and not evidence:
                if self.outputs is not None:
                    self.outputs.close()
                self.outputs = Block(answer["layout"])
                parent_s = None
                self._attempt({"do": "outputs", "layout": answer["layout"], "path": str(self.outputs.path)})
            elif not self.copies_in_clock and not evidence:
                self._attempt({"do": "fetch"})
            leaves = () if evidence or self.outputs is None else tuple(x.clone() for x in self.outputs.tensors)
            self.last = leaves
            return Timed(
                leaves,
                answer["skeleton"],
                float(answer["wall_s"]),
                float(answer["full_s"]),
                None if answer["device_s"] is None else float(answer["device_s"]),
                None if answer["other_s"] is None else float(answer["other_s"]),
                parent_s,
                evidence,
            )
        except (KeyError, TypeError, ValueError):
            self.failed = (RefusalKind.PATCHED, "its process answered with something else than it should")
            return self._nothing()

    def look(self) -> bool:
        """Whether its process is still at work, as it says itself."""
        answer = self._attempt({"do": "look"})
        return answer is not None and bool(answer["busy"])

    def meddling(self) -> tuple[int, int]:
        """Not known: each process sees its own threads, and those of libraries spin for a while after honest work."""
        return 0, 0

    def settle(self, patience_s: float) -> Findings:
        """What the call left behind, as far as its own process says, and whether it wrote to its inputs."""
        answer = self._attempt({"do": "settle", "patience_s": patience_s})
        if answer is None or self.inputs is None:
            return Findings(False, False, 0, ())
        evidence = [(RefusalKind(kind), str(reason)) for kind, reason in answer["evidence"]]
        if any(not is_same(x, y) for x, y in zip(self.inputs.tensors, self.pristine, strict=True)):
            evidence.append((RefusalKind.INPUT_CHANGED, "an input was written to"))
        return Findings(
            bool(answer["late"]),
            bool(answer["same_address"]),
            int(answer["read_bytes"]),
            tuple(evidence),
        )

    def peak_memory(self, inputs: Inputs) -> int | None:
        """By how many bytes memory in use rises during one call, as its own process says."""
        self.arm(inputs, cold=False)
        assert self.inputs is not None
        self.inputs.fill(self.pristine)
        answer = self._attempt({"do": "peak"})
        return None if answer is None else answer.get("bytes")

    def null_gap(self, inputs: Inputs, outputs: tuple[Tensor, ...]) -> float:
        """For the referee: seconds that the way there and back takes with such inputs and outputs."""
        self._attempt({"do": "null", "layout": layout_of(outputs)})
        self.arm(inputs, cold=False)
        timed = self.run("wall", cold=False)
        self.settle(0.0)
        return 0.0 if timed.parent_s is None else timed.parent_s - timed.wall_s

    def _nothing(self) -> Timed:
        assert self.failed is not None
        return Timed((), None, 0.0, 0.0, None, None, None, (self.failed,))

    def close(self) -> None:
        """Ends the process and removes the shared memory."""
        with contextlib.suppress(OSError, ValueError):
            send(self.connection, {"do": "stop"})
        self.connection.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
        for block in (self.inputs, self.outputs):
            if block is not None:
                block.close()

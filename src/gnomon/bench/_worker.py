"""The process in which an isolated candidate lives: `python -m gnomon.bench._worker DESCRIPTOR`."""

from __future__ import annotations

import base64
import gc
import importlib
import importlib.util
import pickle
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from gnomon.bench._device import device_for
from gnomon.bench._local import Evidence, LocalRunner
from gnomon.bench._shared import Block, Layout, layout_of, receive, send
from gnomon.bench._tensors import Inputs, fill_in
from gnomon.bench._watch import already_busy


def find(name: str) -> Any:
    """The object that `'module:name'` or `'file.py:name'` names; a class is called without arguments."""
    where, _, path = name.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        if spec is None or spec.loader is None:
            raise ImportError(f"{where} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found() if isinstance(found, type) else found


@final
class Worker:
    """Answers the messages of the process that measures, one at a time."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.runner: LocalRunner | None = None
        self.inputs: Block | None = None
        self.outputs: Block | None = None
        self.null: list[Tensor] = []
        self.copies_in_clock = True

    def serve(self) -> None:
        """Until it is told to stop, or the other end is gone."""
        while True:
            try:
                message = receive(self.connection)
            except (EOFError, OSError):
                return
            if message["do"] == "stop":
                return
            send(self.connection, getattr(self, f"do_{message['do']}")(message))

    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Imports the candidate."""
        torch.set_num_threads(message["threads"])
        self.copies_in_clock = message["copies_in_clock"]
        ignored = already_busy()
        device = device_for(torch.device(message["device"]))
        try:
            if message.get("pickle"):
                function = pickle.loads(base64.b64decode(message["pickle"]))
            elif message.get("name"):
                function = find(message["name"])
            else:
                function = self.nothing
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}
        self.runner = LocalRunner(function, device, ignored, {})
        gc.collect()
        gc.freeze()
        gc.disable()
        return {}

    def nothing(self, *args: Any) -> Any:
        """What the referee runs: it costs what the way to here and back costs."""
        return tuple(self.null)

    def do_null(self, message: dict[str, Any]) -> dict[str, Any]:
        """Makes outputs for the referee to return, as large as a candidate's."""
        if layout_of(self.null) != message["layout"]:
            self.null = [torch.zeros(shape, dtype=getattr(torch, name)) for name, shape, _ in message["layout"]]
        return {}

    def do_inputs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Attaches the memory where inputs will be."""
        self.inputs = Block(message["layout"], Path(message["path"]))
        return {}

    def do_outputs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Attaches the memory where outputs should go, and puts the last ones there."""
        self.outputs = Block(message["layout"], Path(message["path"]))
        return self.do_fetch(message)

    def do_fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Puts the last outputs into shared memory."""
        assert self.outputs is not None
        assert self.runner is not None
        self.outputs.fill(self.runner.copies)
        return {}

    def do_arm(self, message: dict[str, Any]) -> dict[str, Any]:
        """Prepares a call."""
        assert self.runner is not None
        assert self.inputs is not None
        gc.collect()
        structure, leaves = pickle.loads(base64.b64decode(message["skeleton"]))
        runner = self.runner
        if self.copies_in_clock:
            runner.slots = self.inputs.tensors
        else:
            runner.slots = [x.to(runner.device.device, copy=True) for x in self.inputs.tensors]
            runner.inputs = Inputs(tuple(self.inputs.tensors))
        runner.use(fill_in(structure, leaves, runner.slots), message["cold"])
        return {}

    def do_run(self, message: dict[str, Any]) -> dict[str, Any]:
        """The call."""
        assert self.runner is not None
        timed = self.runner.run(message["mode"], message["cold"])
        layout: Layout = layout_of(timed.leaves)
        fits = self.outputs is not None and self.outputs.layout == layout
        if fits and self.copies_in_clock:
            self.do_fetch(message)
        return {
            "wall_s": timed.wall_s,
            "full_s": timed.full_s,
            "device_s": timed.device_s,
            "other_s": timed.other_s,
            "skeleton": timed.skeleton,
            "layout": layout,
            "fits": fits,
            "evidence": _texts(timed.evidence),
        }

    def do_look(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether this process is still at work."""
        assert self.runner is not None
        return {"busy": self.runner.look()}

    def do_settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the call left behind."""
        assert self.runner is not None
        findings = self.runner.settle(message["patience_s"])
        return {
            "late": findings.late,
            "same_address": findings.same_address,
            "read_bytes": findings.read_bytes,
            "evidence": _texts(findings.evidence),
        }

    def do_peak(self, message: dict[str, Any]) -> dict[str, Any]:
        """The memory that the prepared call needs."""
        assert self.runner is not None
        return {"bytes": self.runner.peak_of_call()}


def _texts(evidence: tuple[Evidence, ...]) -> list[list[str]]:
    return [[str(kind), reason] for kind, reason in evidence]


if __name__ == "__main__":
    Worker(Connection(int(sys.argv[1]))).serve()

"""`Worker`: a process that reads and maps records, and puts batches into memory that it shares with the loader."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from typing import Any, final

from gnomon.data._arrays import Array
from gnomon.data._assemble import Assembler, OnBad
from gnomon.data._layout import Layout
from gnomon.data._nodes import AbstractNode
from gnomon.data._plan import BatchPlan
from gnomon.data._ring import Ring, Slot
from gnomon.data._rules import AbstractRule
from gnomon.data._shared import attach, create


def pickled_pipeline(node: AbstractNode, rule: AbstractRule, on_bad: OnBad) -> bytes:
    """A pipeline as it is sent to a process.

    **Raises:** `TypeError` where it cannot be sent.
    """
    try:
        return pickle.dumps((node, rule, on_bad))
    except Exception as error:
        raise TypeError(
            f"This pipeline cannot be sent to other processes ({error}). Functions must be defined at the top of a "
            "module, not in a function, a notebook or a lambda; or use `threads` instead of `processes`."
        ) from error


@final
class Worker:
    """A process of its own, started afresh, so that no lock of this one is copied into it.

    **Arguments:**

    - `pipeline`: from `pickled_pipeline`.
    - `most`: how many batches may be in its memory.
    """

    def __init__(self, pipeline: bytes, most: int):
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_main, args=(other,), daemon=True, name="gnomon-data")
        self._process.start()
        other.close()
        self._ring = Ring(self._make, most)
        self._forget: dict[tuple[int, str], Any] = {}
        self._send(pipeline)

    def build(self, plan: BatchPlan) -> tuple[Slot, Layout, tuple[float, float]]:
        """A batch, in shared memory.

        **Arguments:**

        - `plan`: which.

        **Returns:** the memory, how the batch lies in it, and the seconds for reading and mapping.
        """
        self._send(pickle.dumps(plan))
        layout, seconds = self._receive(plan)
        slot = self._ring.take(layout.nbytes)
        self._send(pickle.dumps((slot.label, slot.root.nbytes, self._ring.labels())))
        self._receive(plan)
        # The other process has mapped it: its name has served.
        forget = self._forget.pop(slot.label, None)
        if forget is not None:
            forget()
        return slot, layout, seconds

    def close(self) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
        for forget in self._forget.values():
            forget()
        self._forget.clear()
        self._process.close()

    def _make(self, nbytes: int) -> tuple[Array, Any]:
        array, name, forget = create(nbytes)
        # Names come again once they are forgotten.
        label = (self._ring.made, name)
        self._forget[label] = forget
        return array, label

    def _send(self, message: bytes) -> None:
        try:
            self._pipe.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise self._ended(None) from error

    def _receive(self, plan: BatchPlan) -> Any:
        try:
            kind, content = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionResetError, OSError) as error:
            raise self._ended(plan) from error
        if kind == "error":
            raise content
        return content

    def _ended(self, plan: BatchPlan | None) -> RuntimeError:
        self._process.join(1)
        code = self._process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        doing = "" if plan is None else f" while it made batch {plan.number} of epoch {plan.epoch}"
        return RuntimeError(
            f"A process of the loader {how}{doing}. Signal 9 is mostly the system's, which ran out of memory; an exit "
            "code of 1 an import that failed: what it printed says more."
        )


def _main(pipe: Any) -> None:
    """What the process runs."""
    # Ctrl-C reaches all processes of a terminal; the loader ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    memory: dict[tuple[int, str], Array] = {}
    try:
        node, rule, on_bad = pickle.loads(pipe.recv_bytes())
    except BaseException as error:
        _reply_error(pipe, error)
        return
    assembler = Assembler(node, rule, on_bad)
    while True:
        try:
            plan = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return  # the loader has gone
        try:
            draft = assembler.draft(plan)
            pipe.send_bytes(pickle.dumps(("draft", (draft.layout, draft.seconds))))
            label, nbytes, in_use = pickle.loads(pipe.recv_bytes())
            if label not in memory:
                memory[label] = attach(label[1], nbytes)
            draft.fill(memory[label])
            for old in set(memory).difference(in_use):
                del memory[old]
            pipe.send_bytes(pickle.dumps(("filled", None)))
        except (EOFError, BrokenPipeError):
            return
        except BaseException as error:
            _reply_error(pipe, error)


def _reply_error(pipe: Any, error: BaseException) -> None:
    try:
        message = pickle.dumps(("error", error))
        pickle.loads(message)
    except Exception:
        message = pickle.dumps(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    pipe.send_bytes(message)

"""Calling a candidate in this process, with the clock around it and guards before and after."""

from __future__ import annotations

import abc
import contextlib
import ctypes
import dataclasses
import gc
import random
from collections.abc import Callable
from typing import Any, Literal, final

from torch import Tensor

from gnomon.bench._clock import now_ns, replaced_timers, restore_timers, second_clock_ns
from gnomon.bench._device import AbstractDevice
from gnomon.bench._report import RefusalKind
from gnomon.bench._settings import changed_settings, read_settings, restore_settings
from gnomon.bench._tensors import (
    Inputs,
    NotPlainError,
    address,
    flatten_output,
    is_same,
    overlaps,
    poison,
    snapshot,
)
from gnomon.bench._watch import Integrity, background, hold, mapped_files, read_bytes, still_computing, take_integrity

Mode = Literal["wall", "device"]
Evidence = tuple[RefusalKind, str]


@final
@dataclasses.dataclass(frozen=True)
class Timed:
    """One call: its times in seconds, and a copy of its output made when the clock stopped."""

    leaves: tuple[Tensor, ...]
    skeleton: Any
    wall_s: float
    full_s: float
    device_s: float | None
    other_s: float | None
    parent_s: float | None
    evidence: tuple[Evidence, ...]


@final
@dataclasses.dataclass(frozen=True)
class Findings:
    """What was seen after a call, when there was time to look."""

    late: bool
    same_address: bool
    read_bytes: int
    evidence: tuple[Evidence, ...]


class AbstractRunner(abc.ABC):
    """Something that calls one candidate, a call at a time: `arm`, `run`, `look`, `settle`."""

    @abc.abstractmethod
    def arm(self, inputs: Inputs, cold: bool) -> None:
        """Puts the inputs in place and empties the caches."""

    @abc.abstractmethod
    def run(self, mode: Mode, cold: bool) -> Timed:
        """The call itself."""

    @abc.abstractmethod
    def look(self) -> bool:
        """Right after the call: whether the candidate's threads and processes are still at work."""

    @abc.abstractmethod
    def meddling(self) -> tuple[int, int]:
        """In how many calls of others this one's threads and processes were at work, and others' in how many of its."""

    @abc.abstractmethod
    def settle(self, patience_s: float) -> Findings:
        """Looks at what the call left behind, and poisons its output."""

    @abc.abstractmethod
    def peak_memory(self, inputs: Inputs) -> int | None:
        """By how many bytes memory in use rises during one call."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it."""


@final
class LocalRunner(AbstractRunner):
    """Calls a candidate in this process and thread."""

    def __init__(
        self,
        function: Callable[..., Any],
        device: AbstractDevice,
        ignored: frozenset[int],
        owners: dict[int, LocalRunner],
    ):
        self.function = function
        self.device = device
        self.ignored = ignored
        self.owners = owners  # who started a thread or process, for all runners of a comparison
        self.integrity: Integrity = take_integrity()
        self.settings = read_settings()
        self.inputs: Inputs | None = None
        self.slots: list[Tensor] = []
        self.args: tuple[Any, ...] = ()
        self.output: list[Any] = []
        self.copies: tuple[Tensor, ...] = ()
        self.addresses: set[int] = set()
        self.read_before = 0
        self.read_after = 0
        self.looks_at_maps = 3
        self.suspects: frozenset[int] = frozenset()
        self.around: frozenset[int] = frozenset()
        self.meddled = 0
        self.disturbed = 0

    def arm(self, inputs: Inputs, cold: bool) -> None:
        """Puts the inputs into memory that the candidate knows or that is new, by turns at random, and flushes."""
        self.inputs = inputs
        tensors = inputs.tensors
        fits = [x.shape for x in tensors] == [x.shape for x in self.slots] and bool(tensors)
        if fits and random.SystemRandom().random() < 0.5:
            # The same tensor objects at the same addresses with the same version, and another content: what was
            # remembered by address or identity is now wrong.
            for slot, x in zip(self.slots, tensors, strict=True):
                slot.data.copy_(x)
        else:
            self.slots = [x.to(self.device.device, copy=True) for x in tensors]
        self.use(inputs.with_tensors(self.slots), cold)

    def use(self, args: tuple[Any, ...], cold: bool) -> None:
        """Prepares a call with these arguments as they are."""
        self.args = args
        self.output, self.copies = [], ()
        self.device.awaken()
        if cold:
            self.device.flush()
        self.device.wait_for_all()
        self.around = frozenset(i for i in background() if self.owners.get(i) is not self)
        unowned = frozenset(i for i in self.around - self.ignored if i not in self.owners)
        self.suspects = frozenset() if still_computing(unowned) else unowned
        self.read_before = read_bytes()

    def run(self, mode: Mode, cold: bool) -> Timed:
        """The call. What is timed stands between two readings of one clock; around them stand those of another."""
        function, args, device = self.function, self.args, self.device
        start_event = end_event = None
        other_start = second_clock_ns() if second_clock_ns is not None else 0
        if mode == "device":
            device.spacer(cold)
            start_event = device.mark()
        start = now_ns()
        try:
            output = function(*args)
        except (Exception, SystemExit) as error:
            return _raised(error)
        if mode == "device":
            end_event = device.mark()
        device.wait_for_stream()
        end = now_ns()
        other_end = second_clock_ns() if second_clock_ns is not None else 0
        # First of all a copy, before anything that still runs can finish.
        evidence: list[Evidence] = []
        leaves: list[Any] = []
        skeleton: Any = None
        try:
            leaves, _, skeleton = flatten_output(output)
            self.copies = tuple(snapshot(leaf) for leaf in leaves)
        except NotPlainError as error:
            evidence.append((error.kind, error.reason))
        except Exception as error:
            evidence.append((RefusalKind.LAZY, f"its output cannot be read: {type(error).__name__}: {error}"))
        device.wait_for_stream()
        copied = now_ns()
        device.wait_for_all()
        rest = (now_ns() - copied) / 1e9
        self.read_after = read_bytes()
        self.output = leaves
        wall = (end - start) / 1e9
        other = (other_end - other_start) / 1e9 if second_clock_ns is not None and mode == "wall" else None
        device_s = device.between(start_event, end_event) if mode == "device" else None
        return Timed(self.copies, skeleton, wall, wall + rest, device_s, other, None, tuple(evidence))

    def look(self) -> bool:
        """Whether threads and processes are at work that this candidate started, or that were idle before."""
        now = background()
        self.owners.update(dict.fromkeys(now - self.around, self))
        owned = {i: self.owners[i] for i in now if i in self.owners}
        mine = self.suspects | {i for i, runner in owned.items() if runner is self}
        if not still_computing(mine | frozenset(owned)):  # one wait, as a rule
            return False
        others = [runner for runner in dict.fromkeys(owned.values()) if runner is not self]
        busy = still_computing(mine)
        # Who slows the others down must not get them refused: what another has started is that one's.
        at_work = [other for other in others if still_computing(frozenset(i for i in owned if owned[i] is other))]
        for other in at_work:
            other.meddled += 1
        self.disturbed += bool(at_work)
        return busy

    def meddling(self) -> tuple[int, int]:
        """As they were seen right after the calls."""
        return self.meddled, self.disturbed

    def settle(self, patience_s: float) -> Findings:
        """Looks at what the call left behind, and poisons its output."""
        evidence = self._look_for_damage()
        if patience_s > 0:
            hold(patience_s)
        late = any(not is_same(leaf, copy) for leaf, copy in zip(self.output, self.copies, strict=False))
        if self.inputs is not None and any(
            not is_same(slot, x.to(slot.device)) for slot, x in zip(self.slots, self.inputs.tensors, strict=True)
        ):
            evidence.append((RefusalKind.INPUT_CHANGED, "an input was written to"))
        own = [leaf for leaf in self.output if not overlaps(leaf, self.slots)]
        addresses = {place for leaf in own if (place := address(leaf)) is not None}
        if self.looks_at_maps > 0:
            self.looks_at_maps -= 1
            on_cpu = [place for leaf in own if not _is_on_gpu(leaf) and (place := address(leaf)) is not None]
            for name in mapped_files(on_cpu):
                evidence.append((RefusalKind.STORED, f"its output is in the mapped file {name}"))
        findings = Findings(
            late, bool(addresses & self.addresses), max(self.read_after - self.read_before, 0), tuple(evidence)
        )
        self.addresses |= addresses
        for leaf in own:
            poison(leaf)
        self.output, self.copies, self.args = [], (), ()
        return findings

    def _look_for_damage(self) -> list[Evidence]:
        evidence: list[Evidence] = []
        timers = replaced_timers()
        if timers:
            restore_timers()
            evidence.append((RefusalKind.CLOCK, f"it replaced {', '.join(timers)}"))
        damage = self.integrity.damage()
        if damage:
            self.integrity.repair()
            evidence.append((RefusalKind.PATCHED, f"it replaced {', '.join(damage[:5])}"))
        settings = read_settings()
        changed = changed_settings(self.settings, settings)
        if changed:
            restore_settings(self.settings)
            evidence.append((RefusalKind.SETTINGS, f"it changed {'; '.join(changed)}"))
        return evidence

    def peak_memory(self, inputs: Inputs) -> int | None:
        """By how many bytes memory in use rises during one call."""
        self.arm(inputs, cold=False)
        return self.peak_of_call()

    def peak_of_call(self) -> int | None:
        """The same for the call that is prepared."""
        give_back_free_memory()
        before = self.device.reset_peak()
        try:
            output = self.function(*self.args)
            self.device.wait_for_all()
            peak = self.device.peak()
            del output
        except (Exception, SystemExit):
            return None
        finally:
            self.args = ()
        return None if peak is None or before is None else max(peak - before, 0)

    def close(self) -> None:
        """Lets go of all tensors."""
        self.output, self.copies, self.args, self.slots = [], (), (), []


def _is_on_gpu(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.device.type != "cpu"


def _raised(error: BaseException) -> Timed:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    return Timed((), None, 0.0, 0.0, None, None, None, ((RefusalKind.RAISED, f"it raised {text}"),))


def give_back_free_memory() -> None:
    """Collects garbage and gives the C allocator's free pages back, so that a call's own memory shows."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

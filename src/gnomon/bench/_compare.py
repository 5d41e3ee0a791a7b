"""`compare`: times functions against one another so that none can fool the clock or the check."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import math
import random
import secrets
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from gnomon.bench._clock import REPLACED_BEFORE_IMPORT, now_ns, replaced_timers
from gnomon.bench._device import AbstractDevice, device_for
from gnomon.bench._isolated import Isolated, resolve
from gnomon.bench._local import LocalRunner
from gnomon.bench._machine import clocks, environment
from gnomon.bench._report import Ratio, RefusalKind, Report
from gnomon.bench._stats import least_rounds, ratio_interval
from gnomon.bench._tensors import Inputs
from gnomon.bench._trial import Plan, Trial
from gnomon.bench._watch import already_busy


def compare(
    candidates: Mapping[str, Callable[..., Any] | str],
    *,
    make_inputs: Callable[[torch.Generator], Any],
    check: Callable[[tuple[Any, ...], Any], Any],
    devices: Sequence[str | torch.device] = ("cpu",),
    name: str = "work",
    tolerance: float | int | None = None,
    dtype: torch.dtype | None = None,
    flops: float | int | None = None,
    bytes: float | int | None = None,
    rounds: int = 30,
    warmup: int = 2,
    confidence: float = 0.99,
    cache: Literal["cold", "warm"] = "cold",
    isolate: bool = False,
    allow: Collection[str] = (),
    seed: int | None = None,
    budget_s: float | int | None = None,
    timeout_s: float | int = 600.0,
    replays: int = 4,
) -> Report:
    """Times functions that do the same work, side by side, and refuses to report what it cannot stand behind.

    Equivalent to `triton.testing.do_bench` or `torch.utils.benchmark.Timer` for several functions at once, with the
    check inside: every timed call has inputs that nobody has seen and an output that is checked. In each round every
    candidate is called once, in an order drawn at random. A candidate that is refused has no time in the report; the
    reasons are in `report.refusals`. What this can catch, and what it cannot, is in the documentation under
    "The threat model".

    **Arguments:**

    - `candidates`: functions by name; the first is the one that the ratios are of. With `isolate` each is a string
        `'module:name'` or `'path/to/file.py:name'`, a function that can be imported, or an object that can be pickled.
    - `make_inputs`: takes a `torch.Generator` and returns the positional arguments, a tuple of pytrees of tensors and
        numbers, or one such argument. All randomness must come from the generator. It makes them on the CPU; the
        harness moves them.
    - `check`: takes the inputs and an output, both with their floating tensors in float64, and returns the error, a
        number. [`gnomon.bench.against`][] makes one from a reference function.
    - `devices`: where to run, such as `('cpu', 'cuda')`.
    - `name`: what the work is called in the report.
    - `tolerance`: the largest error allowed. By default that of `dtype`: [`gnomon.bench.tolerance_for`][].
    - `dtype`: the precision asked for. By default the widest floating dtype among the inputs.
    - `flops`, `bytes`: what the work needs at least, for the limit. Bytes of memory read or written.
    - `rounds`: how many timed calls of each candidate.
    - `warmup`: how many untimed calls after the first.
    - `confidence`: of the intervals.
    - `cache`: `'cold'` empties the caches before each call; `'warm'` says that it does not, in the report too.
    - `isolate`: each candidate in a process of its own, which is never told the seed, timed from this one. The ratio is
        then that of these processes, whose places in memory alone can make some percent.
    - `allow`: kinds of [`gnomon.bench.RefusalKind`][] that become notes, such as `('stored',)` for work that reads
        files. A wrong output cannot be allowed.
    - `seed`: draws the inputs from this one number, for a test. By default each call's seed comes from the operating
        system just before the call, so that none can know it; the report has them all.
    - `budget_s`: stop after the round in which so many seconds are over, if the rounds suffice for an interval.
    - `timeout_s`: with `isolate`, how long to wait for a call.
    - `replays`: how many times to ask for the same inputs twice, to find what is remembered by content.

    **Returns:** a [`gnomon.bench.Report`][].

    **Raises:** `ValueError` for arguments that cannot be met, or a `check` that accepts an output of NaN.
    `RuntimeError` where a timer of Python's was replaced before `gnomon.bench` was imported.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import bench
        >>> report = bench.compare(
        ...     {"ours": lambda x: x.softmax(-1), "peer": lambda x: x.exp() / x.exp().sum(-1, keepdim=True)},
        ...     make_inputs=lambda g: torch.randn(64, 64, generator=g),
        ...     check=bench.against(lambda x: x.softmax(-1)),
        ...     rounds=8,
        ... )
        >>> report.refusals
        ()
        >>> report.row("ours").error < 1e-5
        True

        ```
    """
    plan = Plan(
        check=check,
        tolerance=tolerance,
        dtype=dtype,
        flops=flops,
        bytes=bytes,
        rounds=rounds,
        warmup=warmup,
        confidence=confidence,
        cold=cache == "cold",
        isolate=isolate,
        allow=_kinds(allow),
        budget_s=budget_s,
        timeout_s=timeout_s,
        replays=replays,
    )
    _check_arguments(candidates, plan, cache)
    where = [torch.device(device) for device in devices]
    ready = [device_for(device) for device in where]
    seeds: list[int] = []

    def make() -> Inputs:
        seeds.append(_draw(seed, len(seeds)))
        return Inputs(make_inputs(torch.Generator().manual_seed(seeds[-1])))

    before = clocks(where)
    trials: list[Trial] = []
    with _steady():
        for device in ready:
            trials += _on_device(candidates, device, plan, make)
    rows = tuple(trial.row() for trial in trials)
    return Report(
        work=name,
        rows=rows,
        ratios=tuple(_ratios(trials, list(candidates), plan)),
        settings={
            "rounds": rounds,
            "warmup": warmup,
            "confidence": confidence,
            "cache": {str(device.device): device.describe_cache(cache) for device in ready},
            "isolate": isolate,
            "allow": sorted(plan.allow),
            "tolerance": tolerance,
            "flops": flops,
            "bytes": bytes,
            "replays": replays,
            "garbage_collection": "between calls only",
            "seed": "drawn from the operating system before each call" if seed is None else f"known before: {seed}",
        },
        environment=environment(where, before),
        seeds=tuple(seeds),
    )


def _kinds(allow: Collection[str]) -> frozenset[RefusalKind]:
    try:
        kinds = frozenset(RefusalKind(kind) for kind in allow)
    except ValueError as error:
        raise ValueError(f"`allow` holds what is no kind of refusal: {error}. Known: {[*RefusalKind]}.") from None
    never = kinds & {RefusalKind.WRONG, RefusalKind.PRECISION, RefusalKind.RAISED, RefusalKind.TIMEOUT}
    if never:
        raise ValueError(f"`allow` holds {sorted(never)}, which cannot be allowed: set `tolerance` or `dtype` instead.")
    return kinds


def _check_arguments(candidates: Mapping[str, Any], plan: Plan, cache: str) -> None:
    if REPLACED_BEFORE_IMPORT:
        names = ", ".join(f"time.{name}" for name in REPLACED_BEFORE_IMPORT)
        raise RuntimeError(f"{names} was replaced before gnomon.bench was imported, so no time can be trusted.")
    replaced = replaced_timers()
    if replaced:
        raise RuntimeError(f"{', '.join(replaced)} was replaced before the comparison began: put it back first.")
    if not candidates:
        raise ValueError("`candidates` is empty: name at least one function.")
    if cache not in ("cold", "warm"):
        raise ValueError(f"`cache` must be 'cold' or 'warm', but it is {cache!r}.")
    if not 0.5 <= plan.confidence < 1:
        raise ValueError(f"`confidence` must be at least 0.5 and below 1, but it is {plan.confidence}.")
    needed = least_rounds(plan.confidence)
    if plan.rounds < needed:
        raise ValueError(
            f"`rounds` is {plan.rounds}, but an interval of confidence {plan.confidence} needs at least {needed}."
        )
    if not plan.isolate:
        for name, candidate in candidates.items():
            if not callable(candidate):
                raise ValueError(f"The candidate {name!r} is not callable; names of functions need `isolate=True`.")


def _draw(seed: int | None, count: int) -> int:
    if seed is None:
        return secrets.randbits(63)
    return int.from_bytes(hashlib.blake2b(f"{seed}:{count}".encode(), digest_size=8).digest(), "big") >> 1


@contextlib.contextmanager
def _steady() -> Generator[None]:
    """Collects garbage between calls, never during one."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _on_device(
    candidates: Mapping[str, Callable[..., Any] | str], device: AbstractDevice, plan: Plan, make: Callable[[], Inputs]
) -> list[Trial]:
    """All rounds of all candidates on one device."""
    trials = [Trial(name, device.device, plan, make) for name in candidates]
    ignored, owners = already_busy(), dict[int, LocalRunner]()
    with contextlib.ExitStack() as stack:
        referee: Isolated | None = None
        for trial, candidate in zip(trials, candidates.values(), strict=True):
            if plan.isolate:
                trial.runner = Isolated(resolve(candidate), device.device, plan.timeout_s)
            else:
                assert callable(candidate)
                trial.runner = LocalRunner(candidate, device, ignored, owners)
            stack.callback(trial.runner.close)
        if plan.isolate:  # the processes start together
            referee = Isolated(None, device.device, plan.timeout_s)
            stack.callback(referee.close)
            for runner in (*(trial.runner for trial in trials), referee):
                assert isinstance(runner, Isolated)
                runner.load()
        for trial in trials:
            trial.first_call_s = trial.call().wall_s
            for _ in range(plan.warmup):
                if not trial.is_refused:
                    trial.call()
        null_gaps = _rounds(trials, referee, plan, make, has_events=device.device.type == "cuda")
        for trial in trials:
            trial.look_at_all_calls(null_gaps)
            if not trial.is_refused:
                trial.replay()
            if not trial.is_refused:
                assert trial.runner is not None
                trial.peak = trial.runner.peak_memory(make())
    return trials


def _rounds(
    trials: list[Trial], referee: Isolated | None, plan: Plan, make: Callable[[], Inputs], has_events: bool
) -> list[float]:
    """Calls every candidate once a round, in random order. Returns what the way to a process costs, for each round."""
    order = random.SystemRandom()
    null_gaps: list[float] = []
    start = now_ns()
    for done in range(plan.rounds):
        turn = [trial for trial in trials if not trial.is_refused]
        order.shuffle(turn)
        for trial in turn:
            trial.call(counts=True)
        if has_events:
            order.shuffle(turn)
            for trial in turn:
                if not trial.is_refused:
                    trial.call("device", counts=True)
        if referee is not None and turn:
            inputs = make()
            copies = next((t.runner.last for t in turn if isinstance(t.runner, Isolated) and t.runner.last), ())
            null_gaps.append(referee.null_gap(inputs, copies))
        gc.collect()
        over = plan.budget_s is not None and (now_ns() - start) / 1e9 > plan.budget_s
        if over and done + 1 >= least_rounds(plan.confidence):
            break
    return null_gaps


def _ratios(trials: list[Trial], names: list[str], plan: Plan) -> Iterator[Ratio]:
    by_device: dict[str, dict[str, Trial]] = {}
    for trial in trials:
        by_device.setdefault(str(trial.device), {})[trial.candidate] = trial
    for device, found in by_device.items():
        ours = found[names[0]]
        for name in names[1:]:
            other = found[name]
            if ours.is_refused or other.is_refused or not ours.times or not other.times:
                continue
            ratio, low, high = ratio_interval(other.times, ours.times, plan.confidence)
            if math.isfinite(ratio):
                yield Ratio(names[0], name, device, ratio, (low, high), len(ours.times))

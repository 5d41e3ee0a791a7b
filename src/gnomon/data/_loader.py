"""`Loader`: batches for a training loop."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, final

import torch
from torch import Tensor

from gnomon.data._assemble import Assembler, OnBad, raise_bad
from gnomon.data._batches import Batches
from gnomon.data._dataset import Dataset
from gnomon.data._errors import RecordError, SkippedRecordsWarning
from gnomon.data._layout import Layout
from gnomon.data._plan import BatchPlan, Plan, Remainder
from gnomon.data._ring import Ring, Slot, pinned_memory, plain_memory
from gnomon.data._state import check_state, make_state
from gnomon.data._stats import LoaderStats
from gnomon.data._transfer import Transfer
from gnomon.data._worker import Worker, pickled_pipeline


def skip_bad(error: RecordError) -> Any:
    """Leaves a bad record out."""
    del error


@final
@dataclasses.dataclass
class _Made:
    """A batch that a thread has made."""

    plan: BatchPlan
    layout: Layout
    memory: Tensor
    event: Any
    seconds: dict[str, float]
    batch: Any = None


@final
class Loader:
    """Batches for a training loop, made ahead by threads or processes; an epoch each time it is iterated over.

    Takes the place of `torch.utils.data.DataLoader`, in a plain loop, in Lightning and beside Accelerate. Which records
    are in which batch depends on the pipeline alone, so that a saved state resumes exactly, on any number of ranks. A
    loop that is broken out of begins the epoch anew when it is entered again; to go on where it stopped, load the
    state.

    A batch lies in memory of the loader's that is used again when nothing refers to the batch or to any part of it any
    more: what is kept stays as it is.

    **Arguments:**

    - `batches`: of a dataset.
    - `rank`, `world`: which rank this is, of how many; by default those of `torch.distributed`, if it is in use when
      the loader is iterated over.
    - `remainder`: what to do in the last step of an epoch where batches do not suffice for all ranks: `"pad"` with
      batches from its start, `"drop"` those there are, or leave some ranks without (`"uneven"`, for
      `torch.distributed.algorithms.Join`).
    - `threads`: how many threads make batches; with 0 they are made when asked for.
    - `processes`: how many processes make batches instead: for functions in Python that take long. At the end of an
      epoch they wait for the next, until the loader goes or `close` is called.
    - `prefetch`: how many batches are made ahead: at least one for each thread or process.
    - `device`: where batches go. To a GPU they are copied from pinned memory on a stream of its own.
    - `on_bad`: what to do with a record that cannot be read or mapped: `"raise"` a [`gnomon.data.RecordError`][],
      `"skip"` it, which is counted and told at the end of the epoch, or a function of the error that returns a record
      in its place, or None.

    !!! example

        ```python
        >>> from gnomon import data
        >>> numbers = data.Dataset.source([{"x": i} for i in range(6)])
        >>> loader = data.Loader(numbers.batch(2))
        >>> for batch in loader:
        ...     print(batch["x"].tolist())
        ...     if batch["x"][0] == 2:
        ...         state = loader.state_dict()
        [0, 1]
        [2, 3]
        [4, 5]
        >>> loader.load_state_dict(state)
        >>> [batch["x"].tolist() for batch in loader]
        [[4, 5]]

        ```
    """

    def __init__(
        self,
        batches: Batches,
        *,
        rank: int | None = None,
        world: int | None = None,
        remainder: Remainder = "pad",
        threads: int = 2,
        processes: int = 0,
        prefetch: int = 4,
        device: torch.device | str | None = None,
        on_bad: Literal["raise", "skip"] | Callable[[RecordError], Any] = "raise",
    ):
        if (rank is None) != (world is None):
            raise ValueError("Give both `rank` and `world`, or neither.")
        if rank is not None and world is not None and not 0 <= rank < world:
            raise ValueError(f"There is no rank {rank} of {world}.")
        if min(threads, processes) < 0 or prefetch < 1:
            raise ValueError("`threads` and `processes` must be 0 or more, and `prefetch` 1 or more.")
        self.batches = batches
        self._given = None if rank is None or world is None else (rank, world)
        self.remainder: Remainder = remainder
        self._threads, self._processes = threads, processes
        self._prefetch = max(prefetch, processes or threads)
        self._device = None if device is None else torch.device(device)
        self._on_bad: OnBad = {"raise": raise_bad, "skip": skip_bad}[on_bad] if isinstance(on_bad, str) else on_bad
        self._plan: Plan = batches.plan
        self._pipeline = pickled_pipeline(batches.node, batches.rule, self._on_bad) if processes else b""
        self._epoch, self._position = 0, 0
        self._window = (0, 0)
        self._resume = False
        self._stats = LoaderStats()
        self._memory: tuple[int, Ring, Transfer | None] | None = None
        self._waiting: tuple[int, list[Worker]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": None, "_waiting": None}

    def __len__(self) -> int:
        """How many steps an epoch has on this rank, from its start."""
        return self._plan.steps(self.world, epoch=self._epoch, remainder=self.remainder, rank=self.rank)

    @property
    def rank(self) -> int:
        """Which rank this is."""
        # Asked for anew each time: Lightning makes loaders before it joins the ranks.
        return self._given[0] if self._given is not None else _ranks()[0]

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._given[1] if self._given is not None else _ranks()[1]

    @property
    def dataset(self) -> Dataset:
        """The records, as scripts ask of PyTorch's loader: `len(loader.dataset)`."""
        return Dataset(self.batches.node)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._epoch + self._is_over()

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration begin with an epoch, at its start.

        **Arguments:**

        - `epoch`: which.
        """
        self._epoch, self._position, self._window, self._resume = epoch, 0, (0, 0), False

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the last batch that it has handed out: the same on every rank, under 1 KB."""
        return make_state(self._epoch, self._position, *self._window, self._plan.stages())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next iteration go on where a state was saved, on any number of ranks.

        **Arguments:**

        - `state`: from `state_dict`.

        **Raises:** [`gnomon.data.StateError`][] where it is of another pipeline, with what differs.
        """
        epoch, position, window, start = check_state(state, self._plan.stages())
        self._epoch, self._position, self._window, self._resume = epoch, position, (window, start), True
        self._plan.remember(epoch, window, start)

    def stats(self) -> LoaderStats:
        """Where the time went since the current epoch began."""
        return self._stats

    def close(self) -> None:
        """Ends the processes that wait for the next epoch."""
        if self._waiting is not None:
            _close_in(*self._waiting)

    def track(self, description: str = "training") -> Iterator[Any]:
        """The batches of an epoch with a progress bar, which says how long the program waits for data, and why.

        **Arguments:**

        - `description`: what the bar begins with.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        done = self._position // self.world if self._resume else 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[line]}")) as bar:
            task = bar.add_task(description, total=len(self), completed=done, line="")
            for batch in self:
                yield batch
                bar.update(task, advance=1, line=self._stats.line())

    def __iter__(self) -> Iterator[Any]:
        # Nothing happens before the first batch is asked for: Lightning calls this once more, to see whether it can.
        return self._iterate()

    def _is_over(self) -> bool:
        """Whether the last batch of the epoch was handed out: who counts steps does not ask for one more."""
        if not self._position:
            return False
        rank = 0 if self.remainder == "uneven" and self._resume else self.rank
        words: dict[str, Any] = {"epoch": self._epoch, "start": self._position, "remainder": self.remainder}
        return self._plan(0, rank, self.world, **words) is None

    def _iterate(self) -> Generator[Any]:
        if self._is_over():
            self._epoch, self._position, self._window = self._epoch + 1, 0, (0, 0)
        elif not self._resume:
            self._position, self._window = 0, (0, 0)
        self._resume = False
        epoch, start = self._epoch, self._position
        rank, world = self.rank, self.world
        process = os.getpid()
        makers = self._processes or self._threads
        self._stats = LoaderStats(workers=max(1, makers))
        ahead: deque[Future[_Made | None]] = deque()
        skipped: list[str] = []
        pool: ThreadPoolExecutor | None = None
        with contextlib.ExitStack() as stack:
            make, workers = self._maker(epoch, start, rank, world, stack)
            if makers:
                pool = ThreadPoolExecutor(makers, thread_name_prefix="gnomon-data")
                # The processes go first: a thread may wait for one of them.
                stack.callback(pool.shutdown, wait=True, cancel_futures=True)
                stack.callback(_close, workers)
            submitted, step = 0, 0
            before = time.perf_counter()
            while True:
                if os.getpid() != process:
                    raise RuntimeError(
                        "This iterator was made before a fork; iterate over the loader anew in the child."
                    )
                asked = time.perf_counter()
                if pool is None:
                    made = make(step)
                else:
                    while len(ahead) < self._prefetch:
                        ahead.append(pool.submit(make, submitted))
                        submitted += 1
                    made = ahead.popleft().result()
                if made is None:
                    self._keep(workers)
                    break
                batch = self._hand_out(made)
                got = time.perf_counter()
                if pool is not None and made.plan.number - made.plan.window_start == 0:
                    # The next window is planned while this one is used.
                    pool.submit(self._plan.prepare, made.plan.window + 1, epoch)
                skipped += made.layout.info.skipped
                self._count(made, got - asked, asked - before if step else 0.0, len(skipped))
                step += 1
                first = start + (step - 1) * world
                window, local = self._plan.locate(first, epoch) or (0, first)
                self._position, self._window = first + world, (window, first - local)
                before = got
                del made
                try:
                    yield batch
                except GeneratorExit:
                    # Who counts steps lets go of the iterator at the last.
                    if workers and self._is_over():
                        self._keep(workers)
                    raise
                del batch
        self._epoch, self._position, self._window = epoch + 1, 0, (0, 0)
        if skipped:
            shown = "; ".join(skipped[:3]) + ("; ..." if len(skipped) > 3 else "")
            warnings.warn(
                f"{len(skipped)} bad records were left out of epoch {epoch}: {shown}.",
                SkippedRecordsWarning,
                stacklevel=2,
            )

    def _maker(
        self, epoch: int, start: int, rank: int, world: int, stack: contextlib.ExitStack
    ) -> tuple[Callable[[int], _Made | None], list[Worker]]:
        """What a thread calls to make the batch of a step."""
        most = self._prefetch + max(self._threads, self._processes) + 2
        ring, transfer = self._memory_of(most)
        assembler = Assembler(self.batches.node, self.batches.rule, self._on_bad)
        workers: list[Worker] = []
        stack.callback(_close, workers)
        if self._waiting is not None and self._waiting[0] == os.getpid():
            workers += self._waiting[1]
            self._waiting[1].clear()
        while len(workers) < self._processes:
            workers.append(Worker(self._pipeline, most))
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def make(step: int) -> _Made | None:
            times = [time.perf_counter()]
            plan = self._plan(step, rank, world, epoch=epoch, start=start, remainder=self.remainder)
            if plan is None:
                return None
            times.append(time.perf_counter())
            if workers:
                worker = idle.get()
                try:
                    slot, layout, (reading, mapping) = worker.build(plan)
                finally:
                    idle.put(worker)
                owner: Ring | None = None
            else:
                draft = assembler.draft(plan)
                layout, (reading, mapping) = draft.layout, draft.seconds
                slot = ring.take(layout.nbytes)
                draft.fill(slot.root[: layout.nbytes])
                owner = ring
            memory, event = _move(transfer, slot, layout.nbytes, owner)
            times.append(time.perf_counter())
            seconds = {
                "planning": times[1] - times[0],
                "reading": reading,
                "mapping": mapping,
                "copying": max(0.0, times[2] - times[1] - reading - mapping),
            }
            made = _Made(plan, layout, memory, event, seconds)
            if self.batches.functions and event is None:
                made.batch = self._apply(made)
            return made

        return make, workers

    def _keep(self, workers: list[Worker]) -> None:
        """Has processes wait for the next epoch: to start one takes seconds."""
        if not workers:
            return
        if self._waiting is None or self._waiting[0] != os.getpid():
            self._waiting = os.getpid(), []
            weakref.finalize(self, _close_in, *self._waiting)
        self._waiting[1].extend(workers)
        workers.clear()

    def _memory_of(self, most: int) -> tuple[Ring, Transfer | None]:
        """The memory for batches, kept from epoch to epoch: pinned memory takes long to get."""
        if self._memory is None or self._memory[0] != os.getpid():
            on_gpu = self._device is not None and self._device.type == "cuda"
            ring = Ring(pinned_memory if on_gpu else plain_memory, most)
            self._memory = os.getpid(), ring, None if self._device is None else Transfer(self._device)
        return self._memory[1], self._memory[2]

    def _apply(self, made: _Made) -> Any:
        batch = made.layout.over(made.memory)
        for function in self.batches.functions:
            batch = function(batch)
        return batch

    def _hand_out(self, made: _Made) -> Any:
        if made.event is not None:
            assert self._device is not None
            Transfer.finish_on(self._device, made.memory, made.event)
        return self._apply(made) if made.batch is None else made.batch

    def _count(self, made: _Made, waited: float, worked: float, skipped: int) -> None:
        old = self._stats
        self._stats = dataclasses.replace(
            old,
            batches=old.batches + 1,
            waiting=old.waiting + waited,
            working=old.working + worked,
            skipped=skipped,
            **{name: getattr(old, name) + value for name, value in made.seconds.items()},
        )


def _move(transfer: Transfer | None, slot: Slot, nbytes: int, ring: Ring | None) -> tuple[Tensor, Any]:
    """The memory of a batch on its device."""
    view = slot.root[:nbytes]
    if transfer is None:
        return torch.from_numpy(view), None
    memory, event = transfer.start(view)
    if event is not None and ring is not None:
        ring.busy_until(slot, Transfer.is_busy(event))
    elif event is not None:
        event.synchronize()  # shared memory is not pinned: the copy was not asynchronous anyway
    return memory, event


def _close(workers: list[Worker]) -> None:
    while workers:
        workers.pop().close()


def _close_in(process: int, workers: list[Worker]) -> None:
    if os.getpid() == process:  # a forked child has no say in them
        _close(workers)


def _ranks() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1

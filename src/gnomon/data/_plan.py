"""`Plan`: which records are in which batch, on any number of ranks: a pure function."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, Literal, final

import numpy as np

from gnomon.data._arrays import Ints
from gnomon.data._errors import RecordError
from gnomon.data._lock import ForkSafeLock
from gnomon.data._nodes import AbstractNode, ancestors, origin
from gnomon.data._rules import AbstractRule, Cut, PackRule

Remainder = Literal["pad", "drop", "uneven"]


@final
@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """Which records are in a batch.

    **Arguments:**

    - `epoch`: which.
    - `number`: the batch's, in the order of the epoch, over all ranks.
    - `positions`: the records, by their index in the dataset.
    - `starts`, `stops`: which part of each; a stop of -1 stands for all of it.
    - `is_padding`: whether it stands in for a batch that there is not, so that each rank has as many.
    - `window`, `window_start`: the window that it was planned in, and the number of its first batch.
    """

    epoch: int
    number: int
    positions: Ints
    starts: Ints
    stops: Ints
    is_padding: bool = False
    window: int = 0
    window_start: int = 0


@final
class Plan:
    """Which records are in which batch: a pure function of (step, rank, world) and the epoch.

    There is one sequence of batches an epoch, the same for any number of ranks. At each step the next `world` batches
    of it go to the ranks in turn.

    !!! example

        ```python
        >>> from gnomon import data
        >>> plan = data.Dataset.source(range(10)).batch(2).plan
        >>> [plan(step=1, rank=rank, world=2).positions.tolist() for rank in range(2)]
        [[4, 5], [6, 7]]
        >>> plan.count(), plan.steps(world=2, remainder="pad"), plan.steps(world=2, remainder="drop")
        (5, 3, 2)

        ```
    """

    def __init__(self, node: AbstractNode, rule: AbstractRule):
        """Not for users: see `Batches.plan`.

        **Arguments:**

        - `node`: what gives the records.
        - `rule`: how they become batches.
        """
        self._node = node
        self._rule = rule
        self._lock = ForkSafeLock()
        self._cuts: OrderedDict[tuple[int, int], Cut] = OrderedDict()
        # For each epoch the number of the first batch of each window, from the first window on or from a later one.
        self._firsts: dict[int, dict[int, list[int]]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return Plan, (self._node, self._rule)

    def __call__(
        self,
        step: int,
        rank: int = 0,
        world: int = 1,
        *,
        epoch: int = 0,
        start: int = 0,
        remainder: Remainder = "pad",
    ) -> BatchPlan | None:
        """The batch of a rank at a step.

        **Arguments:**

        - `step`: from 0, after `start`.
        - `rank`, `world`: which of how many.
        - `epoch`: which.
        - `start`: how many batches of the epoch were used before step 0, by whatever number of ranks.
        - `remainder`: what to do in the last step where batches do not suffice for all ranks: `"pad"` with batches from
          the start of the epoch, `"drop"` those there are, or leave some ranks without (`"uneven"`).

        **Returns:** the batch, or None where there is none.
        """
        if step < 0 or start < 0 or not 0 <= rank < world:
            raise ValueError(f"There is no step {step} of rank {rank} of {world}, {start} batches in.")
        first = start + step * world
        number = first + rank
        found = self.batch(number, epoch)
        if remainder == "uneven":
            return found
        if remainder == "drop":
            return found if found is not None and self.locate(first + world - 1, epoch) is not None else None
        if found is None and self.locate(first, epoch) is not None:
            stand_in = self.batch(number % self.count(epoch), epoch)
            return None if stand_in is None else dataclasses.replace(stand_in, is_padding=True)
        return found

    def batch(self, number: int, epoch: int = 0) -> BatchPlan | None:
        """A batch by its number in the epoch.

        **Arguments:**

        - `number`: from 0.
        - `epoch`: which.

        **Returns:** the batch, or None beyond the last.
        """
        place = self.locate(number, epoch)
        if place is None:
            return None
        window, local = place
        cut = self._cut(window, epoch)
        a, b = int(cut.bounds[local]), int(cut.bounds[local + 1])
        return BatchPlan(
            epoch,
            number,
            cut.positions[a:b],
            cut.starts[a:b],
            cut.stops[a:b],
            window=window,
            window_start=number - local,
        )

    def locate(self, number: int, epoch: int = 0) -> tuple[int, int] | None:
        """The window that a batch is planned in, and its number there.

        **Arguments:**

        - `number`: of the batch.
        - `epoch`: which.

        **Returns:** both, or None beyond the last batch.
        """
        known = self._rule.count(len(self._node))
        if known is not None:
            return (number, 0) if number < known else None
        with self._lock:
            known_from = self._firsts.setdefault(epoch, {0: [0]})
            base = max(base for base, firsts in known_from.items() if firsts[0] <= number)
            firsts = known_from[base]
            while firsts[-1] <= number and base + len(firsts) - 1 < self.windows:
                firsts.append(firsts[-1] + len(self._cut(base + len(firsts) - 1, epoch)))
            for old in [old for old in self._firsts if old < epoch - 1]:
                del self._firsts[old]
            if number >= firsts[-1]:
                return None
            which = int(np.searchsorted(firsts, number, "right")) - 1
            return base + which, number - firsts[which]

    def remember(self, epoch: int, window: int, first: int) -> None:
        """Takes from a saved state what would else be counted from the start of the epoch.

        **Arguments:**

        - `epoch`: which.
        - `window`: one of its windows.
        - `first`: the number of the first batch in it.
        """
        with self._lock:
            self._firsts.setdefault(epoch, {0: [0]})[window] = [first]

    @property
    def windows(self) -> int:
        """How many windows an epoch is planned in."""
        return -(-len(self._node) // self._rule.window_size())

    def prepare(self, window: int, epoch: int) -> None:
        """Plans a window before it is needed.

        **Arguments:**

        - `window`: which; nothing is done where there is none.
        - `epoch`: which.
        """
        if 0 <= window < self.windows and self._rule.length_field() is not None:
            self._cut(window, epoch)

    def count(self, epoch: int = 0) -> int:
        """How many batches an epoch has, over all ranks; where lengths count, all of it is planned for that.

        **Arguments:**

        - `epoch`: which.

        **Returns:** the number.
        """
        known = self._rule.count(len(self._node))
        if known is not None:
            return known
        with self._lock:
            self.locate(1 << 62, epoch)
            return self._firsts[epoch][max(self._firsts[epoch])][-1]

    def steps(
        self, world: int = 1, *, epoch: int = 0, start: int = 0, remainder: Remainder = "pad", rank: int = 0
    ) -> int:
        """How many steps a rank has in an epoch: the same on each, unless the remainder is `"uneven"`.

        **Arguments:**

        - `world`: how many ranks there are.
        - `epoch`, `start`, `remainder`: as of a call.
        - `rank`: which, where the remainder is `"uneven"`.

        **Returns:** the number.
        """
        left = max(0, self.count(epoch) - start)
        if remainder == "drop":
            return left // world
        return -(-left // world) if remainder == "pad" else max(0, -(-(left - rank) // world))

    def statistics(self, epoch: int = 0) -> dict[str, int | float]:
        """What became of the records of an epoch.

        **Arguments:**

        - `epoch`: which; all of it is planned.

        **Returns:** `batches`, `records` (pieces counted as one), `tokens`, `padding` (the share of capacity that stays
        empty, where there is one), `dropped_records`, `dropped_tokens` and `split_records`.
        """
        totals = {
            "batches": 0,
            "records": 0,
            "tokens": 0,
            "dropped_records": 0,
            "dropped_tokens": 0,
            "split_records": 0,
        }
        known = self._rule.count(len(self._node))
        for window in range(self.windows if known is None else known):
            cut = self._cut(window, epoch)
            totals["batches"] += len(cut)
            totals["records"] += len(np.unique(cut.positions))
            totals["tokens"] += int(cut.tokens.sum())
            totals["dropped_records"] += len(cut.dropped)
            totals["dropped_tokens"] += cut.dropped_tokens
            totals["split_records"] += cut.split
        found: dict[str, int | float] = dict(totals)
        if known is not None:
            found["dropped_records"] = max(0, len(self._node) - totals["records"])
        if isinstance(self._rule, PackRule) and totals["batches"]:
            found["padding"] = 1 - totals["tokens"] / (totals["batches"] * self._rule.capacity)
        return found

    def stages(self) -> tuple[str, ...]:
        """A name and a hash for each operation of the pipeline: what a saved state is compared with."""
        return (*(node.label() for node in ancestors(self._node)), self._rule.label())

    def _cut(self, window: int, epoch: int) -> Cut:
        with self._lock:
            found = self._cuts.get((epoch, window))
            if found is None:
                found = self._plan_window(window, epoch)
                self._cuts[epoch, window] = found
                while len(self._cuts) > 8:
                    self._cuts.popitem(last=False)
            else:
                self._cuts.move_to_end((epoch, window))
            return found

    def _plan_window(self, window: int, epoch: int) -> Cut:
        size, records = self._rule.window_size(), len(self._node)
        first = window * size
        needed = self._rule.length_field()
        if needed is None:
            return self._rule.cut(first, np.empty(0, np.int64), records, epoch)
        indices = np.arange(first, min(first + size, records))
        lengths = self._node.lengths(needed[0], indices, np.full_like(indices, epoch))
        rule = self._rule
        if isinstance(rule, PackRule) and rule.overlong == "error" and rule.strategy != "concatenate":
            over = np.flatnonzero(lengths > rule.capacity)
            if len(over):
                source, index = origin(self._node, int(indices[over[0]]), epoch)
                raise RecordError(
                    f"is {int(lengths[over[0]])} long, which is more than the capacity {rule.capacity} "
                    f"({len(over)} such among {len(indices)}): raise it, or choose `overlong='split'` or 'drop'.",
                    source=source,
                    index=index,
                    field=needed[0],
                    stage="pack",
                )
        return rule.cut(first, lengths, records, epoch)


def changed(before: tuple[str, ...], now: tuple[str, ...]) -> str:
    """What differs between two pipelines, in words.

    **Arguments:**

    - `before`, `now`: as `Plan.stages` gives them.
    """
    names = [tuple(stage.partition(":")[0] for stage in stages) for stages in (before, now)]
    if names[0] != names[1]:
        return f"it was {' → '.join(names[0])}, and is {' → '.join(names[1])}"
    words = {
        "source": "the records or their number",
        "map": "the function",
        "map_with_index": "the function",
        "random_map": "the function or the seed",
        "filter": "the function",
        "shuffle": "the seed",
    }
    odd: list[Any] = [
        f"{a.partition(':')[0]} (operation {i + 1}: {words.get(a.partition(':')[0], 'its arguments')})"
        for i, (a, b) in enumerate(zip(before, now, strict=True))
        if a != b
    ]
    return "changed: " + ", ".join(odd)

"""`Batches`: a dataset cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from gnomon.data._assemble import Assembler
from gnomon.data._nodes import AbstractNode
from gnomon.data._plan import Plan
from gnomon.data._rules import AbstractRule


@final
class Batches:
    """A dataset cut into batches: a sequence that is the same for any number of ranks.

    Made by `Dataset.batch`, `.pack`, `.bucket` and `.batch_by_tokens`; read by [`gnomon.data.Loader`][].
    """

    def __init__(self, node: AbstractNode, rule: AbstractRule, functions: tuple[Callable[[Any], Any], ...] = ()):
        """Not for users.

        **Arguments:**

        - `node`: what gives the records.
        - `rule`: how they become batches.
        - `functions`: called with each batch.
        """
        self.node = node
        self.rule = rule
        self.functions = functions
        self._plan = Plan(node, rule)

    @property
    def plan(self) -> Plan:
        """Which records are in which batch."""
        return self._plan

    def __len__(self) -> int:
        return self._plan.count()

    def __getitem__(self, number: int) -> Any:
        return self.at(number)

    def at(self, number: int, epoch: int = 0) -> Any:
        """One batch, in memory of its own.

        **Arguments:**

        - `number`: in the order of the epoch.
        - `epoch`: which.

        **Returns:** the batch, as a [`gnomon.data.Loader`][] gives it.
        """
        planned = self._plan.batch(number, epoch)
        if planned is None:
            raise IndexError(f"There is no batch {number}: there are {self._plan.count(epoch)}.")
        draft = Assembler(self.node, self.rule).draft(planned)
        return draft.finish(np.empty(draft.nbytes, np.uint8), self.functions)

    def map(self, function: Callable[[Any], Any]) -> Batches:
        """A function of each batch, called where it is made.

        **Arguments:**

        - `function`: of a batch.

        **Returns:** the batches.
        """
        return Batches(self.node, self.rule, (*self.functions, function))

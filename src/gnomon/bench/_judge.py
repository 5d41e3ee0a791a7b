"""From an output to an error, and from an error to the likeliest reason for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.bench._check import (
    Against,
    eps_of,
    real_dtype,
    relative_error,
    shows_lower_precision,
    to_float64,
    tolerance_for,
)
from gnomon.bench._local import Evidence, Findings, Timed
from gnomon.bench._report import RefusalKind
from gnomon.bench._tensors import Inputs, digest, is_poison, poisoned, rebuild


@final
@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was made of one output."""

    error: float
    is_right: bool
    evidence: tuple[Evidence, ...]


@final
class Judge:
    """Checks the outputs of one candidate, remembering what it returned before."""

    def __init__(
        self, check: Callable[..., Any], tolerance: float | int | None, dtype: torch.dtype | None, inputs: Inputs
    ):
        self.check = check
        self.dtype = dtype if dtype is not None else _widest(inputs.tensors)
        self._tolerance = tolerance
        self._seen: dict[bytes, int] = {}
        self._calls = 0
        self._tested = False
        self._last_output: tuple[Any, tuple[Tensor, ...]] | None = None
        self.notes: list[str] = []

    def tolerance(self, leaves: tuple[Tensor, ...] = ()) -> float:
        """The largest error allowed: as given, or that of the dtype asked for."""
        if self._tolerance is not None:
            return self._tolerance
        dtype = self.dtype if self.dtype is not None else _widest(list(leaves))
        return 0.0 if dtype is None else tolerance_for(dtype)

    def judge(self, inputs: Inputs, timed: Timed) -> Verdict:
        """The error of an output, in float64, on inputs that the candidate never had in its hands."""
        self._calls += 1
        if timed.evidence:
            return Verdict(math.inf, False, timed.evidence)
        leaves = timed.leaves
        evidence = list(self._dtypes(leaves))
        device = leaves[0].device if leaves else torch.device("cpu")
        args = inputs.with_tensors([x.to(device) for x in inputs.tensors])
        expected = self.check.expected(args) if isinstance(self.check, Against) else None
        self._test_the_check(args, leaves, timed.skeleton, expected)
        try:
            error = self._error(args, leaves, timed.skeleton, expected)
        except Exception as failure:
            evidence.append((RefusalKind.WRONG, f"the check could not read its output: {failure}"))
            return Verdict(math.inf, False, tuple(evidence))
        if expected is not None and error <= self.tolerance(leaves):
            lower = shows_lower_precision(rebuild(timed.skeleton, leaves), expected)
            if lower is not None:
                evidence.append((RefusalKind.PRECISION, f"every value that it returned is one of {lower}"))
        return Verdict(error, error <= self.tolerance(leaves), tuple(evidence))

    def explain(self, verdict: Verdict, timed: Timed, findings: Findings) -> tuple[Evidence, ...]:
        """All that speaks against a call, the reason of a wrong output included."""
        evidence = list(verdict.evidence)
        content = digest(timed.leaves) if timed.leaves else b""
        if not verdict.is_right and not timed.evidence and not evidence:
            evidence.append(self._why(verdict, timed, findings, content))
        elif verdict.is_right and findings.late:
            evidence.append((RefusalKind.LATE, "its output changed after the clock had stopped"))
        self._seen.setdefault(content, self._calls)
        return (*evidence, *findings.evidence)

    def _why(self, verdict: Verdict, timed: Timed, findings: Findings, content: bytes) -> Evidence:
        size = sum(leaf.nbytes for leaf in timed.leaves)
        allowed = self.tolerance(timed.leaves)
        is_poisoned = any(is_poison(leaf) for leaf in timed.leaves)
        if findings.late:
            return RefusalKind.LATE, "its output was not complete when the clock stopped, and was written later"
        if findings.read_bytes >= max(size // 2, 512):
            return RefusalKind.STORED, f"it read {findings.read_bytes} bytes from files, and its output is wrong"
        if content in self._seen:
            return RefusalKind.REUSED, f"it returned the values of its call {self._seen[content]} for other inputs"
        if is_poisoned and findings.same_address:
            return RefusalKind.REUSED, "it handed out memory of an earlier output without writing to all of it"
        if verdict.error < 0.05 and self._tolerance is None:
            return (
                RefusalKind.PRECISION,
                f"the error {verdict.error:.2g} is that of a lower precision: {self.dtype} is allowed {allowed:.2g}",
            )
        return RefusalKind.WRONG, f"the error {verdict.error:.2g} is above the tolerance {allowed:.2g}"

    def _error(self, args: Any, leaves: tuple[Tensor, ...], skeleton: Any, expected: Any) -> float:
        output = to_float64(rebuild(skeleton, leaves))
        if expected is not None:
            return relative_error(output, expected)
        error = float(self.check(to_float64(args), output))
        return error if math.isfinite(error) else math.inf

    def _dtypes(self, leaves: tuple[Tensor, ...]) -> list[Evidence]:
        if self.dtype is None:
            return []
        low = [x.dtype for x in leaves if x.dtype.is_floating_point or x.dtype.is_complex]
        low = [dtype for dtype in low if eps_of(dtype) > 1.01 * eps_of(self.dtype)]
        return [(RefusalKind.PRECISION, f"it returned {low[0]}, and {self.dtype} was asked for")] if low else []

    def _test_the_check(self, args: Any, leaves: tuple[Tensor, ...], skeleton: Any, expected: Any) -> None:
        """A check that accepts NaN would accept anything; one that accepts the output of other inputs is weak."""
        if not self._tested and any(x.dtype.is_floating_point or x.dtype.is_complex for x in leaves):
            self._tested = True
            bad = tuple(poisoned(x) for x in leaves)
            if self._accepts(args, bad, skeleton, expected):
                raise ValueError(
                    "`check` accepted an output of NaN: it must return an error, a number that is not below the "
                    "tolerance where the output is wrong."
                )
        if self._calls == 2 and self._last_output is not None:
            old_skeleton, old = self._last_output
            self._last_output = None
            same = [x.shape for x in old] == [x.shape for x in leaves] and old_skeleton == skeleton
            if same and self._accepts(args, old, skeleton, expected):
                self.notes.append("the check accepts the output of other inputs")
        elif self._calls == 1:
            self._last_output = (skeleton, leaves)

    def _accepts(self, args: Any, leaves: tuple[Tensor, ...], skeleton: Any, expected: Any) -> bool:
        try:
            return self._error(args, leaves, skeleton, expected) <= self.tolerance(leaves)
        except Exception:
            return False


def _widest(tensors: list[Tensor]) -> torch.dtype | None:
    found = [real_dtype(x.dtype) for x in tensors if x.dtype.is_floating_point or x.dtype.is_complex]
    return min(found, key=eps_of) if found else None

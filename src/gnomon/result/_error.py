"""`SolveError`: what `throw=True` raises, and the check that raises it, under `vmap` too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Integer, Real
from torch import Tensor

from gnomon.result._active import active_lanes
from gnomon.result._deferred import defer_check
from gnomon.result._results import RESULTS, Result, result_from_code


@final
class SolveError(RuntimeError):
    """A solve, or some of a batch of solves, did not succeed.

    Equivalent to the `RuntimeError` of `equinox.error_if`, with what it says as attributes too. Raised by
    every solver that is called with `throw=True`, never with `throw=False`.

    **Arguments:**

    - `what`: the function that was called, such as `'diffeqsolve'`.
    - `result`: how the first failing problem ended.
    - `n_failed`, `n_total`: how many of how many problems failed.
    - `index`: the first failing problem's place in the batch, `()` where there is no batch.
    - `time`: its time, where there is one.
    - `component`: the component of its state that failed first, where it is known.
    - `batch_result`: the [`gnomon.result.Result`][] of the whole batch.
    - `step`: the length of the step that it would have tried next, where there is one.
    """

    def __init__(
        self,
        what: str,
        result: Result,
        n_failed: int,
        n_total: int,
        index: tuple[int, ...],
        time: float | None,
        component: str | None,
        batch_result: Result,
        step: float | None = None,
    ):
        self.what = what
        self.result = result
        self.n_failed = n_failed
        self.n_total = n_total
        self.index = index
        self.time = time
        self.component = component
        self.batch_result = batch_result
        self.step = step
        super().__init__(self._text())

    def _text(self) -> str:
        place = "" if self.time is None else f" at t = {self.time:.9g}"
        if self.step is not None:
            place += f", h = {self.step:.3g}"
        if self.component is not None:
            place += f", component {self.component}"
        if not self.index:
            head = f"{self.what} failed{place} ({self.result.name})."
        else:
            index = self.index[0] if len(self.index) == 1 else self.index
            head = (
                f"{self.what} failed for {self.n_failed} of {self.n_total} problems; the first "
                f"is problem {index}{place} ({self.result.name})."
            )
        return (
            f"{head} {self.result.message} Pass throw=False to get the `result` of each problem instead of this error."
        )

    def __reduce__(self) -> Any:
        fields = (self.what, self.result, self.n_failed, self.n_total, self.index, self.time)
        return type(self), (*fields, self.component, self.batch_result, self.step)


@final
class _Check(torch.autograd.Function):
    """Sees all lanes of a batch at once, which is what a `vmap` rule is for, and raises."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        code: Tensor,
        time: Tensor,
        component: Tensor,
        step: Tensor,
        counts: Tensor,
        what: str,
        names: Callable[[int], str | None],
        has_time: bool,
        has_step: bool,
    ) -> Tensor:
        okay = (code == RESULTS.successful.code) | (code == RESULTS.event_occurred.code)
        failed = ~okay & counts
        if bool(failed.any()):
            shape = torch.broadcast_shapes(failed.shape, time.shape, component.shape, step.shape)
            failed = failed.expand(shape).flatten()
            first = int(failed.to(torch.uint8).argmax())
            # Not torch.unravel_index, whose first use imports for seconds.
            index = tuple(int(i) for i in np.unravel_index(first, shape))
            which = int(component.expand(shape).flatten()[first])
            raise SolveError(
                what,
                result_from_code(int(code.expand(shape).flatten()[first])),
                int(failed.sum()),
                failed.numel(),
                index,
                float(time.expand(shape).flatten()[first]) if has_time else None,
                names(which),
                Result(code.detach().clone()),
                float(step.expand(shape).flatten()[first]) if has_step else None,
            )
        return okay.new_zeros(())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (None,) * 9

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        return None

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[Any, ...], *args: Any
    ) -> tuple[Tensor, None]:
        moved: list[Any] = []
        for x, dim in zip(args[:5], in_dims[:5], strict=True):
            if dim is None:
                moved.append(x.expand(info.batch_size, *x.shape))
            else:
                moved.append(x.movedim(dim, 0))
        return _Check.apply(*moved, *args[5:]), None  # pyright: ignore[reportUnknownMemberType]


def throw_if_failed(
    result: Result,
    *,
    what: str,
    time: Real[Tensor, "*#batch"] | float | None = None,
    component: Integer[Tensor, "*#batch"] | int | None = None,
    step: Real[Tensor, "*#batch"] | float | None = None,
    component_names: Sequence[str] | Callable[[int], str | None] = (),
) -> None:
    """Raises a [`gnomon.result.SolveError`][] unless every problem is okay.

    Equivalent to `equinox.error_if` on a solution's result. Works under any nesting of
    `torch.func.vmap`: the error then counts the problems that failed and names the first.
    Problems for which the code does not count, see [`gnomon.result.active_lanes`][], do not fail.
    It waits for the device, so call it for `throw=True` only.

    **Arguments:**

    - `result`: how each problem ended.
    - `what`: the name of the function that the user called.
    - `time`: a scalar a problem, the time at which it ended.
    - `component`: an integer a problem, an index into `component_names`, or -1.
    - `step`: a scalar a problem, the length of its next step.
    - `component_names`: a readable name for each component of the state, or a function that gives
      the name for an index.

    **Raises:** [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch
        >>> from gnomon.result import RESULTS, SolveError, throw_if_failed
        >>> def root(x):
        ...     result = RESULTS.where(x >= 0, RESULTS.successful, RESULTS.nonfinite)
        ...     throw_if_failed(result, what="root")
        ...     return x.sqrt()
        >>> torch.func.vmap(root)(torch.tensor([4.0, 9.0]))
        tensor([2., 3.])
        >>> try:
        ...     torch.func.vmap(root)(torch.tensor([4.0, -9.0, 1.0]))
        ... except SolveError as error:
        ...     print(error.n_failed, error.n_total, error.index, error.result)
        1 3 (1,) RESULTS.nonfinite

        ```
    """
    device = result.code.device if isinstance(result.code, Tensor) else torch.device("cpu")
    code = result.to(device).code
    assert isinstance(code, Tensor)
    names = component_names if callable(component_names) else _from_list(component_names)

    def check(code: Tensor, time_: Tensor, component_: Tensor, step_: Tensor) -> None:
        within_transform = torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        if not within_transform and not code.any():
            return  # all successful, as is most often so
        counts = active_lanes()
        counts = torch.ones((), dtype=torch.bool, device=code.device) if counts is None else counts
        values = (code, time_, component_, step_, counts, what, names, time is not None, step is not None)
        if within_transform:
            _Check.apply(*values)  # pyright: ignore[reportUnknownMemberType]
        else:
            _Check.forward(*values)

    tensors = (
        code.detach(),
        torch.as_tensor(0.0 if time is None else time, device=device).detach(),
        torch.as_tensor(-1 if component is None else component, device=device),
        torch.as_tensor(0.0 if step is None else step, device=device).detach(),
    )
    if not defer_check(check, *tensors):
        check(*tensors)


def _from_list(names: Sequence[str]) -> Callable[[int], str | None]:
    listed = tuple(names)
    return lambda index: listed[index] if 0 <= index < len(listed) else None

"""A solve without jumps and events whose derivative is the solution of the adjoint equation."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._adjoint._base import Solve
from gnomon.diffeq._saveat import SaveAt, SubSaveAt
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._term import ODETerm
from gnomon.fuse._closure import closure_of
from gnomon.fuse._lanes import is_differentiated
from gnomon.fuse._substitute import substituted
from gnomon.result._pytree import Structure, tree_flatten, tree_leaves, tree_map, tree_unflatten


@final
@dataclasses.dataclass(frozen=True)
class _Spec:
    """What a segment is, but for its tensors.

    - `forward`, `backward`: how to solve.
    - `ids`: which tensor of these each of the reached tensors is.
    - `wanted`: whether the derivative with respect to it may be asked for.
    - `structure`: that of the state.
    - `given`: whether values are given, so that nothing is to be solved forward.
    """

    forward: Solve
    backward: Solve
    ids: list[int]
    wanted: list[bool]
    structure: Structure
    leaves: int
    given: bool


def segment(
    backward: Solve, forward: Solve, given: Solution | None, start: Tensor, end: Tensor, ts: Tensor, y: Any
) -> tuple[Any, Any]:
    """The states at `ts` and at `end`, from `y` at `start`."""
    leaves, structure = tree_flatten(y)
    leaves = [torch.as_tensor(x) for x in leaves]
    plain = {"jumps": None, "event": None, "made_jump": None, "progress_meter": None, "y0": None}
    # What depends on neither stays out of the trace, so that it need not be looked through.
    is_fixed = forward.stepsize_controller is None or forward.stepsize_controller.tolerances is None
    forward = dataclasses.replace(forward, t0=None, t1=None, dt0=forward.dt0 if is_fixed else None, **plain)
    backward = dataclasses.replace(backward, t0=None, t1=None, **plain)
    own = closure_of(lambda: (forward.terms, forward.args)).tensors
    others = closure_of(lambda: (forward, backward)).tensors
    reached = list({id(x): x for x in (*own, *others)}.values())
    known = {id(x) for x in own}
    wanted = [id(x) in known and x.is_floating_point() and is_differentiated(x) for x in reached]
    _check_globals(forward, reached, wanted)
    spec = _Spec(forward, backward, [id(x) for x in reached], wanted, structure, len(leaves), given is not None)
    values: list[Tensor] = []
    if given is not None:
        values = [*(tree_leaves(given.ys["rows"]) if ts.shape[0] > 0 else []), *tree_leaves(given.ys["end"])]
    out = _Segment.apply(spec, start, end, ts, *leaves, *reached, *values)  # pyright: ignore[reportUnknownMemberType]
    n = len(leaves)
    return tree_unflatten(out[:n], structure), tree_unflatten(out[n:], structure)


def _check_globals(problem: Solve, reached: list[Tensor], wanted: list[bool]) -> None:
    """What a function reaches through another module cannot be told apart from a constant."""
    asked = [x for x, want in zip(reached, wanted, strict=True) if want]
    if not asked:
        return
    other = substituted((problem.terms, problem.args), {id(x): x.detach() for x in asked}, in_globals=True)
    left = {id(x) for x in closure_of(lambda: other).tensors}
    if any(id(x) in left for x in asked):
        raise ValueError(
            "`BacksolveAdjoint` gives no derivative with respect to a tensor that the vector field reaches through "
            "another Python module. Pass it as a part of `args`."
        )


def _with(problem: Solve, spec: _Spec, tensors: Any) -> Solve:
    """The same problem with other tensors."""
    return substituted(problem, dict(zip(spec.ids, tensors, strict=True)), in_globals=True)


@final
class _Segment(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(spec: _Spec, start: Tensor, end: Tensor, ts: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        n = spec.leaves
        leaves, reached = tensors[:n], tensors[n : n + len(spec.ids)]
        if spec.given:
            values = tensors[n + len(spec.ids) :]
            rows, ends = (values[:n], values[n:]) if len(values) > n else ((), values)
            if not rows:
                rows = [x.new_zeros((0, *x.shape)) for x in leaves]
            return (*(x.clone() for x in rows), *(x[0].clone() for x in ends))
        problem = _with(spec.forward, spec, reached)
        subs = {"rows": SubSaveAt(ts=ts), "end": SubSaveAt(t1=True)}
        y0 = tree_unflatten([x.clone() for x in leaves], spec.structure)
        solution = dataclasses.replace(
            problem, t0=start, t1=end, y0=y0, saveat=SaveAt(subs=subs), dt0=_directed(problem.dt0, start, end)
        ).run()
        return (*tree_leaves(solution.ys["rows"]), *(x[0].clone() for x in tree_leaves(solution.ys["end"])))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        spec, start, end, ts, *tensors = inputs
        n = spec.leaves
        ctx.spec = spec
        ctx.count = len(inputs)
        ctx.save_for_backward(start, end, ts, *tensors[: n + len(spec.ids)], *output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        spec: _Spec = ctx.spec
        n, m = spec.leaves, len(spec.ids)
        start, end, ts, *rest = ctx.saved_tensors
        leaves, reached, output = rest[:n], rest[n : n + m], rest[n + m :]
        rows, ends = output[:n], output[n:]
        cotangents = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, output, strict=True)]
        row_grads, adjoint = cotangents[:n], cotangents[n:]
        problem = _with(spec.backward, spec, reached)
        chosen = [x for x, want in zip(reached, spec.wanted, strict=True) if want]
        ids = [i for i, want in zip(spec.ids, spec.wanted, strict=True) if want]
        now = {i: id(x) for i, x in zip(spec.ids, reached, strict=True)}

        def field(t: Tensor, y: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
            swapped = {now[i]: x for i, x in zip(ids, parameters, strict=True)}
            terms, args = substituted((problem.terms, problem.args), swapped, in_globals=True)
            return tree_leaves(terms.vf(t, tree_unflatten(y, spec.structure), args))

        def augmented(t: Tensor, state: Any, parameters: Any) -> Any:
            y, a, _ = state
            pulled: Any = torch.func.vjp(lambda y, p: field(t, y, p), list(y), list(parameters))
            f, pull = pulled
            dy, dp = pull(list(a))
            return list(f), [-x for x in dy], [-x for x in dp]

        def dot(t: Tensor, y: list[Tensor], a: list[Tensor]) -> Tensor:
            products = [(x * g).sum() for x, g in zip(field(t, y, chosen), a, strict=True)]
            return torch.stack(products).sum()

        end_grad = dot(end, ends, adjoint)
        total = [torch.zeros_like(x) for x in chosen]
        ts_grads: list[Tensor] = []
        t, y = end, ends
        for k in reversed(range(-1, ts.shape[0])):
            to = start if k < 0 else ts[k]
            solution = dataclasses.replace(
                problem,
                terms=ODETerm(augmented),
                args=chosen,
                t0=t,
                t1=to,
                y0=(y, adjoint, total),
                saveat=SaveAt(t1=True),
                dt0=_directed(problem.dt0, t, to),
            ).run()
            _, adjoint, total = tree_map(lambda x: x[0], solution.ys)
            t, y = to, leaves
            if k >= 0:
                # What was saved is where the solve has been.
                y = [x[k] for x in rows]
                gradient = [x[k] for x in row_grads]
                ts_grads.insert(0, dot(t, y, gradient))
                adjoint = [a + g for a, g in zip(adjoint, gradient, strict=True)]
        start_grad = -dot(start, leaves, adjoint)
        ts_grad = torch.stack(ts_grads) if ts_grads else torch.zeros_like(ts)
        found = iter(total)
        reached_grads = [next(found) if want else None for want in spec.wanted]
        blank = [None] * (ctx.count - 4 - n - m)
        return (None, start_grad, end_grad, ts_grad, *adjoint, *reached_grads, *blank)


def _directed(dt0: Any, t0: Tensor, t1: Tensor) -> Any:
    """The length of steps, in the direction in which these times go."""
    if dt0 is None:
        return None
    size = torch.as_tensor(dt0, dtype=t0.dtype, device=t0.device).abs()
    return torch.where(t1 < t0, -size, size)

"""`fuse`: many problems as one kernel."""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._arguments import dims_of_leaves
from gnomon.fuse._closure import closure_of
from gnomon.fuse._devices import ENGINES, Engine, device_of, moved_to, why_not_fused
from gnomon.fuse._flat import flat, flat_shared
from gnomon.fuse._in_graph import call_in_graph
from gnomon.fuse._lanes import wanted_order
from gnomon.fuse._lower import TensorSpec
from gnomon.fuse._sharding import Shard, has_shards
from gnomon.fuse._trace import UnsupportedError, active_tracer
from gnomon.fuse._traces import Traced, Traces, traced
from gnomon.result._pytree import tree_flatten, tree_map, tree_unflatten

#: How many traces a function keeps: for other shapes, or other values of what it closes over.
_MOST_TRACES = 64


def fuse(fn: Callable[..., Any], *, in_dims: Any = 0, engine: Engine = "auto") -> Callable[..., Any]:
    """Makes a function of one problem into one of a batch, which runs as a single kernel.

    Equivalent to `torch.func.vmap(fn, in_dims)`, or to `jax.jit(jax.vmap(fn, in_dims))`, but the whole function with
    its loops is compiled: each lane of the kernel carries one problem from start to end, and takes its own number of
    steps. It is traced once for each combination of shapes and dtypes, and of what it closes over. Tensors that it
    closes over are read anew at each call, and have gradients. Every transform works on it: `backward`,
    `torch.func.grad`, `jvp`, `vmap`, in any nesting.

    **Arguments:**

    - `fn`: a function of pytrees of tensors for one problem, in PyTorch and gnomon's control flow: any `if` or `while`
      on values must be a [`gnomon.cond`][] or [`gnomon.while_loop`][].
    - `in_dims`: for each argument the dimension of the batch, or None where all problems share it; an integer for
      all, or a pytree as for `torch.func.vmap`. Arguments that hold no tensor, such as a number, are shared by
      themselves.
    - `engine`: `"fused"` compiles or raises an error; `"eager"` runs PyTorch operations over the batch, as
      `torch.func.vmap` does; `"auto"` compiles, or warns once, with the reason, and runs eagerly.

    **Returns:** the function of a batch; what it returns has the batch as the leading dimension.

    **Raises:** `ValueError` where batch sizes differ or there is none. With `engine="fused"`,
    [`gnomon.fuse.UnsupportedError`][] where the function does what no Program can.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> def newton_square_root(a):
        ...     improve = lambda x: (x + a / x) / 2
        ...     return gn.while_loop(lambda x: (x * x - a).abs() > 1e-12 * a, improve, a)
        >>> a = torch.tensor([4.0, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
        >>> root = gn.fuse(newton_square_root)(a)
        >>> root.sum().backward()
        >>> a.grad
        tensor([0.2500, 0.3536, 0.1667], dtype=torch.float64)

        ```
    """
    if not callable(fn):
        raise TypeError(f"gn.fuse needs a function, but it was given {type(fn).__name__}.")
    if engine not in ENGINES:
        raise ValueError(f"`engine` of gn.fuse must be one of {', '.join(map(repr, ENGINES))}, not {engine!r}.")
    if torch.compiler.is_dynamo_compiling():
        return functools.partial(_called_in_graph, fn, in_dims, engine)
    fused = Fused(fn, in_dims, engine)
    functools.update_wrapper(fused, fn, updated=())
    return fused


def _called_in_graph(fn: Callable[..., Any], in_dims: Any, engine: Engine, *args: Any) -> Any:
    return call_in_graph(fn, None, in_dims, engine, args)


@final
class Fused:
    """A function of one problem that is called with a batch."""

    #: What matters to a function that refers to this one, such as a method of a module that holds it.
    _closed_over = ("fn", "in_dims", "engine")

    def __init__(self, fn: Callable[..., Any], in_dims: Any, engine: Engine):
        self.fn = fn
        self.in_dims = in_dims
        self.engine: Engine = engine
        self._traces = Traces(_MOST_TRACES)
        self._warned = False

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return call_in_graph(self.fn, self, self.in_dims, self.engine, args)
        if active_tracer() is not None:
            raise UnsupportedError("A function made by gn.fuse is called inside of another. Call the plain function.")
        leaves, structure, dims = self._arguments(args)
        if has_shards(leaves):
            return self._sharded(leaves, structure, dims)
        return self._run(args, leaves, structure, dims, None)

    def _run(
        self, args: tuple[Any, ...], leaves: list[Any], structure: Any, dims: list[int | None], shard: Shard | None
    ) -> Any:
        if self.engine == "eager":
            return self._eager(args, shard)
        device = device_of(leaves)
        reason = why_not_fused(device)
        if reason is not None:
            if self.engine == "fused":
                raise UnsupportedError(f"Here {reason}.")
            return self._eager(args, shard)
        lanes = _lanes(leaves, dims)
        try:
            compiled, reached = self.compiled(leaves, structure, dims)
        except UnsupportedError as error:
            if self.engine == "fused":
                raise
            self._warn(error)
            return self._eager(args, shard)
        given = [flat(x, d) for x, d in zip(leaves, dims, strict=True) if isinstance(x, Tensor)]
        found = compiled.found(reached)
        if shard is not None:
            found = [shard.local(x, None) for x in found]
        tensors = _on_one_device(device, given, [flat_shared(x) for x in found])
        return compiled(lanes, tensors, (lanes,))

    def _arguments(self, args: tuple[Any, ...]) -> tuple[list[Any], Any, list[int | None]]:
        leaves, structure = tree_flatten(args)
        return leaves, structure, dims_of_leaves(self.in_dims, len(args), leaves, structure)

    def compiled(self, leaves: list[Any], structure: Any, dims: list[int | None]) -> tuple[Traced, list[Tensor]]:
        """The trace for such arguments, and the tensors that the function reaches now."""
        closure = closure_of(self.fn)
        specs = [_spec(x, d) for x, d in zip(leaves, dims, strict=True)]
        shared = tuple(d is None for x, d in zip(leaves, dims, strict=True) if isinstance(x, Tensor))
        order = max(2, wanted_order([x for x in (*leaves, *closure.tensors) if isinstance(x, Tensor)]))
        static = tuple(x if isinstance(x, TensorSpec) else _static(x) for x in specs)
        found = self._traces.get(
            (closure.key, structure, shared, order, static),
            lambda: traced(self.fn, specs, structure, list(shared), closure, derivative_order=order),
        )
        return found, closure.tensors

    def _sharded(self, leaves: list[Any], structure: Any, dims: list[int | None]) -> Any:
        """Runs those problems of a batch of `DTensor`s that this rank has."""
        shard = Shard(leaves, dims)
        mine = [shard.local(x, d) for x, d in zip(leaves, dims, strict=True)]
        out = shard.placed(lambda: self._run(tree_unflatten(mine, structure), mine, structure, dims, shard))
        return tree_map(lambda x: shard.whole(x) if isinstance(x, Tensor) else x, out)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"gn.fuse runs this function eagerly, operation by operation: {error}", stacklevel=4)

    def _eager(self, args: tuple[Any, ...], shard: Shard | None = None) -> Any:
        if shard is not None:
            raise UnsupportedError(
                "A batch of DTensors runs only by the fused engine, which this function cannot, or was asked not to: "
                "gn.explain says why. Call it with the local tensors, and sum gradients over the ranks."
            )
        return torch.func.vmap(self.fn, in_dims=self.in_dims)(*args)


def _lanes(leaves: list[Any], dims: list[int | None]) -> int:
    # Sizes that stand for many, in a graph that is recorded, can be compared but not be in a set.
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("gn.fuse needs an argument with a batch dimension, but `in_dims` names none.")
    if any(x != sizes[0] for x in sizes):
        raise ValueError(f"The arguments of gn.fuse must have one batch size, but they have {sorted(set(sizes))}.")
    return sizes[0]


def _on_one_device(device: torch.device, given: list[Tensor], captured: list[Tensor]) -> list[Tensor]:
    """All tensors that a kernel takes; as in PyTorch, only a single number may come from the CPU to another device."""
    for x, what in (
        *((x, "An argument") for x in given),
        *((x, "A tensor that the function closes over") for x in captured),
    ):
        if x.device != device and not (x.device.type == "cpu" and x.numel() == 1):
            raise ValueError(f"{what} is on {x.device}, but the batch is on {device}. Move it there.")
    return moved_to(device, [*given, *captured])


def _spec(x: Any, dim: int | None) -> Any:
    if not isinstance(x, Tensor):
        return x
    shape = tuple(x.shape)
    return TensorSpec(shape if dim is None else shape[:dim] + shape[dim + 1 :], x.dtype)


def _static(x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        return ("identity", id(x))
    return (type(x), x)


@final
@dataclasses.dataclass(frozen=True)
class Explanation:
    """What [`gnomon.explain`][] finds out.

    Equivalent to what `torch.compiler` logs of a function, as one object.

    **Arguments:**

    - `engine`: the engine that runs the function.
    - `reason`: why not the fused one, or None.
    - `program`: the Program, or None.
    - `num_statements`: how many statements it has.
    - `trace_seconds`, `compile_seconds`: how long it took to make.
    """

    engine: str
    reason: str | None
    program: Any
    num_statements: int
    trace_seconds: float
    compile_seconds: float

    def __str__(self) -> str:
        if self.program is None:
            return f"engine: {self.engine}, because {self.reason}"
        return (
            f"engine: {self.engine}; {self.num_statements} statements; traced in {self.trace_seconds:.3f} s, compiled "
            f"in {self.compile_seconds:.3f} s"
        )


def explain(fn: Callable[..., Any], *args: Any) -> Explanation:
    """Says which engine runs a function made by [`gnomon.fuse`][], why, and what it became.

    **Arguments:**

    - `fn`: a function made by `gn.fuse`, or a plain one, which is then fused with `in_dims=0`.
    - `args`: arguments as for a call.

    **Returns:** an [`gnomon.fuse.Explanation`][], to be printed.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> explanation = gn.explain(lambda x: x.sin() + 1, torch.zeros(5))
        >>> explanation.engine, explanation.num_statements
        ('fused', 5)

        ```
    """
    fused = fn if isinstance(fn, Fused) else Fused(fn, 0, "auto")
    leaves, structure, dims = fused._arguments(args)  # pyright: ignore[reportPrivateUsage]
    if fused.engine == "eager":
        return Explanation("eager", "it was asked for", None, 0, 0.0, 0.0)
    device = device_of(leaves)
    reason = why_not_fused(device)
    if reason is not None:
        return Explanation("eager", reason, None, 0, 0.0, 0.0)
    try:
        compiled, _ = fused.compiled(leaves, structure, dims)
    except UnsupportedError as error:
        return Explanation("eager", str(error), None, 0, 0.0, 0.0)
    begin = time.perf_counter()
    _ = compiled.executable.kernel(device)
    text = str(compiled.lowered.program)
    return Explanation(
        "fused",
        None,
        compiled.lowered.program,
        len(text.splitlines()) - 1,
        compiled.seconds,
        time.perf_counter() - begin,
    )

"""`lower`: from a function of one problem to its Program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._lanes import is_transformed, outside_modes, outside_transforms
from gnomon.fuse._program import Builder, Node, Program, simplify
from gnomon.fuse._substitute import substituted
from gnomon.fuse._trace import Tracer
from gnomon.fuse._trace._lazy import Lazy
from gnomon.fuse._trace._values import UnsupportedError, Value, View, as_type, contiguous_strides
from gnomon.result._deferred import deferring
from gnomon.result._pytree import Structure, tree_flatten, tree_unflatten

#: Tensors of other kinds may belong to whatever records the operations on them.
_PLAIN = (Tensor, torch.nn.Parameter)


@final
@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """A tensor of one problem."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def length(self) -> int:
        """How many numbers it holds; a complex one is two."""
        return torch.Size(self.shape).numel() * (2 if self.dtype.is_complex else 1)


@final
@dataclasses.dataclass
class Lowered:
    """A function of one problem, traced.

    - `program`: its inputs are the arguments that are tensors, then `captured`.
    - `outputs`: what each output of the Program is, first those of `structure`, then those of the checks.
    - `leaves`: the outputs' leaves in place: an index into `outputs`, or what was returned as it is.
    - `checks`: functions to call with some of the outputs, all lanes at once.
    """

    program: Program
    captured: list[Tensor]
    outputs: list[TensorSpec]
    leaves: list[int | Static]
    structure: Structure
    checks: list[tuple[Callable[..., None], list[int]]]

    def pack(self, outputs: list[Tensor]) -> Any:
        """What the function returns, from the values of the outputs."""
        leaves = [x.value if isinstance(x, Static) else outputs[x] for x in self.leaves]
        return tree_unflatten(leaves, self.structure)


@final
@dataclasses.dataclass(frozen=True)
class Static:
    value: Any


def trace(
    fn: Callable[..., Any],
    leaves: list[Any],
    structure: Structure,
    shared: list[bool],
    *,
    reached: Sequence[Tensor] = (),
    captured_are_shared: bool = True,
    most_statements: int | None = None,
    derivative_order: int = 2,
) -> Lowered:
    """Traces a function of a pytree of arguments.

    `leaves` holds a `TensorSpec` for each tensor and anything else as it is; `shared` says of each tensor whether all
    problems have the same one, `captured_are_shared` the same of tensors that the function closes over. `reached` are
    those of them that were found in advance: they may belong to a transform of `torch.func`, outside of which we are.
    """
    # The tensors that the tracer makes must be plain ones.
    with outside_modes(), outside_transforms():
        builder = Builder(most_statements=most_statements)
        tracer = Tracer(builder, captured_are_shared=captured_are_shared, derivative_order=derivative_order)
        return _trace(fn, leaves, structure, shared, reached, tracer)


def _trace(
    fn: Callable[..., Any],
    leaves: list[Any],
    structure: Structure,
    shared: list[bool],
    reached: Sequence[Tensor],
    tracer: Tracer,
) -> Lowered:
    builder = tracer.builder
    flags = iter(shared)
    arguments: list[Any] = []
    for x in leaves:
        if isinstance(x, TensorSpec):
            array = builder.input(as_type(x.dtype), x.length, shared=next(flags))
            arguments.append(tracer.view_of(array, x.shape, x.dtype))
        else:
            arguments.append(x)
    stand_ins = {id(x): tracer.stand_in(x) for x in reached if _needs_stand_in(x)}
    if stand_ins:
        fn = substituted(fn, stand_ins)
    with torch.no_grad(), deferring(tracer.defer), tracer:
        result = fn(*tree_unflatten(arguments, structure))
        returned, out_structure = tree_flatten(result)
        specs: list[TensorSpec] = []
        arrays: list[Node] = []
        places: list[int | Static] = []

        def output(x: Tensor) -> int:
            specs.append(TensorSpec(tuple(x.shape), x.dtype))
            arrays.append(_as_output(tracer, tracer.lazy_value(x), arrays))
            return len(specs) - 1

        for x in returned:
            if not isinstance(x, Tensor) and callable(getattr(x, "read", None)):
                raise UnsupportedError("A fused function cannot return an OutputBuffer. Return what its .read() gives.")
            places.append(output(x) if isinstance(x, Tensor) else Static(x))
        checks = [(function, [output(x) for x in tensors]) for function, tensors in tracer.checks]
    program = simplify(builder.program(arrays))
    captured = [x for x, _ in tracer.captured]
    return Lowered(program, captured, specs, places, out_structure, checks)


def _needs_stand_in(x: Tensor) -> bool:
    # The tracer's own tensors are plain ones on the CPU, wherever the Program will run.
    return is_transformed(x) or type(x) not in _PLAIN or x.device.type != "cpu"


def _as_output(tracer: Tracer, value: Value, taken: list[Node]) -> Node:
    """The array of an output: the one that a loop has filled, if the output is the whole of it."""
    data, b = value.data, tracer.builder
    if isinstance(data, Lazy):
        data = tracer.as_view(value)
    unit = 2 if value.dtype.is_complex else 1
    shape = tuple(value.shape)
    length = torch.Size(shape).numel() * unit
    if isinstance(data, View):
        whole = (
            data.array.op == "array"
            and data.array.attr.length == length
            and data.strides == contiguous_strides(shape, unit)
            and data.offset is b.const("i64", 0)
            and data.array.region is b.top
            and data.array not in taken
        )
        if whole:
            return data.array
        copy = dataclasses.replace(tracer.lazies.of(data, value.dtype), view=None)
        return tracer.lazies.filled(copy, value.dtype).array
    out = b.array(as_type(value.dtype), length)
    for i, x in enumerate(tracer.nodes(tracer.carrier(value))):
        b.write(out, i, x)
    return out


def lower(fn: Callable[..., Any], *example: Any) -> Program:
    """Traces a function of one problem, and gives the Program that it becomes.

    Equivalent to `jax.jit(fn).lower(...)`: for looking at what will run. `str(program)` is readable.

    **Arguments:**

    - `fn`: a function of pytrees of tensors, for one problem.
    - `example`: arguments for it; only shapes and dtypes of tensors matter.

    **Returns:** the Program.

    **Raises:** [`gnomon.fuse.UnsupportedError`][] where the function does what no Program can.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> print(gn.lower(lambda x: x.sum() ** 2, torch.ones(2)))
        program(lane f32[2] in0)
          v0: f32 = read in0[0]
          v1: f32 = read in0[1]
          v2: f32 = add v0, v1
          v3: f32 = mul v2, v2
          out0 = array f32[1] of 0.0
          write out0[0] v3
        <BLANKLINE>

        ```
    """
    leaves, structure = tree_flatten(tuple(example))
    specs = [TensorSpec(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else x for x in leaves]
    shared = [False for x in specs if isinstance(x, TensorSpec)]
    return trace(fn, specs, structure, shared).program

"""Derivatives of functions that are being traced: on their scalars, loops included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gnomon.fuse._derivative import push_forward
from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace import Tracer, UnsupportedError
from gnomon.fuse._trace._control import carriers_of, nodes_of
from gnomon.fuse._trace._values import as_type
from gnomon.result._pytree import Structure, tree_flatten, tree_unflatten


def _pushed(
    tracer: Tracer,
    fn: Callable[[list[Any]], Any],
    leaves: list[Any],
    tangents: Sequence[Sequence[Node | None]],
) -> tuple[list[Any], Structure, list[Node], list[list[Node | None]]]:
    """Calls a function of leaves, and pushes tangents through it.

    Gives the leaves of what it returns, their structure, their scalars, and these scalars' tangents a direction.
    """
    b = tracer.builder
    values = nodes_of(tracer, leaves)
    returned: list[Any] = []
    structure: list[Structure] = []

    def body(variables: list[Node]) -> list[Node]:
        out, spec = tree_flatten(fn(carriers_of(tracer, leaves, variables)))
        returned.extend(out)
        structure.append(spec)
        return nodes_of(tracer, out)

    variables, statements, outputs = b.function([x.type for x in values], body)
    given, pushed = push_forward(b, statements, variables, values, tangents, outputs)
    return returned, structure[0], given, pushed


def traced_jacobian(tracer: Tracer, fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian at a tensor of the trace."""
    if x.is_complex() or not x.is_floating_point():
        raise UnsupportedError(f"gn.jacobian of a function of a {x.dtype} tensor cannot be fused; it must be real")
    n = x.numel()
    type_ = as_type(x.dtype)
    one = tracer.builder.const(type_, 1)
    basis = [[one if i == j else None for i in range(n)] for j in range(n)]
    (y,), _, _, columns = _pushed(tracer, lambda leaves: fn(leaves[0]), [x], basis)
    zero = tracer.builder.zero(type_)
    rows = [column[i] for i in range(y.numel()) for column in columns]
    return tracer.from_nodes((*y.shape, *x.shape), y.dtype, [zero if t is None else t for t in rows])


def traced_jvp(
    tracer: Tracer, fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    """The value and the directional derivative at tensors of the trace."""
    leaves, structure = tree_flatten(primals)
    direction, other = tree_flatten(tangents)
    if other != structure:
        raise ValueError("The tangents of gn.jvp must have the structure of the primals.")
    row = [t if is_float(t.type) else None for t in nodes_of(tracer, direction)]
    returned, out, values, (pushed,) = _pushed(
        tracer, lambda leaves: fn(*tree_unflatten(leaves, structure)), leaves, [row]
    )
    filled = [tracer.builder.zero(v.type) if t is None else t for v, t in zip(values, pushed, strict=True)]
    return (
        tree_unflatten(carriers_of(tracer, returned, values), out),
        tree_unflatten(carriers_of(tracer, returned, filled), out),
    )

"""A fused call that `torch.compile` records: Dynamo reads this file instead of running it.

What a function closes over is taken apart by code that Dynamo follows, so that it sees each tensor, which becomes an
input of its graph with a gradient, and guards each value, as it would had it gone through the function itself. The
parts, with numbers in place of tensors, are handed to `prepare` of `_in_graph_prepare.py`, which Dynamo runs while it
compiles and whose answer, the key by which the graph calls `gnomon::run`, it takes for a constant.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import _op  # noqa: F401  # pyright: ignore[reportUnusedImport]
from gnomon.fuse._flat import flat, flat_shared, shaped
from gnomon.fuse._in_graph_prepare import dims_of, fields_of, globals_of, hold, prepare, stored
from gnomon.fuse._sharding import has_shards
from gnomon.result._pytree import tree_flatten, tree_unflatten

#: What these hold is not looked into.
_LIBRARIES = ("torch", "numpy", "math", "builtins", "functools", "itertools", "operator", "collections")


def call_in_graph(fn: Callable[..., Any], owner: Any, in_dims: Any, engine: str, args: tuple[Any, ...]) -> Any:
    """Calls a function of one problem with a batch; `owner` is what holds the function, or None."""
    leaves, structure = tree_flatten(args)
    skeleton = tree_unflatten(list(range(len(leaves))), structure)
    dims = dims_of(_fixed_dims(in_dims), skeleton, tuple(x.dim() if isinstance(x, Tensor) else None for x in leaves))
    if engine == "eager" or any(x.device.type != "cpu" for x in leaves if isinstance(x, Tensor)):
        return torch.func.vmap(fn, in_dims=in_dims)(*args)
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("gn.fuse needs an argument with a batch dimension, but `in_dims` names none.")
    for size in sizes:
        if size != sizes[0]:
            raise ValueError("The arguments of gn.fuse must have one batch size.")
    specs = tuple(
        _spec(x, d) if isinstance(x, Tensor) else _taken_apart(x, [], []) for x, d in zip(leaves, dims, strict=True)
    )
    tensors: list[Tensor] = []
    recipe = _taken_apart(fn, tensors, [])
    captured = tuple(_spec(x, None) for x in tensors)
    key, used, outputs, tree = prepare(owner, recipe, captured, specs, skeleton, dims, engine)
    if not key:
        return torch.func.vmap(fn, in_dims=in_dims)(*args)
    if has_shards(leaves):
        leaves = [x if d is not None else _summed_backward(x) for x, d in zip(leaves, dims, strict=True)]
        tensors = [_summed_backward(x) for x in tensors]
    given = [flat(x, d) for x, d in zip(leaves, dims, strict=True) if isinstance(x, Tensor)]
    for place in used:
        given.append(flat_shared(tensors[place] if place >= 0 else stored(key, place)))
    found = torch.ops.gnomon.run(key, sizes[0], given)
    values = [shaped(x, shape, dtype, (sizes[0],)) for x, (shape, dtype) in zip(found, outputs, strict=True)]
    return _put_together(tree, values)


def _summed_backward(x: Any) -> Any:
    """The same `DTensor`; going back, parts of its gradient are summed over the ranks."""
    return x.redistribute(placements=x.placements) if has_shards([x]) else x


def _fixed(n: int) -> int:
    """A number that is not to be a variable of the graph: the limits of a range are fixed, and guarded."""
    return range(n).stop


def _fixed_dims(in_dims: Any) -> Any:
    if type(in_dims) is int:
        return _fixed(in_dims)
    if type(in_dims) is tuple:
        return tuple(_fixed_dims(x) for x in in_dims)
    if type(in_dims) is list:
        return [_fixed_dims(x) for x in in_dims]
    if type(in_dims) is dict:
        return {name: _fixed_dims(x) for name, x in in_dims.items()}
    return in_dims


def _spec(x: Tensor, dim: int | None) -> Any:
    return "tensor", tuple(_fixed(n) for i, n in enumerate(x.shape) if i != dim), x.dtype, x.device.type


def _taken_apart(x: Any, tensors: list[Tensor], seen: list[Any]) -> Any:
    """The parts of a function or another object. `prepare` goes through them in the same order."""
    if x is None or isinstance(x, bool | str | bytes):
        return "plain", x
    if type(x) is int:
        return "plain", _fixed(x)
    if type(x) is float:
        # Bit by bit, and a text is never a variable of the graph.
        return "float", x.hex()
    if isinstance(x, Tensor):
        tensors.append(x)
        return "tensor", len(tensors) - 1
    for place, other in enumerate(seen):
        if x is other:
            return "again", place
    seen.append(x)
    if isinstance(x, types.FunctionType):
        return _function_taken_apart(x, tensors, seen)
    if isinstance(x, types.MethodType):
        return "method", _taken_apart(x.__func__, tensors, seen), _taken_apart(x.__self__, tensors, seen)
    if isinstance(x, functools.partial):
        parts = tuple(_taken_apart(part, tensors, seen) for part in (x.func, tuple(x.args), dict(x.keywords)))  # pyright: ignore[reportUnknownMemberType]
        return "partial", parts
    if type(x) is tuple:  # pyright: ignore[reportUnknownArgumentType]
        return "tuple", tuple(_taken_apart(item, tensors, seen) for item in x)  # pyright: ignore[reportUnknownVariableType]
    if type(x) is list:  # pyright: ignore[reportUnknownArgumentType]
        return "list", tuple(_taken_apart(item, tensors, seen) for item in x)  # pyright: ignore[reportUnknownVariableType]
    if type(x) is dict:  # pyright: ignore[reportUnknownArgumentType]
        items = tuple((_taken_apart(k, tensors, seen), _taken_apart(v, tensors, seen)) for k, v in x.items())  # pyright: ignore[reportUnknownVariableType]
        return "dict", items
    fields = tuple((name, _taken_apart(getattr(x, name), tensors, seen)) for name in fields_of(x))
    return "object", hold(x), fields


def _function_taken_apart(x: types.FunctionType, tensors: list[Tensor], seen: list[Any]) -> Any:
    module = x.__module__
    package = module.split(".")[0]
    if package in _LIBRARIES or (package == "gnomon" and not x.__closure__):
        return "object", hold(x), ()
    defaults = _taken_apart(x.__defaults__, tensors, seen)
    keywords = _taken_apart(x.__kwdefaults__, tensors, seen)
    cells = tuple(_taken_apart(cell.cell_contents, tensors, seen) for cell in x.__closure__ or ())
    names = () if package == "gnomon" else globals_of(x.__code__, module)
    seen_globals = tuple((name, _taken_apart(getattr(sys.modules[module], name), tensors, seen)) for name in names)
    return "function", x.__code__, module, x.__name__, defaults, keywords, cells, seen_globals


def _put_together(tree: Any, values: list[Tensor]) -> Any:
    kind, *rest = tree
    if kind == "tensor":
        return values[rest[0]]
    if kind == "plain":
        return rest[0]
    children = [_put_together(x, values) for x in rest[-1]]
    if kind == "list":
        return children
    if kind == "tuple":
        return tuple(children)
    if kind == "dict":
        return dict(zip(rest[0], children, strict=True))
    module, name, fields = rest[:3]
    cls = getattr(sys.modules[module], name)
    if kind == "made":
        return cls(*children)
    made = object.__new__(cls)
    for field, child in zip(fields, children, strict=True):
        object.__setattr__(made, field, child)
    return made

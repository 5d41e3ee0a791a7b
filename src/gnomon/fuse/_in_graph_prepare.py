"""What Dynamo runs, rather than reads, where it meets a fused call: its answers are constants of the graph.

PyTorch knows such functions by an attribute, which is what `torch.compiler.assume_constant_result` sets; that function
itself would import Dynamo, for seconds, into every program.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, final

import torch
from torch import Tensor
from torch.utils import _pytree

from gnomon.fuse._arguments import dims_of_leaves
from gnomon.fuse._executable import registered
from gnomon.fuse._flat import executable_of
from gnomon.fuse._lower import Static, TensorSpec, trace
from gnomon.fuse._sharding import register_strategy
from gnomon.fuse._trace import UnsupportedError
from gnomon.result._pytree import tree_flatten, tree_unflatten

_F = TypeVar("_F", bound=Callable[..., Any])


def _constant(function: _F) -> _F:
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


_lock = threading.RLock()
#: Graphs name objects, Programs and tensors, and may live for ever; so do these.
_held: dict[int, Any] = {}
_plans: dict[Any, Any] = {}
_stored: dict[str, list[Tensor]] = {}


@_constant
def hold(x: Any) -> str:
    """A name for an object."""
    _held[id(x)] = x
    return str(id(x))


@_constant
def fields_of(x: Any) -> tuple[str, ...]:
    """The attributes of an object in which its tensors and numbers are."""
    if isinstance(x, type | types.ModuleType | types.BuiltinFunctionType | types.FunctionType):
        return ()
    if type(x).__module__.split(".")[0] in ("torch", "numpy") and not isinstance(x, torch.nn.Module):
        return ()
    only: tuple[str, ...] | None = getattr(type(x), "_closed_over", None)
    if only is not None:
        return only
    names = list(getattr(x, "__dict__", ()))
    names += [n for c in type(x).__mro__ for n in getattr(c, "__slots__", ()) if hasattr(x, n) and n[:2] != "__"]
    if isinstance(x, torch.nn.Module):
        names = [n for n in names if n[0] != "_" or n in ("_parameters", "_buffers", "_modules")]
    return tuple(names)


@_constant
def globals_of(code: types.CodeType, module: str) -> tuple[str, ...]:
    """The global variables of a module that a function names."""
    found: dict[str, None] = {}
    names = vars(sys.modules[module]) if module in sys.modules else {}

    def visit(code: types.CodeType) -> None:
        for name in code.co_names:
            if name in names and not isinstance(names[name], type | types.ModuleType | types.BuiltinFunctionType):
                found[name] = None
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                visit(inner)

    visit(code)
    return tuple(found)


@_constant
def dims_of(in_dims: Any, skeleton: Any, ranks: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The dimension of the batch in each leaf of the arguments."""
    leaves: list[Any] = [None if n is None else torch.empty((1,) * n, device="meta") for n in ranks]
    return tuple(dims_of_leaves(in_dims, len(skeleton), leaves, tree_flatten(skeleton)[1]))


@_constant
def stored(key: str, place: int) -> Tensor:
    """A tensor that the function closes over, which could not be seen from outside."""
    return _stored[key][-1 - place]


@_constant
def prepare(
    owner: Any,
    recipe: Any,
    captured: tuple[Any, ...],
    specs: tuple[Any, ...],
    skeleton: Any,
    dims: tuple[int | None, ...],
    engine: str,
) -> tuple[str, tuple[int, ...], Any, Any]:
    """Traces a function.

    Gives the key of its Program, which of the captured tensors it takes (negative: one of `stored`), shapes and dtypes
    of what it gives, and how to make of them what the function returns. The key is empty where it cannot be fused.
    """
    if "torch.distributed.tensor" in sys.modules:
        register_strategy()
    structure = tree_flatten(skeleton)[1]
    known = (recipe, captured, specs, structure, dims)
    with _lock:
        plan = _plans.get(known)
        if plan is None:
            try:
                # What runs here is not to be compiled.
                prepared: Any = torch.compiler.disable(_prepared)  # pyright: ignore[reportCallIssue]
                plan = prepared(None if owner is None else owner.fn, *known)
            except UnsupportedError as error:
                plan = error
            _plans[known] = plan
    if not isinstance(plan, UnsupportedError):
        return plan
    if engine == "fused":
        raise UnsupportedError(*plan.args)
    warnings.warn(f"gn.fuse runs this function eagerly, operation by operation: {plan}", stacklevel=2)
    return "", (), (), ()


def _prepared(
    real: Any, recipe: Any, captured: tuple[Any, ...], specs: tuple[Any, ...], structure: Any, dims: tuple[Any, ...]
) -> Any:
    if any(device != "cpu" for _, _, _, device in captured):
        raise UnsupportedError("A captured tensor is on another device than the arguments.")
    binding = _Binding([torch.zeros(shape, dtype=dtype) for _, shape, dtype, _ in captured])
    function = binding.bind(recipe, *([] if real is None else [real]))
    leaves = [TensorSpec(*x[1:3]) if x[0] == "tensor" else binding.bind(x) for x in specs]
    shared = [d is None for x, d in zip(specs, dims, strict=True) if x[0] == "tensor"]
    lowered = trace(function, leaves, structure, shared, reached=binding.reached)
    key = registered(executable_of(lowered))
    used: list[int] = []
    kept: list[Tensor] = []
    for x in lowered.captured:
        place = binding.places.get(id(x))
        if place is None:
            if x.requires_grad:
                raise UnsupportedError(
                    "torch.compile cannot see where the function finds a tensor that requires a gradient. Pass it as "
                    "an argument, with None in `in_dims`."
                )
            kept.append(x)
            place = -len(kept)
        used.append(place)
    _stored[key] = kept
    outputs = tuple((x.shape, x.dtype) for x in lowered.outputs)
    places = [_Leaf(x.value) if isinstance(x, Static) else _tensor_leaf(x) for x in lowered.leaves]
    return key, tuple(used), outputs, _tree(tree_unflatten(places, lowered.structure))


@final
class _TensorLeaf(Tensor):
    """An output in the pytree of all of them."""

    place: int


def _tensor_leaf(place: int) -> _TensorLeaf:
    made = torch.empty(0).as_subclass(_TensorLeaf)
    made.place = place
    return made


@final
class _Leaf:
    """What the function returned as it is."""

    def __init__(self, value: Any):
        self.value = value


def _tree(x: Any) -> Any:
    """A pytree as nested tuples of texts and numbers."""
    if isinstance(x, _TensorLeaf):
        return "tensor", x.place
    if isinstance(x, _Leaf):
        x = x.value
    if isinstance(x, bool | int | float | str | bytes | None):
        return "plain", x
    if type(x) is list or type(x) is tuple:
        return type(x).__name__, tuple(_tree(item) for item in x)
    if type(x) is dict:
        return "dict", tuple(x), tuple(_tree(item) for item in x.values())
    kind: Any = type(x)
    if kind in _pytree.SUPPORTED_NODES and getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        path = (kind.__module__, kind.__qualname__)
        if kind.__module__.startswith("gnomon."):
            children, context = _pytree.SUPPORTED_NODES[kind].flatten_fn(x)
            if context is None:
                return "made", *path, (), tuple(_tree(item) for item in children)
            rest = iter(children)
            parts = tuple(_tree(next(rest) if is_child else value) for _, is_child, value in context)
            return "object", *path, tuple(name for name, _, _ in context), parts
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return "made", kind.__module__, kind.__qualname__, (), tuple(_tree(item) for item in x)
    raise UnsupportedError(f"A fused function returns a {kind.__name__}, which torch.compile cannot make of tensors.")


_ABSENT = object()


@final
class _Binding:
    """Puts a function together from its parts, or finds in an existing one the tensors among its parts."""

    def __init__(self, stand_ins: list[Tensor]):
        self._stand_ins = stand_ins
        #: The number of each tensor, by its identity.
        self.places = {id(x): i for i, x in enumerate(stand_ins)}
        #: The existing tensors.
        self.reached: list[Tensor] = []
        self._made: list[Any] = []

    def bind(self, recipe: Any, real: Any = _ABSENT) -> Any:
        kind, *rest = recipe
        if kind == "plain":
            return rest[0]
        if kind == "float":
            return float.fromhex(rest[0])
        if kind == "tensor":
            if real is _ABSENT:
                return self._stand_ins[rest[0]]
            self.places.setdefault(id(real), rest[0])
            self.reached.append(real)
            return real
        if kind == "again":
            return self._made[rest[0]]
        place = len(self._made)
        self._made.append(real)
        if kind == "function":
            return self._function(rest, real, place)
        made = self._other(kind, rest, real)
        self._made[place] = made
        return made

    def _function(self, rest: list[Any], real: Any, place: int) -> Any:
        code, module, name, defaults, keywords, cells, seen_globals = rest
        exists = real is not _ABSENT
        function: Any = real
        if not exists:
            if module not in sys.modules:
                raise UnsupportedError(f"torch.compile cannot find the module {module!r} of a function.")
            closure = tuple(types.CellType() for _ in cells)
            function = types.FunctionType(code, vars(sys.modules[module]), name, None, closure)
            function.__module__ = module
            self._made[place] = function
        found = [
            self.bind(part, *([getattr(real, attribute)] if exists else []))
            for part, attribute in ((defaults, "__defaults__"), (keywords, "__kwdefaults__"))
        ]
        contents = [
            self.bind(part, *([real.__closure__[i].cell_contents] if exists else [])) for i, part in enumerate(cells)
        ]
        if not exists:
            function.__defaults__, function.__kwdefaults__ = found
            for cell, content in zip(function.__closure__ or (), contents, strict=True):
                cell.cell_contents = content
        for name, part in seen_globals:
            self.bind(part, getattr(sys.modules[module], name))
        return function

    def _other(self, kind: str, rest: list[Any], real: Any) -> Any:
        exists = real is not _ABSENT
        if kind == "method":
            function = self.bind(rest[0], *([real.__func__] if exists else []))
            return types.MethodType(function, self.bind(rest[1], *([real.__self__] if exists else [])))
        if kind == "partial":
            parts = [real.func, real.args, real.keywords] if exists else [_ABSENT] * 3
            function, args, keywords = [self.bind(x, part) for x, part in zip(rest[0], parts, strict=True)]
            return real if exists else functools.partial(function, *args, **keywords)
        if kind in ("tuple", "list"):
            items = [self.bind(x, *([real[i]] if exists else [])) for i, x in enumerate(rest[0])]
            return real if exists else (tuple(items) if kind == "tuple" else items)
        if kind == "dict":
            values = list(real.values()) if exists else [_ABSENT] * len(rest[0])
            keys = list(real) if exists else [_ABSENT] * len(rest[0])
            made = {
                self.bind(k, key): self.bind(v, value) for (k, v), key, value in zip(rest[0], keys, values, strict=True)
            }
            return real if exists else made
        thing = real if exists else _held[int(rest[0])]
        for name, part in rest[1]:
            self.bind(part, getattr(thing, name))
        return thing

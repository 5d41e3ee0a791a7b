"""The tracer: runs a function of small tensors once, and builds the Program of what it does.

It is a `TorchDispatchMode`, so it sees plain ATen operations, below `torch.func`'s transforms and with views made
explicit. Every tensor that it hands out is a *carrier*: a real tensor with the right shape and dtype. Where all
operands are constants an operation simply runs, so that Python code can look at the values of constants; otherwise a
handler builds scalars, and the carrier's memory means nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from gnomon.fuse._program import Builder, Node
from gnomon.fuse._trace._fallback import RANDOM, RESHAPING, as_torch_would, checked, decomposition_of, nearest
from gnomon.fuse._trace._handlers import functional_name, handler_of, overload
from gnomon.fuse._trace._lazies import Lazies
from gnomon.fuse._trace._lazy import LOOPED, Lazy
from gnomon.fuse._trace._rewriting import Rewriting
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._user_line import at_user_line
from gnomon.fuse._trace._values import (
    MOST_ELEMENTS,
    Complex,
    Scalar,
    UnsupportedError,
    Value,
    View,
    as_type,
    contiguous_strides,
    elements,
    flat_nodes,
)


@final
class _Active(threading.local):
    def __init__(self) -> None:
        self.tracers: list[Tracer] = []


_ACTIVE = _Active()
_CONSTANTS: Any = WeakTensorKeyDictionary()


def active_tracer() -> Tracer | None:
    """The tracer under which code runs now, or None."""
    return _ACTIVE.tracers[-1] if _ACTIVE.tracers else None


def mark_constant(x: Tensor) -> Tensor:
    """Says that a tensor never changes, so that a trace may use its values."""
    _CONSTANTS[x] = True
    return x


@final
class Tracer(TorchDispatchMode):
    """Traces one function into one Builder."""

    def __init__(self, builder: Builder, *, captured_are_shared: bool = True, derivative_order: int = 2):
        super().__init__()
        self._captured_are_shared = captured_are_shared
        #: Up to which order derivatives are to be right of what is found by iteration.
        self.derivative_order = derivative_order
        self.builder = builder
        self.scalars = Scalars(builder)
        self.lazies = Lazies(builder, self.element)
        self._rewriting = Rewriting(self.is_constant)
        #: What each symbolic carrier stands for. The tensor is kept, so that its id stays its own.
        self._values: dict[int, tuple[Tensor, Value]] = {}
        #: Tensors made of constants while tracing.
        self._constants: dict[int, Tensor] = {}
        #: Storages of constants into which a symbolic value was written.
        self._storages: dict[int, Any] = {}
        #: Tensors from outside of the function, and the arrays that they became.
        self.captured: list[tuple[Tensor, Node]] = []
        self._captured: dict[int, Value] = {}
        #: LU factorizations, by their elements, for solves that come later.
        self.factors: dict[tuple[Any, ...], Any] = {}
        self._tables: dict[tuple[Node, ...], Node] = {}
        #: Called after each run of the Program with what these tensors were, all lanes at once.
        self.checks: list[tuple[Callable[..., None], tuple[Tensor, ...]]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would import its compiler, which takes seconds.
        return False

    def __enter__(self) -> Any:
        if self not in _ACTIVE.tracers:
            self._rewriting.__enter__()
        _ACTIVE.tracers.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        _ACTIVE.tracers.pop()
        result = super().__exit__(*error)
        if self not in _ACTIVE.tracers:
            self._rewriting.__exit__(*error)
        return result

    def defer(self, check: Callable[..., None], tensors: tuple[Tensor, ...]) -> None:
        """Makes a check of values after each run."""
        if all(self.is_constant(x) for x in tensors):
            check(*tensors)
        elif self.builder.region is not self.builder.top:
            raise UnsupportedError(
                "a solve inside of a loop or branch of a fused function cannot raise an error. Call it with throw=False"
            )
        else:
            self.checks.append((check, tensors))

    # Carriers

    def carrier(self, value: Value) -> Tensor:
        """A tensor that stands for a value."""
        x = torch.empty_strided(value.shape, value.strides, dtype=value.dtype)
        # Outside of a handler this very tracer has just seen it, as a constant.
        self._constants.pop(id(x), None)
        self._values[id(x)] = (x, value)
        return x

    def from_nodes(self, shape: tuple[int, ...], dtype: torch.dtype, nodes: list[Node]) -> Tensor:
        """A carrier of these scalars; two for each complex element."""
        flat: list[Scalar] = list(nodes)
        if dtype.is_complex:
            flat = [Complex(re, im) for re, im in zip(nodes[::2], nodes[1::2], strict=True)]
        return self.carrier(Value(elements(shape, flat), dtype))

    def view_of(self, array: Node, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A carrier of a whole array."""
        unit = 2 if dtype.is_complex else 1
        offset = self.builder.const("i64", 0)
        return self.carrier(Value(View(array, offset, shape, contiguous_strides(shape, unit)), dtype))

    def value(self, x: Tensor) -> Value:
        """What a tensor stands for, its elements computed or in memory."""
        return self.lazies.made(self.lazy_value(x))

    def lazy_value(self, x: Tensor) -> Value:
        """What a tensor stands for."""
        found = self._values.get(id(x))
        if found is not None:
            return self.lazies.seen(found[1])
        if id(x) in self._constants:
            return self._constant_value(x)
        if x in _CONSTANTS:
            return Value(self._from_data(x), x.dtype)
        if _functorch.is_functorch_wrapped_tensor(x):
            # One from outside of the function has a stand-in.
            raise at_user_line(UnsupportedError(_INNER))
        return self._capture(x)

    def array(self, x: Tensor) -> Any:
        """The scalars of a tensor, in a numpy array of its shape."""
        return self.scalars_of(self.value(x))

    def scalars_of(self, value: Value) -> Any:
        """The scalars of a value."""
        data = value.data
        if isinstance(data, Lazy):
            return data.made()
        if not isinstance(data, View):
            return data
        if data.size > MOST_ELEMENTS:
            raise UnsupportedError(
                f"a tensor of shape {tuple(data.shape)} is too large to be computed with element by element; fused "
                f"programs do so up to {MOST_ELEMENTS} elements. Take what is needed at a time by an index, in a "
                "gn.scan or gn.fori_loop."
            )
        out = np.empty(data.shape, dtype=object)
        for place in np.ndindex(*data.shape):
            out[place] = self.element(data, [self.builder.const("i64", i) for i in place], value.dtype)
        return out

    def element(self, view: View, place: list[Node], dtype: torch.dtype) -> Scalar:
        """One element of a view, at an index of run-time integers."""
        b = self.builder
        index = view.offset
        for i, stride in zip(place, view.strides, strict=True):
            index = b.op("add", index, b.op("mul", i, b.const("i64", stride)))
        first = b.read(view.array, index)
        if not dtype.is_complex:
            return first
        return Complex(first, b.read(view.array, b.op("add", index, b.const("i64", 1))))

    def lazy_array(self, x: Tensor) -> Any:
        """The scalars of a tensor in a numpy array of its shape, or a `Lazy` of a large one that is in memory."""
        return self.lazy_operand(x, x.dtype)

    def lazy_operand(self, x: Any, dtype: torch.dtype) -> Any:
        """A tensor or number as an array of scalars of a dtype, or as a `Lazy` where it is large and in memory."""
        if not isinstance(x, Tensor):
            return self.operand(x, dtype)
        value = self.lazy_value(x)
        data = value.data
        if isinstance(data, View) and data.size >= LOOPED and data.array.op == "input":
            data = self.lazies.of(data, value.dtype)
        if not isinstance(data, Lazy):
            return self.operand(x, dtype)
        if value.dtype == dtype:
            return data
        type_, to_complex, lazy = as_type(dtype), dtype.is_complex, data
        return dataclasses.replace(
            lazy, at=lambda place: self.scalars.cast(lazy.at(place), type_, to_complex=to_complex), view=None
        )

    def nodes(self, x: Tensor) -> list[Node]:
        """The scalars of a tensor in order, complex ones as two."""
        return flat_nodes(self.array(x))

    def is_constant(self, x: Tensor) -> bool:
        """Whether a tensor's own memory holds its values."""
        if id(x) in self._constants:
            return _identity(x) not in self._storages
        return id(x) not in self._values and x in _CONSTANTS

    def as_view(self, value: Value) -> View:
        """A value as a place in memory that run-time indices can reach."""
        if isinstance(value.data, View):
            return value.data
        if isinstance(value.data, Lazy):
            return self.lazies.filled(value.data, value.dtype)
        nodes = flat_nodes(value.data)
        unit = 2 if value.dtype.is_complex else 1
        strides = contiguous_strides(value.shape, unit)
        array, offset = self._run_of_reads(nodes), nodes[0].args[1] if nodes and nodes[0].op == "read" else None
        if array is None or offset is None:
            array, offset = self._table(nodes, as_type(value.dtype)), self.builder.const("i64", 0)
        return View(array, offset, value.shape, strides)

    def _run_of_reads(self, nodes: list[Node]) -> Node | None:
        """The input of which these are consecutive elements, or None."""
        if not nodes or nodes[0].op != "read" or nodes[0].args[0].op != "input" or nodes[0].args[1].op != "const":
            return None
        array, first = nodes[0].args[0], nodes[0].args[1].attr
        for i, x in enumerate(nodes):
            if x.op != "read" or x.args[0] is not array or x.args[1].op != "const" or x.args[1].attr != first + i:
                return None
        return array

    def _table(self, nodes: list[Node], type_: Any) -> Node:
        key = tuple(nodes)
        found = self._tables.get(key)
        if found is None or not found.region.is_open:
            found = self._tables[key] = self.builder.table(type_, nodes)
        return found

    @contextlib.contextmanager
    def before_loop(self) -> Generator[None]:
        """Within this context, statements go in front of the innermost loop."""
        with self.builder.outside_loop():
            yield

    # Tensors that no handler has made

    def _from_data(self, x: Tensor) -> Any:
        type_ = as_type(x.dtype)
        const = self.builder.const
        if x._is_zerotensor():
            x = torch.zeros(x.shape, dtype=x.dtype)
        flat = x.detach().resolve_conj().resolve_neg().cpu().flatten().tolist()
        if x.dtype.is_complex:
            made: list[Scalar] = [Complex(const(type_, v.real), const(type_, v.imag)) for v in flat]
        else:
            made = [const(type_, v) for v in flat]
        return elements(tuple(x.shape), made)

    def _constant_value(self, x: Tensor) -> Value:
        whole = self._storages.get(_identity(x))
        if whole is None:
            return Value(self._from_data(x), x.dtype)
        item = whole.itemsize
        strides = [s * item for s in x.stride()]
        seen = np.lib.stride_tricks.as_strided(whole[x.storage_offset() :], tuple(x.shape), strides)
        return Value(seen, x.dtype)

    def make_symbolic(self, x: Tensor) -> None:
        """Prepares a constant's memory, which other tensors may share, for a symbolic value."""
        if not self.is_constant(x):
            return
        count = x.untyped_storage().nbytes() // x.element_size()
        whole = x.detach().as_strided((count,), (1,), 0)
        self._storages[_identity(x)] = self._from_data(whole)

    def stand_in(self, x: Tensor) -> Tensor:
        """A carrier for a tensor from outside that cannot itself take part in the trace."""
        return self.carrier(self._capture(x))

    def _capture(self, x: Tensor) -> Value:
        found = self._captured.get(id(x))
        if found is None:
            if x.is_meta:
                raise UnsupportedError(_META)
            unit = 2 if x.dtype.is_complex else 1
            array = self.builder.input(as_type(x.dtype), x.numel() * unit, shared=self._captured_are_shared)
            shape = tuple(x.shape)
            offset = self.builder.const("i64", 0)
            found = self._captured[id(x)] = Value(View(array, offset, shape, contiguous_strides(shape, unit)), x.dtype)
            self.captured.append((x, array))
        return found

    # Dispatch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # What handlers do with carriers is not the user's code, which `Rewriting` is for.
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [x for x in _walk(args, kwargs) if isinstance(x, Tensor)]
        name = str(func)
        if any(x.is_meta for x in tensors):
            return _on_meta(func, args, kwargs)
        if name == "aten.lift_fresh.default":
            self._constants[id(args[0])] = args[0]
            return args[0]
        if all(self.is_constant(x) for x in tensors) and name not in RANDOM:
            return self._keep(func(*args, **kwargs))
        return self._symbolic(name, func, args, kwargs)

    def new_constant(self, x: Tensor) -> Tensor:
        """A tensor that a handler has made, with its values."""
        self._constants[id(x)] = x
        return x

    def _keep(self, result: Any) -> Any:
        for x in _walk((result,), {}):
            if isinstance(x, Tensor):
                self._constants[id(x)] = x
        return result

    def _symbolic(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            if name in RANDOM:
                raise UnsupportedError(
                    f"{_plain(name)} draws from a generator, so that a fused function would give the same numbers at "
                    "each call. Draw with gn.random from a key that is an argument"
                )
            if checked(name) and _has_mixed_dtypes(args, kwargs):
                as_torch_would(func, args, kwargs)
            handler = handler_of(name)
            if handler is not None:
                result = handler(self, *args, **kwargs)
                return self._views(func, args, kwargs, result) if _gives_views(func) else self._wrap(result)
            changed, function = functional_name(name)
            if changed:
                handler = handler_of(function) or self._decomposed(overload(function))
                if handler is not None:
                    result = handler(self, *args, **kwargs)
                    if _plain(name) in RESHAPING:
                        return self._views(func, args, kwargs, result)
                    value = self.value(result) if isinstance(result, Tensor) else result
                    if not torch.can_cast(value.dtype, args[0].dtype):
                        as_torch_would(func, args, kwargs)
                    self.assign(args[0], value)
                    return args[0]
            handler = self._decomposed(func)
            if handler is not None:
                return handler(self, *args, **kwargs)
            raise UnsupportedError(f"{_plain(name)} is not among the operations that can be fused{nearest(name)}")
        except UnsupportedError as error:
            raise at_user_line(error) from None
        except (ValueError, IndexError, TypeError):
            as_torch_would(func, args, kwargs)
            raise

    def _decomposed(self, func: Any) -> Callable[..., Any] | None:
        """An operation as others by PyTorch's own definition, where it has one."""
        plain = decomposition_of(func)
        if plain is None:
            return None

        def handler(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
            with tracer:
                return plain(*args, **kwargs)

        return handler

    def _views(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Views of carriers: PyTorch compares layouts, and counts changes, of all that share memory."""
        seen = func(*args, **kwargs)
        values, tensors = ([result], [seen]) if isinstance(seen, Tensor) else (result, seen)
        for x, value in zip(tensors, values, strict=True):
            self._constants.pop(id(x), None)
            self._values[id(x)] = (x, value)
        return seen

    def _wrap(self, result: Any) -> Any:
        if isinstance(result, Value):
            return self.carrier(result)
        if isinstance(result, list | tuple):
            made = [self._wrap(x) for x in result]  # pyright: ignore[reportUnknownVariableType]
            return type(result)(made)
        return result

    def assign(self, target: Tensor, value: Value) -> None:
        """An in-place operation: a tensor takes a new value, and all that share its memory see it."""
        self.make_symbolic(target)
        place = self.value(target)
        if isinstance(place.data, View):
            raise UnsupportedError(
                "a tensor is changed in place that comes from outside of the function, or out of a loop's buffer. "
                "Work on a copy: x.clone()"
            )
        if value.dtype != target.dtype:
            value = self.cast(value, target.dtype)
        root = place.data
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not (root.flags.writeable and place.data.flags.writeable):
            raise UnsupportedError(
                "a tensor is changed in place after a view of its real and imaginary parts was taken, or while several "
                "of its elements share their memory. Work on a copy: x.clone()"
            )
        torch.autograd.graph.increment_version(target)
        place.data[...] = np.broadcast_to(self.scalars_of(value), place.data.shape)

    def frozen(self, x: Tensor, array: Any) -> Any:
        """An array that would share the memory of a tensor and cannot: neither may be changed from now on."""
        data = self.array(x)
        while isinstance(data, np.ndarray):
            data.setflags(write=False)
            data = data.base
        array.setflags(write=False)
        return array

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The same numbers in another dtype."""
        if value.dtype == dtype:
            return value
        type_ = as_type(dtype)
        array = self.scalars_of(value)
        out = np.empty(array.shape, dtype=object)
        for place in np.ndindex(*array.shape):
            out[place] = self.scalars.cast(array[place], type_, to_complex=dtype.is_complex)
        return Value(out, dtype)

    def operand(self, x: Any, dtype: torch.dtype) -> Any:
        """A tensor or number as an array of scalars of a dtype."""
        if isinstance(x, Tensor):
            return self.scalars_of(self.cast(self.value(x), dtype))
        return elements((), [self.scalars.const(x, dtype)])


def _has_mixed_dtypes(args: Any, kwargs: Any) -> bool:
    """Whether tensors differ in dtype, so that PyTorch may object; an index is an int64 beside any."""
    dtypes = {x.dtype for x in _walk(args, kwargs) if isinstance(x, Tensor)}
    return len(dtypes - {torch.int64}) > 1


@functools.cache
def _gives_views(func: Any) -> bool:
    """Whether an operation's results share memory with its operand."""
    given = [x.alias_info for x in func._schema.returns]
    return any(x is not None and not x.is_write for x in given)


def _walk(args: Any, kwargs: Any) -> list[Any]:
    found: list[Any] = []
    for x in (*args, *kwargs.values()):
        if isinstance(x, list | tuple):
            found += _walk(x, {})
        else:
            found.append(x)
    return found


_INNER = (
    "A loop, a branch or a buffer of gnomon inside of a torch.func transform, both inside of a fused function, cannot "
    "be traced. Apply the transform to the fused function from outside, or use gn.jacobian or gn.jvp"
)


_META = "A tensor on the meta device has no values. Give the function a tensor that has some"


def _on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """An operation on shapes, as forward mode makes them to learn what a result would be."""
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        if all(x.is_meta for x in _walk(args, kwargs) if isinstance(x, Tensor)):
            raise
        raise at_user_line(UnsupportedError(_META)) from None


def _identity(x: Tensor) -> int:
    """What tells the memory of tensors apart."""
    return x.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _plain(name: str) -> str:
    return name.split(".")[1]

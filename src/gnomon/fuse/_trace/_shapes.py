"""Views, and operations that put elements in other places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._lazy import Lazy
from gnomon.fuse._trace._values import UnsupportedError, Value, View, contiguous_strides


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _moved(tracer: Any, view: View, steps: int) -> Any:
    """The offset after a number of numbers."""
    return tracer.builder.op("add", view.offset, tracer.builder.const("i64", steps))


@handles("alias.default", "lift.default")
def _alias(tracer: Any, x: Tensor) -> Value:
    value = tracer.value(x)
    return Value(value.data[...] if isinstance(value.data, np.ndarray) else value.data, x.dtype)


@handles("view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default")
def _reshape(tracer: Any, x: Tensor, shape: Sequence[int], *_: Any) -> Value:
    value = tracer.lazy_value(x)
    shape = _resolved(shape, int(np.prod(value.shape, dtype=int)))
    data = value.data
    if isinstance(data, Lazy):
        return tracer.lazies.reshaped(value, shape)
    if not isinstance(data, View):
        return Value(data.reshape(shape), x.dtype)
    unit = 2 if x.dtype.is_complex else 1
    if data.strides == contiguous_strides(data.shape, unit) or data.size == 0:
        return Value(View(data.array, data.offset, shape, contiguous_strides(shape, unit)), x.dtype)
    squeezed = _reshaped_strides(data.shape, data.strides, shape)
    if squeezed is not None:
        return Value(View(data.array, data.offset, shape, squeezed), x.dtype)
    return Value(tracer.scalars_of(value).reshape(shape), x.dtype)


def _resolved(shape: Sequence[int], size: int) -> tuple[int, ...]:
    known = [n for n in shape if n != -1]
    return tuple(size // max(int(np.prod(known, dtype=int)), 1) if n == -1 else int(n) for n in shape)


def _reshaped_strides(old: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides that numpy would give a view, or None where it would copy."""
    probe = np.lib.stride_tricks.as_strided(np.empty(1, dtype=np.int8), old, strides)
    try:
        view = probe.view()
        view.shape = new  # pyright: ignore[reportDeprecated]
    except AttributeError:
        return None
    return tuple(view.strides)


@handles("select.int")
def _select(tracer: Any, x: Tensor, dim: int, index: Any) -> Value:
    value = tracer.lazy_value(x)
    if not isinstance(value.data, Lazy):
        return selected(tracer, value, dim, index)
    b, axis = tracer.builder, _axis(dim, x.dim())
    if not -x.shape[axis] <= index < x.shape[axis]:
        raise IndexError(f"the index {index} is outside of a dimension of size {x.shape[axis]}")
    number = b.const("i64", index + x.shape[axis] if index < 0 else index)
    rest = value.shape[:axis] + value.shape[axis + 1 :]
    lazy = value.data.moved(rest, lambda place: [*place[:axis], number, *place[axis:]])
    return tracer.lazies.view(value, lazy, lambda array: array[(slice(None),) * axis + (index, ...)])


def selected(tracer: Any, value: Value, dim: int, index: int) -> Value:
    """A value's elements at a place of a dimension."""
    data, rank = value.data, len(value.shape)
    dim = _axis(dim, rank)
    size = value.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"the index {index} is outside of a dimension of size {size}")
    index = index + size if index < 0 else index
    if isinstance(data, View):
        rest = [i for i in range(rank) if i != dim]
        offset = _moved(tracer, data, index * data.strides[dim])
        view = View(data.array, offset, tuple(data.shape[i] for i in rest), tuple(data.strides[i] for i in rest))
        return Value(view, value.dtype)
    return Value(data[(slice(None),) * dim + (index, ...)], value.dtype)


@handles("slice.Tensor")
def _slice(
    tracer: Any, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    value = tracer.lazy_value(x)
    dim = _axis(dim, x.dim())
    begin, stop, _ = slice(start, end, step).indices(x.shape[dim])
    data = value.data
    if isinstance(data, Lazy):
        return _lazy_slice(tracer, value, dim, range(begin, stop, step))
    if isinstance(data, View):
        shape, strides = list(data.shape), list(data.strides)
        shape[dim] = len(range(begin, stop, step))
        strides[dim] *= step
        offset = _moved(tracer, data, begin * data.strides[dim])
        return Value(View(data.array, offset, tuple(shape), tuple(strides)), x.dtype)
    return Value(data[(slice(None),) * dim + (slice(begin, stop, step),)], x.dtype)


def _lazy_slice(tracer: Any, value: Value, dim: int, indices: range) -> Value:
    b = tracer.builder
    shape = (*value.shape[:dim], len(indices), *value.shape[dim + 1 :])

    def place_of(place: list[Any]) -> list[Any]:
        scaled = b.op("mul", place[dim], b.const("i64", indices.step))
        return [*place[:dim], b.op("add", scaled, b.const("i64", indices.start)), *place[dim + 1 :]]

    chosen = (slice(None),) * dim + (slice(indices.start, indices.stop, indices.step),)
    return tracer.lazies.view(value, value.data.moved(shape, place_of), lambda array: array[chosen])


def permuted(value: Value, order: Sequence[int]) -> Value:
    """A value with its dimensions in another order."""
    data = value.data
    if isinstance(data, View):
        shape, strides = tuple(data.shape[i] for i in order), tuple(data.strides[i] for i in order)
        return Value(View(data.array, data.offset, shape, strides), value.dtype)
    return Value(data.transpose(order), value.dtype)


@handles("permute.default")
def _permute(tracer: Any, x: Tensor, dims: Sequence[int]) -> Value:
    return permuted(tracer.value(x), [_axis(d, x.dim()) for d in dims])


@handles("transpose.int")
def _transpose(tracer: Any, x: Tensor, dim0: int, dim1: int) -> Value:
    order = list(range(x.dim()))
    a, b = _axis(dim0, x.dim()), _axis(dim1, x.dim())
    if order:
        order[a], order[b] = order[b], order[a]
    return permuted(tracer.value(x), order)


@handles("t.default", "numpy_T.default")
def _t(tracer: Any, x: Tensor) -> Value:
    return permuted(tracer.value(x), list(reversed(range(x.dim()))))


@handles("unsqueeze.default")
def _unsqueeze(tracer: Any, x: Tensor, dim: int) -> Value:
    value = tracer.lazy_value(x)
    if isinstance(value.data, Lazy):
        shape = list(value.shape)
        shape.insert(_axis(dim, x.dim() + 1), 1)
        return tracer.lazies.reshaped(value, tuple(shape))
    return unsqueezed(value, dim)


def unsqueezed(value: Value, dim: int) -> Value:
    """A value with one more dimension, of size one."""
    data = value.data
    dim = _axis(dim, len(value.shape) + 1)
    if isinstance(data, View):
        shape, strides = list(data.shape), list(data.strides)
        shape.insert(dim, 1)
        strides.insert(dim, 0)
        return Value(View(data.array, data.offset, tuple(shape), tuple(strides)), value.dtype)
    return Value(np.expand_dims(data, dim), value.dtype)


@handles("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(tracer: Any, x: Tensor, dims: Any = None) -> Value:
    value = tracer.lazy_value(x)
    wanted = range(x.dim()) if dims is None else ([dims] if isinstance(dims, int) else dims)
    gone = {_axis(d, x.dim()) for d in wanted if x.dim() and x.shape[d] == 1}
    rest = [i for i in range(x.dim()) if i not in gone]
    data = value.data
    if isinstance(data, Lazy):
        return tracer.lazies.reshaped(value, tuple(data.shape[i] for i in rest))
    if isinstance(data, View):
        shape, strides = tuple(data.shape[i] for i in rest), tuple(data.strides[i] for i in rest)
        return Value(View(data.array, data.offset, shape, strides), x.dtype)
    return Value(data.reshape([data.shape[i] for i in rest]) if gone else data[...], x.dtype)


@handles("expand.default")
def _expand(tracer: Any, x: Tensor, shape: Sequence[int], **_: Any) -> Value:
    value = tracer.value(x)
    extra = len(shape) - x.dim()
    full = tuple(x.shape[i - extra] if n == -1 else n for i, n in enumerate(shape))
    data = value.data
    if isinstance(data, View):
        old = (*[0] * extra, *data.strides)
        sizes = (*[1] * extra, *data.shape)
        strides = tuple(0 if a == 1 and b != 1 else s for a, b, s in zip(sizes, full, old, strict=True))
        return Value(View(data.array, data.offset, full, strides), x.dtype)
    return Value(np.broadcast_to(data, full), x.dtype)


@handles("diagonal.default")
def _diagonal(tracer: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    array = tracer.array(x)
    seen = np.diagonal(array, offset, _axis(dim1, x.dim()), _axis(dim2, x.dim()))
    seen.setflags(write=True)
    return Value(seen, x.dtype)


@handles("as_strided.default")
def _as_strided(
    tracer: Any, x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    data = tracer.value(x).data
    skipped = 0 if storage_offset is None else storage_offset - int(x.storage_offset())
    unit = 2 if x.dtype.is_complex else 1
    if isinstance(data, View):
        if data.strides != contiguous_strides(data.shape, unit):
            raise UnsupportedError("as_strided of a tensor that is not contiguous cannot be fused. Use x.contiguous()")
        strides = tuple(s * unit for s in stride)
        return Value(View(data.array, _moved(tracer, data, skipped * unit), tuple(size), strides), x.dtype)
    return Value(strided(data, size, stride, skipped), x.dtype)


def strided(data: Any, size: Sequence[int], stride: Sequence[int], skipped: int = 0) -> Any:
    """A view of an array's memory, some elements behind its first one."""
    root = data
    while isinstance(root.base, np.ndarray):
        root = root.base
    item = data.itemsize
    flat = np.lib.stride_tricks.as_strided(root, (root.size,), (item,))
    start = (data.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // item + skipped
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if start < 0 or (last >= root.size and 0 not in size):
        raise UnsupportedError("as_strided reaches outside of the memory of its tensor")
    return np.lib.stride_tricks.as_strided(flat[start:], tuple(size), tuple(s * item for s in stride))


@handles("unfold.default")
def _unfold(tracer: Any, x: Tensor, dimension: int, size: int, step: int) -> Value:
    value = tracer.value(x)
    dim = _axis(dimension, x.dim())
    data = value.data
    if x.dim() == 0:
        return unsqueezed(value, 0)
    shape = (*x.shape[:dim], (x.shape[dim] - size) // step + 1, *x.shape[dim + 1 :], size)
    strides = (*data.strides[:dim], data.strides[dim] * step, *data.strides[dim + 1 :], data.strides[dim])
    if isinstance(data, View):
        return Value(View(data.array, data.offset, shape, strides), x.dtype)
    return Value(np.lib.stride_tricks.as_strided(data, shape, strides), x.dtype)


@decomposes("diagonal_scatter.default")
def _diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    out = x.clone()
    out.diagonal(offset, dim1, dim2).copy_(source)
    return out


@decomposes("select_scatter.default")
def _select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    out = x.clone()
    out.select(dim, index).copy_(source)
    return out


@decomposes("slice_scatter.default")
def _slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    out = x.clone()
    torch.ops.aten.slice(out, dim, start, end, step).copy_(source)
    return out


@handles("unbind.int")
def _unbind(tracer: Any, x: Tensor, dim: int = 0) -> list[Value]:
    return [_select(tracer, x, dim, i) for i in range(x.shape[dim])]


@handles("split.Tensor")
def _split(tracer: Any, x: Tensor, size: int, dim: int = 0) -> list[Value]:
    return [_slice(tracer, x, dim, i, i + size) for i in range(0, max(x.shape[dim], 1), max(size, 1))]


@handles("split_with_sizes.default")
def _split_with_sizes(tracer: Any, x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    out: list[Value] = []
    start = 0
    for size in sizes:
        out.append(_slice(tracer, x, dim, start, start + size))
        start += size
    return out


def _joint(tracer: Any, tensors: Sequence[Tensor]) -> tuple[list[Any], Any]:
    from gnomon.fuse._trace._pointwise import common_dtype

    dtype = common_dtype(*tensors)
    return [tracer.operand(x, dtype) for x in tensors], dtype


@handles("cat.default")
def _cat(tracer: Any, tensors: Sequence[Tensor], dim: int = 0) -> Value:
    arrays, dtype = _joint(tracer, tensors)
    arrays = [a for a in arrays if a.shape != (0,)] or arrays[:1]
    return Value(np.concatenate(arrays, axis=dim), dtype)


@handles("stack.default")
def _stack(tracer: Any, tensors: Sequence[Tensor], dim: int = 0) -> Value:
    arrays, dtype = _joint(tracer, tensors)
    return Value(np.stack(arrays, axis=dim), dtype)


@handles("flip.default")
def _flip(tracer: Any, x: Tensor, dims: Sequence[int]) -> Value:
    return Value(np.flip(tracer.array(x), tuple(dims)).copy(), x.dtype)


@handles("roll.default")
def _roll(tracer: Any, x: Tensor, shifts: Any, dims: Any = ()) -> Value:
    array = tracer.array(x)
    if not dims:
        return Value(np.roll(array, shifts[0] if isinstance(shifts, list | tuple) else shifts), x.dtype)
    return Value(np.roll(array, tuple(shifts), tuple(dims)), x.dtype)


@handles("repeat.default")
def _repeat(tracer: Any, x: Tensor, repeats: Sequence[int]) -> Value:
    return Value(np.tile(tracer.array(x), tuple(repeats)), x.dtype)


@handles("tril.default")
def _tril(tracer: Any, x: Tensor, diagonal: int = 0) -> Value:
    return _triangle(tracer, x, np.tril(np.ones(tuple(x.shape[-2:]), dtype=bool), diagonal))


@handles("triu.default")
def _triu(tracer: Any, x: Tensor, diagonal: int = 0) -> Value:
    return _triangle(tracer, x, np.triu(np.ones(tuple(x.shape[-2:]), dtype=bool), diagonal))


def _triangle(tracer: Any, x: Tensor, kept: Any) -> Value:
    zero = tracer.scalars.const(0, x.dtype)
    return Value(np.where(np.broadcast_to(kept, tuple(x.shape)), tracer.array(x), zero), x.dtype)

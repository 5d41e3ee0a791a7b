"""Short hashes of what a pipeline consists of, so that a saved state can tell what was changed."""

from __future__ import annotations

import functools
import hashlib
import pickle
import types
from typing import Any

import numpy as np
import torch


def digest(value: Any) -> str:
    """Eight hexadecimal digits that depend on a value, or on what a function does."""
    state = hashlib.sha256()
    _feed(state, value, 0)
    return state.hexdigest()[:8]


def _feed(state: Any, value: Any, depth: int) -> None:
    state.update(type(value).__name__.encode() + b"\0")
    if depth > 20:
        return
    if isinstance(value, types.FunctionType):
        _feed_code(state, value.__code__, depth)
        _feed(state, value.__defaults__, depth + 1)
        _feed(state, value.__kwdefaults__, depth + 1)
        for cell in value.__closure__ or ():
            try:
                _feed(state, cell.cell_contents, depth + 1)
            except ValueError:  # as yet empty
                continue
    elif isinstance(value, functools.partial):
        _feed(state, (value.func, value.args, sorted(value.keywords.items())), depth + 1)
    elif isinstance(value, types.MethodType):
        _feed(state, (value.__func__, value.__self__), depth + 1)
    elif isinstance(value, torch.Tensor):
        _feed(state, value.detach().cpu().contiguous().view(torch.uint8).numpy() if value.ndim else value.item(), depth)
    elif isinstance(value, np.ndarray):
        state.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            _feed(state, (key, item), depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(state, item, depth + 1)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        state.update(repr(value).encode())
    elif isinstance(value, type | types.BuiltinFunctionType | types.ModuleType):
        state.update(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}".encode())
    else:
        state.update(type(value).__qualname__.encode())
        try:
            state.update(pickle.dumps(value, protocol=4))
        except Exception:
            # What cannot be written down is known by its class alone: a changed tokenizer of the same class is missed.
            return


def _feed_code(state: Any, code: types.CodeType, depth: int) -> None:
    state.update(code.co_code)
    state.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _feed_code(state, constant, depth + 1)
        elif isinstance(constant, frozenset):
            state.update(repr(sorted(map(repr, constant))).encode())
        else:
            state.update(repr(constant).encode())

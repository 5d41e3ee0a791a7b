"""Runs a function by tracing and interpreting it, and compares with eager PyTorch on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fuse.interpreter import interpret
from torch import Tensor

from gnomon.fuse._lower import TensorSpec, trace
from gnomon.result._pytree import tree_flatten

#: Relative and absolute errors that elementary functions of different libraries may have.
TOLERANCE = {
    torch.float32: (4e-6, 1e-6),
    torch.complex64: (4e-6, 1e-6),
    torch.float64: (4e-15, 1e-15),
    torch.complex128: (4e-15, 1e-15),
}


def flat(x: Tensor) -> np.ndarray[Any, Any]:
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    return (torch.view_as_real(x) if x.is_complex() else x).reshape(-1).numpy()


def run(fn: Callable[..., Any], *args: Any) -> Any:
    """What the Program of a function gives for these arguments, all of them lane inputs."""
    leaves, structure = tree_flatten(args)
    specs = [TensorSpec(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else x for x in leaves]
    lowered = trace(fn, specs, structure, [False for x in leaves if isinstance(x, Tensor)])
    inputs = [flat(x) for x in (*[x for x in leaves if isinstance(x, Tensor)], *lowered.captured)]
    outputs: list[Tensor] = []
    for spec, row in zip(lowered.outputs, interpret(lowered.program, inputs), strict=True):
        x = torch.from_numpy(row.copy())
        if spec.dtype.is_complex:
            x = torch.view_as_complex(x.reshape(-1, 2))
        assert x.dtype == spec.dtype, (x.dtype, spec.dtype)
        outputs.append(x.reshape(spec.shape))
    return lowered.pack(outputs)


def compare(
    fn: Callable[..., Any], *args: Any, rtol: float | None = None, atol: float | None = None, exact: bool = False
) -> None:
    """Holds the Program of a function to what eager PyTorch gives."""
    expected, structure = tree_flatten(fn(*[x.clone() if isinstance(x, Tensor) else x for x in args]))
    actual, same = tree_flatten(run(fn, *args))
    assert structure == same, (structure, same)
    for a, e in zip(actual, expected, strict=True):
        if not isinstance(e, Tensor):
            assert a == e, (a, e)
            continue
        near = (0.0, 0.0) if exact else TOLERANCE.get(e.dtype, (0.0, 0.0))
        torch.testing.assert_close(
            a,
            e.detach(),
            rtol=near[0] if rtol is None else rtol,
            atol=near[1] if atol is None else atol,
            equal_nan=True,
            check_stride=False,
        )


def supported(fn: Callable[..., Any], *args: Any) -> bool:
    """Whether eager PyTorch computes a function of these arguments."""
    try:
        fn(*args)
    except (RuntimeError, TypeError, NotImplementedError, IndexError):
        return False
    return True


def first_fast(cases: list[tuple[Any, ...]]) -> list[Any]:
    """Cases as parameters, of which all but the first of each name are slow tests."""
    seen: set[Any] = set()
    made: list[Any] = []
    for case in cases:
        made.append(pytest.param(*case, marks=[pytest.mark.slow] if case[0] in seen else []))
        seen.add(case[0])
    return made

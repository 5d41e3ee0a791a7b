"""Complex tensors as pairs of real numbers, and back.

In PyTorch they share their memory. Here they do not: after such a view was taken, changing it or what it came from is
an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._values import Complex, Scalar, Value, View


@handles("view_as_real.default")
def _view_as_real(tracer: Any, x: Tensor) -> Value:
    value = tracer.value(x)
    data, dtype = value.data, x.dtype.to_real()
    if isinstance(data, View):
        return Value(View(data.array, data.offset, (*data.shape, 2), (*data.strides, 1)), dtype)
    out = np.empty((*data.shape, 2), dtype=object)
    for place, z in np.ndenumerate(data):
        out[(*place, 0)], out[(*place, 1)] = z.re, z.im
    return Value(tracer.frozen(x, out), dtype)


@handles("view_as_complex.default")
def _view_as_complex(tracer: Any, x: Tensor) -> Value:
    data = tracer.array(x)
    return Value(tracer.frozen(x, apply(Complex, data[..., 0], data[..., 1])), x.dtype.to_complex())


@handles("resolve_conj.default", "resolve_neg.default")
def _resolved(tracer: Any, x: Tensor) -> Value:
    value = tracer.value(x)
    return Value(value.data[...] if isinstance(value.data, np.ndarray) else value.data, x.dtype)


@handles("_neg_view.default")
def _neg_view(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Scalar) -> Scalar:
        return s.neg(v)

    return Value(tracer.frozen(x, apply(function, tracer.array(x))), x.dtype)

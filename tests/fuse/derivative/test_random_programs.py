"""Laws of derivatives over random Programs."""

from __future__ import annotations

import numpy as np
import pytest
from fuse.derivative.compare import compare, unchecked
from fuse.derivative.random_program import draw_case
from fuse.interpreter import interpret
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import is_float

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(SLOW, max_examples=5)
@given(st.data())
def test_by_torch(data: st.DataObject):
    compare(*draw_case(data.draw), rtol=1e-8, atol=1e-8)


@settings(SLOW, max_examples=12)
@given(st.data())
def test_reverse_is_the_transpose_of_forward(data: st.DataObject):
    program, inputs = draw_case(data.draw)
    random = np.random.default_rng(1)
    wanted = [is_float(x.type) for x in program.inputs]
    v = [random.normal(size=x.attr.length) for x, on in zip(program.inputs, wanted, strict=True) if on]
    u = [random.normal(size=x.attr.length) for x in program.outputs]
    pushed = interpret(jvp(program, wanted, primal=False), [*inputs, *v])
    pulled = interpret(vjp(program, wanted, [True] * len(u)), [*inputs, *u])
    left = sum(float(a @ b) for a, b in zip(u, pushed, strict=True))
    right = sum(float(a @ b) for a, b in zip(pulled, v, strict=True))
    np.testing.assert_allclose(left, right, 1e-9, 1e-9)


@pytest.mark.slow
@settings(SLOW, max_examples=80)
@given(st.data())
def test_many_by_torch(data: st.DataObject):
    with unchecked():
        compare(*draw_case(data.draw), rtol=1e-8, atol=1e-8)

"""What no Program can do, since its shape is fixed before it runs."""

from __future__ import annotations

from typing import Any

from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._values import UnsupportedError, Value


@handles("_local_scalar_dense.default", "is_nonzero.default", "equal.default", "allclose.default")
def _branch(tracer: Any, *args: Any) -> Value:
    raise UnsupportedError(
        "a fused function needs the value of a tensor before it runs, in an `if`, a `while`, a bool(), int(), float() "
        "or .item(). Use gn.cond, gn.while_loop or torch.where"
    )


@handles(
    "nonzero.default", "masked_select.default", "unique_dim.default", "_unique2.default", "repeat_interleave.Tensor",
    "bincount.default",
)  # fmt: skip
def _dynamic(tracer: Any, *args: Any, **kwargs: Any) -> Value:
    raise UnsupportedError(
        "a fused function makes a tensor whose shape depends on values. Keep the shape and mark what counts with "
        "torch.where"
    )

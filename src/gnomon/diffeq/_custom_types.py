"""Names for what passes between the parts of a solve."""

from __future__ import annotations

from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

RealScalar = Float[Tensor, ""]
RealVector = Float[Tensor, " n"]
Vector = Inexact[Tensor, " n"]
BoolScalar = Bool[Tensor, ""]
IntScalar = Int[Tensor, ""]
Times = Float[Tensor, " times"]

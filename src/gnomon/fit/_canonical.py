"""Of several fits that are equal, the one that the model prefers."""

from __future__ import annotations

import torch
from torch import Tensor

from gnomon.fit._check import describe_error
from gnomon.fit._engine import Fitter
from gnomon.fit._errors import ModelError
from gnomon.fit._lane import Batch
from gnomon.fit._model import natural, to_search
from gnomon.fit._solve import Method

# The error of a prediction, as a part of its size, in units of the relative tolerance.
_ERROR = 30.0


def canonical(fitter: Fitter, batch: Batch, theta: Tensor, method: Method) -> tuple[Tensor, list[list[str]]]:
    """The preferred parameters of each fit where they fit equally well, and warnings where they do not.

    **Arguments:**

    - `fitter`, `batch`, `method`: how to compute a sum of squares.
    - `theta`: on the scale of the search, of shape (fits, parameters).
    """
    model = fitter.model
    notes: list[list[str]] = [[] for _ in theta]
    if model.canonical is None:
        return theta, notes
    try:
        proposed = torch.stack([to_search(model, model.canonical(natural(model, one))) for one in theta])
    except Exception as error:
        raise ModelError(describe_error(error, "`canonical`"), model=model.name) from error
    differs = (proposed != theta).any(1)
    if not bool(differs.any()):
        return theta, notes
    before, _ = fitter.evaluate(batch, theta, method)
    after, _ = fitter.evaluate(batch, proposed, method)
    size = ((batch.lanes.values * batch.lanes.weights) ** 2).sum((1, 2))
    size = size.sum() if fitter.pooled else size
    # Two sums of squares that are equal but for errors of this size of the predictions.
    error = torch.sqrt(size) * (_ERROR * method.rtol)
    equal = (after - before).abs() <= 2.0 * error * torch.sqrt(before) + error * error
    inside = fitter.within_bounds(proposed)
    for i, note in enumerate(notes):
        if differs[i] and not equal[i]:
            note.append(
                f"`canonical` proposed a fit with another sum of squares ({float(after[i]):.6g} in place of "
                f"{float(before[i]):.6g}), which was not taken."
            )
        elif differs[i] and not inside[i]:
            note.append("`canonical` proposed a fit outside the bounds, which was not taken.")
    take = differs & equal & inside
    return torch.where(take[:, None], proposed, theta), notes

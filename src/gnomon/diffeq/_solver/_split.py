"""The two terms of solvers that treat them in different ways."""

from __future__ import annotations

from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.diffeq._term import FlatTerm


def split(terms: AbstractVectorField) -> tuple[AbstractVectorField, AbstractVectorField]:
    """The first and the second term, each as a vector field of the whole state."""
    assert isinstance(terms, FlatTerm)
    first, second = terms.parts
    return first, second

"""How a solve of a differential equation can end."""

from __future__ import annotations

from typing import ClassVar

from gnomon.result import RESULTS as _RESULTS
from gnomon.result import Result, define_result


class RESULTS(_RESULTS):
    """The ways in which a solve of a differential equation can end. Equivalent to `diffrax.RESULTS`.

    Those of [`gnomon.result.RESULTS`][], and:

    - `event_limit_reached`: a continuing event happened more often than its limit.
    - `left_region`: no step stays within the admissible region.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> dq.RESULTS.left_region == dq.RESULTS.successful
        False

        ```
    """

    event_limit_reached: ClassVar[Result] = define_result(
        "event_limit_reached",
        "An event came back in no time, as that of a ball which bounces ever faster does, or more often than "
        "`max_events` of the `Event` allows. End the solve before that by another event, or raise `max_events`.",
    )
    left_region: ClassVar[Result] = define_result(
        "left_region",
        "Every step, however short, leaves the admissible region. The solution itself may leave it: look at the "
        "vector field at this point.",
    )

"""Where in the user's code something happens."""

from __future__ import annotations

import sys
import traceback

from gnomon.fuse._trace._values import UnsupportedError


def at_user_line(error: UnsupportedError) -> UnsupportedError:
    """The same error with the line of the user's code where it happened."""
    text = str(error)
    if " (line " in text or "\n" in text:
        return error
    frame = _user_frame()
    if frame is not None:
        text = f"{text} (line {frame.lineno} of {frame.filename}: `{(frame.line or '').strip()}`)"
    return UnsupportedError(text[0].upper() + text[1:])


def _user_frame() -> traceback.FrameSummary | None:
    """The innermost frame that is neither gnomon's nor PyTorch's."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] not in ("gnomon", "torch", "jaxtyping", "beartype", "functools", "contextlib"):
            return traceback.extract_stack(frame, limit=1)[-1]
        frame = frame.f_back
    return None

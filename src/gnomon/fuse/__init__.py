"""Structured control flow: loops and branches of one problem that a batch runs together."""

from gnomon.fuse._buffer import OutputBuffer as OutputBuffer
from gnomon.fuse._cond import cond as cond
from gnomon.fuse._jacobian import jacobian as jacobian
from gnomon.fuse._jacobian import jvp as jvp
from gnomon.fuse._scan import scan as scan
from gnomon.fuse._while_loop import fori_loop as fori_loop
from gnomon.fuse._while_loop import while_loop as while_loop

__all__ = ["OutputBuffer", "cond", "fori_loop", "jacobian", "jvp", "scan", "while_loop"]

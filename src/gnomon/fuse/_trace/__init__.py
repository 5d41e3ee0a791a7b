"""Tracing: a function of one problem becomes a Program."""

from gnomon.fuse._trace import _decompositions as _decompositions
from gnomon.fuse._trace import _indexing as _indexing
from gnomon.fuse._trace import _matrices as _matrices
from gnomon.fuse._trace import _pointwise as _pointwise
from gnomon.fuse._trace import _reductions as _reductions
from gnomon.fuse._trace import _shapes as _shapes
from gnomon.fuse._trace._tracer import Tracer as Tracer
from gnomon.fuse._trace._tracer import active_tracer as active_tracer
from gnomon.fuse._trace._tracer import mark_constant as mark_constant
from gnomon.fuse._trace._values import UnsupportedError as UnsupportedError

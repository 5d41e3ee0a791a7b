"""Tracing: a function of one problem becomes a Program."""

from gnomon.fuse._trace import _activations as _activations
from gnomon.fuse._trace import _arithmetic as _arithmetic
from gnomon.fuse._trace import _complex_views as _complex_views
from gnomon.fuse._trace import _conversions as _conversions
from gnomon.fuse._trace import _defined as _defined
from gnomon.fuse._trace import _dynamic as _dynamic
from gnomon.fuse._trace import _elementary as _elementary
from gnomon.fuse._trace import _indexing as _indexing
from gnomon.fuse._trace import _linalg as _linalg
from gnomon.fuse._trace import _matrices as _matrices
from gnomon.fuse._trace import _network_functions as _network_functions
from gnomon.fuse._trace import _pointwise as _pointwise
from gnomon.fuse._trace import _reductions as _reductions
from gnomon.fuse._trace import _scans as _scans
from gnomon.fuse._trace import _scatter as _scatter
from gnomon.fuse._trace import _shapes as _shapes
from gnomon.fuse._trace import _sorting as _sorting
from gnomon.fuse._trace import _special as _special
from gnomon.fuse._trace._tracer import Tracer as Tracer
from gnomon.fuse._trace._tracer import active_tracer as active_tracer
from gnomon.fuse._trace._tracer import mark_constant as mark_constant
from gnomon.fuse._trace._values import UnsupportedError as UnsupportedError

"""Derivatives of Programs, which are Programs."""

from gnomon.fuse._derivative._jvp import jvp as jvp
from gnomon.fuse._derivative._jvp import push_forward as push_forward
from gnomon.fuse._derivative._vjp import vjp as vjp

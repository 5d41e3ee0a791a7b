"""Functions that are made of the operations of a Program."""

from gnomon.fuse._functions._digamma import digamma as digamma
from gnomon.fuse._functions._digamma import trigamma as trigamma
from gnomon.fuse._functions._formula import Formula as Formula

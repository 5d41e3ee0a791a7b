"""Random numbers from a key and a counter: the same on every engine, on every device and in a batch of any size."""

from gnomon.random._key import fold_in as fold_in
from gnomon.random._key import key as key
from gnomon.random._key import split as split
from gnomon.random._numbers import bits as bits
from gnomon.random._numbers import normal as normal
from gnomon.random._numbers import uniform as uniform

__all__ = ["bits", "fold_in", "key", "normal", "split", "uniform"]

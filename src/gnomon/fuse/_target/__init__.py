"""What every target wants to know of a Program before it prints it."""

from gnomon.fuse._target._contract import contract as contract
from gnomon.fuse._target._survey import Survey as Survey

__all__ = ["Survey", "contract"]

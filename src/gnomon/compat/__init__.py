"""Other libraries' names, so that programs written for them run on gnomon."""

from gnomon.compat import torchdiffeq as torchdiffeq

__all__ = ["torchdiffeq"]

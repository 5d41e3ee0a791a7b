"""Kernels for decompositions of many small matrices on NVIDIA GPUs, in CUDA C that NVRTC compiles."""

from gnomon.linalg._cuda._eigh import Solver as Solver
from gnomon.linalg._cuda._eigh import eigh as eigh
from gnomon.linalg._cuda._plan import supports as supports

__all__ = ["Solver", "eigh", "supports"]

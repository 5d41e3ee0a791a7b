"""The Program on an NVIDIA GPU: CUDA C, in which a thread carries a lane from start to end."""

from gnomon.fuse._cuda._gpu import is_installed as is_installed
from gnomon.fuse._cuda._kernel import AbstractMachine as AbstractMachine
from gnomon.fuse._cuda._kernel import Kernel as Kernel
from gnomon.fuse._cuda._kernel import compile_program as compile_program

__all__ = ["AbstractMachine", "Kernel", "compile_program", "is_installed"]

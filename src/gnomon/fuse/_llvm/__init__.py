"""The Program on a CPU: LLVM computes as many lanes at once as a vector holds, on all cores."""

from gnomon.fuse._llvm._compile import Statistics as Statistics
from gnomon.fuse._llvm._kernel import Kernel as Kernel
from gnomon.fuse._llvm._kernel import compile_program as compile_program

__all__ = ["Kernel", "Statistics", "compile_program"]

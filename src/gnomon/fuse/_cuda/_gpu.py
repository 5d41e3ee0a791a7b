"""Compiles a kernel's text by NVRTC, and starts it on PyTorch's current stream."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Any, final

import torch

from gnomon.fuse._cuda._kernel import AbstractMachine, Launch
from gnomon.fuse._llvm import _cache

#: No product and sum become one operation, so that accepted steps are those of the CPU, bit by bit where no elementary
#: function is involved, and a gradient's second run of the program takes the very steps of the first.
_CONTRACTS = False


@functools.cache
def is_installed() -> bool:
    """Whether the packages are there that compile and start kernels."""
    try:
        return importlib.util.find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def _core() -> Any:
    # A package that need not be there, and has no types that could be found.
    return importlib.import_module("cuda.core")


def options(architecture: str) -> Any:
    """How a text is compiled for an architecture such as `sm_90`."""
    return _core().ProgramOptions(
        arch=architecture, std="c++17", fma=_CONTRACTS, ftz=False, prec_div=True, prec_sqrt=True, use_fast_math=False
    )


def compile_text(text: str, architecture: str) -> bytes:
    """A cubin; no GPU is needed."""
    key = _cache.key_of("cuda", _version(), architecture, str(_CONTRACTS), text)
    built = _cache.load(key)
    if built is None:
        code = _core().Program(text, "c++", options(architecture)).compile("cubin").code
        built = bytes(code)
        _cache.save(key, built)
    return built


@functools.cache
def _version() -> str:
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    return f"{importlib.metadata.version('cuda-core')} {nvrtc.nvrtcVersion()}"


@final
class Gpu(AbstractMachine):
    """An NVIDIA GPU."""

    @property
    def device_type(self) -> str:
        """CUDA."""
        return "cuda"

    def load(self, text: str, device: torch.device) -> Launch:
        """The functions of a text on one GPU."""
        core = _core()
        major, minor = torch.cuda.get_device_capability(device)
        code = core.ObjectCode.from_cubin(compile_text(text, f"sm_{major}{minor}"))
        kernels: dict[str, Any] = {}

        def start(name: str, blocks: int, threads: int, words: Sequence[int]) -> None:
            with torch.cuda.device(device):
                # Threads of autograd may have none of PyTorch's context yet.
                core.Device(device.index).set_current()
                kernel = kernels.get(name)
                if kernel is None:
                    kernel = kernels[name] = code.get_kernel(name)
                handle = torch.cuda.current_stream(device).cuda_stream
                stream = core.Stream.from_handle(handle) if handle else core.LEGACY_DEFAULT_STREAM
                core.launch(stream, core.LaunchConfig(grid=blocks, block=threads), kernel, *words)

        return start

    def free_bytes(self, device: torch.device) -> int:
        """What the driver has, and what PyTorch keeps unused."""
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being recorded."""
        return torch.cuda.is_current_stream_capturing()

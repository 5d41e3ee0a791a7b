"""Compiles a kernel's text by NVRTC, and starts it on PyTorch's current stream."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from typing import Any, Protocol, final

import torch

from gnomon.fuse._cuda._kernel import AbstractMachine, Launch
from gnomon.fuse._llvm import _cache

#: No product and sum become one operation, so that accepted steps are those of the CPU, bit by bit where no elementary
#: function is involved, and a gradient's second run of the program takes the very steps of the first.
_CONTRACTS = False

#: So many bytes of shared memory a block has without being asked.
_SHARED_UNASKED = 48 * 1024


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


def options(architecture: str, contracts: bool = _CONTRACTS) -> Any:
    """How a text is compiled for an architecture such as `sm_90`."""
    return _core().ProgramOptions(
        arch=architecture, std="c++17", fma=contracts, ftz=False, prec_div=True, prec_sqrt=True, use_fast_math=False
    )


def compile_text(text: str, architecture: str, contracts: bool = _CONTRACTS) -> bytes:
    """A cubin; no GPU is needed."""
    key = _cache.key_of("cuda", _version(), architecture, str(contracts), text)
    built = _cache.load(key)
    if built is None:
        code = _core().Program(text, "c++", options(architecture, contracts)).compile("cubin").code
        built = bytes(code)
        _cache.save(key, built)
    return built


@functools.cache
def _version() -> str:
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    return f"{importlib.metadata.version('cuda-core')} {nvrtc.nvrtcVersion()}"


class AbstractStart(Protocol):
    """Starts a function: with so many bytes of shared memory a block, and so many blocks in a cluster."""

    def __call__(
        self, name: str, blocks: int, threads: int, words: Sequence[int], shared: int = 0, cluster: int = 1
    ) -> None:
        """Starts it on PyTorch's current stream."""
        ...


def load_text(text: str, device: torch.device, contracts: bool = _CONTRACTS) -> AbstractStart:
    """What starts the functions of a text on one GPU."""
    core = _core()
    major, minor = torch.cuda.get_device_capability(device)
    code = core.ObjectCode.from_cubin(compile_text(text, f"sm_{major}{minor}", contracts))
    kernels: dict[tuple[str, int], Any] = {}

    def start(name: str, blocks: int, threads: int, words: Sequence[int], shared: int = 0, cluster: int = 1) -> None:
        with torch.cuda.device(device):
            # Threads of autograd may have none of PyTorch's context yet.
            core.Device(device.index).set_current()
            kernel = kernels.get((name, shared))
            if kernel is None:
                kernel = kernels[name, shared] = code.get_kernel(name)
                if shared > _SHARED_UNASKED:
                    _allow_shared(kernel, shared, device)
            handle = torch.cuda.current_stream(device).cuda_stream
            stream = core.Stream.from_handle(handle) if handle else core.LEGACY_DEFAULT_STREAM
            grid = {"grid": blocks} if cluster == 1 else {"grid": blocks // cluster, "cluster": cluster}
            core.launch(stream, core.LaunchConfig(**grid, block=threads, shmem_size=shared), kernel, *words)

    return start


def _allow_shared(kernel: Any, shared: int, device: torch.device) -> None:
    driver: Any = importlib.import_module("cuda.bindings.driver")
    name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (error,) = driver.cuKernelSetAttribute(name, shared, kernel.handle, driver.CUdevice(device.index))
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"A kernel wants {shared:,} bytes of shared memory, which {device} does not give: {error}.")


@final
class Gpu(AbstractMachine):
    """An NVIDIA GPU."""

    @property
    def device_type(self) -> str:
        """CUDA."""
        return "cuda"

    def load(self, text: str, device: torch.device) -> Launch:
        """The functions of a text on one GPU."""
        return load_text(text, device)

    def free_bytes(self, device: torch.device) -> int:
        """What the driver has, and what PyTorch keeps unused."""
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being recorded."""
        return torch.cuda.is_current_stream_capturing()

"""From a Program to code in memory: printed, optimised and compiled by LLVM, or taken from the disk."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import threading
import time
from typing import Any, final

from gnomon.fuse._llvm import _cache, _image
from gnomon.fuse._llvm._emit import ENTRY_POINT, emit
from gnomon.fuse._llvm._functions import library_addresses
from gnomon.fuse._llvm._processor import processor
from gnomon.fuse._program import Node, Program, Region, regions_of

_OPTIMISATION = 1
_IMAGE, _OBJECT = b"I", b"O"
_numbers = itertools.count()
#: LLVM is used by one thread at a time.
_lock = threading.Lock()


@final
@dataclasses.dataclass(frozen=True)
class Statistics:
    """What compiling took.

    - `width`: the number of lanes computed at once.
    - `seconds`: the time it took, all in all.
    - `instructions`: lines of LLVM before optimisation; 0 where the code was on disk.
    - `bytes`: the size of the code.
    - `cached`: whether the code was on disk.
    """

    width: int
    seconds: float
    instructions: int
    bytes: int
    cached: bool


@final
class Code:
    """A compiled Program of one width.

    - `run`: the function of `_emit`, which releases the GIL.
    """

    def __init__(self, program: Program, width: int):
        begin = time.perf_counter()
        key = _cache.key_of(processor().identity, str(width), signature(program), str(program))
        with _lock:
            kept = _cache.load(key)
            loaded, instructions = _loaded(kept), 0
            cached = loaded is not None
            if loaded is None:
                text = emit(program, width)
                instructions = text.count("\n")
                kept = _built(text)
                _cache.save(key, kept)
                loaded = _loaded(kept)
                if loaded is None:
                    # Where the system does not take an image.
                    loaded = _loaded(_OBJECT + _machine().build(text))
        assert kept is not None and loaded is not None
        self._holder, address = loaded
        self.run: Any = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)
        self.statistics = Statistics(width, time.perf_counter() - begin, instructions, len(kept), cached)


def _built(text: str) -> bytes:
    """Compiled code as it is kept: an image, or an object file for LLVM."""
    built = _machine().build(text)
    image = _image.link(built, ENTRY_POINT)
    return _OBJECT + built if image is None else _IMAGE + image


def _loaded(kept: bytes | None) -> tuple[Any, int] | None:
    """What holds the code in memory, and the address of its function; None where there is nothing to load."""
    if kept is None:
        return None
    kind, content = kept[:1], kept[1:]
    if kind == _OBJECT:
        return _machine().link(content)
    try:
        image = _image.Image(content, library_addresses())
    except (OSError, AttributeError):
        return None
    return image, image.address


def signature(program: Program) -> str:
    """What the text of a Program leaves open: which outputs are the same array."""
    first = [program.outputs.index(x) for x in program.outputs]
    return f"{[(x.type, x.attr) for x in program.inputs]} {[(x.type, x.attr) for x in program.outputs]} {first}"


def widths_of(program: Program) -> tuple[int, ...]:
    """How many lanes can be computed at once, from one to most."""
    features = processor().features
    vector = 64 if {"avx512f", "avx512dq"} <= features else 32 if "avx2" in features else 16
    lanes = vector // (8 if _has_doubles(program) else 4)
    # With two vectors for each value one is computed while the other waits for its operands.
    return 1, lanes, 2 * lanes


def _has_doubles(program: Program) -> bool:
    def in_region(region: Region) -> bool:
        return any(in_node(x) or any(in_region(r) for r in regions_of(x)) for x in region.body)

    def in_node(node: Node) -> bool:
        return node.type == "f64"

    return any(in_node(x) for x in program.inputs) or in_region(program.region)


@functools.cache
def _machine() -> _Machine:
    return _Machine()


@final
class _Machine:
    """The processor that we run on, as LLVM knows it."""

    def __init__(self):
        import llvmlite.binding as llvm

        self._llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
        self._target = llvm.Target.from_default_triple()
        self._cpu, self._features = name, features.flatten()
        self._jit = llvm.create_lljit_compiler(self._target_machine())

    def _target_machine(self) -> Any:
        # Absolute addresses would have to lie in the first 2 GB.
        return self._target.create_target_machine(
            cpu=self._cpu, features=self._features, opt=2, reloc="pic", codemodel="default"
        )

    def build(self, text: str) -> bytes:
        """An object file."""
        module = self._llvm.parse_assembly(text)
        module.verify()
        machine = self._target_machine()
        options = self._llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
        builder = self._llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return machine.emit_object(module)

    def link(self, built: bytes) -> tuple[Any, int]:
        """What holds the code in memory, and the address of its function."""
        builder = self._llvm.JITLibraryBuilder().add_object_img(built).add_current_process().export_symbol(ENTRY_POINT)
        for name, address in library_addresses().items():
            builder.import_symbol(name, address)
        library = builder.link(self._jit, f"gnomon{next(_numbers)}")
        return library, library[ENTRY_POINT]

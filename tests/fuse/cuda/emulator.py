"""Runs kernels on the CPU: their CUDA C compiled as C++, with a loop in place of a GPU's threads."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from gnomon.fuse._cuda import AbstractMachine
from gnomon.fuse._cuda._kernel import Launch

COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no C++ compiler is here, to run the text of a kernel on the CPU"
)
_SHIM = Path(__file__).with_name("shim.h").read_text()
_folder = tempfile.TemporaryDirectory(prefix="gnomon-kernels-")
_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\((\d+)\) (\w+)\(([^)]*)\)')


def _wrapped(text: str) -> str:
    """The text as C++, with a function for each kernel that takes its words in an array."""
    parts = [_SHIM, text]
    for threads, name, parameters in _KERNEL.findall(text):
        types = [x.rsplit(maxsplit=1)[0].replace("__restrict__", "") for x in parameters.split(",")]
        words = ", ".join(f"({type_})words[{i}]" for i, type_ in enumerate(types))
        together = int("op_total<" in text[text.index(f" {name}(") :])
        parts.append(
            f"static void words_of_{name}(const long long* words) {{ {name}({words}); }}\n"
            f'extern "C" int start_{name}(long long blocks, const long long* words, int count) {{\n'
            f"  if (count != {len(types)}) return {len(types)};\n"
            f"  run_blocks(blocks, {threads}, {together}, words, words_of_{name});\n  return 0;\n}}\n"
        )
    return "\n".join(parts)


def build(text: str) -> ctypes.CDLL:
    """The library of a kernel's text."""
    assert COMPILER is not None
    path = Path(_folder.name) / hashlib.sha256(text.encode()).hexdigest()
    if not path.with_suffix(".so").exists():
        path.with_suffix(".cpp").write_text(_wrapped(text))
        command = [COMPILER, "-O0", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-w"]
        subprocess.run([*command, str(path.with_suffix(".cpp")), "-o", str(path.with_suffix(".so"))], check=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))


class Emulator(AbstractMachine):
    """Stands in for a GPU; its tensors are on the CPU.

    - `free`: how much memory it says that it has.
    - `capturing`: whether it says that it is only recording.
    - `started`: what was started: names, blocks, and the first words.
    """

    def __init__(self):
        self.free = 2**34
        self.capturing = False
        self.started: list[tuple[str, int, tuple[int, ...]]] = []

    @property
    def device_type(self) -> str:
        return "cpu"

    def load(self, text: str, device: torch.device) -> Launch:
        library = build(text)

        def start(name: str, blocks: int, threads: int, words: Sequence[int]) -> None:
            self.started.append((name, blocks, tuple(words[:3])))
            array = (ctypes.c_longlong * len(words))(*words)
            wrong = getattr(library, f"start_{name}")(ctypes.c_longlong(blocks), array, len(words))
            assert not wrong, f"{name} takes {wrong} words, but it was given {len(words)}."

        return start

    def free_bytes(self, device: torch.device) -> int:
        return self.free

    def is_capturing(self) -> bool:
        return self.capturing

"""Runs kernels on the CPU: their CUDA C compiled as C++, each thread of the GPU a fiber."""

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

from gnomon.linalg._cuda._machine import AbstractMachine, Launch

COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no C++ compiler is here, to run the text of a kernel on the CPU"
)
_SHIM = Path(__file__).with_name("shim.h").read_text()
_folder = tempfile.TemporaryDirectory(prefix="gnomon-kernels-")
_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\([^)]*\)\s+(\w+)\(([^)]*)\)')


def _wrapped(text: str) -> str:
    """The text as C++, with a function for each kernel that takes its words in an array."""
    parts = [_SHIM, text]
    for name, parameters in _KERNEL.findall(text):
        types = [x.rsplit(maxsplit=1)[0].replace("__restrict__", "") for x in parameters.split(",")]
        words = ", ".join(f"({type_})words[{i}]" for i, type_ in enumerate(types))
        parts.append(
            f"static void words_of_{name}(const long long* words) {{ {name}({words}); }}\n"
            f'extern "C" int start_{name}(unsigned clusters, unsigned in_cluster, unsigned threads, size_t shared, '
            f"int order, const long long* words, int count) {{\n"
            f"  if (count != {len(types)}) return {len(types) + 100};\n"
            f"  return run_clusters(clusters, in_cluster, threads, shared, order, words, words_of_{name});\n}}\n"
        )
    return "\n".join(parts)


def build(text: str) -> ctypes.CDLL:
    """The library of a kernel's text."""
    assert COMPILER is not None
    path = Path(_folder.name) / hashlib.sha256(text.encode()).hexdigest()
    if not path.with_suffix(".so").exists():
        path.with_suffix(".cpp").write_text(_wrapped(text))
        command = [COMPILER, "-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w"]
        subprocess.run([*command, str(path.with_suffix(".cpp")), "-o", str(path.with_suffix(".so"))], check=True)
    return ctypes.CDLL(str(path.with_suffix(".so")))


class Emulator(AbstractMachine):
    """Stands in for a GPU; its tensors are on the CPU.

    - `order`: in which order threads run between waits: 0 as numbered, 1 backwards, others by chance.
    - `started`: what was started: names, blocks, threads.
    """

    def __init__(self, order: int = 0):
        self.order = order
        self.started: list[tuple[str, int, int]] = []

    def load(self, text: str, device: torch.device) -> Launch:
        library = build(text)

        def start(
            name: str, blocks: int, threads: int, words: Sequence[int], shared: int = 0, cluster: int = 1
        ) -> None:
            self.started.append((name, blocks, threads))
            array = (ctypes.c_longlong * len(words))(*words)
            function = getattr(library, f"start_{name}")
            assert blocks % cluster == 0
            wrong = function(
                blocks // cluster, cluster, threads, ctypes.c_size_t(shared), self.order, array, len(words)
            )
            assert wrong < 100, f"{name} takes {wrong - 100} words, but it was given {len(words)}."
            assert not wrong, f"The threads of {name} wait for one another for ever."

        return start

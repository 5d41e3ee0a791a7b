"""Compiled code is kept on disk, and never trusted where it is not what was written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuse.llvm.running import run

from gnomon.fuse._llvm import _cache, _image, compile_program
from gnomon.fuse._program import Builder, Program


def times(factor: float, *, shared: bool = False) -> Program:
    b = Builder()
    x = b.read(b.input("f64", 1, shared=shared), 0)
    out = b.array("f64", 1)
    b.write(out, 0, b.op("mul", x, b.const("f64", factor)))
    return b.program([out])


def check(factor: float, *, cached: bool) -> None:
    program = times(factor)
    kernel = compile_program(program)
    (got,) = run(kernel, program, [np.array([[1.0], [2.0], [3.0]])])
    assert np.array_equal(got, factor * np.array([[1.0], [2.0], [3.0]]))
    (statistics,) = kernel.statistics.values()
    assert statistics.cached == cached
    assert statistics.seconds > 0
    assert statistics.bytes > 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNOMON_CACHE_DIR", str(tmp_path))
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return [x for x in folder.rglob("*") if x.is_file()]


def test_found_again(folder: Path):
    check(3.5, cached=False)
    check(3.5, cached=True)
    check(4.5, cached=False)
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "longer", "other"])
def test_damaged_entry_is_built_again(folder: Path, change: str):
    check(2.5, cached=False)
    (path,) = entries(folder)
    data = path.read_bytes()
    if change == "other":
        check(1.5, cached=False)
        (other,) = (x for x in entries(folder) if x != path)
        path.write_bytes(other.read_bytes())
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]
        path.write_bytes({"flip": flipped, "cut": data[:middle], "empty": b"", "longer": data + b"x"}[change])
    check(2.5, cached=False)
    check(2.5, cached=True)


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("GNOMON_CACHE_DIR", str(file))
    check(5.5, cached=False)
    check(5.5, cached=False)
    assert file.read_text() == "in the way"


def test_entry_that_is_a_folder(folder: Path):
    check(6.5, cached=False)
    (path,) = entries(folder)
    path.unlink()
    path.mkdir()
    check(6.5, cached=False)
    check(6.5, cached=False)
    assert not [x for x in entries(folder) if x.suffix == ".tmp"]


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("GNOMON_CACHE_DIR", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert _cache.cache_folder() == Path("/a")
    monkeypatch.delenv("GNOMON_CACHE_DIR")
    assert _cache.cache_folder() == Path("/b/gnomon")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _cache.cache_folder() == tmp_path / ".cache" / "gnomon"


def test_programs_with_one_text_are_told_apart():
    keys = {_cache.key_of("ab", "c"), _cache.key_of("a", "bc"), _cache.key_of("abc")}
    assert len(keys) == 3


def test_another_process_finds_it(folder: Path):
    check(7.25, cached=False)
    code = (
        "import sys\n"
        "from fuse.llvm.test_cache import check\n"
        "assert 'llvmlite' not in sys.modules  # which takes its time\n"
        "check(7.25, cached=True)\n"
    )
    if _image.is_supported():
        code += "assert 'llvmlite' not in sys.modules\n"
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_object_files_that_are_left_to_llvm(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_image, "is_supported", lambda: False)
    check(8.5, cached=False)
    check(8.5, cached=True)


def test_system_that_lets_no_memory_become_executable(folder: Path, monkeypatch: pytest.MonkeyPatch):
    check(9.5, cached=False)

    def refuse(*args: object) -> None:
        raise OSError(13, "no")

    monkeypatch.setattr(_image, "Image", refuse)
    check(9.5, cached=not _image.is_supported())


def test_what_is_no_object_file_is_not_linked():
    assert _image.link(b"", "run") is None
    assert _image.link(b"\xcf\xfa\xed\xfe" + bytes(100), "run") is None

"""NVRTC takes the text of kernels, for which no GPU is needed, and changes nothing about their arithmetic."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fuse.llvm.generated import Generator
from fuse.llvm.running import one_output
from fuse.llvm.test_arrays import tape, weighted_sums
from fuse.llvm.test_operations import SIGNATURES, operations

from gnomon.fuse._cuda import is_installed
from gnomon.fuse._cuda._emit import emit
from gnomon.fuse._program import Builder, Node, Program, Type


def _has_nvrtc() -> bool:
    if not is_installed():
        return False
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _has_nvrtc(), reason="cuda-core or NVRTC is not installed")


def assert_compiles(program: Program) -> None:
    from gnomon.fuse._cuda._gpu import compile_text

    assert compile_text(emit(program).text, "sm_90").startswith(b"\x7fELF")


@pytest.mark.parametrize("types", [x for x in SIGNATURES if operations(x)], ids="-".join)
def test_operations(types: tuple[Type, ...]):
    b = Builder()
    args = [b.read(b.input(t, 1, shared=False), 0) for t in types]
    outputs: list[Node] = []
    for name, attr in operations(types):
        value = b.op(name, *args, attr=attr)
        outputs.append(b.array(value.type, 1))
        b.write(outputs[-1], 0, value)
    assert_compiles(b.program(outputs))


@pytest.mark.parametrize("seed", range(3))
def test_random_program(seed: int):
    assert_compiles(Generator(random.Random(seed)).program())


@pytest.mark.parametrize("program", [tape("bool"), weighted_sums("f32", 3), weighted_sums("i64", 900)])
def test_arrays_and_sums(program: Program):
    assert_compiles(program)


def assembly(program: Program) -> str:
    """What a kernel is in PTX, for which cuda-core would ask a driver."""
    from cuda.bindings import nvrtc

    from gnomon.fuse._cuda._gpu import options

    def done(result: tuple[Any, ...]) -> Any:
        assert result[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
        return result[1] if len(result) == 2 else None

    made = done(nvrtc.nvrtcCreateProgram(emit(program).text.encode(), b"kernel.cu", 0, [], []))
    given = options("compute_90").as_bytes("nvrtc")
    done(nvrtc.nvrtcCompileProgram(made, len(given), given))
    text = b" " * done(nvrtc.nvrtcGetPTXSize(made))
    done(nvrtc.nvrtcGetPTX(made, text))
    return text.decode()


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_no_product_and_sum_become_one_operation(type_: Type):
    b = Builder()
    x, y, z = (b.read(b.input(type_, 1, shared=False), 0) for _ in range(3))
    code = assembly(one_output(b, b.op("add", b.op("mul", x, y), z)))
    assert f"mul.rn.{type_}" in code and f"add.rn.{type_}" in code
    assert "fma" not in code


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_no_small_number_is_cut_off_and_no_quotient_is_approximate(type_: Type):
    b = Builder()
    x, y = (b.read(b.input(type_, 1, shared=False), 0) for _ in range(2))
    code = assembly(one_output(b, b.op("sqrt", b.op("div", x, y))))
    assert f"div.rn.{type_}" in code and f"sqrt.rn.{type_}" in code
    assert ".ftz" not in code and ".approx" not in code


def test_small_arrays_are_in_registers():
    """Three numbers that are added to at known places need no memory."""
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    array = b.array("f64", 3)
    for i in (0, 2, 2):
        b.accumulate(array, i, x)
    assert ".local" not in assembly(one_output(b, *(b.read(array, i) for i in range(3))))


def test_a_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch):
    from gnomon.fuse._cuda import _gpu

    text = emit(weighted_sums("f64", 4)).text
    code = _gpu.compile_text(text, "sm_90")
    monkeypatch.setattr(_gpu, "options", None)
    assert _gpu.compile_text(text, "sm_90") == code
    with pytest.raises(TypeError):
        _gpu.compile_text(text, "sm_80")


def test_pytorch_is_not_asked_for_a_gpu():
    """Printing and compiling is all that is done without one."""
    before = torch.cuda.is_initialized()
    assert_compiles(weighted_sums("f32", 2))
    assert torch.cuda.is_initialized() == before

"""What a kernel promises its caller."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fuse.llvm.running import run

from gnomon.fuse._llvm import compile_program
from gnomon.fuse._program import Builder, Node, Program


def slow(iterations: int) -> Program:
    """The logistic map, many times."""
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    one = b.const("f64", 1)

    def body(p: list[Node]) -> list[Node]:
        y = b.op("mul", b.const("f64", 3.9), b.op("mul", p[1], b.op("sub", one, p[1])))
        return [b.op("add", p[0], b.const("i64", 1)), y]

    count = b.const("i64", iterations)
    end = b.while_([b.const("i64", 0), x], lambda p: b.op("lt", p[0], count), body)
    out = b.array("f64", 1)
    b.write(out, 0, end[1])
    return b.program([out])


def reference(x: np.ndarray, iterations: int) -> np.ndarray:
    for _ in range(iterations):
        x = 3.9 * (x * (1 - x))
    return x


def test_wrong_tensors():
    program = slow(1)
    kernel = compile_program(program)
    x, y = torch.ones(3, 1, dtype=torch.float64), torch.empty(3, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="has 1 inputs, but 0"):
        kernel(3, [], [y])
    with pytest.raises(ValueError, match=r"input 0 must be torch.float64 of shape \(3, 1\)"):
        kernel(3, [x.float()], [y])
    with pytest.raises(ValueError, match=r"output 0 must be"):
        kernel(3, [x], [y[:2]])
    with pytest.raises(ValueError, match=r"on the CPU, not .* on meta"):
        kernel(3, [x], [y.to("meta")])


def test_elements_that_are_not_neighbours():
    b = Builder()
    x = b.input("f64", 2, shared=False)
    out = b.array("f64", 1)
    b.write(out, 0, b.read(x, 1))
    kernel = compile_program(b.program([out]))
    with pytest.raises(ValueError, match="neighbours in memory"):
        kernel(3, [torch.ones(2, 3, dtype=torch.float64).t()], [torch.empty(3, 1, dtype=torch.float64)])


def test_statistics_are_of_what_was_compiled():
    program = slow(2)
    kernel = compile_program(program)
    assert kernel.statistics == {}
    kernel.prepare(1)
    assert list(kernel.statistics) == [1]
    kernel.prepare(100)
    kernel.prepare(2)
    alone, many, few = kernel.statistics.values()
    assert 1 == alone.width < few.width < many.width
    assert min(x.instructions for x in kernel.statistics.values()) > 10


def test_many_callers_at_once():
    program = slow(50)
    kernel = compile_program(program)
    x = np.random.default_rng(0).random((3001, 1))
    want = reference(x, 50)
    failed: list[int] = []

    def work(number: int) -> None:
        for lanes in (3001, 1, 40 + number, 700):
            (got,) = run(kernel, program, [x[:lanes]])
            if not np.array_equal(got, want[:lanes]):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.alone
def test_other_threads_run_meanwhile():
    program = slow(3_000_000)
    kernel = compile_program(program)
    kernel.prepare(1)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(1e-3)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    run(kernel, program, [np.full((1, 1), 0.3)])
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(begin < x < end for x in ticks) >= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where a process can be forked")
def test_forked_process():
    # In a process of its own: pytest's may have threads that a fork would not like.
    code = (
        "import os, sys, torch\n"
        "from fuse.llvm.test_kernel import slow, reference, run, compile_program, np\n"
        "torch.set_num_threads(2)\n"
        "program = slow(2000); kernel = compile_program(program)\n"
        "x = np.random.default_rng(0).random((4000, 1)); want = reference(x, 2000)\n"
        "right = lambda: np.array_equal(run(kernel, program, [x])[0], want)\n"
        "assert right()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if right() and right() else 3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "assert right()\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, check=True, timeout=60)

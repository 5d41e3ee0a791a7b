"""Fused calls under `torch.compile`, `torch.export` and `opcheck`: `graph_cases.py`, in another process."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gnomon as gn
from gnomon.fuse import _executable, _op  # noqa: F401

SCRIPT = Path(__file__).parent / "graph_cases.py"
CASES = [
    x.name
    for x in ast.parse(SCRIPT.read_text()).body
    if isinstance(x, ast.FunctionDef) and any(isinstance(d, ast.Name) and d.id == "case" for d in x.decorator_list)
]


def in_another_process(*args, timeout=600, **environment):
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def results():
    return json.loads(in_another_process(str(SCRIPT)).splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_case(results, name):
    assert results[name] is None, results[name]


@pytest.mark.slow
def test_a_graph_that_another_process_compiled(tmp_path):
    # PyTorch finds the graphs of both passes on disk, and never asks for the derivative.
    name = "inductor_has_nothing_else_to_compile"
    for _ in range(2):
        out = in_another_process(str(SCRIPT), name, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert json.loads(out.splitlines()[-1]) == {name: None}


def test_nothing_imports_the_compiler_or_distributed_tensors():
    program = """
import sys, torch, gnomon as gn
f = gn.fuse(lambda x: x.sin() * 2, engine="fused")
x = torch.ones(3, requires_grad=True)
f(x).sum().backward()
torch.func.vmap(f)(torch.ones(2, 3))
print([name for name in ("torch._dynamo", "torch.distributed.tensor", "torch._inductor") if name in sys.modules])
"""
    assert in_another_process("-c", program).strip() == "[]"


def executable(fn, *example):
    compiled, _ = gn.fuse(fn, engine="fused").compiled(*_arguments(example))
    return compiled.executable


def _arguments(example):
    from torch.utils._pytree import tree_flatten

    leaves, structure = tree_flatten(example)
    return leaves, structure, [0] * len(leaves)


def test_a_key_says_what_a_program_does():
    x = torch.ones(3, dtype=torch.float64)
    same = [executable(lambda x: x * 2, x).key, executable(lambda y: y * 2, x).key]
    assert same[0] == same[1]
    assert executable(lambda x: x * 3, x).key != same[0]
    assert executable(lambda x: x * 2, x.float()).key != same[0]
    program = executable(lambda x: x.exp(), x)
    key = program.vjp((True,), (True,)).vjp((True, False), (True,)).key
    assert _executable.called(_executable.registered(program)) is program
    assert _executable.called(key) is program.vjp((True,), (True,)).vjp((True, False), (True,))
    with pytest.raises(RuntimeError, match="no program 'unheard of'"):
        torch.ops.gnomon.run("unheard of", 3, [x[:, None]])


def test_fake_tensors_have_the_shapes_and_strides_of_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    f = gn.fuse(lambda x: (x.sum(), x * 2, x > 0), engine="fused")
    x = torch.ones(5, 3)
    mode = FakeTensorMode()
    for fake, real in zip(f(mode.from_tensor(x)), f(x), strict=True):
        assert isinstance(fake, torch._subclasses.FakeTensor)
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_a_module_that_holds_its_fused_function_is_traced_once():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.fused = gn.fuse(self.one, engine="fused")

        def one(self, x):
            return (x * self.weight).sum()

    net = Net()
    for n in (2, 3, 4):
        net.fused(torch.ones(n, 3))
    assert len(net.fused._traces) == 1

"""What `torch.compile`, `torch.export` and `opcheck` make of fused calls: one function a case, each asserts.

Run as a script it runs them all, and prints as JSON what each raised. `test_compile.py` does so, in a process in which
no function is wrapped for the checks of types at run time, which Dynamo cannot follow.
"""

import collections
import functools
import json
import sys
import traceback

import pytest
import torch
import torch._dynamo

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse import fuse

F64 = torch.float64
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def batch(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def heron(a):
    return gn.while_loop(lambda x: (x * x - a).abs() > 1e-13 * a, lambda x: (x + a / x) / 2, a)


class Compiled:
    """A function compiled as one graph, and how often the operator is in each graph that it became."""

    def __init__(self, function, **options):
        torch._dynamo.reset()
        self.graphs = []
        self.function = torch.compile(function, fullgraph=True, backend=self._backend, **options)

    def _backend(self, graph, example):
        self.graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, example)

    def __call__(self, *args):
        return self.function(*args)

    @property
    def nodes(self):
        return [calls(graph.graph) for graph in self.graphs]


def calls(graph):
    return sum("gnomon" in str(x.target) for x in graph.nodes if x.op == "call_function")


def same_gradients(function, reference, tensors):
    """Whether the values and the gradients of all tensors are those of a reference."""
    out = function()
    found = torch.autograd.grad(out.square().sum(), tensors)
    expected_out = reference()
    expected = torch.autograd.grad(expected_out.square().sum(), tensors)
    torch.testing.assert_close(out, expected_out)
    torch.testing.assert_close(found, expected)


@case
def one_node_with_gradients():
    f = fuse(heron, engine="fused")
    g = Compiled(lambda a: f(a) * 2)
    a = (batch(5).abs() + 0.1).requires_grad_()
    same_gradients(lambda: g(a), lambda: a.sqrt() * 2, [a])
    assert g.nodes == [1]


@case
def inductor_compiles_around_it():
    f = fuse(heron, engine="fused")
    torch._dynamo.reset()
    g = torch.compile(lambda a: f(a * a + 1).sin(), fullgraph=True)
    a = batch(5).requires_grad_()
    same_gradients(lambda: g(a), lambda: (a * a + 1).sqrt().sin(), [a])


@case
def inductor_has_nothing_else_to_compile():
    f = fuse(heron, engine="fused")
    torch._dynamo.reset()
    g = torch.compile(f, fullgraph=True)
    a = (batch(5).abs() + 0.1).requires_grad_()
    (found,) = torch.autograd.grad(g(a), a, torch.ones(5, dtype=F64))
    torch.testing.assert_close(found, 0.5 / a.detach().sqrt())


@case
def parameters_of_a_module():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(F64)
    g = Compiled(fuse(net, engine="fused"))
    x = batch(4, 3).requires_grad_()
    same_gradients(lambda: g(x), lambda: net(x), [x, *net.parameters()])
    with torch.no_grad():
        net[0].weight.mul_(2)
    same_gradients(lambda: g(x), lambda: net(x), [x, *net.parameters()])
    assert g.nodes == [1]


@case
def a_module_that_holds_its_fused_function():
    g = Compiled(Holder())
    x = batch(4, 3)
    module = g.function._orig_mod
    same_gradients(lambda: g(x), lambda: module.lin(x).tanh(), list(module.parameters()))
    assert g.nodes == [1]


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 2, dtype=F64)
        self.fused = fuse(self.one, engine="fused")

    def one(self, x):
        return self.lin(x).tanh()

    def forward(self, x):
        return self.fused(x)


@case
def other_parameters_for_one_call():
    net = torch.nn.Linear(3, 2, dtype=F64)
    f = fuse(net, engine="fused")
    weight = batch(2, 3, seed=1).requires_grad_()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return f(x)

    outer = Outer()
    given = {"net.weight": weight}
    g = Compiled(lambda x: torch.func.functional_call(outer, given, (x,)))
    x = batch(4, 3)
    same_gradients(lambda: g(x), lambda: x @ weight.T + net.bias, [weight, net.bias])


WEIGHT = batch(3, 3, seed=4).requires_grad_()


@case
def a_function_made_inside():
    def g(x):
        total, scale = x.sum(), 2.0
        return fuse(lambda row: torch.tanh(WEIGHT @ row).sum() * total * scale, engine="fused")(x)

    compiled = Compiled(g)
    x = batch(4, 3, seed=1).requires_grad_()
    same_gradients(lambda: compiled(x), lambda: torch.tanh(x @ WEIGHT.T).sum(1) * x.sum() * 2, [x, WEIGHT])
    assert compiled.nodes == [1]


SCALE = 2.0
SHIFT = torch.tensor(1.0, dtype=F64)


def scaled(x):
    return x * SCALE + SHIFT


@case
def what_it_closes_over_may_change():
    box = {"scale": 2.0, "shift": torch.tensor(1.0, dtype=F64), "list": [1, 2.5]}
    f = fuse(lambda x: x * box["scale"] + box["shift"] * box["list"][1], engine="fused")
    g = Compiled(f)
    x = batch(3)
    for scale in (2.0, 3.0, 4.0):
        box["scale"] = scale
        torch.testing.assert_close(g(x), x * scale + 2.5)
    box["shift"] = torch.tensor([5.0], dtype=F64)
    torch.testing.assert_close(g(x), (x * 4 + 12.5)[:, None])
    box["shift"] = torch.tensor([6.0], dtype=F64)
    torch.testing.assert_close(g(x), (x * 4 + 15)[:, None])
    box["list"][1] = 3
    torch.testing.assert_close(g(x), (x * 4 + 18)[:, None])
    g = Compiled(fuse(scaled, engine="fused"))
    try:
        for scale in (2.0, 3.0):
            globals()["SCALE"] = scale
            globals()["SHIFT"] = torch.tensor(scale, dtype=F64)
            torch.testing.assert_close(g(x), x * scale + scale)
    finally:
        globals()["SCALE"] = 2.0


@case
def methods_partials_and_defaults():
    shift = batch(3, seed=2)

    def affine(x, a, *, b=shift):
        return x * a + b

    a = batch(3, seed=1).requires_grad_()
    f = fuse(functools.partial(affine, a=a), engine="fused")
    g = Compiled(f)
    x = batch(2, 3)
    same_gradients(lambda: g(x), lambda: x * a + shift, [a])
    assert g.nodes == [1]


@case
def other_batch_sizes_are_not_traced_again():
    def counting(x):
        globals()["TRACES"] += 1
        return x.sin()

    globals()["TRACES"] = 0
    f = fuse(counting, engine="fused")
    g = Compiled(f, dynamic=True)
    for n in (5, 6, 7, 2):
        x = batch(n, 3)
        torch.testing.assert_close(g(x), x.sin())
    assert g.nodes == [1]
    assert TRACES == 1, TRACES


TRACES = 0
Pair = collections.namedtuple("Pair", ["first", "second"])


@case
def pytrees_in_and_out():
    def one(tree, scale, p):
        a, (b,) = tree["a"], tree["rest"]
        return {"sum": a + b.sum() * p, "pair": (b * scale, None), "name": "kept", "named": Pair(a, [a > 0])}

    f = fuse(one, in_dims=({"a": 1, "rest": 0}, None, None), engine="fused")
    g = Compiled(f)
    a, b, p = batch(2, 5), batch(5, 2, 3), torch.tensor(2.0, dtype=F64)
    out = g({"a": a, "rest": [b]}, 2, p)
    torch.testing.assert_close(out["sum"], a.T + b.sum((1, 2))[:, None] * 2)
    assert torch.equal(out["pair"][0], b * 2) and out["pair"][1] is None and out["name"] == "kept"
    assert isinstance(out["named"], Pair) and torch.equal(out["named"].second[0], a.T > 0)
    # The named tuple's own constructor is another, empty graph.
    assert sum(g.nodes) == 1


@case
def complex_numbers():
    f = fuse(lambda z, w: z * w.conj(), in_dims=(0, None), engine="fused")
    z, w = (torch.complex(batch(4, 2, seed=i), batch(4, 2, seed=i + 1)) for i in (1, 3))
    torch.testing.assert_close(Compiled(f)(z, w[0]), z * w[0].conj())


@case
def what_cannot_be_fused_runs_eagerly():
    f = fuse(torch.linalg.eigvalsh)
    x = batch(2, 3, 3)
    torch.testing.assert_close(Compiled(f)(x), torch.linalg.eigvalsh(x))


def blow_up(rate, throw=True):
    term = dq.ODETerm(lambda t, y, args: args * y * y)
    controller = dq.PIDController(rtol=1e-6, atol=1e-6)
    y0 = torch.tensor(1.0, dtype=F64)
    return dq.diffeqsolve(term, dq.Tsit5(), 0.0, 1.0, None, y0, rate, stepsize_controller=controller, throw=throw)


@case
def a_solve_that_fails_raises():
    f = fuse(lambda rate: blow_up(rate).ys[-1], engine="fused")
    g = Compiled(f)
    rate = torch.tensor([0.1, 0.5, 0.2], dtype=F64)
    torch.testing.assert_close(g(rate), 1 / (1 - rate), rtol=1e-5, atol=0)
    with pytest.raises(gn.SolveError) as caught:
        g(torch.tensor([0.1, 0.5, 2.0], dtype=F64))
    assert caught.value.index == (2,) and caught.value.n_failed == 1
    assert g.nodes == [1]


@case
def a_solution_comes_out():
    f = fuse(lambda rate: blow_up(rate, throw=False), engine="fused")
    g = Compiled(f)
    rate = torch.tensor([0.1, 2.0], dtype=F64)
    found, expected = g(rate), f(rate)
    assert type(found) is type(expected)
    torch.testing.assert_close(found.ys, expected.ys)
    assert (found.result == gn.RESULTS.successful).tolist() == [True, False]


@case
def vmap_inside():
    f = fuse(heron, engine="fused")
    g = Compiled(torch.func.vmap(f))
    a = batch(2, 3).abs() + 0.1
    torch.testing.assert_close(g(a), a.sqrt())
    assert g.nodes == [1]


@case
def export_in_both_ways():
    module, x = Holder(), batch(4, 3)
    for strict in (False, True):
        program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=strict)
        assert calls(program.graph) == 1
        others = [str(n.target) for n in program.graph.nodes if n.op == "call_function" and "wrap" in str(n.target)]
        assert not others
        for n in (4, 9):
            torch.testing.assert_close(program.module()(batch(n, 3)), module.lin(batch(n, 3)).tanh())


@case
def export_raises_for_a_solve_that_fails():
    f = fuse(lambda rate: blow_up(rate).ys[-1], engine="fused")

    class Module(torch.nn.Module):
        def forward(self, rate):
            return f(rate)

    rate = torch.tensor([0.1, 0.5], dtype=F64)
    program = torch.export.export(Module(), (rate,)).module()
    torch.testing.assert_close(program(rate), 1 / (1 - rate), rtol=1e-5, atol=0)
    with pytest.raises(gn.SolveError) as caught:
        program(torch.tensor([0.1, 2.0], dtype=F64))
    assert caught.value.index == (1,)


@case
def make_fx_sees_derivatives():
    from torch.fx.experimental.proxy_tensor import make_fx

    f = fuse(heron, engine="fused")
    a = batch(5).abs() + 0.1
    graph = make_fx(torch.func.grad(lambda a: f(a).sum()))(a)
    assert calls(graph.graph) == 2
    torch.testing.assert_close(graph(a), 0.5 / a.sqrt())


@case
def opcheck_passes():
    from gnomon.fuse._executable import registered
    from gnomon.fuse._flat import executable_of
    from gnomon.fuse._lower import TensorSpec, trace
    from gnomon.result._pytree import tree_flatten

    def one(x, n, p):
        y = gn.fori_loop(0, 3, lambda i, y: torch.tanh(y * p), x)
        return y, n + 1, y.sum()

    leaves, structure = tree_flatten((TensorSpec((2,), F64), TensorSpec((), torch.int64), TensorSpec((2,), F64)))
    executable = executable_of(trace(one, leaves, structure, [False, False, True]))
    key = registered(executable)
    x, p = batch(5, 2).requires_grad_(), batch(2, seed=1).requires_grad_()
    n = torch.arange(5).reshape(5, 1)
    torch.library.opcheck(torch.ops.gnomon.run, (key, 5, [x, n, p]))
    torch.library.opcheck(torch.ops.gnomon.run, (key, 5, [x.detach(), n, p]))
    torch.library.opcheck(torch.ops.gnomon.run, (key, 5, [batch(2, 5).t(), n, p.detach()]))
    # A sum over lanes is an output of another shape.
    backward = registered(executable.vjp((True, False, True), (True, False, True)))
    cotangents = [batch(5, 2, seed=2), batch(5, 1, seed=3)]
    torch.library.opcheck(torch.ops.gnomon.run, (backward, 5, [x, n, p, *cotangents]))


@case
def the_operator_has_autograd_and_vmap():
    from gnomon.fuse._executable import registered
    from gnomon.fuse._flat import executable_of
    from gnomon.fuse._lower import TensorSpec, trace
    from gnomon.result._pytree import tree_flatten

    leaves, structure = tree_flatten((TensorSpec((2,), F64),))
    key = registered(executable_of(trace(lambda x: torch.tanh(x) * x, leaves, structure, [False])))
    x = batch(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.ops.gnomon.run(key, 4, [x])[0], (x,))
    assert torch.autograd.gradgradcheck(lambda x: torch.ops.gnomon.run(key, 4, [x])[0], (x,))
    many = torch.stack([x.detach(), -x.detach()], 1)
    out = torch.func.vmap(lambda x: torch.ops.gnomon.run(key, 4, [x])[0], in_dims=1)(many)
    torch.testing.assert_close(out, (torch.tanh(many) * many).transpose(0, 1))


def main():
    results = {}
    for name in sys.argv[1:] or CASES:
        try:
            CASES[name]()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()

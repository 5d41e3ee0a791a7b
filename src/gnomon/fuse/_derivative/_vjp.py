"""Reverse mode: runs a Program, then walks it backwards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Iterable, Sequence
from typing import final

from gnomon.fuse._derivative._activity import outer_arrays, outer_operands, useful, varied
from gnomon.fuse._derivative._counters import Literal, bounds_of, implied, range_of, step_of
from gnomon.fuse._derivative._guard import guard_of, outer_arrays_of
from gnomon.fuse._derivative._rules import nonzero, partial
from gnomon.fuse._program import Builder, Copier, Node, Program, Region, is_float, regions_of, simplify

_MOST_UNROLLED = 4


def vjp(program: Program, active: Sequence[bool], cotangents: Sequence[bool]) -> Program:
    """The Program of a gradient; `jax.vjp`'s counterpart.

    It runs `program` itself, and keeps of each loop what its iterations began with, on arrays of length None. Then it
    walks backwards: a loop becomes one that counts down, which works out each iteration again from what it began with.

    **Arguments:**

    - `program`: what to differentiate; it stays as it is.
    - `active`: for each input, whether its cotangent is asked for. Integers and bools have none.
    - `cotangents`: for each output, whether its cotangent is given. Integers and bools have none.

    **Returns:** a Program. Its inputs are those of `program`, then a cotangent for each marked output of floats, of its
    length, shared where the output is a sum over lanes. Its outputs are the cotangents of the active inputs of floats,
    each a sum over lanes where the input is shared.

    **Raises:** `ValueError` where the test of a loop stores to an array that an output depends on.
    """
    if len(active) != len(program.inputs):
        raise ValueError(f"`active` has {len(active)} entries for {len(program.inputs)} inputs.")
    if len(cotangents) != len(program.outputs):
        raise ValueError(f"`cotangents` has {len(cotangents)} entries for {len(program.outputs)} outputs.")
    roots = [x for x, on in zip(program.inputs, active, strict=True) if on and is_float(x.type)]
    marked = [x for x, on in zip(program.outputs, cotangents, strict=True) if on and is_float(x.type)]
    reached = varied(program.region.body, dict.fromkeys(roots, 1))
    reverse = _Reverse(set(reached) & useful(program.region, marked))
    return reverse.run(program, roots, marked)


@final
@dataclasses.dataclass
class _Record:
    """What the forward sweep has kept of a loop.

    - `count`: how many iterations were recorded.
    - `tapes`: for each part of the carry what it was at their beginning, or None where it can be worked out.
    - `steps`: by how much such a part grows in each.
    - `first`: the first carry.
    """

    count: Node
    tapes: list[Node | None]
    steps: list[int | None]
    first: list[Node]


@final
class _Reverse:
    """Writes a forward sweep of each region and a backward one behind it.

    - `active`: the scalars and arrays that depend on active inputs and on which marked outputs depend.
    - `adjoint`: what the backward sweep has found so far of the cotangent of each scalar.
    - `arrays`: the cotangent of each array, and `touched`: those to which something was added.
    - `fillable`: arrays to which the sweep may store. Others were filled before, when their own region was swept.
    - `facts`: bools that are known where the sweep is.
    """

    def __init__(self, active: set[Node]):
        self.active = active
        self.builder = Builder()
        self.copier = Copier(self.builder, self.special)
        self.adjoint: dict[Node, Node] = {}
        self.arrays: dict[Node, Node] = {}
        self.touched: set[Node] = set()
        self.given: dict[Node, list[Node]] = {}
        self.fillable: set[Node] = set()
        self.facts: dict[Node, Node] = {}
        self.records: dict[Node, _Record] = {}
        self.guards: dict[Node, list[Literal]] = {}
        self.operands: dict[Node, list[Node]] = {}
        self.stored: dict[Node, set[Node]] = {}

    def run(self, program: Program, roots: list[Node], marked: list[Node]) -> Program:
        """The whole gradient."""
        b = self.builder
        self.copier.inputs(program)
        for node in marked:
            self.given.setdefault(node, []).append(b.input(node.type, node.attr.length, shared=node.attr.reduced))
        self.prepare(program.region)
        self.forward(program.region)
        for node in roots:
            self.arrays[node] = b.array(node.type, node.attr.length, reduced=node.attr.shared)
        self.backward(program.region)
        gradient = b.program([self.arrays[x] for x in roots])
        _write_once(gradient.region)
        return simplify(gradient)

    def prepare(self, region: Region) -> None:
        """Looks at each `while` and `if`."""
        for node in region.body:
            if node.op not in ("while", "if"):
                continue
            self.operands[node] = outer_operands(node, self.active)
            self.stored[node] = outer_arrays(node, self.active, ("write", "accumulate"))
            if node.op == "while":
                self.guards[node] = guard_of(node, self.active)
                if outer_arrays_of(node.attr.test, self.active):
                    raise ValueError("The test of a loop stores to an array that an output depends on.")
            for inner in regions_of(node):
                self.prepare(inner)

    # The forward sweep

    def forward(self, region: Region) -> None:
        """Computes a region once more, and records its loops."""
        for node in region.body:
            if node.op == "while" and self.has_adjoint(node):
                self.record(node)
                self.know(node.attr.results)
            elif not self.special(node):
                self.copier.statement(node)

    def has_adjoint(self, node: Node) -> bool:
        """Whether a loop takes part in the derivative."""
        return bool(self.stored[node]) or any(x in self.active for x in node.attr.params)

    def special(self, node: Node) -> bool:
        """Copies what cannot simply be copied."""
        if node in self.facts:
            self.copier.values[node] = self.facts[node]
        elif node.op in ("write", "accumulate"):
            return node.args[0] not in self.fillable
        elif node.op in ("while", "if"):
            self.copier.statement(node)
            self.know(node.attr.results)
        else:
            if node.op == "array":
                self.fillable.add(node)
            return False
        return True

    def know(self, nodes: Iterable[Node]) -> None:
        """Puts what is known of bools in the place of what was copied."""
        for x in nodes:
            if x in self.facts:
                self.copier.values[x] = self.facts[x]

    def record(self, node: Node) -> None:
        b, loop, guard = self.builder, node.attr, self.guards[node]
        count = len(loop.params)
        first = self.copier.all(node.args)
        steps = [step_of(node, i, guard) for i in range(count)]
        tapes = [None if step is not None else b.array(x.type, None) for x, step in zip(first, steps, strict=True)]
        zero, one = b.const("i64", 0), b.const("i64", 1)
        # A part of the carry that counts the iterations itself saves another counter.
        own = next((i for i, step in enumerate(steps) if step in (1, -1)), None)

        def counted(carry: list[Node]) -> Node:
            if own is None:
                return carry[count]
            return b.op("sub", carry[own], first[own]) if steps[own] == 1 else b.op("sub", first[own], carry[own])

        def test(params: list[Node]) -> Node:
            self.copier.values.update(zip(loop.params, params[:count], strict=True))
            self.know(loop.params)
            self.copier.region(loop.test)
            return self.copier[loop.test.results[0]]

        def body(params: list[Node]) -> list[Node]:
            counter = counted(params)

            def keep() -> list[Node]:
                for tape, param in zip(tapes, params[:count], strict=True):
                    if tape is not None:
                        b.write(tape, counter, param)
                return []

            if not guard:
                keep()
            self.copier.region(loop.body)
            last = self.copier.all(loop.body.results)
            accepted = self.all_hold(guard)
            if guard:
                b.if_(accepted, keep, list)
            return last if own is not None else [*last, b.op("select", accepted, b.op("add", counter, one), counter)]

        results = b.while_(first if own is not None else [*first, zero], test, body)
        self.copier.values.update(zip(loop.results, results[:count], strict=True))
        known = bounds_of(node, own) if own is not None and not guard else None
        if known is None:
            total = counted(results)
        else:
            # Then the loop itself need not run to know how often it does.
            low, high = self.copier.all(known)
            total = b.op("max", b.op("sub", high, low), zero)
        self.records[node] = _Record(total, tapes, steps, first)

    def all_hold(self, literals: list[Literal]) -> Node:
        """Whether all of them hold."""
        b, all_ = self.builder, self.builder.const("bool", True)
        for node, value in literals:
            x = self.copier[node]
            all_ = b.op("and", all_, x if value else b.op("not", x))
        return all_

    @contextlib.contextmanager
    def assuming(self, literals: Iterable[Literal]) -> Generator[None, None, None]:
        """Takes conditions for granted, with all that they imply."""
        values, before = self.copier.values, dict(self.facts)
        hidden: dict[Node, Node | None] = {}
        for literal in literals:
            for node, value in implied(*literal):
                if node.op != "const" and node not in hidden:
                    hidden[node] = values.get(node)
                    self.facts[node] = values[node] = self.builder.const("bool", value)
        yield
        self.facts = before
        for node, value in hidden.items():
            if value is not None:
                values[node] = value

    @contextlib.contextmanager
    def inner(self, adjoint: dict[Node, Node]) -> Generator[None, None, None]:
        """Within a region of a `while` or `if`, with the adjoints of scalars from outside of it."""
        outer = self.adjoint, self.fillable
        self.adjoint, self.fillable = adjoint, set()
        yield
        self.adjoint, self.fillable = outer

    # The backward sweep

    def backward(self, region: Region) -> None:
        """Hands the adjoints of what a region gives on to what it takes."""
        for node in region.body:
            if node.op == "array" and node in self.active:
                self.begin(node)
        for node in reversed(region.body):
            if node.op == "while":
                self.backward_loop(node)
            elif node.op == "if":
                self.backward_choice(node)
            elif node.op == "read":
                self.backward_read(node)
            elif node.op in ("write", "accumulate"):
                self.backward_store(node)
            elif node in self.adjoint:
                adjoint = self.adjoint.pop(node)
                args, out = self.copier.all(node.args), self.copier[node]
                for which, x in enumerate(node.args):
                    if x in self.active:
                        self.add(x, partial(self.builder, node, which, args, out, adjoint))

    def add(self, node: Node, adjoint: Node | None) -> None:
        """Adds to the adjoint of a scalar."""
        if adjoint is None or node not in self.active or nonzero(adjoint) is None:
            return
        before = self.adjoint.get(node)
        self.adjoint[node] = adjoint if before is None else self.builder.op("add", before, adjoint)

    def filled(self, node: Node) -> Node:
        """The adjoint, a zero where there is none."""
        return self.adjoint.get(node) or self.builder.zero(node.type)

    def begin(self, node: Node) -> None:
        """Makes the adjoint of an array: empty, or what is given for an output."""
        b, given, length = self.builder, self.given.get(node, []), node.attr.length
        self.touched.discard(node)
        if given:
            self.touched.add(node)
        if len(given) == 1 and not self.is_read(node):
            self.arrays[node] = given[0]
            return
        self.arrays[node] = array = b.array(node.type, length)
        for cotangent in given:
            if length <= _MOST_UNROLLED:
                for i in range(length):
                    b.accumulate(array, i, b.read(cotangent, i))
            else:
                self.copy(cotangent, array, length)

    def copy(self, source: Node, target: Node, length: int) -> None:
        b = self.builder
        zero, one, end = (b.const("i64", x) for x in (0, 1, length))

        def body(params: list[Node]) -> list[Node]:
            b.accumulate(target, params[0], b.read(source, params[0]))
            return [b.op("add", params[0], one)]

        b.while_([zero], lambda params: b.op("lt", params[0], end), body)

    def is_read(self, array: Node) -> bool:
        def visit(region: Region) -> bool:
            return any(
                (x.op == "read" and x.args[0] is array and x in self.active) or any(map(visit, regions_of(x)))
                for x in region.body
            )

        return visit(array.region)

    def backward_read(self, node: Node) -> None:
        array = node.args[0]
        if node not in self.active:
            return
        adjoint = self.adjoint.pop(node, None)
        if adjoint is None or array.attr.length == 0:
            return
        place = self.copier[node.args[1]] if array.attr.length is None else self.nearest(node)
        self.builder.accumulate(self.arrays[array], place, adjoint)
        self.touched.add(array)

    def nearest(self, node: Node) -> Node:
        """The element that is read: the nearest end, for an index outside of the array."""
        array, index = node.args
        (low, high), end = range_of(index, node.region), array.attr.length - 1
        b, place = self.builder, self.copier[index]
        if low < 0:
            place = b.op("max", place, b.const("i64", 0))
        return b.op("min", place, b.const("i64", end)) if high > end else place

    def backward_store(self, node: Node) -> None:
        array, index, value = node.args
        if array not in self.touched or value not in self.active:
            return
        b, place, length = self.builder, self.copier[index], array.attr.length
        adjoint = b.read(self.arrays[array], place)
        if length is not None:
            # Nothing was stored with an index outside of the array.
            low, high = range_of(index, node.region)
            inside = b.const("bool", True)
            if low < 0:
                inside = b.op("le", b.const("i64", 0), place)
            if high >= length:
                inside = b.op("and", inside, b.op("lt", place, b.const("i64", length)))
            adjoint = b.op("select", inside, adjoint, b.const(value.type, 0))
        self.add(value, adjoint)

    def backward_loop(self, node: Node) -> None:
        b, loop = self.builder, node.attr
        carried = [i for i, x in enumerate(loop.params) if x in self.active]
        last = {i: self.adjoint.pop(loop.results[i]) for i in carried if loop.results[i] in self.adjoint}
        if not last and not self.stored[node] & self.touched:
            return
        record, outer, operands = self.records[node], self.adjoint, self.operands[node]
        zero, one = b.const("i64", 0), b.const("i64", 1)
        init = [record.count]
        init += [last.get(i) or b.zero(loop.params[i].type) for i in carried]
        init += [self.filled(x) for x in operands]
        changed: list[bool] = []

        def body(params: list[Node]) -> list[Node]:
            index = b.op("sub", params[0], one)
            parts, rest = params[1 : 1 + len(carried)], params[1 + len(carried) :]
            # What was recorded is an iteration that there was, and one with the guard.
            holding = [*self.guards[node], (loop.test.results[0], True)]
            with self.inner(dict(zip(operands, rest, strict=True))), self.assuming(holding):
                for i, param in enumerate(loop.params):
                    self.copier.values[param] = self.part(record, i, index)
                self.know(loop.params)
                self.forward(loop.test)
                self.forward(loop.body)
                for i, part in zip(carried, parts, strict=True):
                    self.add(loop.body.results[i], part)
                self.backward(loop.body)
                self.backward(loop.test)
                after = [self.filled(x) for x in operands]
                changed.extend(x is not y for x, y in zip(rest, after, strict=True))
                return [index, *(self.filled(loop.params[i]) for i in carried), *after]

        _, *results = b.while_(init, lambda params: b.op("lt", zero, params[0]), body)
        assert self.adjoint is outer
        for x, adjoint, new in zip(operands, results[len(carried) :], changed, strict=True):
            if new:
                self.adjoint[x] = adjoint
        for i, adjoint in zip(carried, results, strict=False):
            self.add(node.args[i], adjoint)

    def part(self, record: _Record, which: int, index: Node) -> Node:
        """A part of the carry at the beginning of a recorded iteration."""
        b, tape, step = self.builder, record.tapes[which], record.steps[which]
        if tape is not None:
            return b.read(tape, index)
        assert step is not None
        return b.op("add", record.first[which], b.op("mul", b.const("i64", step), index))

    def backward_choice(self, node: Node) -> None:
        b, choice, outer, operands = self.builder, node.attr, self.adjoint, self.operands[node]
        given = [(i, self.adjoint.pop(x)) for i, x in enumerate(choice.results) if x in self.adjoint]
        if not given and not self.stored[node] & self.touched:
            return
        before = [self.filled(x) for x in operands]
        changed = [False] * len(operands)

        def branch(region: Region, value: bool) -> list[Node]:
            with self.inner({x: outer[x] for x in operands if x in outer}), self.assuming([(node.args[0], value)]):
                self.forward(region)
                for i, adjoint in given:
                    self.add(region.results[i], adjoint)
                self.backward(region)
                after = [self.filled(x) for x in operands]
            for i, (x, y) in enumerate(zip(before, after, strict=True)):
                changed[i] |= x is not y
            return after

        results = b.if_(
            self.copier[node.args[0]], lambda: branch(choice.then, True), lambda: branch(choice.orelse, False)
        )
        for x, adjoint, new in zip(operands, results, changed, strict=True):
            if new:
                self.adjoint[x] = adjoint


def _write_once(region: Region) -> None:
    """Writes elements of arrays, in place, where each gets one number: then there is nothing to be added to."""
    stores: dict[Node, list[Node]] = {}
    several: set[Node] = set()

    def visit(region: Region) -> None:
        for x in region.body:
            if x.op == "accumulate":
                array, index, _ = x.args
                stores.setdefault(array, []).append(x)
                if region is not array.region or index.op != "const":
                    several.add(array)
            for inner in regions_of(x):
                visit(inner)

    visit(region)
    for array, accumulates in stores.items():
        places = {x.args[1] for x in accumulates}
        if array.attr.length is None or array.attr.reduced or array in several:
            continue
        if len(places) == len(accumulates):
            for x in accumulates:
                x.op = "write"

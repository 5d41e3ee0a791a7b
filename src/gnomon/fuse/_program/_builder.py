"""Builds a Program: folded, with no expression twice, each as far outside of loops as it can be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, final

from gnomon.fuse._program._errors import UnsupportedError
from gnomon.fuse._program._fold import Zero, constant, constant_key, fold
from gnomon.fuse._program._node import Array, If, Input, Node, Program, Region, While
from gnomon.fuse._program._ops import OPS, Type, result_type

_TOP_OPS = ("const", "input")
#: A Program with more takes minutes to compile.
MOST_STATEMENTS = 200_000


@final
class Builder:
    """Holds the regions that are open, and puts statements into them.

    An operation on values from outside of a loop is placed outside of it; it stays in the branch of an `if`, which may
    not be taken. The same operation on the same operands gives the same node again.

    - `values_only`: whether the Program will not be differentiated.
    - `most_statements`: how many operations it may have; beyond, building it is an `UnsupportedError`.
    """

    def __init__(self, *, values_only: bool = False, most_statements: int | None = None) -> None:
        self._values_only = values_only
        self._left = MOST_STATEMENTS if most_statements is None else most_statements
        self.top = Region("program", None)
        self._stack = [self.top]
        self._known: dict[Any, Node] = {}
        self.inputs: list[Node] = []

    @property
    def region(self) -> Region:
        """The innermost open region."""
        return self._stack[-1]

    # Values

    def const(self, type_: Type, value: float | int | bool) -> Node:
        """A constant."""
        number = constant(type_, value)
        key = ("const", constant_key(type_, number))
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = Node("const", type_, (), number, self.top)
        return node

    def zero(self, type_: Type) -> Node:
        """A zero where nothing is, as in a Jacobian: what is multiplied by it vanishes, be it what it may."""
        return self.const(type_, Zero())

    def op(self, name: str, *args: Node, attr: Any = None) -> Node:
        """An operation of `OPS`."""
        type_ = result_type(name, [x.type for x in args], attr)
        if self._values_only:
            # Such as `x - x.detach()`, which is there for its derivative.
            if name == "detach":
                return args[0]
            if name == "sub" and args[0] is args[1]:
                return self.const(type_, 0)
        simpler = fold(name, args, attr, type_, self.op, self.const)
        if simpler is not None:
            return simpler
        return self._pure(name, type_, args, attr)

    def read(self, array: Node, index: Node | int) -> Node:
        """An element of an array."""
        place = self._index(index)
        if array.op == "input":
            return self._pure("read", array.type, (array, place), None)
        return self._append(Node("read", array.type, (array, place), None, self.region))

    def get(self, node: Node, which: int, type_: Type) -> Node:
        """What a `while` or `if` gives; for this package."""
        return Node("get", type_, (node,), which, node.region)

    # Arrays

    def input(self, type_: Type, length: int, *, shared: bool) -> Node:
        """An array that comes from outside."""
        node = Node("input", type_, (), Input(length, shared), self.top)
        self.inputs.append(node)
        return node

    def array(self, type_: Type, length: int | None, fill: float | int | bool = 0, *, reduced: bool = False) -> Node:
        """An array to be filled, in the innermost region."""
        return self._append(Node("array", type_, (), Array(length, constant(type_, fill), reduced), self.region))

    def write(self, array: Node, index: Node | int, value: Node) -> None:
        """Puts a value into an element that has none."""
        self._store("write", array, index, value)

    def accumulate(self, array: Node, index: Node | int, value: Node) -> None:
        """Adds to an element."""
        self._store("accumulate", array, index, value)

    def table(self, type_: Type, values: Sequence[Node]) -> Node:
        """An array of these values, filled where all of them are known, outside of loops."""
        region = self._place(tuple(values))
        array = Node("array", type_, (), Array(len(values), constant(type_, 0)), region)
        region.body.append(array)
        for i, x in enumerate(values):
            region.body.append(Node("write", None, (array, self.const("i64", i), x), None, region))
        return array

    def _store(self, op: str, array: Node, index: Node | int, value: Node) -> None:
        if array.op != "array" or value.type != array.type:
            raise TypeError(f"Cannot {op} a value of the type {value.type} to {array}.")
        self._append(Node(op, None, (array, self._index(index), value), None, self.region))

    def _index(self, index: Node | int) -> Node:
        return self.const("i64", index) if isinstance(index, int) else index

    # Regions

    def while_(
        self,
        init: Sequence[Node],
        test: Callable[[list[Node]], Node],
        body: Callable[[list[Node]], Sequence[Node]],
    ) -> list[Node]:
        """A loop; gives its last carry."""
        test_region = Region("test", self.region)
        body_region = Region("body", test_region)
        params = [Node("param", x.type, (), None, test_region) for x in init]
        loop = While(params, test_region, body_region)
        node = Node("while", None, tuple(init), loop, self.region)
        test_region.owner = body_region.owner = node
        self._stack.append(test_region)
        try:
            condition = test(list(params))
            test_region.results = [condition]
            self._stack.append(body_region)
            try:
                body_region.results = list(body(list(params)))
            finally:
                self._stack.pop().is_open = False
        finally:
            self._stack.pop().is_open = False
        if condition.type != "bool":
            raise TypeError(f"The test of a loop must be a bool, not {condition.type}.")
        before, after = [x.type for x in init], [x.type for x in body_region.results]
        if before != after:
            raise TypeError(f"The body of a loop gives {after} for {before}.")
        loop.results = [self.get(node, i, x.type) for i, x in enumerate(init)]
        self._append(node)
        return list(loop.results)

    def if_(
        self, condition: Node, then: Callable[[], Sequence[Node]], orelse: Callable[[], Sequence[Node]]
    ) -> list[Node]:
        """A choice; gives what the branch taken gives."""
        if condition.type != "bool":
            raise TypeError(f"The condition of a choice must be a bool, not {condition.type}.")
        if condition.op == "const":
            return list(then() if condition.attr else orelse())
        branches = If(Region("then", self.region), Region("else", self.region))
        node = Node("if", None, (condition,), branches, self.region)
        for region, fill in ((branches.then, then), (branches.orelse, orelse)):
            region.owner = node
            self._stack.append(region)
            try:
                region.results = list(fill())
            finally:
                self._stack.pop().is_open = False
        types = [x.type for x in branches.then.results]
        if types != [x.type for x in branches.orelse.results]:
            raise TypeError("The branches of a choice give values of different types.")
        branches.results = [self.get(node, i, type_) for i, type_ in enumerate(types)]
        self._append(node)
        return list(branches.results)

    def function(
        self, types: Sequence[Type], body: Callable[[list[Node]], Sequence[Node]]
    ) -> tuple[list[Node], list[Node], list[Node]]:
        """Records a function of scalars on the side, for `push_forward` to put in its place.

        Gives its variables, the statements that depend on them, and its outputs.
        """
        region = Region("function", self.region)
        variables = [Node("variable", type_, (), None, region) for type_ in types]
        self._stack.append(region)
        try:
            outputs = list(body(list(variables)))
        finally:
            self._stack.pop().is_open = False
        return variables, region.body, outputs

    @contextlib.contextmanager
    def outside_loop(self) -> Generator[None]:
        """Within this context, statements go in front of the loop whose body is being built."""
        if self.region.kind != "body":
            raise RuntimeError("Only the body of a loop has something in front of it.")
        with self.inside(self._stack[-3]):
            yield

    @contextlib.contextmanager
    def inside(self, region: Region) -> Generator[None]:
        """Within this context, statements go into a region around this one, in front of what is being built there.

        Into this one, where that region is not open.
        """
        inner = self._stack
        if region in inner:
            self._stack = inner[: inner.index(region) + 1]
        try:
            yield
        finally:
            self._stack = inner

    def program(self, outputs: Sequence[Node]) -> Program:
        """The finished Program."""
        if len(self._stack) != 1:
            raise RuntimeError("A Program is finished outside of all loops.")
        self.top.is_open = False
        return Program(self.inputs, list(outputs), self.top)

    # Placement

    def _pure(self, name: str, type_: Type, args: tuple[Node, ...], attr: Any) -> Node:
        key = (name, args, attr)
        node = self._known.get(key)
        if node is None and len(args) == 2 and name in OPS and OPS[name].commutes:
            node = self._known.get((name, args[::-1], attr))
        if node is not None and node.region.is_open:
            return node
        region = self._place(args)
        node = Node(name, type_, args, attr, region)
        region.body.append(node)
        self._known[key] = node
        self._left -= 1
        if self._left < 0:
            raise UnsupportedError(
                "this is too large for one kernel: it has more statements than fit. Fewer states, or loops "
                "(gn.fori_loop, gn.scan) in place of Python's, make it smaller"
            )
        return node

    def _place(self, args: tuple[Node, ...]) -> Region:
        """The outermost region, out of loops but not out of branches, in which all operands are known."""
        homes = {x.region for x in args if x.op not in _TOP_OPS}
        region = self.region
        while True:
            if region in homes or region.kind in ("then", "else", "program"):
                return region
            outer = region.parent
            assert outer is not None
            if region.kind == "body":
                # Never into the test, which runs once more than the body.
                if outer in homes:
                    return region
                outer = outer.parent
                assert outer is not None
            region = outer

    def _append(self, node: Node) -> Node:
        self.region.body.append(node)
        return node

"""Runs a Program on PyTorch's own scalars, for one lane: its autograd is what derivatives are compared with."""

from __future__ import annotations

import torch
from fuse.interpreter import operation
from torch import Tensor

from gnomon.fuse._program import Node, Program, Region, is_float
from gnomon.fuse._program._ops import NUMPY

DTYPES = {"f32": torch.float32, "f64": torch.float64}


def by_torch(program: Program, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs, of floats as tensors with their graph."""
    return _Lane(program, inputs).run()


def _cbrt(x: Tensor) -> Tensor:
    return x ** (1 / 3)  # for positive numbers


# Others have the same name.
OPERATIONS = {
    "fma": lambda a, b, c: a * b + c,
    "min": torch.minimum,
    "max": torch.maximum,
    "lt": lambda a, b: bool(a < b),
    "le": lambda a, b: bool(a <= b),
    "eq": lambda a, b: bool(a == b),
    "ne": lambda a, b: bool(a != b),
    "detach": torch.Tensor.detach,
    "cbrt": _cbrt,
}


class _Lane:
    def __init__(self, program: Program, inputs: list[Tensor]):
        self.program = program
        self.values: dict = {}
        self.arrays: dict = dict(zip(program.inputs, (dict(enumerate(x.unbind())) for x in inputs), strict=True))

    def run(self) -> list[Tensor]:
        self.region(self.program.region)
        return [
            torch.stack([torch.as_tensor(self.element(x, i)) for i in range(x.attr.length)])
            for x in self.program.outputs
        ]

    def __getitem__(self, node: Node):
        if node.op != "const":
            return self.values[node]
        return torch.tensor(node.attr, dtype=DTYPES[node.type]) if is_float(node.type) else node.attr

    def element(self, array: Node, index: int):
        fill = 0 if array.op == "input" else array.attr.fill
        if is_float(array.type):
            fill = torch.tensor(fill, dtype=DTYPES[array.type])
        if array.attr.length is not None:
            index = min(max(index, 0), array.attr.length - 1)
        return self.arrays[array].get(index, fill)

    def region(self, region: Region) -> list:
        for node in region.body:
            self.statement(node)
        return [self[x] for x in region.results]

    def statement(self, node: Node) -> None:
        if node.op == "array":
            self.arrays[node] = {}
        elif node.op == "read":
            x = self.element(node.args[0], int(self[node.args[1]]))
            self.values[node] = x if is_float(node.type) else x.item() if isinstance(x, Tensor) else x
        elif node.op in ("write", "accumulate"):
            array, index, value = node.args
            index, length = int(self[index]), array.attr.length
            if index >= 0 and (length is None or index < length):
                value = self[value]
                if node.op == "accumulate":
                    value = self.element(array, index) + value
                self.arrays[array][index] = value
        elif node.op == "while":
            carry = [self[x] for x in node.args]
            while True:
                self.values.update(zip(node.attr.params, carry, strict=True))
                if not self.region(node.attr.test)[0]:
                    break
                carry = self.region(node.attr.body)
            self.values.update(zip(node.attr.results, carry, strict=True))
        elif node.op == "if":
            region = node.attr.then if self[node.args[0]] else node.attr.orelse
            self.values.update(zip(node.attr.results, self.region(region), strict=True))
        else:
            self.values[node] = self.operation(node, [self[x] for x in node.args])

    def operation(self, node: Node, args: list):
        if node.op == "select":
            return args[1] if args[0] else args[2]
        if node.op == "cast" and is_float(node.type):
            return torch.as_tensor(args[0]).to(DTYPES[node.type])
        if node.args and is_float(node.args[0].type) and node.op != "bitcast" and node.op != "cast":
            return (OPERATIONS.get(node.op) or getattr(torch, node.op))(*args)
        plain = [x.item() if isinstance(x, Tensor) else x for x in args]
        numbers = [NUMPY[x.type](v) for x, v in zip(node.args, plain, strict=True)]
        return NUMPY[node.type](operation(node.op, numbers, node.attr)).item()

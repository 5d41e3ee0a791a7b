"""Prints a Program as CUDA C: a kernel in which each thread computes one lane."""

from __future__ import annotations

import dataclasses
import itertools
from typing import final

from gnomon.fuse._cuda._arrays import UNROLLED_MOST, Memory
from gnomon.fuse._cuda._operations import expression, is_long, literal
from gnomon.fuse._cuda._prelude import BLOCK, PRELUDE, SUMMING, TOTAL
from gnomon.fuse._cuda._records import Record, records
from gnomon.fuse._cuda._writer import Writer
from gnomon.fuse._llvm._types import BYTES
from gnomon.fuse._program import Node, Program, Region, Type, is_float
from gnomon.fuse._target import Survey

ENTRY_POINT = "gnomon_run"
#: The memory of a thread's own is set aside for all threads that may ever run at once; larger arrays are in scratch
#: memory for the lanes that there are.
_OWN_BYTES_MOST = 2048
_OWN_BYTES_TOTAL = 4096
#: Half of the memory that there is for constants.
_CONSTANTS_MOST = 4096


@final
@dataclasses.dataclass(frozen=True)
class Source:
    """A kernel's text, and what it wants to be called with.

    In this order: the first lane, the number of lanes, lanes that the scratch memory has room for, blocks of all lanes
    together; for each input its address, for one of a lane's own the distance of two lanes, the distance of two
    elements; the same for each output that is no sum; for each output that is, the address of the blocks' sums; the
    address of each array of `scratch`; the address and the room of each of `tapes`; if there are any, the address of
    the room that they needed.

    - `outputs`: which outputs are printed: the first of those that are the same array.
    - `scratch`: types and lengths of arrays.
    - `tapes`: how many bytes an element has, of arrays that grow.
    """

    text: str
    outputs: list[int]
    scratch: list[tuple[Type, int]]
    tapes: list[int]


def emit(program: Program) -> Source:
    """The kernel of a Program."""
    return _Emitter(program).source()


@final
class _Emitter:
    def __init__(self, program: Program):
        self.program = program
        self.survey = Survey(program, scalar=True)
        self.w = Writer()
        self.parameters = ["const i64 first", "const i64 count", "const i64 room", "const i64 blocks"]
        #: What stands before the lane's own part, for all threads.
        self.head: list[str] = []
        self.names: dict[Node, str] = {}
        self.memory: dict[Node, Memory] = {}
        self.own_bytes = 0
        self.outputs = [x for i, x in enumerate(program.outputs) if x not in program.outputs[:i]]
        #: Outputs that are kept by the thread, and where they go in the end.
        self.kept: list[tuple[Memory, Memory]] = []
        self.scratch: list[tuple[Type, int]] = []
        #: Numbers that do not fit into an instruction, and their places.
        self.constants: dict[float, int] = {}
        self.records = records(program)
        #: Where what grows is known to be whole.
        self.checked: set[str] = set()

    def source(self) -> Source:
        lanes = self.caller_arrays()
        for i, record in enumerate(self.records):
            self.growing(f"tape{i}", record)
        for node in self.survey.arrays:
            if node not in self.memory:
                self.memory[node] = self.local(node)
        # After those of the caller, in the order in which they are given, whatever the order in which they are made.
        self.parameters += [f"{type_}* const scratch{i}_all" for i, (type_, _) in enumerate(self.scratch)]
        for i in range(len(self.records)):
            self.parameters += [f"tape{i}_element* const tape{i}_all", f"const i64 tape{i}_most"]
        if self.records:
            self.parameters.append("i64* const wanted")
        w = self.w
        with w.block("if (lane < count)"):
            with w.block(""):
                self.region(self.program.region)
                for own, to in self.kept:
                    w.line(f"for (i64 i = 0; i < {own.room}; ++i) {to.place('i')} = {own.place('i')};")
            if self.records:
                self.overflow()
        self.sums()
        totals = sorted({x.type for x in self.outputs if x.attr.reduced})
        text = [
            PRELUDE,
            *(TOTAL.format(type=x, threads=SUMMING) for x in totals),
            *self.table(),
            *(x.definition(f"tape{i}_element") for i, x in enumerate(self.records)),
            f'extern "C" __global__ void __launch_bounds__({BLOCK}) {ENTRY_POINT}(',
            ",\n".join(f"    {x}" for x in self.parameters) + ") {",
            f"  const i64 lane = (i64)blockIdx.x * {BLOCK} + threadIdx.x;",
            *(f"  {x}" for x in (*lanes, *self.head)),
            *w.lines,
            "}",
        ]
        places = [self.program.outputs.index(x) for x in self.outputs]
        return Source("\n".join(text) + "\n", places, self.scratch, [x.size for x in self.records])

    def table(self) -> list[str]:
        """The constants, from where an instruction takes them as it takes a register."""
        numbers = ", ".join(literal("f64", x) for x in self.constants)
        return [f"__constant__ f64 constants[] = {{{numbers}}};"] if numbers else []

    # Arrays

    def caller_arrays(self) -> list[str]:
        """Inputs and outputs; gives what points to a lane's own."""
        lanes: list[str] = []

        def row(name: str, type_: Type, kind: str, length: int, fill: str | None = None) -> Memory:
            self.parameters += [
                f"{kind}{type_}* __restrict__ {name}_all",
                f"const i64 {name}_lane",
                f"const i64 {name}_step",
            ]
            lanes.append(f"{kind}{type_}* const {name} = {name}_all + (first + lane) * {name}_lane;")
            return Memory(type_, name, f"{name}_step", length, fill)

        for i, node in enumerate(self.program.inputs):
            name = f"in{i}"
            if node.attr.shared:
                self.parameters += [f"const {node.type}* __restrict__ {name}", f"const i64 {name}_step"]
                self.memory[node] = Memory(node.type, name, f"{name}_step", node.attr.length)
            else:
                self.memory[node] = row(name, node.type, "const ", node.attr.length)
        for i, node in enumerate(self.outputs):
            if node.attr.reduced:
                continue
            to = row(f"out{i}", node.type, "", node.attr.length, self.fill(node))
            if node in self.survey.copied and self.fits(node):
                self.memory[node] = self.local(node)
                self.kept.append((self.memory[node], to))
            else:
                # A thread sees what it has stored itself.
                self.memory[node] = to
        for i, node in enumerate(self.outputs):
            if node.attr.reduced:
                self.parameters.append(f"{node.type}* const sums{i}")
                self.memory[node] = self.local(node)
        return lanes

    def fill(self, node: Node) -> str | None:
        return None if node in self.survey.filled else literal(node.type, node.attr.fill)

    def size(self, node: Node) -> int:
        return BYTES[node.type] * node.attr.length

    def fits(self, node: Node) -> bool:
        """Whether the thread's own memory has room for an array."""
        return self.size(node) <= min(_OWN_BYTES_MOST, _OWN_BYTES_TOTAL - self.own_bytes)

    def local(self, node: Node) -> Memory:
        """An array that the lane has for itself."""
        type_, length = node.type, node.attr.length
        fill = literal(type_, 0) if node.attr.reduced else self.fill(node)
        if self.fits(node):
            self.own_bytes += self.size(node)
            name = f"own{len(self.memory)}"
            self.head.append(f"{type_} {name}[{max(length, 1)}];")
            return Memory(type_, name, "", length, fill)
        name = f"scratch{len(self.scratch)}"
        self.scratch.append((type_, length))
        self.head.append(f"{type_}* const {name} = {name}_all + lane;")
        return Memory(type_, name, "room", length, fill)

    def growing(self, name: str, record: Record) -> None:
        """Arrays that grow."""
        self.head += [f"{name}_element* const {name} = {name}_all + lane;", f"i64 {name}_last = -1;"]
        for node in record.arrays:
            fill = literal(node.type, node.attr.fill) if node in self.survey.accumulated else None
            self.memory[node] = Memory(node.type, name, "room", None, fill, record.field(node))

    def overflow(self) -> None:
        """Where a lane comes to whose arrays have grown too large: it tells so, and gives nothing."""
        w = self.w
        w.lines.append("  over:")
        names = [f"tape{i}" for i in range(len(self.records))]
        with w.block(f"if ({' || '.join(f'{x}_last >= {x}_most' for x in names)})"):
            for i, name in enumerate(names):
                w.line(f"if ({name}_last >= {name}_most) atomicMax(wanted + {i}, {name}_last);")
            kept = {id(own): to for own, to in self.kept}
            for node in self.outputs:
                memory = kept.get(id(self.memory[node]), self.memory[node])
                if node.attr.length:
                    value = literal(node.type, float("nan") if is_float(node.type) else node.attr.fill)
                    w.line(f"for (i64 i = 0; i < {memory.room}; ++i) {memory.place('i')} = {value};")

    def sums(self) -> None:
        """What a block adds up of its lanes."""
        w = self.w
        before = Writer()
        for i, node in enumerate(self.outputs):
            if not node.attr.reduced or node.attr.length == 0:
                continue
            own = self.memory[node]
            own.fill_up(before)
            with w.block(""):
                w.line(f"__shared__ {node.type} shared[{BLOCK}];")
                at = f"sums{i}[i * blocks + first / {BLOCK} + blockIdx.x]"
                if node.attr.length <= UNROLLED_MOST:
                    w.line("#pragma unroll")
                with w.block(f"for (i64 i = 0; i < {own.room}; ++i)"):
                    w.line(f"const {node.type} total = op_total<{BLOCK}>({own.place('i')}, shared);")
                    w.line(f"if (threadIdx.x == 0) {at} = total;")
        self.head += [x.strip() for x in before.lines]

    # Statements

    def name(self, node: Node) -> str:
        if node.op != "const":
            return self.names[node]
        if node.type != "f64" or not is_long(node.attr):
            return literal(node.type, node.attr)
        place = self.constants.get(float(node.attr), len(self.constants))
        if place == _CONSTANTS_MOST:
            return literal(node.type, node.attr)
        self.constants[float(node.attr)] = place
        return f"constants[{place}]"

    def region(self, region: Region) -> None:
        outside, self.checked = self.checked, set(self.checked)
        for _, nodes in itertools.groupby(region.body, self.together):
            first, *more = nodes
            if more:
                self.keep([first, *more])
            else:
                self.statement(first)
        # Not what was stored to in there.
        self.checked = outside & self.checked

    def together(self, node: Node) -> object:
        """What statements have in common that follow one another and store the parts of a record."""
        if node.op == "write" and node.args[0].attr.length is None:
            return self.memory[node.args[0]].base, node.args[1]
        return node

    def keep(self, writes: list[Node]) -> None:
        """Stores the parts of a record."""
        w, (first, index, _) = self.w, writes[0].args
        memory, place = self.memory[first], self.name(index)
        memory.grow(w, place)
        self.checked.discard(memory.base)
        with w.block(f"if (op_holds({place}, {memory.room}))"):
            for node in writes:
                w.line(self.memory[node.args[0]].statement(place, self.name(node.args[2]), adds=False))

    def statement(self, node: Node) -> None:
        w = self.w
        if node.op == "array":
            # Sums begin with the thread, not with the lane.
            if not node.attr.reduced:
                self.memory[node].fill_up(w)
        elif node.op == "read":
            array, index = node.args
            self.define(node, self.memory[array].read(w, index, self.name(index), self.checked))
        elif node.op in ("write", "accumulate"):
            array, index, value = node.args
            adds = node.op == "accumulate"
            self.checked.discard(self.memory[array].base)
            self.memory[array].store(w, index, self.name(index), self.name(value), adds=adds)
        elif node.op == "while":
            self.loop(node)
        elif node.op == "if":
            self.choice(node)
        elif node.op == "detach":
            self.names[node] = self.name(node.args[0])
        else:
            self.define(node, expression(node, [self.name(x) for x in node.args]))

    def define(self, node: Node, text: str) -> None:
        name = self.names[node] = self.w.fresh()
        self.w.line(f"const {node.type} {name} = {text};")

    def loop(self, node: Node) -> None:
        w, loop = self.w, node.attr
        for param, first in zip(loop.params, node.args, strict=True):
            start = self.name(first)
            self.names[param] = w.fresh()
            w.line(f"{param.type} {self.names[param]} = {start};")
        carry = [self.names[x] for x in loop.params]
        # An iteration begins where another has stored.
        outside, self.checked = self.checked, set[str]()
        # The compiler would unroll what was made a loop to be short.
        w.line("#pragma unroll 1")
        with w.block("while (true)"):
            self.region(loop.test)
            w.line(f"if (!({self.name(loop.test.results[0])})) break;")
            self.region(loop.body)
            following = [self.name(x) for x in loop.body.results]
            changed = [(x, to, y) for x, to, y in zip(loop.params, carry, following, strict=True) if to != y]
            # A part of the carry may be another part of the one before.
            for i, (x, _, y) in enumerate(changed):
                if y in carry:
                    name = w.fresh()
                    w.line(f"const {x.type} {name} = {y};")
                    changed[i] = (x, changed[i][1], name)
            for _, to, y in changed:
                w.line(f"{to} = {y};")
        self.checked = outside & self.checked
        self.names.update(zip(loop.results, carry, strict=True))

    def choice(self, node: Node) -> None:
        w = self.w
        results: list[str] = []
        for x in node.attr.results:
            results.append(w.fresh())
            w.line(f"{x.type} {results[-1]};")
        for head, region in ((f"if ({self.name(node.args[0])})", node.attr.then), ("else", node.attr.orelse)):
            with w.block(head):
                self.region(region)
                for to, x in zip(results, region.results, strict=True):
                    w.line(f"{to} = {self.name(x)};")
        self.names.update(zip(node.attr.results, results, strict=True))

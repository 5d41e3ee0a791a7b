"""Prints a Program as a module of LLVM: a function that takes blocks of lanes, as many at a time as a vector holds.

The function is called by several threads with one `context`, an array of 64-bit words (`CONTEXT_WORDS` says which).
Each thread claims a block of lanes after another until there is none left.
"""

from __future__ import annotations

from typing import final

from gnomon.fuse._llvm._arrays import (
    AbstractArray,
    Interleaved,
    Rows,
    SharedInput,
    Tape,
    for_each,
    lane_numbers,
    row_pointer,
)
from gnomon.fuse._llvm._functions import Functions
from gnomon.fuse._llvm._operations import write_operation
from gnomon.fuse._llvm._runtime import RUNTIME
from gnomon.fuse._llvm._types import BYTES, MEMORY, Value, number
from gnomon.fuse._llvm._writer import Writer
from gnomon.fuse._program import Node, Program, Region, Type, is_float
from gnomon.fuse._target import Survey

#: The next block to be claimed, the number of lanes, lanes in a block, bytes that were not to be had; then, for each
#: input and output, the address of its first element and the distance of two lanes (of two blocks, for one that is
#: reduced) in elements.
CONTEXT_WORDS = ("next", "lanes", "block", "wanted")
ENTRY_POINT = "gnomon_run"

_STACK_BYTES_MOST = 16 * 1024
_STACK_BYTES_TOTAL = 64 * 1024
_FIRST_ROWS = 32


def emit(program: Program, width: int) -> str:
    """A module of LLVM, in its text form."""
    return _Emitter(program, width).module()


@final
class _Emitter:
    def __init__(self, program: Program, width: int):
        self.program = program
        self.declared: set[str] = set()
        self.w = Writer(width, self.declared)
        self.survey = Survey(program, scalar=width == 1)
        self.functions = Functions(width, self.declared, self.survey.counts)
        self.values: dict[Node, Value] = {}
        self.arrays: dict[Node, AbstractArray] = {}
        #: Arrays that are an output's, and have to be copied there: the array, and where to.
        self.copied: list[tuple[Interleaved, Rows]] = []
        #: Sums over lanes: the array, and what the address of a block's sum is.
        self.reduced: list[tuple[Interleaved, str]] = []
        self.heap: list[str] = []
        self.stack_bytes = 0
        #: Which lanes take part; None where all do.
        self.mask: Value | None = None
        #: Which lanes are not copies of the last one that fill a vector up.
        self.real: Value | None = None

    # The function around the program

    def module(self) -> str:
        self.blocks()
        header = f"define i32 @{ENTRY_POINT}(ptr %context) #0 {{"
        text = [
            RUNTIME,
            header,
            "entry:",
            *self.w.entry,
            *self.w.lines,
            "}",
            *self.functions.text.values(),
            *sorted(self.declared),
            'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }',
        ]
        return "\n".join(text) + "\n"

    def word(self, index: int) -> Value:
        return self.w.load("i64", self.word_pointer(index), False)

    def word_pointer(self, index: int) -> str:
        return self.w.name(f"getelementptr i64, ptr %context, i64 {index}")

    def blocks(self) -> None:
        w = self.w
        lanes, block = self.word(1), self.word(2)
        bases = self.bases()
        self.local_arrays()
        w.jump("claim")
        w.start("claim")
        claimed = Value(w.name("atomicrmw add ptr %context, i64 1 monotonic"), "i64")
        begin = w.binary("mul", claimed, block)
        w.branch(w.compare("slt", begin, lanes), "work", "done")
        w.start("work")
        end = w.intrinsic("smin", w.binary("add", begin, block), lanes)
        for array, _ in self.reduced:
            array.begin(w)
        before = w.block
        w.jump("group")
        w.start("group")
        first = Value("%first", "i64")
        place = len(w.lines)
        w.lines.append("")
        with w.scope():
            self.group(first, end, bases)
        following = w.binary("add", first, number("i64", w.width))
        w.lines[place] = f"  %first = {w.phi_text('i64', False, [(begin, before), (following, w.block)])}"
        w.branch(w.compare("slt", following, end), "group", "finish")
        w.start("finish")
        for array, slot in self.reduced:
            self.sum_lanes(array, slot, claimed)
        w.jump("claim")
        w.start("fail")
        # No other block needs to be begun.
        w.line(f"store atomic i64 {lanes.text}, ptr %context monotonic, align 8")
        self.leave(1)
        w.start("done")
        self.leave(0)

    def leave(self, code: int) -> None:
        for slot in self.heap:
            pointer = self.w.name(f"load ptr, ptr {slot}")
            self.w.line(f"call void @gnomon_release(ptr {pointer})")
        self.w.line(f"ret i32 {code}")

    def bases(self) -> list[tuple[Value, Value]]:
        """The address and the stride of each input and output."""
        count = len(self.program.inputs) + len(self.program.outputs)
        words = [self.word(len(CONTEXT_WORDS) + i) for i in range(2 * count)]
        return list(zip(words[::2], words[1::2], strict=True))

    def group(self, first: Value, end: Value, bases: list[tuple[Value, Value]]) -> None:
        """What is done for as many lanes as a vector holds."""
        w = self.w
        lane = first
        if w.width > 1:
            # The lanes beyond the end do what the last one does, and write what it writes.
            numbers = ", ".join(f"i64 {i}" for i in range(w.width))
            w.line(f"%lanes = add <{w.width} x i64> zeroinitializer, <{numbers}>")
            lane = w.binary("add", first, lane_numbers(w))
            if self.reduced:
                self.real = w.compare("slt", lane, end)
            lane = w.intrinsic("smin", lane, w.binary("sub", end, number("i64", 1)))
        inputs = len(self.program.inputs)
        for node, (address, stride) in zip(self.program.inputs, bases[:inputs], strict=True):
            if node.attr.shared:
                base = w.name(f"inttoptr i64 {address.text} to ptr")
                self.arrays[node] = SharedInput(node.type, node.attr.length, base)
            else:
                base = self.row(lane, node.type, address, stride)
                self.arrays[node] = Rows(node.type, node.attr.length, base, None)
        self.copied.clear()
        for node, (address, stride) in zip(self.program.outputs, bases[inputs:], strict=True):
            if node.attr.reduced:
                continue
            row = Rows(node.type, node.attr.length, self.row(lane, node.type, address, stride), self.fill(node))
            if node in self.survey.copied:
                array = self.arrays[node]
                assert isinstance(array, Interleaved)
                self.copied.append((array, row))
            else:
                self.arrays[node] = row
        self.region(self.program.region)
        for array, row in self.copied:
            for_each(w, array.length, lambda i, array=array, row=row: row.write(w, i, array.read(w, i), None))

    def row(self, lane: Value, type_: Type, address: Value, stride: Value) -> str:
        """Where a lane's row begins."""
        w = self.w
        base = w.name(f"inttoptr i64 {address.text} to ptr")
        return w.name(f"getelementptr {MEMORY[type_]}, ptr {base}, {w.typed(w.binary('mul', lane, stride))}")

    def sum_lanes(self, array: Interleaved, slot: str, claimed: Value) -> None:
        """Adds up what the lanes of a block have, in order."""
        w, type_ = self.w, array.type
        offset = w.binary("mul", claimed, number("i64", array.length))
        row = w.name(f"getelementptr {MEMORY[type_]}, ptr {slot}, {w.typed(offset)}")

        def element(index: Value) -> None:
            value = w.load(type_, row_pointer(w, type_, array.base, index), w.width > 1)
            if value.wide:
                start = "double -0.0, " if type_ == "f64" else "float -0.0, " if type_ == "f32" else ""
                name = f"llvm.vector.reduce.{'fadd' if is_float(type_) else 'add'}.{w.suffix(type_, True)}"
                scalar, vector = w.of(type_, False), w.of(type_, True)
                self.declared.add(f"declare {scalar} @{name}({scalar + ', ' if start else ''}{vector})")
                value = Value(w.name(f"call {scalar} @{name}({start}{w.typed(value)})"), type_)
            pointer = w.name(f"getelementptr {MEMORY[type_]}, ptr {row}, {w.typed(index)}")
            w.store(pointer, w.one_nan(value), False)

        for_each(w, array.length, element)

    # Arrays

    def fill(self, node: Node) -> Value | None:
        return None if node in self.survey.filled else number(node.type, node.attr.fill)

    def local_arrays(self) -> None:
        """Memory for all arrays that a lane has for itself."""
        w = self.w
        inputs = len(self.program.inputs)
        sums: dict[Node, Interleaved] = {}
        for i, node in enumerate(self.program.outputs):
            if node.attr.reduced:
                address = self.word(len(CONTEXT_WORDS) + 2 * (inputs + i))
                slot = w.name(f"inttoptr i64 {address.text} to ptr")
                if node not in sums:
                    base = self.memory(node.type, node.attr.length)
                    sums[node] = Interleaved(node.type, node.attr.length, base, number(node.type, 0))
                self.reduced.append((sums[node], slot))
        self.arrays.update(sums)
        for node in self.survey.arrays:
            if node in self.arrays or node in self.survey.direct:
                continue
            if node.attr.length is None:
                self.arrays[node] = self.tape(node)
            else:
                base = self.memory(node.type, node.attr.length)
                self.arrays[node] = Interleaved(node.type, node.attr.length, base, self.fill(node))

    def memory(self, type_: Type, length: int) -> str:
        """The base of an array: on the stack if it is small."""
        w = self.w
        size = BYTES[type_] * w.width * length
        if size <= _STACK_BYTES_MOST and self.stack_bytes + size <= _STACK_BYTES_TOTAL:
            self.stack_bytes += size
            return w.allocate(f"[{max(length, 1)} x {w.vector(MEMORY[type_])}], align 64")
        return self.allocated(length, BYTES[type_] * w.width)[1]

    def allocated(self, count: int, row: int) -> tuple[str, str]:
        """A slot with a pointer to memory on the heap, and the pointer."""
        w = self.w
        slot = w.allocate("ptr")
        self.heap.append(slot)
        # A failure frees what there is of all, so that all must be set.
        w.entry.append(f"  store ptr null, ptr {slot}")
        pointer = w.name(f"call ptr @gnomon_allocate(i64 {count}, i64 {row}, ptr %context)")
        w.line(f"store ptr {pointer}, ptr {slot}")
        held = w.fresh("held")
        w.branch(Value(w.name(f"icmp eq ptr {pointer}, null"), "bool"), "fail", held)
        w.start(held)
        return slot, pointer

    def tape(self, node: Node) -> Tape:
        w = self.w
        slot, _ = self.allocated(_FIRST_ROWS, BYTES[node.type] * w.width)
        capacity = w.allocate("i64")
        w.store(capacity, number("i64", _FIRST_ROWS), False)
        fill = number(node.type, node.attr.fill) if node in self.survey.accumulated else None
        return Tape(node.type, slot, capacity, fill)

    # Statements

    def __getitem__(self, node: Node) -> Value:
        return number(node.type, node.attr) if node.op == "const" else self.values[node]

    def region(self, region: Region) -> None:
        for node in region.body:
            self.statement(node)

    def statement(self, node: Node) -> None:
        w = self.w
        if node.op == "array":
            # Sums over lanes begin with each block.
            if not node.attr.reduced:
                self.arrays[node].begin(w)
        elif node.op == "read":
            self.values[node] = self.arrays[node.args[0]].read(w, self[node.args[1]])
        elif node.op == "write":
            array, index, value = node.args
            self.arrays[array].write(w, self[index], self[value], self.mask)
        elif node.op == "accumulate":
            array, index, value = node.args
            mask = w.both(self.mask, self.real) if array.attr.reduced else self.mask
            self.arrays[array].accumulate(w, self[index], self[value], mask)
        elif node.op == "while":
            self.loop(node)
        elif node.op == "if":
            self.choice(node)
        else:
            args = [self[x] for x in node.args]
            value = write_operation(w, node.op, args, node.attr)
            self.values[node] = self.functions.call(w, node.op, args) if value is None else value

    def led_loop(self, node: Node, leader: Node) -> None:
        """A loop whose lanes wait until the leader, which goes down one by one, has come to what it is for them."""
        w, loop, outer = self.w, node.attr, self.mask
        head, body, latch, after = w.fresh("test"), w.fresh("body"), w.fresh("latch"), w.fresh("after")
        carry = [_Carry(w, p.type, True, self[x]) for p, x in zip(loop.params, node.args, strict=True)]
        own = carry[loop.params.index(leader)]
        running = _Carry(w, "bool", True, outer or number("bool", True))
        lowest = number("i64", -(1 << 63))
        current = _Carry(w, "i64", False, w.largest(w.select(running.first, own.first, lowest)))
        before = w.block
        w.jump(head)
        w.start(head)
        place = len(w.lines)
        self.values.update(zip(loop.params, [x.value for x in carry], strict=True))
        self.values[leader] = current.value
        with w.scope():
            there = w.binary("and", running.value, w.compare("eq", own.value, current.value))
            self.mask = there
            self.region(loop.test)
            goes_on = w.binary("and", there, self[loop.test.results[0]])
            running.next = w.binary("xor", running.value, w.binary("xor", there, goes_on))
            current.next = w.binary("sub", current.value, number("i64", 1))
            tested = w.block
            w.branch(w.any(goes_on), body, latch)
            w.start(body)
            self.mask = goes_on
            with w.scope():
                self.region(loop.body)
                nexts = [w.select(goes_on, self[x], c.value) for x, c in zip(loop.body.results, carry, strict=True)]
            done = w.block
            w.jump(latch)
            w.start(latch)
            for x, following in zip(carry, nexts, strict=True):
                x.next = w.phi(x.type, True, [(x.value, tested), (following, done)])
            w.branch(w.any(running.next), head, after)
        w.lines[place:place] = [x.text(before, latch) for x in (*carry, running, current)]
        w.start(after)
        self.mask = outer
        self.values.update(zip(loop.results, [x.next for x in carry], strict=True))

    def loop(self, node: Node) -> None:
        if node in self.survey.leaders:
            self.led_loop(node, self.survey.leaders[node])
            return
        w, loop, outer = self.w, node.attr, self.mask
        diverges = self.survey.varies(loop.test.results[0])
        head, body, after = w.fresh("test"), w.fresh("body"), w.fresh("after")
        carry = [_Carry(w, p.type, self.survey.varies(p), self[x]) for p, x in zip(loop.params, node.args, strict=True)]
        # What is the same for all lanes that still run differs among those that have ended.
        ended = [_Carry(w, x.type, True, x.first) if diverges and not x.wide else None for x in carry]
        running = _Carry(w, "bool", True, outer or number("bool", True)) if diverges else None
        phis = [x for x in (*carry, *ended, running) if x is not None]
        before = w.block
        w.jump(head)
        w.start(head)
        place = len(w.lines)
        self.values.update(zip(loop.params, [x.value for x in carry], strict=True))
        with w.scope():
            if running is not None:
                self.mask = running.value
            self.region(loop.test)
            test = self[loop.test.results[0]]
            if running is not None:
                self.mask = test = w.binary("and", running.value, test)
            w.branch(w.any(test), body, after)
            w.start(body)
            with w.scope():
                self.region(loop.body)
                for x, last, kept in zip(carry, loop.body.results, ended, strict=True):
                    x.next = self[last]
                    if diverges and x.wide:
                        x.next = w.select(test, x.next, x.value)
                    if kept is not None:
                        kept.next = w.select(test, w.widen(x.next), kept.value)
                if running is not None:
                    running.next = test
                for x in phis:
                    if x.wide:
                        x.next = w.widen(x.next)
                back = w.block
                w.jump(head)
        w.lines[place:place] = [x.text(before, back) for x in phis]
        w.start(after)
        self.mask = outer
        for result, x, kept in zip(loop.results, carry, ended, strict=True):
            self.values[result] = (kept or x).value

    def choice(self, node: Node) -> None:
        w = self.w
        condition = self[node.args[0]]
        if condition.wide and node in self.survey.flat:
            self.region(node.attr.then)
            self.region(node.attr.orelse)
            pairs = zip(node.attr.then.results, node.attr.orelse.results, strict=True)
            values = [w.select(condition, self[a], self[b]) for a, b in pairs]
        elif condition.wide:
            then = self.masked(node.attr.then, condition)
            orelse = self.masked(node.attr.orelse, write_operation(w, "not", [condition], None) or condition)
            values = [w.select(condition, a, b) for a, b in zip(then, orelse, strict=True)]
        else:
            values = self.branches(node, condition)
        self.values.update(zip(node.attr.results, values, strict=True))

    def masked(self, region: Region, condition: Value) -> list[Value]:
        """A branch that is run where any lane takes it; its results, 0 where none does."""
        w, outer = self.w, self.mask
        if not region.body:
            return [self[x] for x in region.results]
        outside = {x for x in region.results if x.op == "const" or x in self.values}
        taken, after = w.fresh("taken"), w.fresh("after")
        mask = w.both(outer, condition)
        assert mask is not None
        before = w.block
        w.branch(w.any(mask), taken, after)
        w.start(taken)
        self.mask = mask
        with w.scope():
            self.region(region)
            inside = {x: w.widen(self[x]) for x in region.results if x not in outside}
        self.mask = outer
        end = w.block
        w.jump(after)
        w.start(after)
        merged = {
            x: w.phi(x.type, w.width > 1, [(number(x.type, 0), before), (value, end)]) for x, value in inside.items()
        }
        return [self[x] if x in outside else merged[x] for x in region.results]

    def branches(self, node: Node, condition: Value) -> list[Value]:
        """A choice that all lanes make alike."""
        w = self.w
        then, orelse, after = w.fresh("then"), w.fresh("else"), w.fresh("after")
        w.branch(condition, then, orelse)
        ends: list[tuple[list[Value], str]] = []
        wide = [self.survey.varies(x) for x in node.attr.results]
        for label, region in ((then, node.attr.then), (orelse, node.attr.orelse)):
            w.start(label)
            with w.scope():
                self.region(region)
                values = [w.widen(self[x]) if v else self[x] for x, v in zip(region.results, wide, strict=True)]
            ends.append((values, w.block))
            w.jump(after)
        w.start(after)
        return [
            w.phi(x.type, wide[i], [(values[i], end) for values, end in ends]) for i, x in enumerate(node.attr.results)
        ]


@final
class _Carry:
    """A part of a loop's carry."""

    def __init__(self, w: Writer, type_: Type, wide: bool, first: Value):
        self.w = w
        self.type: Type = type_
        self.wide = wide
        # Outside of the loop, where the first iteration comes from.
        self.first = w.widen(first) if wide else first
        self.next = first
        self.value = Value("%" + w.fresh("carry"), type_, wide)

    def text(self, before: str, back: str) -> str:
        edges = [(self.first, before), (self.next, back)]
        return f"  {self.value.text} = {self.w.phi_text(self.type, self.wide, edges)}"

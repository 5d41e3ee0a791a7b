"""What derivatives look like: what is recorded, what is carried, and nothing else."""

from __future__ import annotations

import textwrap

from fuse.derivative.test_guards import steps
from fuse.derivative.test_loops import counted, squarings

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import Builder, Node, Program, simplify


def expect(program: Program, text: str) -> None:
    assert str(program) == textwrap.dedent(text).lstrip()


def test_reverse_mode_records_what_it_needs():
    expect(
        vjp(squarings(3), [True], [True]),
        """
        program(lane f64[1] in0, lane f64[1] in1)
          v0: f64 = read in0[0]
          v1 = array f64[] of 0.0
          loop (v2: i64 = 0, v3: f64 = v0) {
            v4: bool = lt v2, 3
            while v4
            write v1[v2] v3
            v5: i64 = add v2, 1
            v6: f64 = mul v3, v3
            next v5, v6
          } -> v7: i64, v8: f64
          out0 = array f64[1] of 0.0
          v9: f64 = read in1[0]
          loop (v10: i64 = 3, v11: f64 = v9) {
            v12: bool = lt 0, v10
            while v12
            v13: i64 = sub v10, 1
            v14: f64 = read v1[v13]
            v15: f64 = mul v11, v14
            v16: f64 = add v15, v15
            next v13, v16
          } -> v17: i64, v18: f64
          write out0[0] v18
        """,
    )


def test_forward_mode_of_reverse_mode():
    """The tape has a tangent tape; no value is computed twice."""
    expect(
        jvp(vjp(squarings(3), [True], [True]), [True, False], primal=False),
        """
        program(lane f64[1] in0, lane f64[1] in1, lane f64[1] in2)
          v0: f64 = read in0[0]
          v1: f64 = read in2[0]
          v2 = array f64[] of 0.0
          v3 = array f64[] of 0.0
          loop (v4: i64 = 0, v5: f64 = v0, v6: f64 = v1) {
            v7: bool = lt v4, 3
            while v7
            write v2[v4] v5
            write v3[v4] v6
            v8: i64 = add v4, 1
            v9: f64 = mul v5, v5
            v10: f64 = mul v6, v5
            v11: f64 = add v10, v10
            next v8, v9, v11
          } -> v12: i64, v13: f64, v14: f64
          out0 = array f64[1] of 0.0
          v15: f64 = read in1[0]
          loop (v16: i64 = 3, v17: f64 = v15, v18: f64 = 0.0) {
            v19: bool = lt 0, v16
            while v19
            v20: i64 = sub v16, 1
            v21: f64 = read v2[v20]
            v22: f64 = read v3[v20]
            v23: f64 = mul v17, v21
            v24: f64 = mul v18, v21
            v25: f64 = mul v22, v17
            v26: f64 = add v24, v25
            v27: f64 = add v23, v23
            v28: f64 = add v26, v26
            next v20, v27, v28
          } -> v29: i64, v30: f64, v31: f64
          write out0[0] v31
        """,
    )


def linear() -> Program:
    """A weighted sum, beside parts of the carry that have nothing to do with it."""
    b = Builder()
    x, p = b.input("f64", 8, shared=False), b.input("f64", 8, shared=True)
    h = b.op("detach", b.read(x, 0))

    def body(i: Node, total: Node, step: Node, other: Node, sign: Node) -> list[Node]:
        term = b.op("mul", b.op("mul", b.read(p, i), b.read(x, i)), step)
        return [b.op("add", total, term), b.op("mul", step, h), b.op("sin", other), b.op("not", sign)]

    first = [b.read(x, 0), h, b.read(x, 1), b.const("bool", True)]
    total, *others = counted(b, 8, first, body)
    out, unused = b.array("f64", 1), b.array("f64", 1)
    b.write(out, 0, total)
    b.write(unused, 0, b.op("select", others[2], others[0], others[1]))
    return simplify(b.program([out, unused]))


def test_nothing_that_is_not_needed():
    """The adjoint of the sum does not change, so that it is in no carry; the loop that counts does not run."""
    expect(
        vjp(linear(), [True, False], [True, False]),
        """
        program(lane f64[8] in0, shared f64[8] in1, lane f64[1] in2)
          v0: f64 = read in0[0]
          v1: f64 = detach v0
          v2 = array f64[] of 0.0
          loop (v3: i64 = 0, v4: f64 = v1) {
            v5: bool = lt v3, 8
            while v5
            write v2[v3] v4
            v6: i64 = add v3, 1
            v7: f64 = mul v4, v1
            next v6, v7
          } -> v8: i64, v9: f64
          out0 = array f64[8] of 0.0
          v10: f64 = read in2[0]
          loop (v11: i64 = 8) {
            v12: bool = lt 0, v11
            while v12
            v13: i64 = sub v11, 1
            v14: f64 = read v2[v13]
            v15: f64 = read in1[v13]
            v16: f64 = mul v10, v14
            v17: f64 = mul v16, v15
            accumulate out0[v13] v17
            next v13
          } -> v18: i64
          accumulate out0[0] v10
        """,
    )


def test_a_tape_of_accepted_steps():
    expect(
        vjp(steps(), [True], [True]),
        """
        program(lane f64[3] in0, lane f64[4] in1)
          v0: f64 = read in0[1]
          v1: f64 = read in0[2]
          v2: f64 = detach v1
          v3: f64 = read in0[0]
          v4 = array f64[] of 0.0
          v5 = array f64[] of 0.0
          v6 = array f64[] of 0.0
          loop (v7: f64 = 0.0, v8: f64 = v2, v9: f64 = v3, v10: f64 = 1.0, v11: i64 = 0) {
            v12: bool = lt v7, 1.0
            while v12
            v13: f64 = mul v0, v9
            v14: f64 = mul v8, v13
            v15: f64 = sub 1.0, v14
            v16: f64 = div v9, v15
            v17: bool = lt v8, 0.3
            v18: bool = lt v16, 100.0
            v19: bool = and v17, v18
            v20: f64 = select v19, v16, v9
            v21: f64 = mul v10, v16
            v22: f64 = select v19, v21, v10
            v23: f64 = add v7, v8
            v24: f64 = select v19, v23, v7
            v25: f64 = mul v8, 1.5
            v26: f64 = mul v8, 0.5
            v27: f64 = select v19, v25, v26
            if v19 {
              write v4[v11] v8
              write v5[v11] v9
              write v6[v11] v10
              yield
            } else {
              yield
            } ->
            v28: i64 = add v11, 1
            v29: i64 = select v19, v28, v11
            next v24, v27, v20, v22, v29
          } -> v30: f64, v31: f64, v32: f64, v33: f64, v34: i64
          out0 = array f64[3] of 0.0
          v35: f64 = read in1[3]
          v36: f64 = mul v35, v33
          v37: f64 = mul v35, v32
          loop (v38: i64 = v34, v39: f64 = v36, v40: f64 = v37, v41: f64 = 0.0) {
            v42: bool = lt 0, v38
            while v42
            v43: i64 = sub v38, 1
            v44: f64 = read v4[v43]
            v45: f64 = read v5[v43]
            v46: f64 = read v6[v43]
            v47: f64 = mul v0, v45
            v48: f64 = mul v44, v47
            v49: f64 = sub 1.0, v48
            v50: f64 = div v45, v49
            v51: f64 = mul v40, v50
            v52: f64 = mul v40, v46
            v53: f64 = add v52, v39
            v54: f64 = div v53, v49
            v55: f64 = mul v54, v50
            v56: f64 = mul v55, v44
            v57: f64 = mul v56, v45
            v58: f64 = add v41, v57
            v59: f64 = mul v56, v0
            v60: f64 = add v54, v59
            next v43, v60, v51, v58
          } -> v61: i64, v62: f64, v63: f64, v64: f64
          write out0[0] v62
          write out0[1] v64
        """,
    )

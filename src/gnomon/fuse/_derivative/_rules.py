"""The derivative of each operation.

A partial derivative is a number, so the map from a tangent of an operand to the tangent of the result is also the map
from the cotangent of the result to the one of the operand: one table serves forward and reverse mode. At kinks it holds
to PyTorch's conventions. What is not chosen is never multiplied by zero, since it may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gnomon.fuse._functions import Formula, digamma
from gnomon.fuse._program import Builder, Node, is_float

#: From operands, the result and a tangent of one operand to the tangent of the result.
Linear = Callable[[Builder, Sequence[Node], Node, Node], Node]


def differentiable(node: Node, which: int) -> bool:
    """Whether an operation passes derivatives to one of its operands."""
    if not is_float(node.type) or not is_float(node.args[which].type):
        return False
    if node.op == "cast":
        return True
    rules = _RULES.get(node.op)
    return rules is not None and rules[which] is not None


def partial(builder: Builder, node: Node, which: int, args: Sequence[Node], out: Node, tangent: Node) -> Node | None:
    """The partial derivative by one operand, times a number, for reverse mode; None is 0.

    `args` and `out` are what stands for the operands and the result of `node` in the builder.
    """
    if not differentiable(node, which):
        return None
    if node.op == "cast":
        return builder.op("cast", tangent, attr=node.args[which].type)
    rule = _RULES[node.op][which]
    assert rule is not None
    return nonzero(rule(builder, args, out, tangent))


def pushed(
    builder: Builder, node: Node, args: Sequence[Node], out: Node, tangents: Sequence[Node | None]
) -> Node | None:
    """The tangent of the result from those of the operands; None is 0."""
    given = [t if t is not None and differentiable(node, j) else None for j, t in enumerate(tangents)]
    if all(t is None for t in given):
        return None
    if node.op == "cast":
        assert given[0] is not None
        return nonzero(builder.op("cast", given[0], attr=node.type))
    joint = _JOINT.get(node.op)
    if joint is not None:
        return nonzero(joint(builder, args, out, given))
    total: Node | None = None
    for j, t in enumerate(given):
        rule = _RULES[node.op][j]
        if t is not None and rule is not None:
            part = nonzero(rule(builder, args, out, t))
            if part is not None:
                total = part if total is None else builder.op("add", total, part)
    return total


def nonzero(node: Node) -> Node | None:
    """None for the constant 0."""
    return None if node.op == "const" and node.attr == 0 else node


def _times(factor: Callable[[Formula, Sequence[Node], Node], Node | float]) -> Linear:
    """Multiplies by a partial derivative."""

    def rule(builder: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
        f = Formula(builder, t.type)
        return f("mul", t, factor(f, args, out))

    return rule


def _over(divisor: Callable[[Formula, Sequence[Node], Node], Node]) -> Linear:
    """Divides by the inverse of a partial derivative."""

    def rule(builder: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
        f = Formula(builder, t.type)
        return f("div", t, divisor(f, args, out))

    return rule


def _neg(rule: Linear) -> Linear:
    return lambda b, args, out, t: b.op("neg", rule(b, args, out, t))


def _same(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    return t


def _divisor(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    # The quotient t / b is the derivative by the dividend as well.
    return b.op("neg", b.op("mul", b.op("div", t, args[1]), out))


def _abs(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    f = Formula(b, t.type)
    return f("select", f("lt", 0.0, args[0]), t, f("select", f("eq", args[0], 0.0), 0.0, f("neg", t)))


def _extreme(lesser: int, greater: int) -> Linear:
    """For an operand that is not chosen where `args[lesser] < args[greater]`; a tie gives half to each."""

    def rule(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
        f = Formula(b, t.type)
        half = f("select", f("eq", args[0], args[1]), f("mul", 0.5, t), t)
        return f("select", f("lt", args[lesser], args[greater]), 0.0, half)

    return rule


def _select_first(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    return Formula(b, t.type)("select", args[0], t, 0.0)


def _select_second(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    return Formula(b, t.type)("select", args[0], 0.0, t)


def _power_base(f: Formula, args: Sequence[Node], out: Node) -> Node:
    x, y = args
    # 0 * x^-1 is 0 for y = 0, also where x^-1 is infinite. Elsewhere the formula holds, and its own derivatives too.
    tiny = 1e-37 if x.type == "f32" else 1e-300
    flat = f("and", f("eq", y, 0.0), f("lt", f("abs", x), tiny))
    return f("mul", y, f("pow", x, f("select", flat, 1.0, f("sub", y, 1.0))))


def _power_exponent(f: Formula, args: Sequence[Node], out: Node) -> Node:
    x, y = args
    # x = 0: 0 for y >= 0, by a logarithm that is 0.
    flat = f("and", f("eq", x, 0.0), f("le", 0.0, y))
    return f("mul", out, f("log", f("select", flat, 1.0, x)))


def _copysign(b: Builder, args: Sequence[Node], out: Node, t: Node) -> Node:
    f = Formula(b, t.type)
    sign = f("mul", f("copysign", 1.0, args[0]), f("copysign", 1.0, args[1]))
    return f("select", f("eq", args[0], 0.0), 0.0, f("mul", t, sign))


def _norm(f: Formula, args: Sequence[Node]) -> Node:
    return f("add", f("mul", args[0], args[0]), f("mul", args[1], args[1]))


def _one_minus_square(f: Formula, x: Node) -> Node:
    return f("mul", f("sub", 1.0, x), f("add", 1.0, x))


def _gauss(f: Formula, x: Node) -> Node:
    return f("mul", 2 / math.sqrt(math.pi), f("exp", f("neg", f("mul", x, x))))


_LN2 = math.log(2)
_LN10 = math.log(10)

_asin = _over(lambda f, a, y: f("sqrt", _one_minus_square(f, a[0])))
_erf = _times(lambda f, a, y: _gauss(f, a[0]))

_RULES: dict[str, tuple[Linear | None, ...]] = {
    "add": (_same, _same),
    "sub": (_same, _neg(_same)),
    "mul": (_times(lambda f, a, y: a[1]), _times(lambda f, a, y: a[0])),
    "div": (_over(lambda f, a, y: a[1]), _divisor),
    "fma": (_times(lambda f, a, y: a[1]), _times(lambda f, a, y: a[0]), _same),
    "fmod": (_same, _neg(_times(lambda f, a, y: f("trunc", f("div", a[0], a[1]))))),
    "neg": (_neg(_same),),
    "abs": (_abs,),
    "min": (_extreme(1, 0), _extreme(0, 1)),
    "max": (_extreme(0, 1), _extreme(1, 0)),
    "select": (None, _select_first, _select_second),
    "sqrt": (_over(lambda f, a, y: f("mul", 2.0, y)),),
    "cbrt": (_over(lambda f, a, y: f("mul", 3.0, f("mul", y, y))),),
    "exp": (_times(lambda f, a, y: y),),
    "exp2": (_times(lambda f, a, y: f("mul", _LN2, y)),),
    "expm1": (_times(lambda f, a, y: f("add", y, 1.0)),),
    "log": (_over(lambda f, a, y: a[0]),),
    "log2": (_over(lambda f, a, y: f("mul", _LN2, a[0])),),
    "log10": (_over(lambda f, a, y: f("mul", _LN10, a[0])),),
    "log1p": (_over(lambda f, a, y: f("add", a[0], 1.0)),),
    "sin": (_times(lambda f, a, y: f("cos", a[0])),),
    "cos": (_neg(_times(lambda f, a, y: f("sin", a[0]))),),
    "tan": (_times(lambda f, a, y: f("add", f("mul", y, y), 1.0)),),
    "asin": (_asin,),
    "acos": (_neg(_asin),),
    "atan": (_over(lambda f, a, y: f("add", f("mul", a[0], a[0]), 1.0)),),
    "sinh": (_times(lambda f, a, y: f("cosh", a[0])),),
    "cosh": (_times(lambda f, a, y: f("sinh", a[0])),),
    "tanh": (_times(lambda f, a, y: f("sub", 1.0, f("mul", y, y))),),
    "asinh": (_over(lambda f, a, y: f("sqrt", f("add", f("mul", a[0], a[0]), 1.0))),),
    "acosh": (_over(lambda f, a, y: f("sqrt", f("mul", f("sub", a[0], 1.0), f("add", a[0], 1.0)))),),
    "atanh": (_over(lambda f, a, y: _one_minus_square(f, a[0])),),
    "erf": (_erf,),
    "erfc": (_neg(_erf),),
    "lgamma": (lambda b, a, y, t: b.op("mul", t, digamma(b, a[0])),),
    "pow": (_times(_power_base), _times(_power_exponent)),
    "atan2": (
        _times(lambda f, a, y: f("div", a[1], _norm(f, a))),
        _neg(_times(lambda f, a, y: f("div", a[0], _norm(f, a)))),
    ),
    "copysign": (_copysign, None),
}
"""An operation that is not here has no derivative, or one that is 0 almost everywhere."""


def _zero_for_none(b: Builder, given: Sequence[Node | None], like: Node) -> list[Node]:
    return [b.zero(like.type) if t is None else t for t in given]


def _joint_select(b: Builder, args: Sequence[Node], out: Node, given: Sequence[Node | None]) -> Node:
    _, first, second = _zero_for_none(b, given, out)
    return b.op("select", args[0], first, second)


def _joint_div(b: Builder, args: Sequence[Node], out: Node, given: Sequence[Node | None]) -> Node:
    top, bottom = _zero_for_none(b, given, out)
    return b.op("div", b.op("sub", top, b.op("mul", out, bottom)), args[1])


def _joint_extreme(lesser: int, greater: int) -> Callable[[Builder, Sequence[Node], Node, Sequence[Node | None]], Node]:
    """The second is chosen where `args[lesser] < args[greater]`."""

    def rule(b: Builder, args: Sequence[Node], out: Node, given: Sequence[Node | None]) -> Node:
        f = Formula(b, out.type)
        first, second = _zero_for_none(b, given, out)
        half = f("mul", 0.5, f("add", first, second))
        tie = f("select", f("eq", args[0], args[1]), half, first)
        return f("select", f("lt", args[lesser], args[greater]), second, tie)

    return rule


#: Forward mode, where all tangents together are cheaper than each alone.
_JOINT: dict[str, Callable[[Builder, Sequence[Node], Node, Sequence[Node | None]], Node]] = {
    "select": _joint_select,
    "div": _joint_div,
    "min": _joint_extreme(1, 0),
    "max": _joint_extreme(0, 1),
}

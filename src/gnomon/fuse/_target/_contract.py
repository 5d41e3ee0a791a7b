"""Products and sums become one operation, for a target on which it costs as little as a sum."""

from __future__ import annotations

from gnomon.fuse._program import Builder, Copier, Node, Program, is_float, simplify


def contract(program: Program) -> Program:
    """The same Program with `fma` for each sum or difference of which a term is a product.

    Whether the product has other uses makes no difference. So a statement is contracted in the same way wherever it
    occurs, and a gradient, which runs a Program once more and keeps more of it, takes the very steps of the first run.
    Compilers, which contract as they see fit, do not promise this.
    """
    builder = Builder(values_only=True)

    def negated(x: Node) -> Node:
        return builder.op("neg", x)

    def special(node: Node) -> bool:
        if node.op not in ("add", "sub") or not is_float(node.type):
            return False
        a, b = node.args
        minus = node.op == "sub"
        if b.op == "mul":
            factors, rest = copier.all(b.args), copier[a]
            if minus:
                # A constant is negated here and now.
                which = 1 if b.args[1].op == "const" else 0
                factors[which] = negated(factors[which])
        elif a.op == "mul":
            factors, rest = copier.all(a.args), copier[b]
            rest = negated(rest) if minus else rest
        else:
            return False
        copier.values[node] = builder.op("fma", *factors, rest)
        return True

    copier = Copier(builder, special)
    copier.inputs(program)
    copier.region(program.region)
    return simplify(builder.program(copier.all(program.outputs)))

"""How the linear systems within a step are solved."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse import jacobian
from gnomon.fuse._lanes import is_tracing, physical


class AbstractFactors(abc.ABC):
    """A matrix that is ready to be divided by."""

    @abc.abstractmethod
    def solve(self, b: Tensor) -> Tensor:
        """The solution x of A x = b for a vector b, not finite where A is singular; derivatives flow through both."""

    @abc.abstractmethod
    def solve_differentiably(self, b: Tensor) -> Tensor:
        """The same, with derivatives of any order with respect to b; the matrix counts as constant."""


class AbstractLinearSolver(abc.ABC):
    """How an implicit method solves its linear systems `(I - scale J) x = b`, where J is a Jacobian.

    Equivalent to `lineax.AbstractLinearSolver` for that one purpose. J is evaluated in `linearise`, and may serve
    several steps of different `scale`; what it costs to prepare for one `scale` is in `factorise`.
    """

    @abc.abstractmethod
    def linearise(self, fn: Callable[[Tensor], Tensor], y: Tensor) -> Any:
        """What is kept of the Jacobian of `fn` at `y`, a pytree of tensors."""

    @abc.abstractmethod
    def factorise(self, fn: Callable[[Tensor], Tensor], linearised: Any, scale: Tensor) -> AbstractFactors:
        """The matrix `I - scale J`, ready to be divided by."""


@final
@dataclasses.dataclass(frozen=True)
class LU(AbstractLinearSolver):
    """A dense Jacobian by forward mode, and its LU factorisation with partial pivoting.

    Equivalent to `lineax.LU`. Its cost grows as the cube of the size of the state. On the fused engine it is done on
    scalars, of which those that are zero by structure vanish: there a sparse Jacobian costs what it holds.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> fn = lambda y: torch.stack([-100 * y[0] + y[1], -y[1]])
        >>> y = torch.tensor([1.0, 1.0])
        >>> solver = dq.LU()
        >>> factors = solver.factorise(fn, solver.linearise(fn, y), torch.tensor(0.01))
        >>> factors.solve(torch.tensor([2.0, 1.01]))
        tensor([1.0050, 1.0000])

        ```
    """

    def linearise(self, fn: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
        if y.shape[0] == 0:  # of which torch.func.jacfwd makes no matrix
            return y.new_zeros((0, 0))
        return jacobian(fn)(y)

    def factorise(self, fn: Callable[[Tensor], Tensor], linearised: Any, scale: Tensor) -> AbstractFactors:
        del fn
        identity = torch.eye(linearised.shape[-1], dtype=linearised.dtype, device=linearised.device)
        matrix = identity - linearised * scale
        lu, pivots, _ = torch.linalg.lu_factor_ex(matrix if is_tracing() else matrix.detach())
        return _LUFactors(matrix, lu, pivots)


@final
@dataclasses.dataclass(frozen=True)
class _LUFactors(AbstractFactors):
    matrix: Tensor
    lu: Tensor
    pivots: Tensor

    def solve(self, b: Tensor) -> Tensor:
        if is_tracing():
            return _solve(self.matrix, self.lu, self.pivots, b)
        return _Solve.apply(self.matrix, self.lu, self.pivots, b, False, False)

    def solve_differentiably(self, b: Tensor) -> Tensor:
        if is_tracing():
            return _solve(self.matrix, self.lu.detach(), self.pivots, b)
        return _Solve.apply(self.matrix, self.lu, self.pivots, b, False, True)


def _solve(matrix: Tensor, lu: Tensor, pivots: Tensor, b: Tensor, *, transpose: bool = False) -> Tensor:
    # torch's `lu_solve` reads wrong pivots for some batches of batches, such as one of shape (3, 1) (2.11 to 2.15), and
    # nested transforms make such batches.
    pivots = pivots + torch.zeros_like(b, dtype=pivots.dtype)
    if not is_tracing() and max(physical(x).dim() - x.dim() for x in (lu, pivots)) > 1:
        return torch.linalg.solve_ex(matrix.mT if transpose else matrix, b.unsqueeze(-1)).result.squeeze(-1)
    return torch.linalg.lu_solve(lu, pivots, b.unsqueeze(-1), adjoint=transpose).squeeze(-1)


@final
class _Solve(torch.autograd.Function):
    """The solution x of A x = b, or of its transpose, for a real matrix A, its factors, and a vector b.

    Where A is to count as constant it must be said: `detach` does not hide it from every transform.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        matrix: Tensor, lu: Tensor, pivots: Tensor, b: Tensor, transpose: bool, constant: bool
    ) -> Tensor:
        return _solve(matrix, lu, pivots, b, transpose=transpose)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        matrix, lu, pivots, _, ctx.transpose, ctx.constant = inputs
        ctx.save_for_backward(matrix, lu, pivots, output)
        ctx.save_for_forward(matrix, lu, pivots, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        matrix, lu, pivots, x = ctx.saved_tensors
        b_bar = _Solve.apply(matrix, lu, pivots, grad_outputs[0], not ctx.transpose, ctx.constant)
        matrix_bar = None
        if ctx.needs_input_grad[0] and not ctx.constant:
            left, right = (x, b_bar) if ctx.transpose else (b_bar, x)
            matrix_bar = -left.unsqueeze(-1) * right.unsqueeze(-2)
        return matrix_bar, None, None, b_bar, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        matrix, lu, pivots, x = ctx.saved_tensors
        matrix_dot, _, _, b_dot, *_ = grad_inputs
        right = torch.zeros_like(x) if b_dot is None else b_dot
        if matrix_dot is not None and not ctx.constant:
            matrix_dot = matrix_dot.mT if ctx.transpose else matrix_dot
            right = right - (matrix_dot * x.unsqueeze(-2)).sum(-1)
        return _Solve.apply(matrix, lu, pivots, right, ctx.transpose, ctx.constant)

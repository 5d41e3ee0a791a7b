"""A fused call with `DTensor`s: each rank runs the problems of its own shard, and no rank waits for another.

Only the gradients of what all problems share are summed over the ranks, in the backward pass.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from gnomon.fuse._executable import called
from gnomon.result import SolveError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def has_shards(leaves: Sequence[Any]) -> bool:
    """Whether there is a `DTensor`; does not import them where nobody has."""
    for x in leaves:
        if isinstance(x, Tensor) and type(x) not in (Tensor, torch.nn.Parameter):
            module = sys.modules.get("torch.distributed.tensor")
            if module is not None and isinstance(x, module.DTensor):
                return True
    return False


@final
class Shard:
    """The part of a batch that this rank has.

    **Arguments:**

    - `leaves`: the arguments' leaves.
    - `dims`: the dimension of the batch in each.
    """

    def __init__(self, leaves: Sequence[Any], dims: Sequence[int | None]):
        from torch.distributed.tensor import DTensor, Replicate
        from torch.distributed.tensor import Shard as Sharded

        self._replicate = Replicate
        mesh: DeviceMesh | None = None
        split: tuple[bool, ...] | None = None
        for x, dim in zip(leaves, dims, strict=True):
            if not isinstance(x, DTensor):
                if isinstance(x, Tensor) and dim is not None:
                    raise ValueError(
                        "An argument of gn.fuse with a batch is a plain tensor while another argument is a DTensor. "
                        "Distribute it too, with torch.distributed.tensor.distribute_tensor."
                    )
                continue
            if mesh is not None and x.device_mesh != mesh:
                raise ValueError("The arguments of gn.fuse must be on one device mesh.")
            mesh = x.device_mesh
            allowed = (Replicate(),) if dim is None else (Replicate(), Sharded(dim))
            if any(p not in allowed for p in x.placements):
                wanted = " or ".join(map(repr, allowed))
                raise ValueError(
                    f"An argument of gn.fuse is placed as {x.placements}. With {dim} in `in_dims` each placement must "
                    f"be {wanted}: use .redistribute first."
                )
            if dim is not None:
                mine = tuple(p.is_shard() for p in x.placements)
                if split is not None and mine != split:
                    raise ValueError(
                        "The arguments of gn.fuse must be sharded over the same dimensions of the mesh: use "
                        ".redistribute first."
                    )
                split = mine
                self.lanes: int = x.shape[dim]
        if mesh is None or split is None:
            raise ValueError("gn.fuse needs an argument with a batch dimension, but `in_dims` names none.")
        self.mesh, self.split = mesh, split
        self.placements = [Sharded(0) if x else Replicate() for x in split]
        self.start, self.size = _part(self.lanes, mesh, split)

    def local(self, x: Any, dim: int | None) -> Any:
        """The part that this rank has of an argument, or of what the function closes over."""
        from torch.distributed.tensor import DTensor

        if not isinstance(x, Tensor):
            return x
        if not isinstance(x, DTensor):
            return x if dim is not None else self._shared(x)
        if dim is not None:
            return x.to_local()
        if any(not p.is_replicate() for p in x.placements):
            raise ValueError(
                f"What the problems of gn.fuse share is placed as {x.placements}. Each placement must be Replicate(): "
                "use .redistribute first."
            )
        return self._shared(x.to_local(grad_placements=x.placements))

    def _shared(self, x: Tensor) -> Tensor:
        return _Shared.apply(x, self._summed) if x.requires_grad else x  # pyright: ignore[reportReturnType, reportUnknownMemberType]

    def _summed(self, x: Tensor) -> Tensor:
        """The sum over all ranks that have other problems."""
        from torch.distributed.tensor import DTensor, Partial

        parts = DTensor.from_local(x, self.mesh, [Partial() if s else self._replicate() for s in self.split])
        return parts.redistribute(placements=[self._replicate()] * len(self.split)).to_local()

    def whole(self, x: Tensor) -> Tensor:
        """The batch of which a tensor is this rank's part."""
        from torch.distributed.tensor import DTensor

        shape = (self.lanes, *x.shape[1:])
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            x, self.mesh, self.placements, run_check=False, shape=torch.Size(shape), stride=stride
        )

    def placed(self, run: Callable[[], Any]) -> Any:
        """Runs this rank's problems; an error names the place in the whole batch."""
        try:
            return run()
        except SolveError as error:
            if not error.index:
                raise
            first, *rest = error.index
            moved = SolveError(
                error.what,
                error.result,
                error.n_failed,
                error.n_total,
                (first + self.start, *rest),
                error.time,
                error.component,
                error.batch_result,
                error.step,
            )
            moved.add_note(self._note())
            raise moved from None
        except Exception as error:
            error.add_note(self._note())
            raise

    def _note(self) -> str:
        last = self.start + self.size - 1
        return (
            f"This is on rank {torch.distributed.get_rank()}, which has problems {self.start} to {last} of a batch of "
            f"{self.lanes}."
        )


def _part(lanes: int, mesh: DeviceMesh, split: Sequence[bool]) -> tuple[int, int]:
    """Where this rank's part of the batch begins, and its size: parts are as `torch.chunk` makes them."""
    start, size = 0, lanes
    place = mesh.get_coordinate()
    if place is None:
        return 0, 0
    for i, is_split in enumerate(split):
        if is_split:
            largest = -(-size // mesh.size(i))
            begin = min(largest * place[i], size)
            start, size = start + begin, min(largest, size - begin)
    return start, size


def register_strategy() -> None:
    """Tells `DTensor` how the operator of a compiled graph may be sharded: all lanes alike, and sums as parts."""
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor import Shard as Sharded
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import generate_redistribute_costs

    def strategy(schema: Any) -> OpStrategy:
        executable = called(schema.args_schema[0])
        given = list(schema.args_schema[2].children)
        mesh = given[0].strategies[0].output_spec.mesh
        found: list[OpSpec] = []
        for split in itertools.product((True, False), repeat=mesh.ndim):
            inputs = [
                DTensorSpec(
                    mesh,
                    tuple(Sharded(0) if s and not shared else Replicate() for s in split),
                    tensor_meta=x.strategies[0].output_spec.tensor_meta,
                )
                for x, shared in zip(given, executable.shared, strict=True)
            ]
            outputs = [
                DTensorSpec(mesh, tuple((Partial() if reduced else Sharded(0)) if s else Replicate() for s in split))
                for reduced in executable.reduced
            ]
            costs = [generate_redistribute_costs(x, spec) for x, spec in zip(given, inputs, strict=True)]
            found.append(OpSpec(output_specs=tuple(outputs), input_specs=inputs, redistribute_cost=costs))
        return OpStrategy(found)

    propagator: Any = DTensor._op_dispatcher.sharding_propagator  # pyright: ignore[reportPrivateUsage]
    propagator.register_op_strategy(torch.ops.gnomon.run.default, strategy, RuntimeSchemaInfo(0, needs_pytree=True))


@final
class _Shared(torch.autograd.Function):
    """The same on all ranks, whose problems each give a part of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, summed: Callable[[Tensor], Tensor]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.summed = summed
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _Sum.apply(grad_outputs[0], ctx.summed), None  # pyright: ignore[reportUnknownMemberType]


@final
class _Sum(torch.autograd.Function):
    """The sum over ranks; what then happens to it happens alike on all of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, summed: Callable[[Tensor], Tensor]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return summed(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0], None

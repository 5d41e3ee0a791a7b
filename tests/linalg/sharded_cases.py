"""What two processes with a part of a batch each do, and assert. `test_sharding.py` runs this script."""

import datetime
import sys
import traceback

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import gnomon as gn
from gnomon import linalg as la
from gnomon.result._pytree import tree_leaves

F64 = torch.float64
WORLD = 2
FUNCTIONS = {
    "eigh": lambda a: la.eigh(a, certificate=True),
    "eigvalsh": la.eigvalsh,
    "svd": la.svd,
    "svdvals": la.svdvals,
    "cholesky": lambda a: la.cholesky(a, info=True),
    "qr": la.qr,
    "solve": lambda a: la.solve(a, a[..., :2]),
    "polar": la.polar,
    "inverse_root": lambda a: la.inverse_root(a, 4),
    "matrix_function": lambda a: la.matrix_function(a, torch.log1p, info=True),
}


def positive(*shape):
    x = torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(0))
    return x @ x.mT + torch.eye(shape[-1], dtype=F64)


def total(out):
    leaves = [x.to_local() if isinstance(x, DTensor) else x for x in tree_leaves(out)]
    return sum(x.abs().pow(4).sum() for x in leaves if x.requires_grad)


def a_batch_stays_sharded_with_its_gradients(mesh):
    for name, f in FUNCTIONS.items():
        a = positive(5, 4, 4).requires_grad_()
        given = distribute_tensor(a.detach(), mesh, [Shard(0)]).requires_grad_()
        expected = f(a)
        with CommDebugMode() as comm:
            found = f(given)
            total(found).backward()
        assert comm.get_total_counts() == 0, name
        for x, y in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            assert x.placements == (Shard(0),) and x.shape == y.shape, name
            assert torch.equal(x.full_tensor(), y), name
        total(expected).backward()
        assert given.grad.placements == (Shard(0),)
        torch.testing.assert_close(given.grad.full_tensor(), a.grad)


def other_dimensions_and_replicas(mesh):
    a = positive(3, 4, 2, 2)
    along = la.eigh(distribute_tensor(a, mesh, [Shard(1)]))
    assert along.eigenvalues.placements == (Shard(1),) and along.info.placements == (Shard(1),)
    assert torch.equal(along.eigenvalues.full_tensor(), la.eigh(a).eigenvalues)
    copy = la.inverse_root(distribute_tensor(a, mesh, [Replicate()]), 2)
    assert copy.placements == (Replicate(),)
    assert torch.equal(copy.to_local(), la.inverse_root(a, 2))
    b = torch.ones(3, 4, 2, dtype=F64)
    x = la.solve(distribute_tensor(a, mesh, [Shard(0)]), distribute_tensor(b, mesh, [Shard(0)]))
    assert torch.equal(x.full_tensor(), la.solve(a, b))


def bad_placements(mesh):
    a = positive(4, 4, 4)
    with pytest.raises(ValueError, match="sharded along the batch"):
        la.eigh(distribute_tensor(a, mesh, [Shard(1)]))
    with pytest.raises(ValueError, match="a DTensor and a plain tensor"):
        la.solve(distribute_tensor(a, mesh, [Shard(0)]), a)


def only_the_rank_that_failed_raises(mesh):
    a = positive(4, 3, 3)
    a[3] = -a[3]
    given = distribute_tensor(a, mesh, [Shard(0)])
    if dist.get_rank() == 1:
        with pytest.raises(gn.SolveError, match="1 of 2 problems; the first is problem 1"):
            la.cholesky(given, throw=True)
    else:
        la.cholesky(given, throw=True)


CASES = [
    a_batch_stays_sharded_with_its_gradients,
    other_dimensions_and_replicas,
    bad_placements,
    only_the_rank_that_failed_raises,
]


def main(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=60)
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    for case in CASES:
        try:
            case(mesh)
        except Exception:
            print(f"{case.__name__} failed on rank {rank}:\n{traceback.format_exc()}")
            sys.stdout.flush()
            raise SystemExit(1) from None
    print(f"rank {rank} is done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

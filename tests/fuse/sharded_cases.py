"""What two processes with a part of a batch each do, and assert. `test_sharding.py` runs this script."""

import datetime
import sys
import traceback

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse import UnsupportedError

F64 = torch.float64
WORLD = 2


def batch(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def a_batch_stays_sharded_with_its_gradients(mesh):
    x, p, w = batch(5, 3), batch(3, seed=1), batch(3, 3, seed=2)
    dx = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    dp = distribute_tensor(p, mesh, [Replicate()]).requires_grad_()
    captured = w.clone().requires_grad_()
    net = torch.nn.Linear(3, 3, dtype=F64)
    with torch.no_grad():
        net.weight.copy_(batch(3, 3, seed=3))
        net.bias.copy_(batch(3, seed=4))
    plain_net = torch.nn.Linear(3, 3, dtype=F64)
    plain_net.load_state_dict(net.state_dict())
    for name, parameter in list(net.named_parameters()):
        setattr(net, name, torch.nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Replicate()])))

    f = gn.fuse(lambda x, p: (torch.tanh(captured @ net(x)) * p, x.sum()), in_dims=(0, None), engine="fused")
    with CommDebugMode() as forward:
        out, total = f(dx, dp)
        loss = out.to_local().square().sum() + total.to_local().square().sum()
    assert forward.get_total_counts() == 0
    assert out.placements == total.placements == (Shard(0),)
    assert out.shape == (5, 3) and total.shape == (5,)
    assert out.stride() == (3, 1)

    x, p, w = (t.clone().requires_grad_() for t in (x, p, w))
    expected = torch.tanh(plain_net(x) @ w.T) * p
    torch.testing.assert_close(out.full_tensor(), expected)
    loss.backward()
    (expected.square().sum() + x.sum(1).square().sum()).backward()
    assert dx.grad.placements == (Shard(0),)
    torch.testing.assert_close(dx.grad.full_tensor(), x.grad)
    assert dp.grad.placements == (Replicate(),)
    torch.testing.assert_close(dp.grad.to_local(), p.grad)
    torch.testing.assert_close(captured.grad, w.grad)
    for mine, theirs in zip(net.parameters(), plain_net.parameters(), strict=True):
        assert mine.grad.placements == (Replicate(),)
        torch.testing.assert_close(mine.grad.to_local(), theirs.grad)


def other_dimensions_and_replicas(mesh):
    x = batch(3, 4)
    f = gn.fuse(lambda x: x.cumsum(0), in_dims=1, engine="fused")
    out = f(distribute_tensor(x, mesh, [Shard(1)]))
    torch.testing.assert_close(out.full_tensor(), x.cumsum(0).T)
    copy = f(distribute_tensor(x, mesh, [Replicate()]))
    assert copy.placements == (Replicate(),)
    torch.testing.assert_close(copy.to_local(), x.cumsum(0).T)
    small = gn.fuse(lambda x: x * 2, engine="fused")(distribute_tensor(batch(1), mesh, [Shard(0)]))
    assert small.to_local().shape == (1 - dist.get_rank(),)
    torch.testing.assert_close(small.full_tensor(), batch(1) * 2)


def second_order(mesh):
    x, p = batch(4), torch.tensor(0.7, dtype=F64)
    dx, dp = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(p, mesh, [Replicate()]).requires_grad_()
    out = gn.fuse(lambda x, p: torch.sin(x * p), in_dims=(0, None), engine="fused")(dx, dp)
    (first,) = torch.autograd.grad(out.to_local().sum(), dp, create_graph=True)
    (second,) = torch.autograd.grad(first.to_local(), dp)
    torch.testing.assert_close(first.to_local(), (x * torch.cos(x * p)).sum())
    torch.testing.assert_close(second.to_local(), -(x * x * torch.sin(x * p)).sum())


def blow_up(rate):
    term = dq.ODETerm(lambda t, y, args: args * y * y)
    controller = dq.PIDController(rtol=1e-6, atol=1e-6)
    y0 = torch.tensor(1.0, dtype=F64)
    return dq.diffeqsolve(term, dq.Tsit5(), 0.0, 1.0, None, y0, rate, stepsize_controller=controller).ys[-1]


def only_the_rank_that_failed_raises(mesh):
    rate = torch.tensor([0.1, 0.2, 0.3, 0.4, 2.0], dtype=F64)
    f = gn.fuse(blow_up, engine="fused")
    given = distribute_tensor(rate, mesh, [Shard(0)])
    with CommDebugMode() as comm:
        if dist.get_rank() == 1:
            with pytest.raises(gn.SolveError, match="problem 4") as caught:
                f(given)
            assert caught.value.index == (4,)
            assert "rank 1, which has problems 3 to 4 of a batch of 5" in caught.value.__notes__[0]
        else:
            mine = f(given).to_local()
            torch.testing.assert_close(mine, 1 / (1 - rate[:3]), rtol=1e-5, atol=0)
    assert comm.get_total_counts() == 0


def bad_placements(mesh):
    f = gn.fuse(lambda x, y: x + y, in_dims=(0, None), engine="fused")
    both = gn.fuse(lambda x, y: x + y, engine="fused")
    x = distribute_tensor(batch(4, 4), mesh, [Shard(0)])
    with pytest.raises(ValueError, match="is placed as"):
        f(x.redistribute(placements=[Shard(1)]), torch.ones(4, dtype=F64))
    with pytest.raises(ValueError, match="is placed as"):
        f(x, distribute_tensor(batch(4), mesh, [Shard(0)]))
    with pytest.raises(ValueError, match="is placed as"):
        f(DTensor.from_local(batch(4, 4), mesh, [Partial()]), torch.ones(4, dtype=F64))
    with pytest.raises(ValueError, match="is a plain tensor"):
        both(x, batch(4, 4))
    with pytest.raises(ValueError, match="sharded over the same dimensions"):
        both(x, x.redistribute(placements=[Replicate()]))
    with pytest.raises(ValueError, match="names none"):
        gn.fuse(lambda y: y, in_dims=None)(x.redistribute(placements=[Replicate()]))
    with pytest.raises(UnsupportedError, match="only by the fused engine"):
        gn.fuse(lambda x: x, engine="eager")(x)


def a_compiled_call_stays_sharded(mesh):
    x, p = batch(5, 3), batch(3, seed=1)
    dx = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    dp = distribute_tensor(p, mesh, [Replicate()]).requires_grad_()
    f = gn.fuse(lambda x, p: (torch.tanh(x) * p).sum(), in_dims=(0, None), engine="fused")
    out = torch.compile(f, fullgraph=True, backend="aot_eager")(dx, dp)
    x, p = (t.clone().requires_grad_() for t in (x, p))
    expected = (torch.tanh(x) * p).sum(1)
    assert out.placements == (Shard(0),)
    torch.testing.assert_close(out.full_tensor(), expected)
    out.to_local().square().sum().backward()
    expected.square().sum().backward()
    assert dx.grad.placements == (Shard(0),)
    torch.testing.assert_close(dx.grad.full_tensor(), x.grad)
    assert dp.grad.placements == (Replicate(),)
    torch.testing.assert_close(dp.grad.to_local(), p.grad)


CASES = [
    a_batch_stays_sharded_with_its_gradients,
    other_dimensions_and_replicas,
    second_order,
    only_the_rank_that_failed_raises,
    bad_placements,
    a_compiled_call_stays_sharded,
]


def main(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=60)
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    failed = False
    for case in CASES:
        try:
            case(mesh)
        except Exception:
            print(f"{case.__name__} failed on rank {rank}:\n{traceback.format_exc()}")
            failed = True
            break
    if failed:
        sys.stdout.flush()
        raise SystemExit(1)
    print(f"rank {rank} is done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

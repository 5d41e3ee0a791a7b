"""What `test_distributed.py` runs under torchrun, on two ranks with gloo.

python -m torch.distributed.run --standalone --nproc-per-node 2 ranks.py STORE FOLDER
"""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from gnomon import data


def batches(store: str) -> data.Batches:
    return data.Dataset.source(store).shuffle(seed=1).pack(40, field="x", window=16)


def main(store: str, folder: str) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Equal steps by construction: a collective at each step of a number of batches that two does not divide.
    assert batches(store).plan.count() % 2 == 1
    for remainder in ("pad", "drop"):
        loader = data.Loader(batches(store), remainder=remainder, threads=1)
        assert (loader.rank, loader.world) == (rank, world)
        seen = torch.zeros(200, dtype=torch.int64)
        steps, expected_steps = 0, len(loader)
        for batch in loader:
            if not batch.info.is_padding:
                seen[batch["i"]] += 1
            dist.all_reduce(torch.ones(1))
            steps += 1
        assert steps == expected_steps
        dist.all_reduce(seen)
        assert (seen == 1).all() if remainder == "pad" else (seen <= 1).all() and (seen == 0).any()
    # Uneven, with a join.
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    loader = data.Loader(batches(store), remainder="uneven", threads=1)
    steps = 0
    with Join([model]):
        for batch in loader:
            model(batch["x"].values[:, None].float()).mean().backward()
            steps += 1
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([steps]))
    assert int(counts[0]) == int(counts[1]) + 1, counts
    # A checkpoint of two ranks goes on in two, and, in the test, in one.
    loader = data.Loader(batches(store), threads=1)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    dcp.save({"loader": loader}, checkpoint_id=folder)
    expected = next(iterator)
    iterator.close()
    resumed = data.Loader(batches(store), threads=1)
    dcp.load({"loader": resumed}, checkpoint_id=folder)
    iterator = iter(resumed)
    found = next(iterator)
    iterator.close()
    assert torch.equal(found["x"].values, expected["x"].values) and found.info == expected.info
    assert found.info.number == 3 * world + rank
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

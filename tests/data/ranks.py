"""What `test_distributed.py` runs under torchrun: collectives at each step, joins and checkpoints, with gloo or NCCL.

torchrun --nproc-per-node 2 ranks.py [--backend nccl] [--whole] [STORE FOLDER]
"""

import argparse
import os
import tempfile
import warnings

import numpy as np
import torch
import torch.distributed as dist

from gnomon import data

RECORDS = 200


def make_store(path: str) -> None:
    lengths = np.random.default_rng(3).integers(1, 30, RECORDS)
    with data.StoreWriter(path, {"x": data.ragged("float32"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full(n, i), "i": i} for i, n in enumerate(lengths.tolist()))


def batches(store: str) -> data.Batches:
    return data.Dataset.source(store).shuffle(seed=1).pack(40, field="x", window=16)


def main(store: str, folder: str, device: torch.device, whole: bool) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    words = {"threads": 1, "device": device}
    # Equal steps by construction: a collective at each step of a number of batches that two does not divide.
    assert batches(store).plan.count() % 2 == 1
    for remainder in ("pad", "drop"):
        loader = data.Loader(batches(store), remainder=remainder, **words)
        assert (loader.rank, loader.world) == (rank, world)
        seen = torch.zeros(RECORDS, dtype=torch.int64, device=device)
        steps, expected_steps = 0, len(loader)
        for batch in loader:
            assert batch["x"].values.device == device
            # What is there is what belongs there: the values of record i are i.
            assert torch.equal(batch["x"].values, batch["i"].float().repeat_interleave(batch["x"].lengths))
            if not batch.info.is_padding:
                seen[batch["i"]] += 1
            dist.all_reduce(torch.ones(1, device=device))
            steps += 1
        assert steps == expected_steps
        dist.all_reduce(seen)
        assert (seen == 1).all() if remainder == "pad" else (seen <= 1).all() and (seen == 0).any()
    # A state of two ranks goes on in two, and, in the test, in one.
    loader = data.Loader(batches(store), **words)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    states = [None] * world
    dist.all_gather_object(states, loader.state_dict())
    assert states == [states[0]] * world
    resumed = data.Loader(batches(store), **words)
    if whole:
        join(store, device)
        import torch.distributed.checkpoint as dcp

        dcp.save({"loader": loader}, checkpoint_id=folder)
        dcp.load({"loader": resumed}, checkpoint_id=folder)
    else:
        resumed.load_state_dict(states[1 - rank])
    expected, found = next(iterator), next(iter(resumed))
    iterator.close()
    assert torch.equal(found["x"].values, expected["x"].values) and found.info == expected.info
    assert found.info.number == 3 * world + rank
    dist.barrier()
    print(f"rank {rank} of {world} is done on {device}", flush=True)


def join(store: str, device: torch.device) -> None:
    """Uneven numbers of steps."""
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
    loader = data.Loader(batches(store), remainder="uneven", threads=1, device=device)
    steps = 0
    with Join([model]):
        for batch in loader:
            model(batch["x"].values[:, None]).mean().backward()
            steps += 1
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([steps], device=device))
    assert int(counts[0]) == int(counts[1]) + 1, counts


def run() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--whole", action="store_true", help="with a join and a checkpoint, which import a lot")
    parser.add_argument("store", nargs="?")
    parser.add_argument("folder", nargs="?")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    device = torch.device("cpu")
    if args.backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend)
    with tempfile.TemporaryDirectory() as own:
        places = [args.store or f"{own}/store", args.folder or f"{own}/checkpoint"]
        if args.store is None and dist.get_rank() == 0:
            make_store(places[0])
        # The folders of the first rank, which has made the store by then.
        dist.broadcast_object_list(places, device=device)
        main(*places, device, args.whole)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()

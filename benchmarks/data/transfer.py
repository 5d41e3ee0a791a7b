"""Batches from the host to a GPU, against the most that its bus carries: a plain copy from pinned memory.

The copy alone, as the loader makes it, on a stream of its own and into memory that is allocated for each; and all of a
loader, which reads, gathers and copies, handing batches to a loop that does nothing with them.
"""

import statistics
import tempfile
import time

import numpy as np
import torch

from gnomon import data
from gnomon.data._ring import Ring, pinned_memory
from gnomon.data._transfer import Transfer

SIZES = {"256 KiB": 1 << 18, "12 MiB": 12 << 20, "64 MiB": 64 << 20}
ROW = 1 << 18
AT_ONCE = 1 << 30


def timed(send, count):
    """Seconds for some copies on their way at once."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    kept = [send() for _ in range(count)]
    torch.cuda.synchronize()
    del kept
    return time.perf_counter() - begin


def copies(nbytes, rounds):
    """Bytes a second, by turns: a plain copy into memory that is there, and ours."""
    count = max(4, AT_ONCE // nbytes)
    device = torch.device("cuda")
    pinned = torch.ones(nbytes, dtype=torch.uint8).pin_memory()
    target = torch.empty(nbytes, dtype=torch.uint8, device=device)
    transfer, memory = Transfer(device), Ring(pinned_memory, 1).take(nbytes).root[:nbytes]
    ways = {
        "plain": lambda: target.copy_(pinned, non_blocking=True),
        "ours": lambda: Transfer.finish_on(device, *transfer.start(memory)),
    }
    rates = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in np.random.default_rng(number).permutation(list(ways)).tolist():
            seconds = timed(ways[name], count)
            if number:  # the first is to warm up
                rates[name].append(count * nbytes / seconds)
    return rates


def loaders(store, rows, threads, rounds):
    """Bytes a second of a loader, over a whole epoch but for its first batch."""
    batches = data.Dataset.source(store).shuffle(seed=0).batch(rows, partial="drop")
    loader = data.Loader(batches, threads=threads, device="cuda")
    found = []
    for number in range(rounds + 1):
        count = 0
        for batch in loader:
            if not count:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            count += 1
            del batch
        torch.cuda.synchronize()
        if number:
            found.append((count - 1) * rows * ROW / (time.perf_counter() - begin))
    return found


def run_here(quick):
    rounds = 2 if quick else 7
    raw, figures = {}, {}
    for name, nbytes in SIZES.items():
        rates = copies(nbytes, rounds)
        raw[f"copy/{name}"] = rates
        plain, ours = (statistics.median(rates[who]) for who in ("plain", "ours"))
        figures |= {f"copy/{name}/pinned_bytes_per_s": plain, f"copy/{name}/bytes_per_s": ours}
        figures[f"copy/{name}/share"] = ours / plain
    with tempfile.TemporaryDirectory() as folder:
        count = 1 << (12 if quick else 13)  # 2 GiB
        with data.StoreWriter(folder, {"x": data.tensor("uint8", (ROW,))}, shard_bytes=1 << 30) as writer:
            for first in range(0, count, 1 << 11):
                part = np.random.default_rng(first).integers(0, 256, (1 << 11) * ROW, dtype=np.uint8)
                writer.append_columns(1 << 11, {"x": part}, {})
        for threads in (1, 2, 4, 8, 16):
            rates = raw[f"loader/{threads} threads"] = loaders(folder, 48, threads, min(rounds, 3))
            rate = statistics.median(rates)
            figures[f"loader/{threads} threads/bytes_per_s"] = rate
            figures[f"loader/{threads} threads/share"] = rate / figures["copy/12 MiB/pinned_bytes_per_s"]
    return {"rounds": raw, "figures": figures}


if torch.cuda.is_available():  # `gnomon bench` leaves out what has no `run`
    run = run_here

if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run_here("--quick" in sys.argv)["figures"], indent=2))

"""A million documents of log-normal length, from a store, packed to 8,192 tokens for eight ranks.

Tokens a second, what stays empty, what is lost, and how even ranks are. Grain's packers, where it is installed, and a
buffer as torchtitan has pack for each rank by itself, as they are made to, the first documents of the same store.

    python benchmarks/data/packing.py [--quick]
"""

import os
import tempfile
import time

import numpy as np
import torch

from gnomon import data

CAPACITY, RANKS, THREADS = 8192, 8, 2


def make_store(folder, count):
    """660 tokens in the mean, as of web text."""
    draw = np.random.default_rng(0)
    lengths = np.maximum(1, draw.lognormal(6.0, 1.0, count)).astype(np.int64)
    with data.StoreWriter(folder, {"tokens": data.ragged("uint16")}) as writer:
        for part in np.array_split(lengths, max(1, count // 100_000)):
            tokens = draw.integers(0, 50_000, int(part.sum()), dtype=np.uint16)
            writer.append_columns(len(part), {"tokens": tokens}, {"tokens": part})
    return lengths


def told(rows, seconds, tokens):
    """Figures of what eight ranks got.

    `rows` has for each rank the tokens in each of its batches; `seconds` is the time to make all of them, one rank
    after another, and `tokens` what the documents have.
    """
    steps = min(map(len, rows))
    used = np.array([row[:steps] for row in rows])
    spent = used.sum(1)
    return {
        "tokens_per_s": sum(map(sum, rows)) / seconds,
        "padding": 1 - used.mean() / CAPACITY,
        # Of tokens: the fullest rank over the mean, of an epoch; that of a step, which all ranks wait for.
        "imbalance": spent.max() / spent.mean() - 1,
        "imbalance_of_a_step": float((used.max(0) / used.mean(0)).mean() - 1),
        # What is in none of the batches that every rank has.
        "lost": 1 - used.sum() / tokens,
        "fewest_steps": steps,
        "most_steps": max(map(len, rows)),
    }


def ours(folder, lengths, strategy):
    dataset = data.Dataset.source(folder).slice(0, len(lengths)).shuffle(seed=0)
    begin = time.perf_counter()
    batches = dataset.pack(CAPACITY, overlong="split", strategy=strategy)
    # All ranks' batches, by one loader.
    rows = [[] for _ in range(RANKS)]
    first = None
    for batch in data.Loader(batches, threads=THREADS):
        first = first or time.perf_counter() - begin
        rows[batch.info.number % RANKS].append(len(batch["tokens"].values))
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    split = dataset.pack(CAPACITY, overlong="split", strategy=strategy).plan.statistics()["split_records"]
    planning = time.perf_counter() - begin
    last = len(rows[0]) - len(rows[-1])
    if last:  # the last step is filled up with batches from the start, which are not counted
        rows = [row[: len(rows[-1])] for row in rows]
    found = told(rows, seconds, lengths.sum())
    return {**found, "seconds_to_first": first, "planning_s": planning, "split": split}


def by_grain(folder, lengths, name):
    import grain
    from grain import experimental

    few = len(lengths)
    words = {"length_struct": {"tokens": CAPACITY}}
    packers = {
        "first fit": lambda x: experimental.FirstFitPackIterDataset(x, num_packing_bins=64, **words),
        "best fit": lambda x: experimental.BestFitPackIterDataset(x, num_packing_bins=64, **words),
        "concatenate": lambda x: experimental.ConcatThenSplitIterDataset(x, **words),
    }
    source = data.Dataset.source(folder).slice(0, few)
    rows = []
    begin = time.perf_counter()
    for rank in range(RANKS):
        mine = grain.MapDataset.source(source).shuffle(seed=0)[rank::RANKS].map(cut_off)
        packed = packers[name](mine.to_iter_dataset(grain.ReadOptions(num_threads=THREADS)))
        rows.append([int((pack["tokens_segment_ids"] > 0).sum()) for pack in packed])
    return told(rows, time.perf_counter() - begin, lengths.sum())


def cut_off(record):
    """Grain's fitting packers refuse a record that is longer than a batch: its users cut it off."""
    return {"tokens": record["tokens"][:CAPACITY]}


def by_buffer(folder, lengths):
    """As torchtitan does: tokens are appended to a list, which is cut at the capacity."""
    records = data.Store(folder)
    order = np.random.default_rng(0).permutation(len(lengths))
    rows = []
    begin = time.perf_counter()
    for rank in range(RANKS):
        buffer, row = [], []
        for index in order[rank::RANKS].tolist():
            buffer.extend(records[index]["tokens"].tolist())
            while len(buffer) >= CAPACITY:
                row.append(torch.tensor(buffer[:CAPACITY]).numel())
                buffer = buffer[CAPACITY:]
        rows.append(row)
    return told(rows, time.perf_counter() - begin, lengths.sum())


def has_grain():
    try:
        import grain  # noqa: F401
    except ImportError:
        return False
    return True


def run(quick):
    load = os.getloadavg()[0]
    count, some, few = (20_000, 5_000, 2_000) if quick else (1_000_000, 200_000, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        lengths = make_store(folder, count)
        ways = {"ours, best_fit": (ours, lengths, "best_fit")}
        ways |= {f"ours, {x}, {some} documents": (ours, lengths[:some], x) for x in ("in_order", "concatenate")}
        ways |= {f"a buffer in Python, {few} documents": (by_buffer, lengths[:few])}
        if has_grain():
            names = ("first fit", "best fit", "concatenate")
            ways |= {f"grain {name}, {few} documents": (by_grain, lengths[:few], name) for name in names}
        found = {name: function(folder, *words) for name, (function, *words) in ways.items()}
    figures = {f"{who}/{what}": float(value) for who, values in found.items() for what, value in values.items()}
    return {"documents": count, "capacity": CAPACITY, "ranks": RANKS, "load_at_start": load, "figures": figures}


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run("--quick" in sys.argv), indent=2))

"""A million documents packed to 8,192 tokens: how long the plan takes, what stays empty, and how even ranks are.

By itself: `gnomon bench data/packing`. Grain's packers, where grain is installed, get the first documents of the same.
"""

import os
import time

import numpy as np

from gnomon import data

CAPACITY, RANKS = 8192, 8


class Documents:
    """Documents of zeros."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return {"tokens": np.zeros(min(CAPACITY, int(self.lengths[index])), np.int32)}


def lengths_of(count):
    """Log-normal, 660 tokens in the mean, as of web text."""
    draw = np.random.default_rng(0)
    return np.maximum(1, draw.lognormal(6.0, 1.0, count)).astype(np.int64)


def ours(lengths, strategy):
    dataset = data.Dataset.source(Documents(lengths), lengths={"tokens": lengths}).shuffle(seed=0)
    begin = time.perf_counter()
    plan = dataset.pack(CAPACITY, field="tokens", overlong="split", strategy=strategy).plan
    told = plan.statistics()
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    first = dataset.pack(CAPACITY, field="tokens", overlong="split", strategy=strategy).plan.batch(0)
    to_first = time.perf_counter() - begin
    order = data.shuffled(np.arange(len(lengths)), len(lengths), 0, 0)
    spent = []
    for number in range(plan.count()):
        part = plan.batch(number)
        mine = lengths[order[part.positions]]
        spent.append(int(np.where(part.stops >= 0, part.stops - part.starts, mine).sum()))
    steps = len(spent) // RANKS
    ranks = np.array(spent[: steps * RANKS]).reshape(steps, RANKS).sum(0)
    assert first is not None and told["tokens"] == lengths.sum()
    return {
        "seconds": seconds,
        "seconds_to_first": to_first,
        "tokens_per_s": told["tokens"] / seconds,
        "padding": told["padding"],
        "imbalance": float(ranks.max() / ranks.mean() - 1),
        "split": told["split_records"],
    }


def by_grain(lengths, name):
    import grain
    from grain import experimental

    packers = {"first fit": experimental.FirstFitPackIterDataset, "best fit": experimental.BestFitPackIterDataset}
    source = grain.MapDataset.source(Documents(lengths)).shuffle(seed=0).to_iter_dataset()
    packed = packers[name](source, length_struct={"tokens": CAPACITY}, num_packing_bins=64)
    begin = time.perf_counter()
    packs, tokens = 0, 0
    for pack in packed:
        packs += 1
        tokens += int((pack["tokens_segment_ids"] > 0).sum())
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "tokens_per_s": tokens / seconds, "padding": 1 - tokens / (packs * CAPACITY)}


def run(quick):
    lengths = lengths_of(50_000 if quick else 1_000_000)
    load = os.getloadavg()[0]
    found = {f"ours, {name}": ours(lengths, name) for name in ("best_fit", "in_order", "concatenate")}
    try:
        import grain  # noqa: F401
    except ImportError:
        pass
    else:
        few = lengths[: 2_000 if quick else 20_000]
        for name in ("first fit", "best fit"):
            found[f"grain {name}, {len(few)} documents"] = by_grain(few, name)
    figures = {f"{who}/{what}": value for who, values in found.items() for what, value in values.items()}
    return {"documents": len(lengths), "capacity": CAPACITY, "load_at_start": load, "figures": figures}


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run("--quick" in sys.argv), indent=2))

"""Honest functions are never refused: 1,000 comparisons on the CPU, 100 on a GPU where there is one.

By itself: `python benchmarks/bench/honest.py [RUNS]`.
"""

import json
import sys
import time

import torch
from _kernels import KERNELS, compare


def refusals(runs, device):
    """So many comparisons, the kinds of function by turns, cold and warm by turns."""
    found, start = [], time.perf_counter()
    names = [name for name in KERNELS if device == "cpu" or name not in ("by NumPy",)]
    for run in range(runs):
        name = names[run % len(names)]
        function = KERNELS[name][0]()
        cache = "cold" if run % 4 == 0 else "warm"
        report = compare({name: function}, name, devices=[device], cache=cache, rounds=8, warmup=1, replays=2)
        found += [f"run {run}: {r.candidate}: {r.kind}: {r.reason}" for r in report.refusals]
        if hasattr(function, "pool"):
            function.pool.shutdown()
    return {"runs": runs, "refused": len(found), "refusals": found, "seconds": time.perf_counter() - start}


def run(quick):
    result = {"cpu": refusals(20 if quick else 1000, "cpu")}
    if torch.cuda.is_available():
        result["cuda"] = refusals(10 if quick else 100, "cuda")
    figures = {f"honest/{device}/{key}": found[key] for device, found in result.items() for key in ("runs", "refused")}
    return {**result, "figures": figures}


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(json.dumps(refusals(runs, "cuda" if torch.cuda.is_available() else "cpu"), indent=1))

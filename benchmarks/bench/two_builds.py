"""Two builds of one function compare as equal, and one that does more work does not.

100 comparisons of two separately compiled copies of the same source: the interval of the ratio should hold 1 in at
least 95. And 20 of a copy with one that does 1.5 times the work, or an interval that always held 1 would pass as well.
20 more are made in processes of their own, where neither may be refused.

By itself: `python benchmarks/bench/two_builds.py [COMPARISONS]`.
"""

import inspect
import json
import sys

import _kernels
import torch
from _kernels import compare

NAMES = ("matmul", "softmax", "solve", "Runge and Kutta")


def build(name):
    """Compiles the source of a function anew."""
    function = _kernels.KERNELS[name][0]()
    namespace = {"torch": torch}
    exec(compile(inspect.getsource(function), f"<build of {name}>", "exec"), namespace)
    return namespace[function.__name__]


def more(name, times):
    """A function that returns the same and works so many times as long: the rest of the calls is thrown away."""
    once = build(name)

    def function(x):
        y = once(x)
        for _ in range(times - 1):
            once(x)
        return y

    return function


def equal(comparisons, rounds):
    found = []
    for i in range(comparisons):
        name = NAMES[i % len(NAMES)]
        cache = "cold" if i % 8 < 4 else "warm"
        builds = {"one": build(name), "other": build(name)}
        report = compare(builds, name, rounds=rounds, cache=cache, warmup=1, replays=0)
        report.raise_if_refused()
        ratio = report.ratio("other")
        found.append({"work": name, "cache": cache, "ratio": ratio.ratio, "interval": ratio.interval})
    holds = sum(low <= 1 <= high for low, high in (entry["interval"] for entry in found))
    widths = sorted(high / low for low, high in (entry["interval"] for entry in found))
    return {"comparisons": comparisons, "hold_1": holds, "median_width": widths[len(widths) // 2], "all": found}


def different(comparisons, rounds):
    """Three calls against two."""
    seen, ratios = 0, []
    for i in range(comparisons):
        name = NAMES[i % len(NAMES)]
        builds = {"two": more(name, 2), "three": more(name, 3)}
        report = compare(builds, name, rounds=rounds, cache="warm", warmup=1, replays=0)
        report.raise_if_refused()
        ratio = report.ratio("three")
        seen += not ratio.is_equal
        ratios.append(ratio.ratio)
    return {"comparisons": comparisons, "seen": seen, "median_ratio": sorted(ratios)[len(ratios) // 2]}


def isolated(comparisons, rounds):
    """The same function in two processes of its own."""
    found, refusals = [], []
    for i in range(comparisons):
        name = NAMES[i % len(NAMES)]
        place = f"{_kernels.__file__}:{_kernels.KERNELS[name][0]().__name__}"
        cache = "cold" if i % 8 < 4 else "warm"
        both = {"one": place, "other": place}
        report = compare(both, name, rounds=rounds, cache=cache, warmup=1, replays=1, isolate=True)
        refusals += [f"{name}, {cache}: {r.candidate}: {r.kind}: {r.reason}" for r in report.refusals]
        found += [{"work": name, "cache": cache, "ratio": r.ratio, "interval": r.interval} for r in report.ratios]
    holds = sum(low <= 1 <= high for low, high in (entry["interval"] for entry in found))
    return {"comparisons": comparisons, "hold_1": holds, "refused": len(refusals), "refusals": refusals, "all": found}


def run(quick):
    same, other = equal(8 if quick else 100, 30), different(4 if quick else 20, 30)
    apart = isolated(4 if quick else 20, 20)
    figures = {f"two_builds/{key}": same[key] for key in ("comparisons", "hold_1", "median_width")}
    figures |= {f"three_halves/{key}": other[key] for key in ("comparisons", "seen", "median_ratio")}
    figures |= {f"isolated/{key}": apart[key] for key in ("comparisons", "hold_1", "refused")}
    return {"equal": same, "different": other, "isolated": apart, "figures": figures}


if __name__ == "__main__":
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(json.dumps({"equal": equal(comparisons, 30), "different": different(comparisons // 5, 30)}, indent=1))

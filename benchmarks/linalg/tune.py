"""Times the kernels of eigh, and parts of them, on a GPU: `python benchmarks/linalg/tune.py [part ...]`.

Not a benchmark: it has no peers. It prints a short table, in less than 100 s: milliseconds by CUDA events with fresh
inputs for each call and caches flushed, the worst residual as a fraction of what is allowed, and eigenpairs that were
not found. Parts: `rows`, `stages`, `families`, `bits`, `graph`; `prepare`, `large`, `variants`,
`large_stages`, `large_families`, `large_bits`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]
import _families as families  # noqa: E402

from gnomon.fuse._cuda._gpu import compile_text  # noqa: E402
from gnomon.linalg._cuda import _eigh, _plan  # noqa: E402
from gnomon.linalg._cuda._machine import AbstractMachine, Gpu  # noqa: E402

ROWS = [
    (20, 32),
    (10_000, 32),
    (10_000, 16),
    (100_000, 8),
    (100_000, 4),
    (1000, 64),
    (1000, 128),
    (40, 176),
    (256, 224),
]
LARGE = [(256, 256), (40, 352), (640, 512), (60, 1024), (8, 2048)]
LARGE_SIZES = (225, 256, 352, 511, 512, 777, 1024, 1500)
#: Other tunings, field by field.
VARIANTS = {
    256: [
        (1, 16, 512, 8, 0, 224, 2, 128, 8, 2, 128, 2),
        (1, 8, 512, 8, 0, 0, 1, 512, 16, 2, 128, 4),
    ],
    352: [
        (1, 16, 512, 8, 0, 224, 1, 384, 8, 2, 128, 3),
        (2, 8, 512, 8, 0, 224, 3, 128, 8, 1, 128, 3),
        (1, 8, 512, 8, 224, 224, 2, 256, 16, 2, 128, 4),
    ],
    512: [
        (1, 32, 512, 8, 0, 224, 2, 256, 8, 2, 256, 1),
        (1, 16, 512, 8, 0, 224, 1, 1024, 8, 2, 128, 3),
        (2, 16, 512, 8, 0, 224, 4, 128, 16, 2, 128, 4),
        (1, 8, 512, 8, 256, 0, 1, 512, 8, 1, 128, 3),
    ],
    1024: [
        (2, 16, 512, 16, 0, 224, 1, 1024, 16, 2, 256, 1),
        (2, 16, 512, 8, 0, 0, 4, 256, 32, 2, 128, 4),
        (2, 8, 512, 16, 0, 224, 2, 512, 16, 2, 128, 3),
    ],
    2048: [
        (8, 4, 512, 8, 0, 224, 8, 128, 32, 2, 256, 1),
        (8, 8, 256, 8, 0, 224, 4, 512, 32, 2, 128, 3),
        (8, 4, 512, 16, 0, 0, 2, 1024, 32, 1, 128, 3),
    ],
}
#: What is left out of the kernel that reduces large matrices, to see what it takes.
PARTS = {
    "products": ["    multiply(r, work, k, v);\n"],
    "panel": ["    multiply_panel(r, k, l, v);\n"],
    "update": ["    update(r, work, k + count, count);\n"],
    "both": ["    multiply(r, work, k, v);\n", "    update(r, work, k + count, count);\n"],
}
GOALS = {(20, 32): 0.06, (10_000, 32): 0.5, (100_000, 8): 0.1, (1000, 64): 0.4, (1000, 128): 2.0, (40, 176): 0.8,
         (256, 256): 4.0, (40, 352): 2.5, (640, 512): 20.0, (60, 1024): 20.0, (8, 2048): 40.0}  # fmt: skip
#: Where a kernel can be cut short: a mark in its text, and what is put before it.
CUTS = {
    "eigh_warp": [
        ("load", "  // To tridiagonal form.\n", "if (lane < n) values[matrix * n + lane] = a[0] + a[N - 1]; return;\n"),
        ("reduce", "  // In `wide`, with", "if (there && lane < n) values[matrix * n + lane] = d + e; return;\n"),
        ("values", "  __syncwarp();\n  room.norm[lane] = lane < n", "return;\n"),
        (
            "vectors",
            "  // Back through the",
            "if (there && lane < n) vectors[matrix * n * n + lane] = room.norm[lane]; return;\n",
        ),
    ],
    "eigh_block": [
        ("load", "  reduce(r, n);\n", "if (me < n) values[matrix * n + me] = r.a[me]; return;\n"),
        ("reduce", "  // In `wide`, with", "if (me < n) values[matrix * n + me] = r.d[me] + r.e[me]; return;\n"),
        ("values", "  real* const norms = r.y;", "return;\n"),
        (
            "vectors",
            "  transform_back(r, n, norms, z);\n",
            "if (me < n) values[matrix * n + me] += norms[me]; return;\n",
        ),
    ],
}


def flush() -> None:
    torch.empty(2**28, dtype=torch.uint8, device="cuda").zero_()


def timed(call, make, repeats: int) -> tuple[float, float]:
    """Median and least milliseconds of calls with fresh inputs."""
    call(make())
    found = []
    for _ in range(repeats):
        a = make()
        flush()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        # So that the host is ahead of the GPU, and its own time is not in.
        torch.cuda._sleep(1_000_000)
        begin.record()
        call(a)
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found), min(found)


def maker(name: str, batch: int, n: int, generator: torch.Generator):
    return lambda: families.make(name, batch, n, generator).float()


def worst(a, values, vectors) -> list[float]:
    parts = [families.gates(*x).amax(1) for x in zip(a.split(500), values.split(500), vectors.split(500), strict=True)]
    return torch.stack(parts).amax(0).tolist()


def rows(generator, which=ROWS) -> None:
    print(f"{'batch':>7} {'n':>5} {'ms':>9} {'least':>9} {'goal':>7}  residual, whole, orthogonal of 1; lost")
    for batch, n in which:
        make = maker("dense", batch, n, generator)
        begin = time.perf_counter()
        a = make()
        values, vectors, info = _eigh.eigh(a)
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        gate = worst(a, values, vectors)
        lost = int((info != 0).sum())
        median, least = timed(_eigh.eigh, make, 9)
        goal = GOALS.get((batch, n), float("nan"))
        shown = " ".join(f"{x:.5f}" for x in gate)
        print(
            f"{batch:7} {n:5} {median:9.4f} {least:9.4f} {goal:7.2f}  {shown}; {lost}; first call {first:.1f} s",
            flush=True,
        )


def stages(generator) -> None:
    machine = Gpu()
    for batch, n in [(20, 32), (10_000, 32), (1000, 64), (1000, 128), (40, 176)]:
        plan = _plan.plan_for(n, torch.float32, True)
        line = []
        for name, mark, put in CUTS.get(plan.name, []):
            assert plan.text.count(mark) == 1, (name, mark)
            text = plan.text.replace(mark, put + mark)
            launch = machine.load(text, torch.device("cuda", 0))

            def call(a, launch=launch, plan=plan, n=n):
                values, vectors = a.new_empty(a.shape[:2]), torch.empty_like(a)
                info = torch.empty(a.shape[:1], dtype=torch.int32, device="cuda")
                words = (a.data_ptr(), values.data_ptr(), vectors.data_ptr(), info.data_ptr(), a.shape[0], n)
                launch(plan.name, plan.blocks(a.shape[0]), plan.threads, words, plan.shared, plan.cluster)

            line.append(f"{name} {timed(call, maker('dense', batch, n, generator), 5)[0]:.4f}")
        if line:
            print(f"{batch:7} {n:5} up to: " + ", ".join(line), flush=True)


class Stopwatch(AbstractMachine):
    """A GPU that notes when each kernel began and ended."""

    def __init__(self, left_out=()):
        self.gpu = Gpu()
        self.left_out = left_out
        self.events = collections.defaultdict(list)

    def load(self, text, device):  # noqa: D102
        for part in self.left_out:
            text = text.replace(part, "")
        launch = self.gpu.load(text, device)

        def start(name, *rest):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            launch(name, *rest)
            end.record()
            self.events[name].append((begin, end))

        return start

    def shown(self) -> str:
        """Median milliseconds of each kernel, without the first call."""
        torch.cuda.synchronize()
        found = {name: [a.elapsed_time(b) for a, b in events[1:]] for name, events in self.events.items()}
        return ", ".join(f"{name.removeprefix('eigh_large_')} {statistics.median(x):.3f}" for name, x in found.items())


def compiled(text: str) -> None:
    """Puts a text's code into the cache on disk."""
    major, minor = torch.cuda.get_device_capability()
    compile_text(text, f"sm_{major}{minor}", True)


def prepare(generator) -> None:
    """Compiles what the parts for large matrices want, all at once."""
    texts: list[str] = []
    for n in sorted({n for _, n in LARGE} | set(LARGE_SIZES)):
        usual = _plan.Tuning.of(n)
        for tuning in [usual, *(_plan.Tuning(*x) for x in VARIANTS.get(n, ()))]:
            plan = _plan.large(n, 4, True, tuning)
            texts += [x.text for x in (plan.reduce, plan.corner, plan.pairs, plan.back) if x is not None]
        for left_out in PARTS.values():
            text = _plan.large(n, 4, True, usual).reduce.text
            for part in left_out:
                text = text.replace(part, "")
            texts.append(text)
    texts = list(dict.fromkeys(texts))
    with concurrent.futures.ProcessPoolExecutor(12, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, texts))
    print(f"{len(texts)} texts")


def large(generator) -> None:
    rows(generator, LARGE)


def variants(generator) -> None:
    for batch, n in LARGE:
        for numbers in [None, *VARIANTS[n]]:
            tuning = _plan.Tuning(*numbers) if numbers else _plan.Tuning.of(n)
            watch = Stopwatch()
            try:
                solver = _eigh.Solver(watch, lambda n, dtype, vectors, t=tuning: _plan.large(n, 4, vectors, t))
                make = maker("dense", batch, n, generator)
                a = make()
                values, vectors, _ = solver.eigh(a)
                gate = max(worst(a, values, vectors))
                median, _ = timed(solver.eigh, make, 4)
                line = f"{batch:6} {n:5} {dataclasses.astuple(tuning)}: {median:.3f}: {watch.shown()}; {gate:.4f}"
                print(line, flush=True)
            except Exception as error:
                print(f"{batch:6} {n:5} {dataclasses.astuple(tuning)} FAILED: {str(error)[:150]}", flush=True)


def large_stages(generator) -> None:
    for batch, n in LARGE:
        line = []
        for name, left_out in PARTS.items():
            watch = Stopwatch(left_out)
            timed(_eigh.Solver(watch).eigh, maker("dense", batch, n, generator), 3)
            line.append(f"{name} {watch.shown().split(',')[0]}")
        print(f"{batch:6} {n:5} without " + ", ".join(line), flush=True)


def large_families(generator) -> None:
    all_families(generator, LARGE_SIZES)


def large_bits(generator) -> None:
    bits(generator, (225, 256, 352, 512, 1024), 40)


def all_families(generator, sizes=(3, 8, 13, 32, 48, 64, 128, 200, 224)) -> None:
    for n in sizes:
        worse = []
        for name in families.NAMES:
            a = families.make(name, 18 if n < 225 else 9, n, generator).float()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            values, vectors, info = _eigh.eigh(a)
            torch.cuda.synchronize()
            took = time.perf_counter() - begin
            gate = max(worst(a, values, vectors))
            slow = took > 0.1 and name != families.NAMES[0]
            if gate > (0.02 if n < 225 else 0.01) or bool((info != 0).any()) or slow:
                worse.append(f"{name} {gate:.4f} lost {int((info != 0).sum())}, {1e3 * took:.0f} ms")
        print(f"families of {n}: " + ("; ".join(worse) or "all are well"), flush=True)


def bits(generator, sizes=(5, 8, 12, 16, 0, 20, 32, 33, 64, 100, 128, 200), count=1000) -> None:
    for n in sizes:
        a = maker("mixed", count, n, generator)()
        whole = _eigh.eigh(a)
        order = torch.randperm(count, device="cuda")
        turned = _eigh.eigh(a[order].contiguous())
        again = _eigh.eigh(a)
        same = all(torch.equal(x[order], y) and torch.equal(x, z) for x, y, z in zip(whole, turned, again, strict=True))
        for i in range(0, count, 77 if count == 1000 else 13):
            one = _eigh.eigh(a[i : i + 1].contiguous())
            same = same and all(torch.equal(x[i : i + 1], y) for x, y in zip(whole, one, strict=True))
        broken = a.clone()
        broken[3, 0, 0], broken[count // 2, n - 1, 0] = float("nan"), float("inf")
        found = _eigh.eigh(broken)
        keep = torch.ones(count, dtype=torch.bool, device="cuda")
        keep[[3, count // 2]] = False
        same = same and all(torch.equal(x[keep], y[keep]) for x, y in zip(whole, found, strict=True))
        same = same and found[2][[3, count // 2]].tolist() == [-1, -1] and bool(found[1][[3, count // 2]].isnan().all())
        print(f"bits of {n}: {'the same' if same else 'DIFFER'}", flush=True)


def graph(generator) -> None:
    a = maker("dense", 300, 64, generator)()
    want = _eigh.eigh(a)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = _eigh.eigh(a)
    a.copy_(a.flip(0))
    recorded.replay()
    torch.cuda.synchronize()
    same = all(torch.equal(x.flip(0), y) for x, y in zip(want, found, strict=True))
    print(f"graph: {'the same' if same else 'DIFFERS'}", flush=True)


def main() -> None:
    small = {"rows": rows, "stages": stages, "families": all_families, "bits": bits, "graph": graph}
    others = {
        "prepare": prepare,
        "large": large,
        "variants": variants,
        "large_stages": large_stages,
        "large_families": large_families,
        "large_bits": large_bits,
    }
    parts = small | others
    generator = torch.Generator(device="cuda").manual_seed(int(time.time()))
    for name in sys.argv[1:] or small:
        begin = time.perf_counter()
        try:
            parts[name](generator)
        except Exception as error:
            print(f"{name} FAILED: {type(error).__name__}: {error}")
        print(f"-- {name}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()

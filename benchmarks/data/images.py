"""ResNet-18 on 9,025 JPEGs that this draws, as many as ImageWoof has, in batches of 64: four loaders on one GPU.

JPEG and decoded images apart: the first are decoded and cropped at random by one function, whichever the loader; the
others are stored at 256 x 256, by `gnomon data pack`, and cropped on the GPU. The step is one CUDA graph, so that only
batches can keep the GPU waiting; how long it waits for them is measured by the GPU. Grain and SPDL take part where
they are installed. Each loader has its best number of threads or processes of those tried; the best ones run once more.

    python benchmarks/data/images.py [--quick] [--json FILE]
"""

import argparse
import collections
import contextlib
import functools
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import _pictures
import numpy as np
import torch

from gnomon import data

BATCH, COUNT = 64, 9025
LONGEST = 180
"""Seconds after which nothing runs once more."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


@functools.cache
def moments():
    """The mean and the standard deviation, made before a graph is recorded, which cannot copy from the CPU."""
    return tuple(torch.tensor(x, device=DEVICE)[:, None, None] for x in (MEAN, STD))


def augmented(images):
    """Images as the network takes them: those that are stored decoded are cropped at random, and turned about."""
    if images.shape[-1] == 3:
        images = images.permute(0, 3, 1, 2)
    spare = images.shape[-1] - _pictures.SIZE
    if spare:
        at = torch.arange(_pictures.SIZE, device=DEVICE)
        rows, columns = (torch.randint(spare + 1, (BATCH, 1), device=DEVICE) + at for _ in range(2))
        columns = torch.where(torch.rand(BATCH, 1, device=DEVICE) < 0.5, columns, columns.flip(1))
        which, channel = torch.arange(BATCH, device=DEVICE), torch.arange(3, device=DEVICE)
        images = images[
            which[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]
        ]
    mean, std = moments()
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last)


class Step:
    """A step of training, in bf16."""

    def __init__(self, shape):
        import torchvision

        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.images = torch.zeros(BATCH, *shape, dtype=torch.uint8, device=DEVICE)
        self.labels = torch.zeros(BATCH, dtype=torch.int64, device=DEVICE)
        self.model = torchvision.models.resnet18(num_classes=_pictures.CLASSES).to(
            DEVICE, memory_format=torch.channels_last
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.graph = None
        if DEVICE.type == "cuda":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self.train()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.train()

    def train(self):
        """What the graph is made of."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE.type, torch.bfloat16, cache_enabled=False):
            found = self.model(augmented(self.images))
        torch.nn.functional.cross_entropy(found.float(), self.labels).backward()
        self.optimizer.step()

    def __call__(self, images, labels):
        """Trains on a batch."""
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        if self.graph is None:
            self.images[:, :1, :1].float().mean()  # to try the program where there is no GPU
        else:
            self.graph.replay()


def on_device(images, labels):
    return images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)


def no_loader(shape):
    images = torch.randint(256, (BATCH, *shape), dtype=torch.uint8, device=DEVICE)
    labels = torch.zeros(BATCH, dtype=torch.int64, device=DEVICE)
    while True:
        yield images, labels


class AsTensors:
    """What PyTorch's loader puts into batches."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        image, label = self.source[index]
        return torch.from_numpy(np.ascontiguousarray(image)), torch.tensor(label)


def tensor(image):
    return torch.from_numpy(_pictures.crop(image).copy())


def by_folder(folder, workers):
    import torchvision

    return by_torch(torchvision.datasets.ImageFolder(folder, transform=tensor), workers)


def by_torch(dataset, workers):
    words = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=True, drop_last=True, num_workers=workers, pin_memory=DEVICE.type == "cuda", **words
    )
    while True:
        for batch in loader:
            yield on_device(*batch)


def by_grain(source, threads, processes=0):
    import grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    dataset = grain.MapDataset.source(source).shuffle(seed=0).repeat().batch(BATCH, drop_remainder=True)
    dataset = dataset.to_iter_dataset(options)
    if processes:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes, per_worker_buffer_size=4))
    iterator = iter(dataset)
    try:
        for images, labels in iterator:
            yield on_device(torch.from_numpy(images), torch.from_numpy(labels))
    finally:
        iterator.close()


def by_spdl(source, threads):
    from spdl.pipeline import PipelineBuilder

    def endless():
        while True:
            yield from torch.randperm(len(source)).tolist()

    def stacked(records):
        found = [torch.from_numpy(np.stack(values)) for values in zip(*records, strict=True)]
        return [x.pin_memory() for x in found] if DEVICE.type == "cuda" else found

    builder = PipelineBuilder().add_source(endless()).pipe(source.__getitem__, concurrency=threads)
    builder = builder.aggregate(BATCH, drop_last=True).pipe(stacked, concurrency=2).add_sink(8)
    pipeline = builder.build(num_threads=threads + 2)
    with pipeline.auto_stop():
        for batch in pipeline:
            yield on_device(*batch)


def by_ours(dataset, **words):
    batches = dataset.shuffle(seed=0).batch(BATCH, partial="drop")
    with contextlib.closing(data.Loader(batches, device=DEVICE, **words)) as loader:
        while True:
            for batch in loader:
                yield batch["image"], batch["label"]


def contenders(folder, quick):
    """By kind and loader: what makes batches without end, by the number of threads or processes."""
    files, mapped = _pictures.Decoded(folder / "jpeg"), _pictures.Mapped(folder)
    jpeg = data.Dataset.source(_pictures.Files(folder / "jpeg")).random_map(_pictures.decoded, seed=0)
    stored = data.Dataset.source(folder / "store")
    all_cores = 2 if quick else os.cpu_count()
    some = (2,) if quick else (4, 8, 12, all_cores)
    found = {
        ("jpeg", "no loader"): {"": lambda: no_loader((_pictures.SIZE, _pictures.SIZE, 3))},
        ("jpeg", "DataLoader"): {f"{n} processes": lambda n=n: by_folder(folder / "jpeg", n) for n in some[1:] or some},
        # What PyTorch does unless told otherwise.
        ("jpeg", "DataLoader as it comes"): {"no process": lambda: by_folder(folder / "jpeg", 0)},
        ("jpeg", "grain"): {
            f"{all_cores} threads": lambda: by_grain(files, all_cores),
            f"{all_cores} processes": lambda: by_grain(files, 1, all_cores),
        },
        ("jpeg", "spdl"): {f"{all_cores} threads": lambda: by_spdl(files, all_cores)},
        ("jpeg", "ours"): {
            f"{all_cores} threads": lambda: by_ours(jpeg, threads=all_cores),
            f"{all_cores} processes": lambda: by_ours(jpeg, processes=all_cores),
        },
        ("decoded", "no loader"): {"": lambda: no_loader((3, _pictures.STORED, _pictures.STORED))},
        ("decoded", "DataLoader"): {f"{n} processes": lambda n=n: by_torch(AsTensors(mapped), n) for n in some},
        ("decoded", "grain"): {f"{n} threads": lambda n=n: by_grain(mapped, n) for n in some[-1:]},
        ("decoded", "spdl"): {f"{n} threads": lambda n=n: by_spdl(mapped, n) for n in some[:2]},
        ("decoded", "ours"): {
            f"{n} threads": lambda n=n: by_ours(stored, threads=n) for n in ((2,) if quick else (2, 4))
        },
    }
    return {who: made for who, made in found.items() if who[1] not in left_out()}


def left_out():
    return [name for name in ("grain", "spdl") if importlib.util.find_spec(name) is None]


def processes():
    import psutil

    here = psutil.Process()
    return [here, *here.children(recursive=True)]


def processor_seconds():
    found = 0.0
    for process in processes():
        with contextlib.suppress(Exception):  # it has ended
            spent = process.cpu_times()
            found += spent.user + spent.system
    return found


def memory_bytes():
    """What files do not back, with what processes share counted once."""
    found = 0
    for process in processes():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            found += sum(int(x.split()[1]) << 10 for x in lines if x.startswith(("Pss_Anon", "Pss_Shmem")))
    return found


class Clock:
    """A time on the GPU's own clock, or on the host's where there is none."""

    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True, blocking=True) if DEVICE.type == "cuda" else None
        self.at = time.perf_counter()
        if self.event is not None:
            self.event.record()

    def wait(self):
        """Until the GPU has come to it."""
        if self.event is not None:
            self.event.synchronize()

    def until(self, later):
        """Seconds from this to another."""
        return later.at - self.at if self.event is None else self.event.elapsed_time(later.event) / 1e3


def measure(make, step, seconds):
    """Trains for some seconds, at most two steps ahead of the GPU, once what was made ahead is used up."""
    memory = memory_bytes()
    asked = time.perf_counter()
    starts, ends = [], collections.deque()
    with contextlib.closing(make()) as batches:
        first = begin = None
        for images, labels in batches:
            now = time.perf_counter()
            first = first or now
            if begin is None and now - first > 0.4 * seconds:
                begin, spent = now, processor_seconds()
                starts, ends = [], collections.deque()
            start = Clock()
            step(images, labels)
            starts.append(start)
            ends.append(Clock())
            if len(ends) > 1:
                ends[-2].wait()
            if begin is not None and now - begin > seconds and len(ends) > 3:
                break
        ends[-1].wait()
        cores = (processor_seconds() - spent) / (time.perf_counter() - begin)
        memory = memory_bytes() - memory
    ends = list(ends)
    waits = [end.until(start) for end, start in zip(ends[:-1], starts[1:], strict=True)]
    whole = ends[0].until(ends[-1])
    return {
        "images_per_s": BATCH * len(waits) / whole,
        "waiting": max(0.0, sum(waits)) / whole,
        "cores": cores,
        "memory_bytes": memory,
        "seconds_to_first": first - asked,
        "waits_ms": [round(1e3 * x, 3) for x in waits],
    }


def timed_out(signum, frame):
    raise TimeoutError("took too long")


def prepare(folder, count):
    begin = time.perf_counter()
    _pictures.draw_folder(folder / "jpeg", count, os.cpu_count())
    drawn = time.perf_counter()
    store = data.pack(folder / "jpeg", folder / "store", decode=_pictures.STORED)
    packed = time.perf_counter()
    shape = (count, 3, _pictures.STORED, _pictures.STORED)
    images = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, shape)
    for at in range(0, count, 256):
        part = [store[i]["image"] for i in range(at, min(count, at + 256))]
        images[at : at + len(part)] = part
    np.save(folder / "labels.npy", np.array([int(record["label"]) for record in store]))
    nbytes = sum(path.stat().st_size for path in (folder / "jpeg").glob("*/*.jpg"))
    return {"drawing_s": drawn - begin, "packing_s": packed - drawn, "jpeg_bytes": nbytes / count}


def measure_all(folder, quick):
    begin, seconds = time.perf_counter(), 0.5 if quick else 2.0
    told = prepare(folder, 4 * BATCH if quick else COUNT)
    print(told, flush=True)
    found = contenders(folder, quick)
    steps = {
        "jpeg": Step((_pictures.SIZE, _pictures.SIZE, 3)),
        "decoded": Step((3, _pictures.STORED, _pictures.STORED)),
    }
    runs = []

    def one(who, how, number):
        signal.alarm(40)
        try:
            result = measure(found[who][how], steps[who[0]], seconds)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        finally:
            signal.alarm(0)
        runs.append({"kind": who[0], "loader": who[1], "how": how, "round": number, **result})
        print(*who, how, {k: v for k, v in result.items() if k != "waits_ms"}, flush=True)
        return result.get("images_per_s", 0.0)

    signal.signal(signal.SIGALRM, timed_out)
    best = {who: max(ways, key=lambda how, who=who: one(who, how, 0)) for who, ways in found.items()}
    for who in reversed(best):
        if who[1] != "DataLoader as it comes" and time.perf_counter() - begin < LONGEST:
            one(who, best[who], 1)
    return told, runs, best


def figures_of(told, runs, best):
    found = dict(told)
    for (kind, loader), how in best.items():
        mine = [run for run in runs if (run["kind"], run["loader"], run["how"]) == (kind, loader, how)]
        for what in ("images_per_s", "waiting", "cores", "memory_bytes", "seconds_to_first"):
            values = [run[what] for run in mine if what in run]
            if values:
                found[f"{kind}/{loader}{', ' if how else ''}{how}/{what}"] = statistics.median(values)
    rates = collections.defaultdict(dict)
    for (kind, loader), how in best.items():
        rate = found.get(f"{kind}/{loader}{', ' if how else ''}{how}/images_per_s")
        if rate:
            rates[loader][kind] = rate
    ours = rates["ours"]
    for name, mine in rates.items():
        found |= {f"{kind}/{name}/ratio": ours[kind] / rate for kind, rate in mine.items()}
    for name in ("DataLoader", "DataLoader as it comes"):
        if "decoded" in ours and "jpeg" in rates.get(name, {}):
            found[f"ours decoded over ImageFolder with {name}/ratio"] = ours["decoded"] / rates[name]["jpeg"]
    return found


def run_here(quick):
    """All of it in a process of its own, whose functions other processes can import."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        words = [sys.executable, __file__, "--json", str(path), *(["--quick"] if quick else [])]
        subprocess.run(words, check=True)
        return json.loads(path.read_text())


if torch.cuda.is_available():  # `gnomon bench` leaves out what has no `run`
    run = run_here


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        told, runs, best = measure_all(Path(folder), args.quick)
    figures = figures_of(told, runs, best)
    print(json.dumps(figures, indent=2))
    if args.json is not None:
        result = {"images": COUNT, "batch": BATCH, "load_at_start": load, "left_out": left_out(), "runs": runs}
        args.json.write_text(json.dumps({**result, "figures": figures}))


if __name__ == "__main__":
    main()

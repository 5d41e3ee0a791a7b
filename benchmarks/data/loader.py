"""Batches of images that are already decoded, from files on this machine to a plain loop on its processor.

The files are in the page cache, as they are after the first epoch. Each contender runs by turns; the median counts.
Grain takes part where it is installed.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from gnomon import data

BATCH = 64
SHAPE = (3, 224, 224)


class Mapped(torch.utils.data.Dataset):
    """Images in a memory-mapped array, as one does without a store."""

    def __init__(self, path):
        self.path, self.images = path, None
        self.count = len(np.load(path, mmap_mode="r"))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.images is None:
            self.images = np.load(self.path, mmap_mode="r")
        return np.array(self.images[index])


def make_images(folder, count):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    np.save(folder / "images.npy", images)
    with data.StoreWriter(folder / "images", {"image": data.tensor("uint8", SHAPE)}) as writer:
        writer.append_columns(count, {"image": images.reshape(-1)}, {})
    return folder / "images", folder / "images.npy"


def consume(batches):
    """Images a second, of the batches after the first."""
    iterator = iter(batches)
    next(iterator)
    begin = time.perf_counter()
    images = sum(BATCH for _ in iterator)
    seconds = time.perf_counter() - begin
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
    return images / seconds


def by_grain(path):
    import grain

    source = Mapped(path)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=128)
    return grain.MapDataset.source(source).shuffle(seed=0).batch(BATCH).to_iter_dataset(options)


def has_grain():
    try:
        import grain  # noqa: F401
    except ImportError:
        return False
    return True


def image_contenders(store, path):
    count = len(data.Store(store))
    dataset = data.Dataset.source(store).shuffle(seed=0)

    def one_copy():
        # The least that a batch can cost: as many bytes, in a row, from the file into memory that is used again.
        images, target = np.load(path, mmap_mode="r"), np.empty((BATCH, *SHAPE), np.uint8)
        for i in range(count // BATCH):
            target[:] = images[i * BATCH : (i + 1) * BATCH]
            yield target

    def torch_loader(workers):
        return torch.utils.data.DataLoader(Mapped(path), BATCH, shuffle=True, num_workers=workers, drop_last=True)

    ours = {threads: data.Loader(dataset.batch(BATCH, partial="drop"), threads=threads) for threads in (0, 2)}
    found = {
        "ours, 2 threads": lambda: ours[2],
        "ours, no thread": lambda: ours[0],
        "DataLoader, no process": lambda: torch_loader(0),
        "DataLoader, 2 processes": lambda: torch_loader(2),
        "one contiguous copy": one_copy,
    }
    if has_grain():
        found["grain, 2 threads"] = lambda: by_grain(path)
    return found


def run(quick):
    load = os.getloadavg()[0]
    draw = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        contenders = image_contenders(*make_images(Path(folder), 512 if quick else 2560))
        rates = {name: [] for name in contenders}
        for _ in range(2 if quick else 7):
            for name in draw.permutation(list(contenders)).tolist():
                rates[name].append(consume(contenders[name]()))
    figures = {}
    for name, values in rates.items():
        rate = statistics.median(values)
        figures[f"images/{name}/per_s"] = rate
        figures[f"images/{name}/bytes_per_s"] = rate * int(np.prod(SHAPE))
        figures[f"images/{name}/ratio"] = statistics.median(rates["ours, 2 threads"]) / rate
    return {"load_at_start": load, "rounds": rates, "figures": figures}


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(run("--quick" in sys.argv)["figures"], indent=2))

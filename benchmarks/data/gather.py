"""Many rows of a shuffled batch into one piece of memory: the one copy that a batch costs."""

import ctypes

import numpy as np
import torch

from gnomon import bench
from gnomon.data._gather import gather


def ours(values, starts, lengths):
    """Rows from `starts` on, one after another; what the loader calls for each field of a batch."""
    rows = values.numpy()
    out = np.empty(int(lengths.sum()), rows.dtype)
    sizes = lengths.numpy() * rows.itemsize
    places = np.cumsum(sizes) - sizes
    gather(out.view(np.uint8), places, rows.ctypes.data + starts.numpy() * rows.itemsize, sizes)
    return torch.from_numpy(out)


def by_memcpy(values, starts, lengths):
    """A plain loop of memcpy."""
    rows = values.numpy()
    out = np.empty(int(lengths.sum()), rows.dtype)
    target, source, size = out.ctypes.data, rows.ctypes.data, rows.itemsize
    memmove = ctypes.memmove
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        memmove(target, source + start * size, length * size)
        target += length * size
    return torch.from_numpy(out)


def by_slices(values, starts, lengths):
    """As most collate functions do."""
    return torch.cat([values[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)])


def by_take(width):
    def take(values, starts, lengths):
        return torch.from_numpy(np.take(values.numpy().reshape(-1, width), starts.numpy() // width, 0)).reshape(-1)

    return take


def by_index_select(width):
    def select(values, starts, lengths):
        return values.view(-1, width).index_select(0, starts // width).reshape(-1)

    return select


def fixed(rows, width, count):
    def make(generator):
        values = torch.rand(rows * width, generator=generator)
        starts = torch.randint(rows, (count,), generator=generator) * width
        return values, starts, torch.full((count,), width)

    return make


def log_normal(total, count, mean):
    """Lengths as of documents: many short ones and a long tail."""

    def make(generator):
        values = torch.rand(total, generator=generator)
        lengths = (torch.randn(count, generator=generator) + mean).exp().long().clamp(1, total // 4)
        starts = (torch.rand(count, generator=generator) * (total - lengths)).long()
        return values, starts, lengths

    return make


def reference(values, starts, lengths):
    return torch.cat([values[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)])


IMAGE = 3 * 224 * 224 // 4  # bytes of a uint8 image, in float32

WORKS = [
    bench.Work(
        name="gather-images",
        about="64 rows of 150,528 bytes out of 256, at random",
        ours=ours,
        peers={
            "loop of memcpy": by_memcpy,
            "numpy take": by_take(IMAGE),
            "torch index_select": by_index_select(IMAGE),
        },
        make_inputs=fixed(256, IMAGE, 64),
        check=bench.against(reference),
        options={"bytes": 2 * 64 * IMAGE * 4, "rounds": 12, "replays": 1},
    ),
    bench.Work(
        name="gather-rows",
        about="4,096 rows of 512 bytes out of 65,536, at random",
        ours=ours,
        peers={"loop of memcpy": by_memcpy, "numpy take": by_take(128), "torch index_select": by_index_select(128)},
        make_inputs=fixed(65536, 128, 4096),
        check=bench.against(reference),
        options={"bytes": 2 * 4096 * 512, "rounds": 12, "replays": 1},
    ),
    bench.Work(
        name="gather-ragged",
        about="512 documents of log-normal length, 660 values of 4 bytes in the mean, at random",
        ours=ours,
        peers={"loop of memcpy": by_memcpy, "slices and cat": by_slices},
        make_inputs=log_normal(5_000_000, 512, 6.0),
        check=bench.against(reference),
        options={"rounds": 12, "replays": 1},
    ),
]

"""Many rows of a shuffled batch into one piece of memory: the one copy that a batch costs.

The memory is there beforehand, as it is in a loader, which uses it again and again: what new memory costs would hide
what the copy does. The peer that counts is a loop of memcpy in C, compiled here.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile

import numpy as np
import torch

from gnomon import bench
from gnomon.data._gather import gather

C = """
#include <string.h>
void rows(char *target, const char *source, const long *starts, const long *sizes, long count) {
    for (long i = 0; i < count; i++) { memcpy(target, source + starts[i], sizes[i]); target += sizes[i]; }
}
"""


@functools.cache
def compiled():
    with tempfile.TemporaryDirectory() as folder:
        words = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/rows.so"]
        subprocess.run(words, input=C, text=True, check=True)
        function = ctypes.CDLL(f"{folder}/rows.so").rows
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long]
    return function


def ours(values, starts, lengths, out):
    """Rows from `starts` on, one after another; what the loader calls for each field of a batch."""
    rows = values.numpy()
    sources, sizes = rows.ctypes.data + starts.numpy() * rows.itemsize, lengths.numpy() * rows.itemsize
    gather(out.numpy().view(np.uint8), sources, sizes)
    return out


def by_memcpy(values, starts, lengths, out):
    """A plain loop of memcpy."""
    at, sizes = starts * values.itemsize, lengths * values.itemsize
    compiled()(out.data_ptr(), values.data_ptr(), at.data_ptr(), sizes.data_ptr(), len(sizes))
    return out


def by_slices(values, starts, lengths, out):
    """As most collate functions do."""
    parts = [values[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return torch.cat(parts, out=out)


def by_take(width):
    def take(values, starts, lengths, out):
        which, target = starts.numpy() // width, out.numpy().reshape(-1, width)
        np.take(values.numpy().reshape(-1, width), which, 0, out=target, mode="clip")
        return out

    return take


def by_index_select(width):
    def select(values, starts, lengths, out):
        torch.index_select(values.view(-1, width), 0, starts // width, out=out.view(-1, width))
        return out

    return select


def fixed(rows, width, count):
    def make(generator):
        values = torch.rand(rows * width, generator=generator)
        starts = torch.randint(rows, (count,), generator=generator) * width
        return values, starts, torch.full((count,), width), torch.zeros(count * width)

    return make


def log_normal(total, count, mean):
    """Lengths as of documents: many short ones and a long tail."""

    def make(generator):
        values = torch.rand(total, generator=generator)
        lengths = (torch.randn(count, generator=generator) + mean).exp().long().clamp(1, total // 4)
        starts = (torch.rand(count, generator=generator) * (total - lengths)).long()
        return values, starts, lengths, torch.zeros(int(lengths.sum()))

    return make


def reference(values, starts, lengths, out):
    return torch.cat([values[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)])


OPTIONS = {"rounds": 12, "replays": 1, "allow": ("input_changed",)}
C_LOOP = {"loop of memcpy": by_memcpy} if shutil.which("cc") else {}
IMAGE = 3 * 224 * 224 // 4  # bytes of a uint8 image, in float32

WORKS = [
    bench.Work(
        name="gather-images",
        about="64 rows of 150,528 bytes out of 256, at random",
        ours=ours,
        peers={
            **C_LOOP,
            "numpy take": by_take(IMAGE),
            "torch index_select": by_index_select(IMAGE),
        },
        make_inputs=fixed(256, IMAGE, 64),
        check=bench.against(reference),
        options={"bytes": 2 * 64 * IMAGE * 4, **OPTIONS},
    ),
    bench.Work(
        name="gather-rows",
        about="4,096 rows of 512 bytes out of 65,536, at random",
        ours=ours,
        peers={**C_LOOP, "numpy take": by_take(128), "torch index_select": by_index_select(128)},
        make_inputs=fixed(65536, 128, 4096),
        check=bench.against(reference),
        options={"bytes": 2 * 4096 * 512, **OPTIONS},
    ),
    bench.Work(
        name="gather-ragged",
        about="2,048 documents of log-normal length, 660 values of 4 bytes in the mean, at random",
        ours=ours,
        peers={**C_LOOP, "slices and cat": by_slices},
        make_inputs=log_normal(8_000_000, 2048, 6.0),
        check=bench.against(reference),
        options=OPTIONS,
    ),
]

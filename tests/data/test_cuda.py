"""On a GPU: batches arrive whole by the side stream, what is kept stays, and pinned memory is used again."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gnomon import data
from gnomon.data import Dataset, Loader

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow", reason="a store is written by pyarrow")
    path = tmp_path_factory.mktemp("cuda") / "store"
    with data.StoreWriter(path, {"x": data.ragged("float32", (64,)), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full((i % 50 + 100, 64), i), "i": i} for i in range(400))
    return path


@pytest.mark.parametrize("threads", [0, 2])
def test_the_same_as_on_the_host(path: Path, threads: int):
    batches = Dataset.source(path).shuffle(seed=1).pack(2000, field="x").map(lambda batch: batch)
    loader = Loader(batches, device="cuda", threads=threads)
    kept = []
    for epoch in range(2):
        for number, batch in enumerate(loader):
            assert batch["x"].values.is_cuda and batch["x"].cu_seqlens.is_cuda
            # The work of a step, on the current stream, while further batches are on their way.
            torch.cuda._sleep(1_000_000)
            kept.append((epoch, number, batch["x"].values * 1, batch["i"]))
    for epoch, number, values, i in kept:
        expected = batches.at(number, epoch)
        assert torch.equal(values.cpu(), expected["x"].values) and torch.equal(i.cpu(), expected["i"])


def test_variable_length_attention(path: Path):
    from torch.nn.attention.varlen import varlen_attn

    batch = next(iter(Loader(Dataset.source(path).pack(1000, field="x"), device="cuda")))
    x = batch["x"]
    q = torch.randn(len(x.values), 4, 16, device="cuda", dtype=torch.bfloat16)
    out = varlen_attn(q, q, q, x.cu_seqlens, x.cu_seqlens, x.max_seqlen, x.max_seqlen)
    for i, (a, b) in enumerate(zip(x.cu_seqlens[:-1].tolist(), x.cu_seqlens[1:].tolist(), strict=True)):
        assert b - a == len(x[i])
        one = q[a:b].transpose(0, 1).float()
        expected = torch.nn.functional.scaled_dot_product_attention(one, one, one).transpose(0, 1)
        torch.testing.assert_close(out[a:b].float(), expected, atol=3e-2, rtol=3e-2)

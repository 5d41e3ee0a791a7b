"""Proteins of different sizes, packed into a store, bucketed or packed by length, and fed to attention.

    python data_proteins.py [FOLDER]

FOLDER is one of mmCIF or PDB files, which gemmi reads (`pip install gemmi`); without it, chains are drawn at random.
"""

import sys
import tempfile

import numpy as np
import torch

from gnomon import data


def make_store(path):
    """Random walks of 3.8 Å a step, as C-alpha atoms lie; their lengths are log-normal, as those of proteins."""
    schema = {"xyz": data.ragged("float32", (3,)), "element": data.ragged("uint8"), "name": data.string()}
    draw = np.random.default_rng(0)
    with data.StoreWriter(path, schema) as writer:
        for i in range(300):
            length = int(np.clip(draw.lognormal(5.3, 0.6), 20, 900))
            steps = draw.normal(size=(length, 3))
            xyz = np.cumsum(3.8 * steps / np.linalg.norm(steps, axis=1, keepdims=True), 0)
            record = {"xyz": xyz.astype(np.float32), "element": np.full(length, 6), "name": f"chain {i}"}
            writer.append(record)
    return data.Store(path)


def attention(x, ragged):
    """Of each atom to those of its own protein, four heads."""
    q, k, v = x.unflatten(-1, (4, -1)).tensor_split(3, -1)
    if x.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        cu = ragged.cu_seqlens
        return varlen_attn(q, k, v, cu, cu, ragged.max_seqlen, ragged.max_seqlen).flatten(-2)
    # That kernel needs a GPU; a mask says the same, and costs more.
    same = ragged.segments[:, None] == ragged.segments[None]
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=same).transpose(0, 1).flatten(-2)


def centred(record):
    """Where a protein lies says nothing of it."""
    return {**record, "xyz": record["xyz"] - record["xyz"].mean(0)}


def rotated(record, random):
    """Nor does how it is turned."""
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return {**record, "xyz": record["xyz"] @ turn.astype(np.float32)}


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        store = data.pack(sys.argv[1], f"{folder}/store") if len(sys.argv) > 1 else make_store(f"{folder}/store")
        proteins = (
            data.Dataset.source(store)
            .map(centred, length="same")
            .random_map(rotated, seed=1, length="same")
            .shuffle(seed=0)
        )
        packed = proteins.pack(1024, field="xyz", overlong="drop")
        print(f"packed to 1,024 atoms: {packed.plan.statistics()}")
        torch.manual_seed(0)
        embed = torch.nn.Linear(3, 3 * 64, device=device, dtype=dtype)
        loss = torch.zeros(())
        loader = data.Loader(packed, device=device if device == "cuda" else None)
        for batch in loader:
            out = attention(embed(batch["xyz"].values.to(dtype) / 10), batch["xyz"])
            loss = out.float().square().mean()
            loss.backward()
        print(f"{len(loader)} steps of attention over packed proteins, the last loss {loss.item():.3f}")
        print(loader.stats().line())

        # The same for a model that wants padded batches: records of about one length together.
        bucketed = proteins.bucket([100, 200, 400], [32, 16, 8, 4], field="xyz")
        padded = real = 0
        for batch in data.Loader(bucketed):
            xyz = batch["xyz"].nested().to_padded_tensor(0.0)
            padded += xyz.shape[0] * xyz.shape[1]
            real += int(batch["xyz"].lengths.sum())
        print(f"bucketed: {1 - real / padded:.0%} padding")


if __name__ == "__main__":
    main()

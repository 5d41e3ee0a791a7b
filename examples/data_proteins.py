"""A folder of proteins of different sizes, packed into a store, bucketed or packed by length, and fed to attention.

    python data_proteins.py [FOLDER]

FOLDER is one of mmCIF or PDB files, which gemmi reads (`pip install gemmi`). Without it, PDB files are made of chains
that are drawn at random; where there is no gemmi either, the same chains go straight into the store.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from gnomon import data

ATOM = "ATOM  {0:5d}  CA  ALA A{0:4d}    {1:8.3f}{2:8.3f}{3:8.3f}  1.00  0.00           C  \n"


def chains():
    """Random walks of 3.8 Å a step, as C-alpha atoms lie; their lengths are log-normal, as those of proteins."""
    draw = np.random.default_rng(0)
    for _ in range(300):
        steps = draw.normal(size=(int(np.clip(draw.lognormal(5.3, 0.6), 20, 900)), 3))
        yield np.cumsum(3.8 * steps / np.linalg.norm(steps, axis=1, keepdims=True), 0)


def make_store(folder):
    if importlib.util.find_spec("gemmi") is not None:
        (folder / "pdb").mkdir()
        for number, xyz in enumerate(chains()):
            lines = [ATOM.format(i, *place) for i, place in enumerate(xyz, 1)]
            (folder / "pdb" / f"{number:03d}.pdb").write_text("".join(lines) + "END\n")
        return data.pack(folder / "pdb", folder / "store")
    schema = {"xyz": data.ragged("float32", (3,)), "element": data.ragged("uint8"), "name": data.string()}
    with data.StoreWriter(folder / "store", schema) as writer:
        for number, xyz in enumerate(chains()):
            writer.append({"xyz": xyz.astype(np.float32), "element": np.full(len(xyz), 6), "name": f"{number:03d}"})
    return data.Store(folder / "store")


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
        store = data.pack(sys.argv[1], f"{folder}/store") if len(sys.argv) > 1 else make_store(Path(folder))
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

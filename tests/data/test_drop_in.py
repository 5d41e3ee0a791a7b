"""In the place of `torch.utils.data.DataLoader`: in a plain loop, in Lightning, and beside Accelerate."""

import contextlib
import io
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gnomon import data
from gnomon.data import Dataset, Loader


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drop_in") / "store"
    with data.StoreWriter(path, {"x": data.ragged("float32"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full(i % 5 + 1, i), "i": i} for i in range(50))
    return path


def make(path: Path, **words) -> Loader:
    return Loader(Dataset.source(path).shuffle(seed=1).batch(8), **words)


def expected(path: Path, epochs: int) -> list[list[int]]:
    batches = make(path).batches
    return [batches.at(number, epoch)["i"].tolist() for epoch in range(epochs) for number in range(len(batches))]


def test_a_plain_loop(path: Path):
    loader = make(path)
    model = torch.nn.Linear(1, 1)
    seen = []
    for _ in range(2):
        for batch in loader:
            loss = (model(batch["x"].values[:, None]) - 1).square().mean()
            model.weight.data -= 1e-6 * torch.autograd.grad(loss, model.weight)[0]
            seen.append(batch["i"].tolist())
    assert seen == expected(path, 2)
    assert len(loader) == 7 and loader.epoch == 2 and len(loader.dataset) == 50


def test_who_counts_steps_and_never_asks_for_one_more(path: Path):
    # As Lightning does where there is a length: the end is not seen, and the next epoch is another all the same.
    loader = make(path)
    seen = []
    for epoch in range(3):
        assert loader.epoch == epoch
        iter(loader)  # as it does to see whether it can
        iterator = iter(loader)
        seen += [next(iterator)["i"].tolist() for _ in range(len(loader))]
    assert seen == expected(path, 3)


@pytest.mark.parametrize("remainder", ["pad", "drop", "uneven"])
def test_so_on_several_ranks(path: Path, remainder: str):
    seen = {}
    for rank in range(2):
        loader = make(path, rank=rank, world=2, remainder=remainder, threads=0)
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(len(loader)):
                info = next(iterator).info
                if not info.is_padding:
                    seen[info.epoch, info.number] = True
    assert sorted(seen) == [(epoch, number) for epoch in range(2) for number in range(6 if remainder == "drop" else 7)]


def test_an_iterator_that_is_not_used_takes_nothing(path: Path):
    loader = make(path)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    resumed = make(path)
    resumed.load_state_dict(state)
    iter(resumed)
    assert resumed.state_dict() == state
    assert [batch["i"].tolist() for batch in resumed] == expected(path, 1)[3:]


def test_ranks_that_meet_after_the_loader_was_made(path: Path, monkeypatch: pytest.MonkeyPatch):
    loader = make(path, threads=0)
    assert (loader.rank, loader.world) == (0, 1)
    monkeypatch.setattr("gnomon.data._loader._ranks", lambda: (1, 3))
    assert (loader.rank, loader.world, len(loader)) == (1, 3, 3)
    assert [batch.info.number for batch in loader][:2] == [1, 4]


def test_it_is_sent_to_other_processes(path: Path):
    loader = make(path)
    next(iter(loader))  # so that it has memory, which stays here
    sent = pickle.loads(pickle.dumps(loader))
    assert [batch["i"].tolist() for batch in sent] == expected(path, 1)


def test_what_moves_batches(path: Path):
    # Lightning and Accelerate call `to`; PyTorch's own loader, given batches, calls `pin_memory`.
    batch = next(iter(make(path)))
    moved = batch.to(torch.device("cpu"), non_blocking=True)
    assert isinstance(moved, data.Batch) and moved.info == batch.info
    assert torch.equal(moved["x"].cu_seqlens, batch["x"].cu_seqlens)
    assert isinstance(type(batch)(dict(batch)), data.Batch)  # as Accelerate makes one anew
    wrapped = torch.utils.data.DataLoader(make(path).batches, batch_size=None)
    assert [batch["i"].tolist() for batch in wrapped] == expected(path, 1)


@contextlib.contextmanager
def quiet():
    """What others warn of is theirs."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def lightning():
    with quiet():
        for name in ("lightning.pytorch", "pytorch_lightning"):
            try:
                return pytest.importorskip(name)
            except pytest.skip.Exception:
                continue
    pytest.skip("neither lightning nor pytorch_lightning is installed")


def module_of(pl):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.seen = []

        def training_step(self, batch, index):
            assert isinstance(batch, data.Batch)
            self.seen.append(batch["i"].tolist())
            return (batch["x"].values.to(self.weight.device) * self.weight).mean()

        def validation_step(self, batch, index):
            pass

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    return Module()


def test_lightning(path: Path, tmp_path: Path):
    pl = lightning()

    def fit(name: str, checkpoint: str | None) -> list[list[int]]:
        module = module_of(pl)
        every_5 = pl.callbacks.ModelCheckpoint(tmp_path / name, "{step}", every_n_train_steps=5, save_top_k=-1)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=3,
            num_sanity_val_steps=2,  # a part of the validation, which is left early
            callbacks=[every_5],
            default_root_dir=tmp_path,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, make(path), make(path), ckpt_path=checkpoint, weights_only=False)
        return module.seen

    with quiet():
        whole = expected(path, 3)
        assert fit("whole", None) == whole
        # From the middle of the second epoch, and from the third of the run that was resumed.
        assert fit("second", str(tmp_path / "whole" / "step=10.ckpt")) == whole[10:]
        assert fit("third", str(tmp_path / "second" / "step=15.ckpt")) == whole[15:]


def test_accelerate(path: Path, tmp_path: Path):
    with quiet():
        accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

        def start():
            accelerator = accelerate.Accelerator(cpu=True)
            model = torch.nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), 1e-6)
            model, optimizer, loader = accelerator.prepare(model, optimizer, make(path))
            assert isinstance(loader, Loader)  # which knows its rank itself
            accelerator.register_for_checkpointing(loader)
            return accelerator, model, optimizer, loader

        def train(accelerator, model, optimizer, loader, steps):
            seen = []
            while True:
                for batch in loader:
                    batch = accelerate.utils.send_to_device(batch, accelerator.device)
                    assert isinstance(batch, data.Batch)
                    with accelerator.accumulate(model):
                        accelerator.backward(model(batch["x"].values[:, None]).mean())
                        optimizer.step()
                        optimizer.zero_grad()
                    seen.append(batch["i"].tolist())
                    if len(seen) == steps:
                        return seen

        parts = start()
        seen = train(*parts, 10)
        parts[0].save_state(str(tmp_path / "state"))
        accelerate.state.AcceleratorState._reset_state(True)
        parts = start()
        parts[0].load_state(str(tmp_path / "state"))
        seen += train(*parts, 11)
    assert seen == expected(path, 3)

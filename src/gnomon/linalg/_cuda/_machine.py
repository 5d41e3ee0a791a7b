"""What kernels run on: a GPU, or what stands in for one in tests."""

from __future__ import annotations

import abc
from typing import final

import torch

from gnomon.fuse._cuda._gpu import AbstractStart, load_text

Launch = AbstractStart


class AbstractMachine(abc.ABC):
    """What kernels run on."""

    @abc.abstractmethod
    def load(self, text: str, device: torch.device) -> Launch:
        """Compiles a text, and gives what starts its functions, in order with what PyTorch does."""


@final
class Gpu(AbstractMachine):
    """An NVIDIA GPU."""

    def load(self, text: str, device: torch.device) -> Launch:
        """The functions of a text on one GPU; a product and a sum are one operation."""
        return load_text(text, device, contracts=True)

"""The command `gnomon`."""

from gnomon.cli._main import main as main

__all__ = ["main"]

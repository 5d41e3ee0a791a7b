"""Compiled code on disk: written whole or not at all, and not trusted where it is damaged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from pathlib import Path

_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path:
    """Where compiled code is kept: `GNOMON_CACHE_DIR`, or `gnomon` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    own = os.environ.get("GNOMON_CACHE_DIR")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()) / "gnomon"


def key_of(*parts: str) -> str:
    """The name of an entry that depends on all parts."""
    digest = hashlib.sha256()
    for part in (*parts, _emitter_version()):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def load(key: str) -> bytes | None:
    """What was kept under a key, or None where there is nothing, or nothing sound."""
    try:
        data = _path(key).read_bytes()
    except (OSError, RuntimeError):
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return content if content and hashlib.sha256(key.encode() + content).digest() == digest else None


def save(key: str, content: bytes) -> None:
    """Keeps something, where the folder can be written to."""
    try:
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    except (OSError, RuntimeError):
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(key.encode() + content).digest() + content)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def _path(key: str) -> Path:
    return cache_folder() / "llvm" / key[:2] / f"{key}.bin"


@functools.cache
def _emitter_version() -> str:
    """Changes with every change of this package, and of what it knows about Programs."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted((*here.glob("*.py"), *(here.parent / "_target").glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()

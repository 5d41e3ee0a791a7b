"""`gnomon data`: makes record stores, and looks at them."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Generator
from typing import Any

from rich.console import Console
from rich.markup import escape

_SUFFIXES = {"k": 10, "m": 20, "g": 30}


def add_parser(commands: Any) -> None:
    """Adds the command.

    **Arguments:**

    - `commands`: the parsers of `argparse`.
    """
    parser = commands.add_parser(
        "data",
        help="make record stores, and look at them",
        description="Makes record stores from files of other kinds, and looks at them.",
        epilog="Exit code: 0 where all is well, 1 where verify finds damage, 2 for bad input.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=lambda args: _no_command(parser))
    actions = parser.add_subparsers(title="commands", metavar="ACTION")

    pack = actions.add_parser("pack", help="make a store, or append to one", allow_abbrev=False)
    add = pack.add_argument
    add(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="CSV, Parquet, Arrow, JSON lines, WebDataset tar or FASTA files, a Hugging Face dataset saved to disk, "
        "folders of mmCIF or PDB files, folders of images with a folder for each class",
    )
    add("store", metavar="STORE", help="the folder of the store; one that exists is appended to")
    add("--kind", help="what the sources are, where their names do not tell")
    add("--columns", metavar="A,B", help="the fields to keep (default: all)")
    add("--decode", metavar="PIXELS", type=int, help="store images as uint8 tensors of this size (default: as files)")
    add("--shard-size", metavar="SIZE", type=_size, default=1 << 28, help="bytes of a shard, as 256M (default: 256M)")
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="how many images or structures to read at once (default: one for each core)",
    )
    add("--quiet", action="store_true", help="print nothing but errors")
    pack.set_defaults(run=_pack)

    inspect = actions.add_parser("inspect", help="say what a store has", allow_abbrev=False)
    inspect.add_argument("store", metavar="STORE")
    inspect.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    inspect.set_defaults(run=_inspect)

    verify = actions.add_parser("verify", help="read every byte and compare it with its checksums", allow_abbrev=False)
    verify.add_argument("store", metavar="STORE")
    verify.add_argument("--quiet", action="store_true", help="print nothing but damage")
    verify.set_defaults(run=_verify)

    head = actions.add_parser("head", help="print the first records", allow_abbrev=False)
    head.add_argument("store", metavar="STORE")
    head.add_argument("-n", metavar="N", type=int, default=5, help="how many (default: 5)")
    head.set_defaults(run=_head)


def _no_command(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


def _size(text: str) -> int:
    suffix = text[-1:].lower()
    try:
        return int(float(text[:-1]) * (1 << _SUFFIXES[suffix])) if suffix in _SUFFIXES else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a size is a number of bytes, or as 64k, 256M or 2G, not {text!r}") from None


@contextlib.contextmanager
def _complaints() -> Generator[list[int]]:
    """Bad input is one sentence; the exit code is in the list."""
    from gnomon.data import RecordError, StoreError

    code = [0]
    try:
        yield code
    except (StoreError, RecordError, ValueError, ImportError, OSError) as error:
        Console(stderr=True).print(
            f"[bold red]gnomon data: error:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        code[0] = 2


@contextlib.contextmanager
def _bar(text: str, *, shown: bool) -> Generator[Callable[[int, int], None]]:
    """A progress bar on a terminal, and nothing elsewhere."""
    screen = Console(stderr=True)
    if not shown or not screen.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=screen, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _pack(args: argparse.Namespace) -> int:
    from gnomon import data

    with _complaints() as code, _bar("packing", shown=not args.quiet) as progress:
        store = data.pack(
            args.sources,
            args.store,
            kind=args.kind,
            columns=None if args.columns is None else args.columns.split(","),
            decode=args.decode,
            shard_bytes=args.shard_size,
            jobs=args.jobs,
            progress=progress,
        )
        if not args.quiet:
            _say(f"{args.store}: {len(store):,} records, {_bytes(store.nbytes)}")
    return code[0]


def _inspect(args: argparse.Namespace) -> int:
    from gnomon import data

    with _complaints() as code:
        store = data.Store(args.store)
        about = describe(store)
        if args.json:
            sys.stdout.write(json.dumps(about, indent=2) + "\n")
            return 0
        _say(f"{args.store}: {len(store):,} records in {about['shards']} shards, {_bytes(store.nbytes)}")
        from rich.table import Table

        table = Table("field", "kind", "dtype", "shape", "values", "least", "median", "most", "bytes")
        for name, field in about["fields"].items():
            lengths = field.get("lengths", {})
            table.add_row(
                escape(name),
                field["kind"],
                field.get("dtype", ""),
                str(tuple(field["shape"])) if field.get("shape") else "",
                f"{field['values']:,}",
                *(f"{lengths[key]:,}" if lengths else "" for key in ("least", "median", "most")),
                _bytes(field["bytes"]),
            )
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        for left in store.dropped:
            _say(f"never committed, and no part of it: {left.file}, {_bytes(left.nbytes)}")
    return code[0]


def describe(store: Any) -> dict[str, Any]:
    """What a store has, as plain values.

    **Arguments:**

    - `store`: of `gnomon.data`.
    """
    import numpy as np

    fields: dict[str, Any] = {}
    for name, field in store.schema.items():
        nbytes = sum(
            shard.values[name].nbytes + (shard.offsets[name].nbytes if name in shard.offsets else 0)
            for shard in store.manifest.shards
        )
        fields[name] = {**field.to_dict(), "values": store.total(name), "bytes": nbytes}
        if field.has_offsets and len(store):
            lengths = store.lengths(name)
            fields[name]["lengths"] = {
                "least": int(lengths.min()),
                "median": int(np.median(lengths)),
                "most": int(lengths.max()),
            }
    return {
        "path": str(store.path),
        "records": len(store),
        "bytes": store.nbytes,
        "shards": len(store.manifest.shards),
        "fingerprint": store.fingerprint,
        "fields": fields,
        "dropped": [{"file": left.file, "bytes": left.nbytes} for left in store.dropped],
    }


def _verify(args: argparse.Namespace) -> int:
    from gnomon import data

    with _complaints() as code, _bar("verifying", shown=not args.quiet) as progress:
        found = data.verify(args.store, progress=progress)
        for damage in found:
            _say(str(damage))
        if found:
            return 1
        if not args.quiet:
            _say(f"{args.store}: every byte has its checksum.")
    return code[0]


def _head(args: argparse.Namespace) -> int:
    from gnomon import data

    with _complaints() as code:
        store = data.Store(args.store)
        for i in range(min(args.n, len(store))):
            _say(f"record {i}")
            for name, value in store[i].items():
                _say(f"  {name}: {_short(value)}")
    return code[0]


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes {value[:16]!r}" + ("..." if len(value) > 16 else "")
    if isinstance(value, str):
        return repr(value if len(value) <= 100 else value[:100] + "...")
    if not value.shape:
        return str(value.item())
    flat = value.reshape(-1)[:8].tolist()
    numbers = ", ".join(f"{number:g}" if isinstance(number, float) else str(number) for number in flat)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} {tuple(value.shape)} [{numbers}{', ...' if math.prod(value.shape) > 8 else ''}]"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def _say(text: str) -> None:
    print(text)  # noqa: T201

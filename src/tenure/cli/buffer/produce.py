"""`tenure buffer produce`: produce lines, or whole files, as entries; it ends once all of them are durable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from tenure.cli.guard import run_guarded
from tenure.cli.main import OK
from tenure.cli.progress import Progress
from tenure.cli.screen import Payload, console_for, document
from tenure.cli.words import count, size
from tenure.errors import Invalid

__all__ = ["run"]

_CALL_BYTES: Final = 1 << 18
_ENTRY_BYTES_MAX: Final = 64 << 20


class Part(NamedTuple):
    """Entries for one call, and the bytes read for all so far."""

    entries: list[bytes]
    read_bytes: int


def run(url: str, files: Sequence[Path], *, whole: bool, metadata: bytes, as_json: bool) -> int:
    """Produce all entries and print their count; returns the exit code."""

    def work() -> int:
        found = _produce(url, files, whole=whole, metadata=metadata)
        if as_json:
            document(found)
        else:
            _show(console_for(), found)
        return OK

    return run_guarded(work, as_json=as_json, spark=False)


def _produce(url: str, files: Sequence[Path], *, whole: bool, metadata: bytes) -> Payload:
    from tenure.buffer.blocking import Producer

    if whole and not files:
        raise Invalid("--whole takes files: name them")
    total = sum(path.stat().st_size for path in files) or None
    parts = _whole(files) if whole else _lines(files)
    entries = read_bytes = 0
    with Producer(url) as producer, Progress("producing", total=total) as progress:
        for part in parts:
            producer.produce(part.entries, metadata)
            entries, read_bytes = entries + len(part.entries), part.read_bytes
            progress.update(read_bytes, f"{size(read_bytes)}, {count(entries, 'entry', 'entries')}")
        producer.flush()
        metrics = producer.metrics
        return {"entries": entries, "bytes": metrics.entry_bytes, "batches": metrics.batches, "url": url}


def _whole(files: Sequence[Path]) -> Iterator[Part]:
    read_bytes = 0
    for path in files:
        if path.stat().st_size > _ENTRY_BYTES_MAX:
            raise Invalid(f"{path} is larger than {_ENTRY_BYTES_MAX:,} bytes: one entry cannot hold it")
        content = path.read_bytes()
        read_bytes += len(content)
        yield Part([content], read_bytes)


def _lines(files: Sequence[Path]) -> Iterator[Part]:
    """Yield the lines of all files, or of standard input, in parts of what one read returns."""
    read_bytes = 0
    sources: list[int | Path] = list(files) or [os.dup(sys.stdin.fileno())]
    for source in sources:
        rest = b""
        with open(source, "rb", buffering=0) as stream:
            while chunk := stream.read(_CALL_BYTES):
                read_bytes += len(chunk)
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > _ENTRY_BYTES_MAX:
                    raise Invalid(f"a line is longer than {_ENTRY_BYTES_MAX:,} bytes: one entry cannot hold it")
                if whole:
                    yield Part([line.removesuffix(b"\r") for line in whole], read_bytes)
        if rest:
            yield Part([rest.removesuffix(b"\r")], read_bytes)


def _show(console: Console, found: Payload) -> None:
    entries, batches = count(found["entries"], "entry", "entries"), count(found["batches"], "batch", "batches")
    console.print(f"{entries} ({size(found['bytes'])}) durable in {batches}")

"""`tenure buffer produce`: produce what is in files as entries; it ends once all of them are durable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from tenure.cli.buffer.importing.source import Reading, Source
from tenure.cli.guard import run_guarded
from tenure.cli.main import OK
from tenure.cli.progress import Progress
from tenure.cli.screen import Payload, console_for, document, note
from tenure.cli.words import count, short, size
from tenure.errors import Invalid, TenureError

if TYPE_CHECKING:
    from tenure.cli.buffer.durable import DurableCount

__all__ = ["Import", "run"]

_SHOWN: Final = 3


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """What is produced: files, or standard input where there are none, and how."""

    files: Sequence[Path]
    reading: Reading
    metadata: bytes = b""
    skip: int = 0
    """Entries at the beginning that an earlier import has made durable."""
    dry_run: bool = False


def run(url: str, wanted: Import, *, as_json: bool) -> int:
    """Produce all entries and print their count; returns the exit code."""

    def work() -> int:
        found = _import(url, wanted)
        if as_json:
            document(found)
        else:
            _show(console_for(), found)
        return OK

    return run_guarded(work, as_json=as_json, spark=False)


def _import(url: str, wanted: Import) -> Payload:
    _check(wanted)
    import_module("tenure.buffer.blocking")  # where its extra is missing, that is said before a file is opened
    with ExitStack() as stack:
        sources = []
        for path in wanted.files or (None,):  # every file is looked at before the first entry is produced
            sources.append(Source(path, wanted.reading))
            stack.callback(sources[-1].close)
        return _counted(wanted, sources) if wanted.dry_run else _produced(url, wanted, sources)


def _check(wanted: Import) -> None:
    reading = wanted.reading
    if reading.whole and not wanted.files:
        raise Invalid("--whole takes files: name them")
    if reading.whole and reading.format is not None:
        raise Invalid("--whole takes files as they are: leave --format out")
    if reading.delimiter is not None and len(reading.delimiter) != 1:
        raise Invalid("--delimiter is one character; for a tab, $'\\t'")


def _counted(wanted: Import, sources: list[Source]) -> Payload:
    """Read everything and produce nothing."""
    first: list[bytes] = []
    total = 0
    walk = _Walk(sources, wanted.skip)
    for entries in walk:
        first += entries[: _SHOWN - len(first)]
        total += sum(map(len, entries))
    shown = [entry.decode("utf-8", "replace") for entry in first]
    return {"dry_run": True, "entries": walk.entries, "bytes": total, **walk.figures(), "first": shown}


def _produced(url: str, wanted: Import, sources: list[Source]) -> Payload:
    from tenure.buffer.blocking import Producer
    from tenure.cli.buffer.durable import DurableCount

    total = sum(path.stat().st_size for path in wanted.files) or None
    walk = _Walk(sources, wanted.skip)
    with Producer(url) as producer, Progress("producing", total=total) as progress:
        durable = DurableCount(producer)
        try:
            for entries in walk:
                durable.produce(entries, wanted.metadata)
                read = sum(source.bytes_read for source in sources)
                progress.update(read, f"{size(read)}, {count(walk.entries, 'entry', 'entries')}")
            durable.finish()
        except (TenureError, OSError) as error:
            raise _ended_early(error, durable, wanted.skip) from error
        except KeyboardInterrupt:
            note(f"interrupted. {_how_to_continue(durable.is_exact(), wanted.skip + durable.count)}")
            raise
        metrics = producer.metrics
        return {
            **{"entries": walk.entries, "bytes": metrics.entry_bytes, "batches": metrics.batches, "url": url},
            **walk.figures(),
        }


class _Walk:
    """The entries of all sources, call by call, and what was counted on the way."""

    def __init__(self, sources: list[Source], skip: int) -> None:
        self._sources = sources
        self._left_out = 0
        self._skip = skip
        self._blank = 0
        self._of_source = [0] * len(sources)

    @property
    def entries(self) -> int:
        return sum(self._of_source) - self._left_out

    def __iter__(self) -> Iterator[list[bytes]]:
        for place, source in enumerate(self._sources):
            for part in source.parts():
                self._blank += part.blank
                self._of_source[place] += len(part.entries)
                known = min(self._skip - self._left_out, len(part.entries))
                self._left_out += known
                if entries := part.entries[known:]:
                    yield entries

    def figures(self) -> Payload:
        files = [
            {"name": source.name, "form": source.form, "entries": entries}
            for source, entries in zip(self._sources, self._of_source, strict=True)
        ]
        return {"blank": self._blank, "skipped": self._left_out, "files": files}


def _ended_early(error: TenureError | OSError, durable: DurableCount, skipped: int) -> TenureError:
    """Return the same error, which says how many entries are durable and how to go on."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        error = Invalid(f"{where}{error.strerror or error}", code="unreadable")
    message = f"{error.message}. {_how_to_continue(durable.is_exact(), skipped + durable.count)}"
    return type(error)(message, code=error.code, **error.detail, durable=skipped + durable.count)


def _how_to_continue(is_exact: bool, durable: int) -> str:
    if is_exact and durable == 0:
        return "Nothing was produced"
    known = f"The first {count(durable, 'entry', 'entries')} {'is' if durable == 1 else 'are'} durable"
    if not is_exact:
        return (
            f"{known}, and some after them may be: look with tenure buffer stat before you repeat with --skip {durable}"
        )
    return f"{known}: repeat the command with --skip {durable} to produce the rest"


def _show(console: Console, found: Payload) -> None:
    entries, total = count(found["entries"], "entry", "entries"), size(found["bytes"])
    if "dry_run" in found:
        text = f"{entries} ({total}) would be produced"
    else:
        text = f"{entries} ({total}) durable in {count(found['batches'], 'batch', 'batches')}"
    if found["blank"]:
        text += f", {count(found['blank'], 'blank line')} skipped"
    if found["skipped"]:
        text += f", {count(found['skipped'], 'entry', 'entries')} left out by --skip"
    console.print(text)
    if "dry_run" in found or any(each["form"] not in ("lines", "one entry") for each in found["files"]):
        for each in found["files"]:
            console.out(
                f"{each['name']}: {each['form']}, {count(each['entries'], 'entry', 'entries')}", highlight=False
            )
    for entry in found.get("first", ()):
        console.out(f"  {short(entry)}", highlight=False)

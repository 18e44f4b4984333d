"""`tenure buffer tail`: print entries as they are committed, independent of any consumer."""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import TYPE_CHECKING, Any, Final

from tenure.cli.guard import run_guarded
from tenure.cli.main import OK
from tenure.cli.screen import line
from tenure.cli.words import clean

if TYPE_CHECKING:
    from tenure.buffer import Batch

__all__ = ["run"]

_POLL_MS: Final = 500


def run(url: str, *, from_seq: int | None, follow: bool, as_json: bool) -> int:
    """Print entries until the end, or until interrupted; returns the exit code."""

    def work() -> int:
        asyncio.run(_print(url, from_seq=from_seq, follow=follow, as_json=as_json))
        return OK

    return run_guarded(work, as_json=as_json, spark=False)


async def _print(url: str, *, from_seq: int | None, follow: bool, as_json: bool) -> None:
    from tenure.buffer import BufferSettings, FetchHandle, entries, stat

    handle = FetchHandle(url)
    if from_seq is None:
        found = await stat(url)
        from_seq = max(found.first_seq, found.next_seq - 1)
    async for descriptor in entries(url, from_seq, settings=BufferSettings(poll_ms=_POLL_MS), follow=follow):
        _show(await handle.fetch(descriptor), as_json=as_json)


def _show(batch: Batch, *, as_json: bool) -> None:
    for index, entry in enumerate(batch.entries):
        if as_json:
            line({"seq": batch.seq, "index": index, **_entry_fields(entry)})
        else:
            print(clean(entry.decode("utf-8", "replace")))
    sys.stdout.flush()


def _entry_fields(entry: bytes) -> dict[str, Any]:
    """Return an entry for JSON: as text where it is UTF-8, else in base64."""
    try:
        return {"entry": entry.decode()}
    except UnicodeDecodeError:
        return {"entry_base64": base64.b64encode(entry).decode()}

"""`tenure buffer tail`: entries as they are committed, read past every consumer."""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import TYPE_CHECKING, Any, Final

from tenure.cli.main import OK
from tenure.cli.remote import exit_code
from tenure.cli.screen import line, refuse
from tenure.cli.words import clean
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.buffer import Batch

__all__ = ["run"]

_POLL_S: Final = 0.5


def run(url: str, *, from_seq: int | None, follow: bool, as_json: bool) -> int:
    """Print until the end, or until interrupted; returns the exit code."""
    try:
        asyncio.run(_print(url, from_seq=from_seq, follow=follow, as_json=as_json))
    except (TenureError, OSError) as error:
        return refuse(error, exit_code(error), as_json=as_json)
    return OK


async def _print(url: str, *, from_seq: int | None, follow: bool, as_json: bool) -> None:
    from tenure.buffer import FetchHandle, entries, stat

    handle = FetchHandle(url)
    found = await stat(url)
    following = from_seq if from_seq is not None else max(found.first_seq, found.next_seq - 1)
    while True:
        async for descriptor in entries(url, low=following):
            _show(await handle.fetch(descriptor), as_json=as_json)
            following = descriptor.seq + 1
        if not follow:
            return
        await asyncio.sleep(_POLL_S)


def _show(batch: Batch, *, as_json: bool) -> None:
    for index, entry in enumerate(batch.entries):
        if as_json:
            line({"seq": batch.seq, "index": index, **_spelled(entry)})
        else:
            print(clean(entry.decode("utf-8", "replace")))
    sys.stdout.flush()


def _spelled(entry: bytes) -> dict[str, Any]:
    """An entry for JSON: as text where it is text, else in base64."""
    try:
        return {"entry": entry.decode()}
    except UnicodeDecodeError:
        return {"entry_base64": base64.b64encode(entry).decode()}

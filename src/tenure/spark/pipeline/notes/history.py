"""The history of a pipeline's runs, in the buffer's store: one object per run, which that run alone writes.

So two runs at the same time cannot lose each other's note. The notes are for people, and nothing depends on them: a
store that refuses one stops no run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tenure.buffer.manifest.keys import NOTE, note_key, notes_prefix
from tenure.errors import Invalid, TenureError
from tenure.objects.background import background
from tenure.objects.store import ObjectMissing, ObjectStore, open_store
from tenure.spark.pipeline.notes.run import Run

__all__ = ["RUNS_KEPT_MAX", "begin_run", "last_run", "note_run", "runs_of"]

RUNS_KEPT_MAX: Final = 100
"""Runs that are remembered, not counting those that found nothing to write."""
_NOTE_BYTES_MAX: Final = 64 << 10
_MESSAGE_CHARS_MAX: Final = 4_000
_READS_MAX: Final = 16
"""Notes that are read at once."""


def begin_run(url: str, run: Run) -> None:
    """Write the note of a run that begins, and delete notes: of idle runs right before it, and beyond RUNS_KEPT_MAX.

    A run that found nothing to write gives its place to the next one, which counts it: a pipeline that looks every
    minute keeps the runs that did something. The run continues with what the one before it reached.
    """
    with suppress(TenureError, OSError):
        background().run(_begin(open_store(url), run))


def note_run(url: str, run: Run) -> None:
    """Write the note of a run, over its own."""
    with suppress(TenureError, OSError):
        background().run(_put(open_store(url), run))


def last_run(url: str, pipeline: str) -> Run | None:
    """Return the last run that was noted; None where there was none, or its note cannot be read."""
    return background().run(_last(open_store(url), pipeline))


def runs_of(url: str, pipeline: str) -> list[Run]:
    """Return the noted runs, newest first, except notes that cannot be read. Raises what the store raises."""
    return background().run(_runs(open_store(url), pipeline))


async def _begin(store: ObjectStore, run: Run) -> None:
    keys, gone = await _keys(store, run.pipeline), list[str]()
    for number, key in enumerate(keys):
        before = await _read(store, key)
        if number == 0 and before is not None:
            run.reached = before.reached
        if before is None or not before.is_idle:
            break
        run.idle_before += before.idle_before + 1
        gone.append(key)
    await _put(store, run)
    await store.delete([*gone, *keys[len(gone) + RUNS_KEPT_MAX - 1 :]])


async def _put(store: ObjectStore, run: Run) -> None:
    await store.put(note_key(run.pipeline, run.started_ms, run.id), msgspec.json.encode(_bound(run)))


def _bound(run: Run) -> Run:
    """Return the run with messages that are no longer than a note allows."""
    error, waiting = run.error, run.waiting
    if error is not None:
        error = error | {"message": str(error["message"])[:_MESSAGE_CHARS_MAX]}
    if waiting is not None:
        waiting = msgspec.structs.replace(waiting, message=waiting.message[:_MESSAGE_CHARS_MAX])
    return msgspec.structs.replace(run, error=error, waiting=waiting)


async def _last(store: ObjectStore, pipeline: str) -> Run | None:
    keys = await _keys(store, pipeline)
    return await _read(store, keys[0]) if keys else None


async def _runs(store: ObjectStore, pipeline: str) -> list[Run]:
    keys, found = await _keys(store, pipeline), list[Run | None]()
    for first in range(0, min(len(keys), RUNS_KEPT_MAX), _READS_MAX):
        found += await _together(store, keys[first : min(first + _READS_MAX, RUNS_KEPT_MAX)])
    return [run for run in found if run is not None]


async def _together(store: ObjectStore, keys: Sequence[str]) -> list[Run | None]:
    return list(await asyncio.gather(*(_read(store, key) for key in keys)))


async def _keys(store: ObjectStore, pipeline: str) -> list[str]:
    """Return the keys of a pipeline's notes, newest first."""
    prefix = notes_prefix(pipeline)
    return sorted([info.key async for info in store.list(prefix) if NOTE.fullmatch(info.key)], reverse=True)


async def _read(store: ObjectStore, key: str) -> Run | None:
    """Return the run of a note; None where a run that began meanwhile has removed it, or it is damaged."""
    try:
        return msgspec.json.decode(await store.get(key, limit_bytes=_NOTE_BYTES_MAX), type=Run)
    except (ObjectMissing, msgspec.DecodeError):
        return None
    except Invalid as error:
        if error.code != "object_too_large":
            raise
        return None

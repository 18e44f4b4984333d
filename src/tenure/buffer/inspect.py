"""Read-only inspection of a buffer: figures, the folded manifest, its entries, and a check for damage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Descriptor
from tenure.buffer.collecting.retention import Kept, kept_for
from tenure.buffer.manifest import format as manifest
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.groups import GroupStat, group_stats
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import BATCH, CHECKPOINT, DELTA, FREED, MARKER, NOTE, PLAN, RUN
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt
from tenure.objects.store import ObjectInfo, ObjectStore

__all__ = ["BufferStat", "Finding", "buffer_id", "dump", "entries", "stat", "verify"]


class BufferStat(msgspec.Struct, frozen=True):
    """The figures of a buffer; those with ``total`` count from its beginning."""

    buffer_id: str
    url: str
    number: int
    first_seq: int
    next_seq: int
    batches: int
    batches_total: int
    entries_total: int
    bytes_total: int
    commits_per_batch: float
    writes_total: int | None
    """Requests billed as writes that producers, consumers and collectors had made when they last committed. None, like
    the next three, where one of them was of a version that did not count."""
    reads_total: int | None
    conflicts_total: int | None
    """Commits that another writer's took the number of, and that were made again."""
    requests_per_gb: float | None
    objects_per_hour: float
    producers: int
    checkpoint: int
    floor: int
    runs: int
    retain_for_ms: int
    kept: list[Kept]
    """The reasons why batches that it holds stay."""
    groups: list[GroupStat]


class Finding(msgspec.Struct, frozen=True):
    """One finding of ``verify``: ``kind`` is damaged, missing, gap, orphan, void or foreign; the first three harm."""

    kind: str
    key: str
    message: str
    seq: int | None = None

    @property
    def harmful(self) -> bool:
        return self.kind in {"damaged", "missing", "gap"}


async def stat(store: ObjectStore | str, *, settings: BufferSettings | None = None) -> BufferStat:
    """Return the buffer's figures. Each commit says what its writer has asked of the store: costs follow from that."""
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False, writing=False)
    commits, asked = state.number + 1, state.requests
    hours = max((state.ts_ms - _born_ms(state.buffer)) / 3_600_000, 1)  # below an hour there is no rate yet
    return BufferStat(
        buffer_id=state.buffer,
        url=journal.store.url,
        number=state.number,
        first_seq=state.first_seq,
        next_seq=state.next_seq,
        batches=state.next_seq - state.first_seq,
        batches_total=state.next_seq,
        entries_total=state.entries_total,
        bytes_total=state.bytes_total,
        commits_per_batch=commits / state.next_seq if state.next_seq else 0.0,
        writes_total=None if asked is None else asked.writes,
        reads_total=None if asked is None else asked.reads,
        conflicts_total=None if asked is None else asked.conflicts,
        requests_per_gb=_per_gb(asked, state.bytes_total),
        objects_per_hour=(state.next_seq + commits) / hours,
        producers=len(state.producers),
        checkpoint=state.checkpoint,
        floor=state.floor,
        runs=len(state.runs),
        retain_for_ms=state.retain_for_ms,
        kept=kept_for(state, state.first_seq, journal.clock.wall_ms()),
        groups=await group_stats(journal),
    )


def _per_gb(asked: manifest.Requests | None, size: int) -> float | None:
    return None if asked is None or not size else (asked.writes + asked.reads) / (size / 1e9)


async def buffer_id(store: ObjectStore | str, *, settings: BufferSettings | None = None) -> str:
    """Return the buffer's id, in a request or two: the key under which a table keeps its sequence."""
    return (await Journal(store, settings=settings).marker()).buffer


async def dump(store: ObjectStore | str, *, settings: BufferSettings | None = None) -> dict[str, Any]:
    """Return the folded manifest as plain values, ready for JSON."""
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False, writing=False)
    plain: dict[str, Any] = msgspec.to_builtins(state, enc_hook=manifest.plain)
    plain["groups"] = {name: msgspec.structs.asdict(group) for name, group in state.groups.items()}
    plain["producers"] = {name: msgspec.structs.asdict(record) for name, record in state.producers.items()}
    plain["runs"] = [msgspec.structs.asdict(run) for run in state.runs]
    plain["tail"] = [
        {"seq": seq, **msgspec.structs.asdict(entry)} for seq, entry in enumerate(state.tail, state.tail_seq)
    ]
    return plain


async def entries(
    store: ObjectStore | str,
    low: int | None = None,
    high: int | None = None,
    *,
    settings: BufferSettings | None = None,
    follow: bool = False,
) -> AsyncIterator[Descriptor]:
    """Yield the batches from ``low`` up to, not including, ``high`` that the buffer still holds, in order.

    With ``follow`` it continues with new ones, looking every ``poll_ms``.
    """
    journal = Journal(store, settings=settings)
    state, catalog = await journal.open(create=False, writing=False), Catalog(journal)
    following = state.first_seq if low is None else low
    while True:
        async for descriptor in catalog.walk(following, state.next_seq if high is None else high):
            following = descriptor.seq + 1
            yield descriptor
        if not follow or following == high:
            return
        await asyncio.sleep(journal.settings.poll_ms / 1000)
        state = await journal.sync()


async def verify(
    store: ObjectStore | str, *, settings: BufferSettings | None = None, data: bool = True
) -> AsyncIterator[Finding]:
    """Yield what is wrong or odd: damaged and missing batches, gaps in the manifest, orphans, foreign files.

    The buffer may be in use: a batch that a collector deleted during the check is not reported as missing.
    ``data=False`` checks sizes only and downloads nothing. Raises Corrupt if the manifest itself cannot be followed.
    """
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False, writing=False)
    fetcher = FetchHandle(journal.store.inner, settings=settings)
    referenced = set[str]()
    listed = {info.key: info async for info in journal.retrying.list_objects("data/")}
    expected = state.first_seq
    async for descriptor in Catalog(journal).walk(state.first_seq, state.next_seq):
        if descriptor.seq > max(expected, journal.state.first_seq):
            yield Finding("gap", descriptor.location, f"batch {expected} is missing in the manifest", expected)
        expected = descriptor.seq + 1
        referenced.add(descriptor.location)
        finding = await _look_at(descriptor, listed.get(descriptor.location), fetcher if data else None)
        if finding is not None and (await journal.sync()).first_seq <= descriptor.seq:
            yield finding
    for key in sorted(set(listed) - referenced):
        yield _describe_unreferenced(key, state.void)
    async for info in journal.retrying.list_objects(""):
        if not info.key.startswith(("data/", "probe/", "quarantine/")) and not _is_ours(info.key):
            yield Finding("foreign", info.key, "not a file of the buffer; it is left alone")


async def _look_at(descriptor: Descriptor, info: ObjectInfo | None, fetcher: FetchHandle | None) -> Finding | None:
    if info is None:
        return Finding("missing", descriptor.location, "the batch is gone", descriptor.seq)
    if info.bytes != descriptor.bytes:
        why = f"{info.bytes:,} bytes instead of {descriptor.bytes:,}"
        return Finding("damaged", descriptor.location, why, descriptor.seq)
    try:
        if fetcher is not None:
            await fetcher.fetch(descriptor)
    except Corrupt as error:
        return Finding("damaged", descriptor.location, error.message, descriptor.seq)
    return None


def _describe_unreferenced(key: str, void: str) -> Finding:
    if (found := BATCH.fullmatch(key)) is None:
        return Finding("foreign", key, "not a batch of the buffer; it is left alone")
    if found[1] < void:
        return Finding("void", key, "collected, and not deleted yet")
    return Finding("orphan", key, "not committed, or acknowledged and not collected yet")


def _is_ours(key: str) -> bool:
    return key == MARKER or any(shape.fullmatch(key) for shape in (DELTA, CHECKPOINT, RUN, FREED, PLAN, NOTE))


def _born_ms(buffer_id: str) -> int:
    """Return when a buffer was created: its id is a ULID, whose first ten letters are the time."""
    value = 0
    for letter in buffer_id[:10]:
        value = value << 5 | "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(letter)
    return value

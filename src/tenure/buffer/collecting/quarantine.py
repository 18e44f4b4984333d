"""Quarantine: give up a batch on purpose. First the record of it, then the frontier moves over it."""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.manifest.keys import QUARANTINE, quarantine_key
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Invalid, NotFound
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore

__all__ = ["Quarantined", "find_quarantined", "quarantine", "record_quarantine"]

_REASON_MAX = 4_096


class Quarantined(msgspec.Struct, frozen=True):
    """The content of ``quarantine/<seq>-<group>.json``: the batch that was skipped, by which group, when and why."""

    group: str
    reason: str
    ts_ms: int
    by: str
    descriptor: Descriptor


async def record_quarantine(journal: Journal, catalog: Catalog, seq: int, *, group: str, reason: str) -> None:
    """Write the record. A repeated call finds it there, and the first reason stands."""
    if not reason or len(reason) > _REASON_MAX:
        raise Invalid(f"a quarantine needs a reason of at most {_REASON_MAX:,} characters")
    found = await catalog.descriptors(seq, 1)
    if not found or found[0].seq != seq:
        raise NotFound(f"batch {seq} is not in the buffer", seq=seq)
    record = Quarantined(group, reason, journal.clock.wall_ms(), journal.id, found[0])
    await journal.retrying.create(quarantine_key(seq, group), msgspec.json.encode(record))


async def quarantine(
    store: ObjectStore | str, seq: int, *, reason: str, group: str = "default", settings: BufferSettings | None = None
) -> bool:
    """Give up a batch that a group cannot get past, on the record; return True where the group skips it now.

    This is the operator's call. The group skips the batch if it is its next one: the frontier moves over it and the
    group's consumer is fenced, so start it again. Any other batch is only recorded: Spark jobs and backfills whose
    range includes it leave it out. While the buffer has no group, the record is all that is written, too. Raises
    NotFound if the batch is not in the buffer, or the group is not among those that it has.
    """
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False)
    if state.groups and group not in state.groups:
        raise decide.no_group(state, group)
    await record_quarantine(journal, Catalog(journal), seq, group=group, reason=reason)
    is_next = group in state.groups and state.groups[group].next_seq == seq
    if is_next:
        await journal.commit(
            lambda now, _: decide.start(now, group, journal.id, None, groups_max=journal.settings.groups_max)
        )
        epoch = journal.state.groups[group].epoch
        await journal.commit(lambda now, _: decide.skip(now, group, epoch, seq))
    await journal.close()
    return is_next


async def find_quarantined(
    store: ObjectStore, low: int, high: int, *, group: str, settings: BufferSettings
) -> set[int]:
    """Return the batches from ``low`` to ``high``, both included, that the group has given up."""
    retrying = RetryingStore(Metered(store, BufferMetrics()), settings)
    found = set[int]()
    async with aclosing(retrying.list_objects("quarantine/", f"quarantine/{low:020}")) as listed:
        async for info in listed:
            parts = QUARANTINE.fullmatch(info.key)
            if parts is not None and int(parts[1]) > high:
                break
            if parts is not None and parts[2] == group:
                found.add(int(parts[1]))
    return found

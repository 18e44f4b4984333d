"""Giving up a batch on purpose: first the record of it, then the frontier over it."""

from __future__ import annotations

import msgspec

from tenure.buffer import decide
from tenure.buffer.batch import Descriptor
from tenure.buffer.catalog import Catalog
from tenure.buffer.journal import Journal
from tenure.buffer.naming import quarantine_key
from tenure.buffer.settings import BufferSettings
from tenure.buffer.store import ObjectStore
from tenure.errors import Invalid, NotFound

__all__ = ["Quarantined", "drop_group", "quarantine", "record_quarantine"]

_REASON_MAX = 4_096


class Quarantined(msgspec.Struct, frozen=True):
    """What ``quarantine/<seq>-<group>.json`` holds: the batch that was skipped, by whom, when and why."""

    group: str
    reason: str
    ts_ms: int
    by: str
    descriptor: Descriptor


async def record_quarantine(journal: Journal, catalog: Catalog, seq: int, *, group: str, reason: str) -> None:
    """Write the record; a repeated call finds it there, and the first reason stands."""
    if not reason or len(reason) > _REASON_MAX:
        raise Invalid(f"a quarantine needs a reason of at most {_REASON_MAX:,} characters")
    found = await catalog.descriptors(seq, 1)
    if not found or found[0].seq != seq:
        raise NotFound(f"batch {seq} is not in the buffer", seq=seq)
    record = Quarantined(group, reason, journal.clock.wall_ms(), journal.id, found[0])
    await journal.patient.create_own(quarantine_key(seq, group), msgspec.json.encode(record))


async def quarantine(
    store: ObjectStore | str, seq: int, *, reason: str, group: str = "default", settings: BufferSettings | None = None
) -> None:
    """For an operator: skip the next batch of a group whose consumer cannot get past it, on the record.

    The group's consumer is fenced by it, so start it again. Raises Invalid if ``seq`` is not the group's next batch.
    """
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False)
    if group not in state.groups:
        raise NotFound(f"the buffer has no group {group}", group=group)
    if state.groups[group].next_seq != seq:
        raise Invalid(f"batch {seq} is not the next one of group {group}: that is {state.groups[group].next_seq}")
    await record_quarantine(journal, Catalog(journal), seq, group=group, reason=reason)
    await journal.commit(
        lambda now, _: decide.start(now, group, journal.id, None, groups_max=journal.settings.groups_max)
    )
    epoch = journal.state.groups[group].epoch
    await journal.commit(lambda now, _: decide.skip(now, group, epoch, seq))
    await journal.close()


async def drop_group(store: ObjectStore | str, group: str, *, settings: BufferSettings | None = None) -> None:
    """Forget a group, so that it keeps no batch any more; its consumer is fenced. Raises NotFound."""
    journal = Journal(store, settings=settings)
    await journal.open(create=False)
    await journal.commit(lambda state, _: decide.drop(state, group))
    await journal.close()

"""The groups of a buffer: list where each stands and what it pins, and drop one."""

from __future__ import annotations

import msgspec

from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import Group, State
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.settings import BufferSettings
from tenure.objects.store import ObjectStore

__all__ = ["GroupStat", "drop_group", "group_stat", "group_stats", "groups"]


class GroupStat(msgspec.Struct, frozen=True):
    """The position of a group."""

    group: str
    epoch: int
    consumer: str
    last_acked: int | None
    lag_batches: int
    lag_ms: int
    idle_ms: int
    """Time since its frontier moved, or a consumer of it started."""
    pinned_batches: int
    """Batches that only this group has not acknowledged yet: no other group keeps them."""
    skipped: int


async def groups(store: ObjectStore | str, *, settings: BufferSettings | None = None) -> list[GroupStat]:
    """Return where each group of a buffer stands, by name. Raises NotFound (``no_buffer``)."""
    journal = Journal(store, settings=settings)
    await journal.open(create=False, writing=False)
    return await group_stats(journal)


async def group_stats(journal: Journal) -> list[GroupStat]:
    """Return the same as ``groups``, from an open journal."""
    catalog = Catalog(journal)
    return [await _stat(journal, catalog, name, group) for name, group in sorted(journal.state.groups.items())]


async def group_stat(store: ObjectStore | str, group: str, *, settings: BufferSettings | None = None) -> GroupStat:
    """Return where one group of a buffer stands. Raises NotFound (``no_buffer``).

    A group that has not started has no consumer, and will read from the first batch that the buffer keeps.
    """
    journal = Journal(store, settings=settings)
    state = await journal.open(create=False, writing=False)
    known = state.groups.get(group)
    if known is not None:
        return await _stat(journal, Catalog(journal), group, known)
    new = await _stat(journal, Catalog(journal), group, Group(0, "", state.first_seq, journal.clock.wall_ms(), 0))
    return msgspec.structs.replace(new, last_acked=None, pinned_batches=0)


async def _stat(journal: Journal, catalog: Catalog, name: str, group: Group) -> GroupStat:
    state, now_ms = journal.state, journal.clock.wall_ms()
    waiting = await catalog.descriptors(group.next_seq, 1)
    return GroupStat(
        group=name,
        epoch=group.epoch,
        consumer=group.consumer,
        last_acked=group.next_seq - 1 if group.next_seq else None,
        lag_batches=state.next_seq - group.next_seq,
        lag_ms=max(0, now_ms - waiting[0].first_ms) if waiting else 0,
        idle_ms=max(0, now_ms - group.ts_ms),
        pinned_batches=_pinned(state, name, group.next_seq),
        skipped=group.skipped,
    )


def _pinned(state: State, name: str, next_seq: int) -> int:
    others = min((group.next_seq for other, group in state.groups.items() if other != name), default=state.next_seq)
    return max(0, others - next_seq)


async def drop_group(store: ObjectStore | str, group: str, *, settings: BufferSettings | None = None) -> None:
    """Remove a group, so that it pins no batch any more; its consumer is fenced. Raises NotFound (``no_group``)."""
    journal = Journal(store, settings=settings)
    await journal.open(create=False)
    await journal.commit(lambda state, _: decide.drop(state, group))
    await journal.close()

"""Retention: how long a buffer keeps its batches, and for which groups. The same for every collector.

The manifest holds the retention. A batch stays while a group has not acknowledged it, and for the retention after it
was stored, by the store's clock: that is right after its last entry was produced, and no producer's clock can be wrong
about it. While a buffer has no group, it keeps everything: what will be needed is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tenure.buffer.collecting.backlog import Backlog
from tenure.buffer.manifest import decide
from tenure.buffer.manifest.catalog import Catalog
from tenure.buffer.manifest.format import Op, State
from tenure.buffer.manifest.journal import Journal
from tenure.buffer.settings import RETAIN_FOR_MS_MAX, BufferSettings
from tenure.errors import Invalid
from tenure.objects.store import ObjectStore

__all__ = ["Kept", "ask_retention", "first_needed", "first_unacknowledged", "kept_for", "set_retention"]

_GROUPS_NAMED = 5


class Kept(msgspec.Struct, frozen=True):
    """Batches that stay, and the reason: the slowest groups, the retention, or that there is no group yet."""

    why: Literal["group", "retention", "no_group"]
    batches: int
    groups: list[str] = []
    """The slowest groups: no other group can release what they have not acknowledged."""
    idle_ms: int = 0
    """How long ago one of them last moved or started."""

    def __str__(self) -> str:
        match self.why:
            case "group":
                more = len(self.groups) - _GROUPS_NAMED
                named = ", ".join(self.groups[:_GROUPS_NAMED]) + (f" and {more} more" if more > 0 else "")
                return f"{self.batches:,} for group {named}, idle for {self.idle_ms // 1000:,} s"
            case "retention":
                return f"{self.batches:,} for the retention"
            case _:
                return f"{self.batches:,} as no group has started yet"


def first_unacknowledged(state: State) -> int:
    """Return the first sequence that some group has not acknowledged; without groups, the first that there is."""
    return min((group.next_seq for group in state.groups.values()), default=state.first_seq)


async def first_needed(journal: Journal, catalog: Catalog, backlog: Backlog, now_ms: int) -> int:
    """Return the first sequence to keep: not acknowledged by all groups, or younger than the retention.

    Looks at the batches that are due and one more, ``collect_objects_max`` at most: a pass deletes no more than that. A
    batch that is gone from the store keeps nothing.
    """
    state, acked = journal.state, first_unacknowledged(journal.state)
    if state.retain_for_ms == 0:
        return acked
    young_ms, seq = now_ms - state.retain_for_ms, state.first_seq
    async for descriptor in catalog.walk(seq, min(acked, seq + journal.settings.collect_objects_max)):
        stored_ms = await backlog.stored_ms(descriptor.location, now_ms)
        if stored_ms is not None and stored_ms >= young_ms:
            break
        seq = descriptor.seq + 1
    return seq


def kept_for(state: State, first_seq: int, now_ms: int) -> list[Kept]:
    """Return why the batches from ``first_seq`` on stay; empty where there are none."""
    if not state.groups:
        return [Kept("no_group", state.next_seq - first_seq)] if state.next_seq > first_seq else []
    acked, found = first_unacknowledged(state), list[Kept]()
    if acked > first_seq:
        found.append(Kept("retention", acked - first_seq))
    if state.next_seq > acked:
        slowest = sorted(name for name, group in state.groups.items() if group.next_seq == acked)
        moved_ms = max(state.groups[name].ts_ms for name in slowest)
        found.append(Kept("group", state.next_seq - acked, slowest, max(0, now_ms - moved_ms)))
    return found


async def set_retention(store: ObjectStore | str, retain_for_ms: int, *, settings: BufferSettings | None = None) -> int:
    """Set how long a buffer keeps its batches, up or down, and return what it was before.

    Raises Invalid for a time out of range, NotFound (``no_buffer``).
    """
    return await _commit_retention(store, retain_for_ms, decide.retain, settings)


async def ask_retention(store: ObjectStore | str, retain_for_ms: int, *, settings: BufferSettings | None = None) -> int:
    """Have a buffer keep its batches for at least this long, and return what it was before.

    Raises Invalid for a time out of range, NotFound (``no_buffer``).
    """
    return await _commit_retention(store, retain_for_ms, decide.retain_at_least, settings)


async def _commit_retention(
    store: ObjectStore | str,
    retain_for_ms: int,
    decision: Callable[[State, int], list[Op] | None],
    settings: BufferSettings | None,
) -> int:
    if not 0 <= retain_for_ms <= RETAIN_FOR_MS_MAX:
        raise Invalid(f"a retention is from 0 to {RETAIN_FOR_MS_MAX} ms (100 years), not {retain_for_ms}")
    journal = Journal(store, settings=settings)
    before = (await journal.open(create=False)).retain_for_ms
    await journal.commit(lambda state, _: decision(state, retain_for_ms))
    await journal.close()
    return before

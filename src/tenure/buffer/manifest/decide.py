"""Decisions on a state: the operations of the next delta, or an error. No I/O, no clock.

Each returns None where the state already shows what was asked for: a call repeated after a lost reply finds out this
way that it has succeeded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tenure.buffer.manifest.format import Append, Drop, Entry, Epoch, Forget, Frontier, Op, Retain, Skip, State
from tenure.buffer.manifest.keys import is_fresh_id, successor
from tenure.buffer.manifest.producers import ProducerRecord
from tenure.errors import Indeterminate, Invalid, LeaseLost, NotFound

__all__ = [
    "Known",
    "append",
    "drop",
    "fence",
    "forget",
    "frontier",
    "no_group",
    "retain",
    "retain_at_least",
    "skip",
    "start",
    "void_names",
]

_GROUPS_NAMED = 10


class Known(NamedTuple):
    """A producer's knowledge of its record: the last ordinal it has seen, and the names of its commits in doubt."""

    ordinal: int
    doubtful: Collection[str] = ()

    def check(self, record: ProducerRecord, producer: str) -> None:
        """Raise LeaseLost where another producer of this name has moved the record, or may have.

        Each commit raises the ordinal, so one that did not move was moved by nobody. One that moved was moved last by
        the entry with ``last_name``; names are drawn at random, so a name of this producer's was committed by it.
        """
        if record.ordinal == self.ordinal or record.last_name in self.doubtful:
            return
        raise LeaseLost(
            f"another producer named {producer} has committed: one at a time may use a name", code="producer_fenced"
        )


def append(
    state: State, entries: Sequence[Entry], *, known: Known | None, in_doubt: bool, producers_max: int
) -> list[Op] | None:
    """Append the entries that the state does not show yet; all are of one producer, with rising ordinals.

    An ordinal on the record proves that an entry is committed only if this producer moved the record there: raises as
    ``Known.check``. Pass None for producers whose ordinals always mean the same batches, whichever process commits
    them. Raises Indeterminate where an earlier attempt may have succeeded and its record is gone, and Invalid for a new
    name where the manifest remembers ``producers_max`` names.
    """
    record = state.producers.get(entries[0].producer)
    if record is None and not is_fresh_id(entries[0].producer):
        names = len(state.producers) - state.producers.unnamed_count
        if names >= producers_max:
            raise Invalid(
                f"the manifest remembers {names:,} producers with names: use one of them, or raise producers_max",
                code="too_many_producers",
            )
    if record is not None and known is not None:
        known.check(record, entries[0].producer)
    may_be_forgotten = record is None and is_fresh_id(entries[0].producer)
    if may_be_forgotten and in_doubt and any(entry.name < max(state.void, state.forgotten) for entry in entries):
        raise Indeterminate(
            "a commit was in doubt for so long that the manifest forgot this producer: "
            "look for its last batches before producing them again",
            code="producer_forgotten",
        )
    last = -1 if record is None else record.ordinal
    missing = [entry for entry in entries if entry.ordinal > last]
    return [Append(missing)] if missing else None


def void_names(state: State, entries: Sequence[Entry]) -> set[str]:
    """Return the names of uncommitted entries that must be uploaded again, under names above the void mark."""
    record = state.producers.get(entries[0].producer)
    last = -1 if record is None else record.ordinal
    return {entry.name for entry in entries if entry.ordinal > last and entry.name < state.void}


def forget(state: State, producers_max: int) -> list[Op]:
    """Forget the oldest producers without a name once there are too many, a quarter at once so that it is rare."""
    excess = state.producers.unnamed_count - producers_max
    if excess <= 0:
        return []
    newest = sorted(record.newest_name for name, record in state.producers.items() if is_fresh_id(name))
    return [Forget(max(state.forgotten, successor(newest[excess + producers_max // 4 - 1])))]


def start(state: State, group: str, consumer: str, last_acked: int | None, *, groups_max: int) -> list[Op] | None:
    """Let a consumer take the group over; with ``last_acked`` its frontier moves to right after it.

    Raises Invalid for a ``last_acked`` below the frontier or beyond the end.
    """
    known = state.groups.get(group)
    if known is not None and known.consumer == consumer:
        return None
    if known is None and len(state.groups) >= groups_max:
        raise Invalid(f"the buffer has {len(state.groups)} groups already: drop one", code="too_many_groups")
    # A dropped group may be created again: a delta's number is above every epoch that was ever assigned.
    epoch, lowest = (state.number, state.first_seq) if known is None else (known.epoch, known.next_seq)
    target = lowest if last_acked is None else last_acked + 1
    if not lowest <= target <= state.next_seq:
        raise Invalid(
            f"last_acked={last_acked} of group {group} is "
            + (
                f"below its frontier {lowest - 1}" if target < lowest else f"beyond the last batch {state.next_seq - 1}"
            ),
            code="bad_frontier",
            frontier=lowest - 1,
            last=state.next_seq - 1,
        )
    return [Epoch(group, epoch + 1, consumer, target)]


def fence(state: State, group: str, epoch: int) -> None:
    """Raise LeaseLost unless the epoch is the group's present one."""
    known = state.groups.get(group)
    if known is None or known.epoch != epoch:
        raise LeaseLost(
            f"another consumer of group {group} has started: this one is fenced",
            code="fenced",
            group=group,
            epoch=epoch,
        )


def frontier(state: State, group: str, epoch: int, next_seq: int) -> list[Op] | None:
    """Acknowledge everything below ``next_seq`` for the group. Raises LeaseLost when fenced."""
    fence(state, group, epoch)
    return [Frontier(group, epoch, next_seq)] if state.groups[group].next_seq < next_seq else None


def skip(state: State, group: str, epoch: int, seq: int) -> list[Op] | None:
    """Give up the batch at ``seq``, which must be the group's next one. Raises LeaseLost, Invalid."""
    fence(state, group, epoch)
    following = state.groups[group].next_seq
    if following == seq + 1:
        return None
    if following != seq or seq >= state.next_seq:
        raise Invalid(f"batch {seq} is not the next one of group {group}: that is {following}", code="bad_frontier")
    return [Skip(group, epoch, seq)]


def drop(state: State, group: str) -> list[Op]:
    """Forget a group. Raises NotFound."""
    if group not in state.groups:
        raise no_group(state, group)
    return [Drop(group)]


def retain(state: State, retain_for_ms: int) -> list[Op] | None:
    """Keep batches for this long from now on."""
    return [Retain(retain_for_ms)] if retain_for_ms != state.retain_for_ms else None


def retain_at_least(state: State, retain_for_ms: int) -> list[Op] | None:
    """Keep batches for this long, or longer where the buffer keeps them longer already."""
    return retain(state, max(retain_for_ms, state.retain_for_ms))


def no_group(state: State, group: str) -> NotFound:
    """Make the error for a group that is not there, with the names of some that are."""
    known = ", ".join(sorted(state.groups)[:_GROUPS_NAMED])
    more = len(state.groups) - _GROUPS_NAMED
    there = f"it has {known}" + (f" and {more} more" if more > 0 else "") if known else "it has none"
    return NotFound(f"the buffer has no group {group}: {there}", code="no_group", group=group)

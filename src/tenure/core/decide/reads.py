"""Decide diffs, which read a topic by seq, and deletes of records."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenure.contract.commands import DeleteRecords, Diff
from tenure.contract.names import check_node, describe_value
from tenure.contract.records import Stored
from tenure.contract.replies import DeletedRecords, Difference, Tombstone
from tenure.contract.values import check_seqs, check_whole
from tenure.core.decide.decision import Decided, Payloads, Steps
from tenure.core.decide.evict import evict_over_ttl
from tenure.core.events import Deleted
from tenure.core.level import LEVELS, Level
from tenure.core.state.ranges import count, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.core.tag_match import Match, parse_match
from tenure.errors import Corrupt, Invalid

__all__ = ["delete_records", "diff"]

_WINDOW = 256


def diff(state: State, command: Diff, now_ms: int, payloads: Payloads) -> Steps[tuple[Difference, int]]:
    """Read records above ``from_seq``, leaving out those written by ``node`` where the topic filters by it.

    A reply ends before a record that cannot be read. A read that begins there raises Corrupt, whose ``next_from_seq``
    is where to go on after the damage.
    """
    topic = state.topic(command.topic)
    from_seq = check_whole(command.from_seq, "from_seq")
    limit = min(check_whole(command.limit, "limit"), state.settings.diff_records_max) or 1
    nodes = _check_nodes(command.node)
    yield from evict_over_ttl(state, topic, now_ms, payloads)
    topic.last_read_ms = now_ms + state.wall_offset_ms
    head, tombstone = topic.visible_seq, _tombstone(topic, from_seq)
    if from_seq > head:
        from_seq = 0 if tombstone is not None else head
    if not topic.config.dedupe_node:
        nodes = set()
    found = _collect(state, topic, from_seq, head, limit=limit, nodes=nodes, payloads=payloads)
    records, reached, damage = found
    if damage is not None and not records and (tombstone is None or reached <= from_seq):
        raise damage
    return Difference(topic.name, records, reached, head, topic.floor, tombstone), Level.NOW


def _check_nodes(node: str | Collection[str] | None) -> set[str]:
    """Return the nodes whose records the reader does not want."""
    if node is None:
        return set()
    if isinstance(node, str):
        return {check_node(node)}
    if not isinstance(node, (list, tuple, set, frozenset)):
        raise Invalid(f"node must be a string or a list of strings; got {describe_value(node)}")
    return set(map(check_node, node))


def _collect(
    state: State, topic: Topic, from_seq: int, head: int, *, limit: int, nodes: set[str], payloads: Payloads
) -> tuple[list[Stored], int, Corrupt | None]:
    """Return the records of the reply, the last seq that was looked at, and the damage that ended the read, if any."""
    found: list[Stored] = []
    budget, lo = state.settings.diff_bytes_max, max(from_seq + 1, topic.floor)
    while lo <= head:
        hi = min(lo + _WINDOW, head + 1)
        records, lost = payloads.readable(topic, topic.live_runs(lo, hi))
        end = min(lost, default=hi)
        for record in records:
            if record.seq > end:
                break
            if record.node is not None and record.node in nodes:
                continue
            budget -= len(record.data) + len(record.meta or b"")
            if found and (budget < 0 or len(found) == limit):
                return found, record.seq - 1, None
            found.append(record)
        if lost:
            return found, end - 1, _damage(topic, records, lost)
        lo = hi
    return found, max(head, from_seq) if from_seq <= head else head, None


def _damage(topic: Topic, records: list[Stored], lost: dict[int, Corrupt]) -> Corrupt:
    """Return the error for the first seqs that are lost, up to the next record that can be read."""
    first = min(lost)
    next_seq = min((record.seq for record in records if record.seq > first), default=max(lost) + 1)
    last, error = max(seq for seq in lost if seq < next_seq), lost[first]
    message = f"seqs {first} to {last} of {topic.name!r} cannot be read; go on from_seq {last}. {error.message}"
    about = {"first_seq": first, "last_seq": last, "next_from_seq": last}
    return Corrupt(message, code=error.code, **{**error.detail, **about})


def _tombstone(topic: Topic, from_seq: int) -> Tombstone | None:
    """Return what this reader missed although no caller removed it, or None."""
    head, earliest = topic.visible_seq, topic.floor
    if from_seq > topic.head_seq:
        return Tombstone(1, topic.head_seq, "recreated", topic.head_seq, earliest, head)
    if from_seq >= head:
        return None  # what was lost after it is not durable yet, and is reported once it is
    by_cap, by_ttl = from_seq + 1 < topic.cap_floor, from_seq + 1 < topic.ttl_floor
    if by_cap or by_ttl:
        reason = "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
        gap_to = min(topic.evict_floor - 1, head)
        return Tombstone(from_seq + 1, gap_to, reason, gap_to - from_seq, earliest, head)
    if from_seq < topic.trim_seq <= head:
        return Tombstone(topic.trim_seq, topic.trim_seq, "source_trim", topic.trim_missed, earliest, head)
    return None


def delete_records(state: State, command: DeleteRecords, now_ms: int, payloads: Payloads) -> Decided[DeletedRecords]:
    """Remove records for good, at the cost of the matches; several conditions are ANDed. Raises Invalid where none is
    given.
    """
    topic, settings = state.topic(command.topic), state.settings
    before_seq, match, seqs = command.before_seq, command.match, command.seqs
    if before_seq is None and match is None and seqs is None:
        raise Invalid("say what to delete: before_seq, match or seqs")
    if before_seq is not None:
        check_whole(before_seq, "before_seq")
    if seqs is not None:
        check_seqs(seqs, count_max=settings.records_max, limit="records_max")
    wanted = parse_match(match, bytes_max=settings.tag_bytes_max) if match is not None else None
    state.pass_time(topic, now_ms)
    runs = _runs_to_delete(topic, before_seq, wanted, seqs)
    if not runs:
        return None, _reply(topic, 0), Level.NOW
    return _delete(topic, Deleted(now_ms, topic.id, runs, count(runs), payloads.weigh(topic, runs)))


def _delete(topic: Topic, event: Deleted) -> Steps[tuple[DeletedRecords, int]]:
    yield [event]
    return _reply(topic, event.count), LEVELS[topic.config.durability]


def _reply(topic: Topic, deleted: int) -> DeletedRecords:
    return DeletedRecords(topic.name, deleted, topic.floor, topic.head_seq, topic.count, topic.bytes)


def _runs_to_delete(
    topic: Topic, before_seq: int | None, wanted: Match | None, seqs: Sequence[int] | None
) -> list[int]:
    end = topic.head_seq + 1 if before_seq is None else min(before_seq, topic.head_seq + 1)
    if wanted is None and seqs is None:
        return topic.live_runs(topic.floor, end)
    chosen: set[int] | None = None
    if wanted is not None:
        if topic.tags is None:
            return []
        chosen = set(
            topic.tags.exact(wanted.exact) if wanted.exact is not None else topic.tags.prefix(wanted.prefix or "")
        )
    if seqs is not None:
        chosen = set(seqs) if chosen is None else chosen & set(seqs)
    assert chosen is not None
    return to_runs(seq for seq in chosen if seq < end and not topic.is_dead(seq))

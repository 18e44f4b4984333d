"""Decide diffs, which read a topic by seq, and deletes of records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tenure.contract.commands import DeleteRecords, Diff
from tenure.contract.names import check_node, describe_value
from tenure.contract.records import Stored
from tenure.contract.replies import DeletedRecords, Difference, Tombstone
from tenure.contract.values import check_seqs, check_whole
from tenure.core.decide.decision import Decided, Payloads, Steps, until_present
from tenure.core.decide.evict import evict_over_ttl, expired_before
from tenure.core.events import Deleted
from tenure.core.level import LEVELS, Level
from tenure.core.state.queue import NEVER
from tenure.core.state.ranges import count, first_absent, to_runs
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
    expired = expired_before(topic, now_ms) if topic in state.behind else 0
    head, tombstone = topic.visible_seq, _tombstone(topic, from_seq, ttl_floor=max(topic.ttl_floor, expired))
    if from_seq > head:
        from_seq = 0 if tombstone is not None else head
    if not topic.config.dedupe_node:
        nodes = set()
    start = max(from_seq + 1, topic.floor, min(expired, head + 1))
    found = _collect(state, topic, start, head, limit=limit, nodes=nodes, payloads=payloads)
    records, reached, damage = found
    if damage is not None and not records and (tombstone is None or reached <= from_seq):
        raise damage
    return Difference(topic.name, records, max(reached, from_seq), head, topic.floor, tombstone), Level.NOW


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
    state: State, topic: Topic, start: int, head: int, *, limit: int, nodes: set[str], payloads: Payloads
) -> tuple[list[Stored], int, Corrupt | None]:
    """Return the records of the reply, the last seq that was looked at, and the damage that ended the read, if any.

    No more is read than was asked for and the record after it, unless records are left out; and at a time no more than
    the reply has room for, however large the records are. Of those left out no more is read than one step may.
    """
    found, left_out = list[Stored](), 0
    budget, lo, looks = state.settings.diff_bytes_max, start, state.step_jobs_max or NEVER
    window = min(limit + 1, _WINDOW)
    while lo <= head and looks > 0 and left_out < state.settings.step_bytes_max:
        lo = first_absent(topic.dead, lo) if topic.dead else lo
        hi = min(lo + window, head + 1)
        runs = topic.live_runs(lo, hi)
        fitting = payloads.fitting(topic, runs, max(budget, 0))
        if fitting != runs:
            hi = fitting[-2] + fitting[-1]
        records, lost = payloads.readable(topic, fitting)
        end = min(lost, default=hi)
        for record in records:
            if record.seq > end:
                break
            size = len(record.data) + len(record.meta or b"")
            if record.node is not None and record.node in nodes:
                left_out += size
                continue
            budget -= size
            if found and (budget < 0 or len(found) == limit):
                return found, record.seq - 1, None
            found.append(record)
        if lost:
            return found, end - 1, _damage(topic, records, lost)
        lo, looks, window = max(hi, lo), looks - max(hi - lo, 1), min(2 * window, _WINDOW)
    lo = first_absent(topic.dead, lo) if topic.dead else lo  # no reader is left among seqs that were left out
    return found, min(lo - 1, head), None


def _damage(topic: Topic, records: list[Stored], lost: dict[int, Corrupt]) -> Corrupt:
    """Return the error for the first seqs that are lost, up to the next record that can be read."""
    first = min(lost)
    next_seq = min((record.seq for record in records if record.seq > first), default=max(lost) + 1)
    last, error = max(seq for seq in lost if seq < next_seq), lost[first]
    message = f"seqs {first} to {last} of {topic.name!r} cannot be read; go on from_seq {last}. {error.message}"
    about = {"first_seq": first, "last_seq": last, "next_from_seq": last}
    return Corrupt(message, code=error.code, **{**error.detail, **about})


def _tombstone(topic: Topic, from_seq: int, *, ttl_floor: int) -> Tombstone | None:
    """Return what this reader missed although no caller removed it, or None.

    ``ttl_floor`` is one above the highest seq that is lost to the TTL, evicted or about to be.
    """
    head, earliest = topic.visible_seq, topic.floor
    if from_seq > topic.head_seq:
        return Tombstone(1, topic.head_seq, "recreated", topic.head_seq, earliest, head)
    if topic.recreated and (gap := _recreated(topic, from_seq)) is not None:
        return Tombstone(*gap, "recreated", 0, earliest, head)
    if from_seq >= head:
        return None  # what was lost after it is not durable yet, and is reported once it is
    by_cap, by_ttl = from_seq + 1 < topic.cap_floor, from_seq + 1 < ttl_floor
    if by_cap or by_ttl:
        reason = "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
        gap_to = min(max(topic.cap_floor, ttl_floor) - 1, head)
        return Tombstone(from_seq + 1, gap_to, reason, gap_to - from_seq, earliest, head)
    if from_seq < topic.trim_seq <= head:
        return Tombstone(topic.trim_seq, topic.trim_seq, "source_trim", topic.trim_missed, earliest, head)
    return None


def _recreated(topic: Topic, from_seq: int) -> tuple[int, int] | None:
    """Return the seqs that a restore left out, first and last, if the reader comes from among them; else None.

    It read records there that this log never had. A reader of this log comes from the last of them at the earliest.
    """
    for lo, n in zip(topic.recreated[::2], topic.recreated[1::2], strict=True):
        if lo <= from_seq < lo + n - 1:
            return lo, lo + n - 1
    return None


def delete_records(state: State, command: DeleteRecords, now_ms: int, payloads: Payloads) -> Decided[DeletedRecords]:
    """Remove records for good, in steps, at the cost of the matches; several conditions are ANDed.

    What is appended after the first step stays. Raises Invalid where no condition is given.
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
    end = topic.head_seq + 1 if before_seq is None else min(before_seq, topic.head_seq + 1)
    return _delete(state, topic, _chosen(state, topic, end, wanted, seqs), now_ms, payloads)


def _delete(
    state: State, topic: Topic, chosen: Iterator[Sequence[int]], now_ms: int, payloads: Payloads
) -> Steps[tuple[DeletedRecords, int]]:
    deleted = 0
    for seqs in chosen:
        now_ms = yield from until_present(topic, now_ms=now_ms)
        if state.by_id.get(topic.id) is not topic:
            break  # it was deleted between two steps, and the others with it
        runs = to_runs(seq for seq in seqs if not topic.is_dead(seq))
        deleted += count(runs)
        now_ms = yield [Deleted(now_ms, topic.id, runs, count(runs), payloads.weigh(topic, runs))] if runs else []
    reply = DeletedRecords(topic.name, deleted, topic.floor, topic.head_seq, topic.count, topic.bytes)
    is_of_nothing = not deleted and topic.count == topic.head_seq  # else another call may have deleted it just now
    return reply, Level.NOW if is_of_nothing else LEVELS[topic.config.durability]


def _chosen(
    state: State, topic: Topic, end: int, wanted: Match | None, seqs: Sequence[int] | None
) -> Iterator[Sequence[int]]:
    """Yield the seqs below ``end`` that are chosen, as many as one step looks at; some may be dead."""
    step = state.step_jobs_max or NEVER
    among = None if seqs is None else set(seqs)
    if wanted is not None:
        parts = topic.tags.parts(wanted, below=end, looks_max=step) if topic.tags is not None else iter(())
        for part in parts:
            yield part if among is None else [seq for seq in part if seq in among]
    elif among is not None:
        listed = sorted(seq for seq in among if seq < end)
        yield from (listed[at : at + step] for at in range(0, len(listed), min(step, len(listed)) or 1))
    else:
        lo = topic.floor
        while lo < end:
            hi = min(lo + step, end)
            yield range(lo, hi)
            lo = max(hi, topic.floor)

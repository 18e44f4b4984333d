"""Decode the replies of the scripts into the types that callers get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from tenure.errors import Conflict, Overloaded
from tenure.timers.encode import Entry
from tenure.timers.model import Cancelled, Extended, Held, Scheduled, Settled, State, Stats, Timer, TimerInfo
from tenure.timers.scripts import Answer

__all__ = ["cancelled", "claimed", "extended", "info", "infos", "scheduled", "settled", "stats"]

_numbers: Final = msgspec.msgpack.Decoder(list[int])
_INFO_TEXTS: Final = (0, 1, 7, 8)
_OUTCOMES: Final[tuple[Literal["created", "replaced", "kept"], ...]] = ("created", "replaced", "kept")
_CANCELLED: Final[dict[bytes, Cancelled]] = {
    b"cancelled": "cancelled",
    b"in_flight": "in_flight",
    b"unknown": "unknown",
}
_STATES: Final[dict[bytes, State]] = {b"waiting": "waiting", b"in_flight": "in_flight"}


def _rows(packed: bytes, texts: bytes, width: int, text_columns: tuple[int, ...]) -> Iterator[list[Any]]:
    """Yield rows as scripts pack them: numbers, with lengths in place of texts, and the texts in a
    string of their own.
    """
    numbers, at = _numbers.decode(packed), 0
    for start in range(0, len(numbers), width):
        row: list[Any] = numbers[start : start + width]
        for column in text_columns:
            end = at + row[column]
            row[column] = texts[at:end]
            at = end
        yield row


def scheduled(reply: Sequence[Any], entries: Sequence[Entry], topic: str) -> list[Scheduled]:
    """Return the timers of a schedule. Raises Conflict where ids are in use, Overloaded where the topic is full."""
    if reply[0] == b"conflict":
        ids = [timer_id.decode() for timer_id in reply[1:]]
        raise Conflict(f"{len(ids)} of the ids are in use, the first is {ids[0]!r}; nothing was changed", timer_ids=ids)
    if reply[0] == b"full":
        why = (
            f"topic {topic} holds {reply[1]} timers, dead ones among them: raise timers_max, or redrive or discard them"
        )
        raise Overloaded(why, code="topic_full", count=reply[1])
    rows = _rows(reply[1], b"", 3, ())
    return [
        Scheduled(entry.timer_id, due_ms, version, _OUTCOMES[outcome])
        for entry, (version, due_ms, outcome) in zip(entries, rows, strict=True)
    ]


def cancelled(reply: bytes) -> Cancelled:
    return _CANCELLED[reply]


def claimed(reply: Sequence[Any], *, topic: str, token: bytes, lease_ms: int) -> list[Timer]:
    deadline_ms = reply[0]
    return [
        Timer(
            topic=topic,
            timer_id=timer_id.decode(),
            payload=payload,
            token=token,
            version=version,
            deliveries=deliveries,
            failures=failures,
            due_ms=due_ms,
            deadline_ms=deadline_ms,
            lease_ms=lease_ms,
        )
        for timer_id, payload, version, deliveries, failures, due_ms in _rows(reply[2], reply[3], 6, (0, 1))
    ]


def settled(answer: Answer, timers: Sequence[Timer | Held], *, before: Settled) -> Settled:
    """Return the result of this script, added to that of earlier scripts of the call."""
    ids: tuple[list[str], ...] = ([], list(before.lost), list(before.superseded), list(before.dead))
    places = _numbers.decode(answer.reply)
    if any(places):
        for held, place in zip(timers, places, strict=True):
            ids[place].append(held.timer_id)
    count = before.count + len(timers) - places.count(1) - places.count(2)
    return Settled(count, ids[1], ids[2], ids[3], before.repeated or answer.repeated)


def extended(reply: Sequence[Any], timers: Sequence[Timer | Held], *, before: Extended) -> Extended:
    ids: tuple[list[str], ...] = ([], list(before.lost), list(before.superseded))
    for held, place in zip(timers, _numbers.decode(reply[1]), strict=True):
        ids[place].append(held.timer_id)
    # Of several scripts the earliest deadline holds for all.
    deadline_ms = min(before.deadline_ms, reply[0]) if before.deadline_ms else reply[0]
    return Extended(before.count + len(ids[0]), deadline_ms, ids[1], ids[2])


def infos(reply: Sequence[Any], topic: str, state: State) -> list[TimerInfo]:
    return [_info(row, topic, state) for row in _rows(reply[0], reply[1], 9, _INFO_TEXTS)]


def info(reply: Sequence[Any], topic: str) -> TimerInfo | None:
    if not reply:
        return None
    return _info(next(_rows(reply[1], reply[2], 9, _INFO_TEXTS)), topic, _STATES[reply[0]])


def _info(row: Sequence[Any], topic: str, state: State) -> TimerInfo:
    timer_id, payload, version, deliveries, failures, due_ms, at_ms, node, reason = row
    return TimerInfo(
        topic=topic,
        timer_id=timer_id.decode(),
        state=state,
        payload=payload,
        version=version,
        deliveries=deliveries,
        failures=failures,
        due_ms=due_ms,
        at_ms=at_ms,
        node=node.decode(),
        reason=reason.decode(errors="replace"),
    )


def stats(reply: Sequence[int]) -> Stats:
    now_ms, later, due, lapsed, leased, dead, head, *totals = reply
    names = ("scheduled", "replaced", "delivered", "lapsed", "committed", "nacked", "dead", "cancelled", "redriven")
    return Stats(
        scheduled=later,
        ready=due + lapsed,
        in_flight=leased,
        dead=dead,
        lag_ms=max(now_ms - head, 0) if head >= 0 else 0,
        next_due_ms=head if head >= 0 else None,
        now_ms=now_ms,
        **{f"{name}_total": total for name, total in zip((*names, "orphaned"), totals, strict=True)},
    )

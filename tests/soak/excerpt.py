"""`excerpt`: the rows of a history about one offending job, with what the nemesis did between them; `counts` of all."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from tenure.testing import History, HistoryReport
from tenure.testing.history import Call, Delivery, End, Mark, Row, Watched

__all__ = ["counts", "excerpt"]

_ROWS_MAX: Final = 40


def excerpt(history: History, report: HistoryReport, done: list[tuple[int, str]]) -> list[str]:
    """Return lines in order of time about the first job that an anomaly names; none where it names no job."""
    known = {id for row in history for id in _ids_of(row)}
    names = [name for found in report.anomalies.values() for text in found for name in re.findall(r"[\w-]+", text)]
    id = next((name for name in names if name in known), None)
    if id is None:
        return []
    places = {(row.topic, row.seq) for row in history if isinstance(row, Delivery) and row.id == id}
    rows = [(_time_of(row), _show(row, id)) for row in history if _is_about(row, id, places)]
    timed = [at for at, _ in rows if at]
    first, last = min(timed, default=0), max(timed, default=0)
    around = [(at, f"nemesis: {what}") for at, what in done if first - 2_000 <= at <= last + 2_000]
    lines = [f"    {at - first:>7} ms  {text}" for at, text in sorted(rows + around)]
    return [f"  around {id}, in ms after its first row:", *lines[:_ROWS_MAX]]


def counts(history: History) -> str:
    """Return in one line how often a run came to what it is for."""
    rows = list(history)
    calls = Counter(row.outcome for row in rows if isinstance(row, Call))
    ends = Counter(f"{row.what} {row.outcome}" for row in rows if isinstance(row, End))
    again = sum(row.deliveries > 1 for row in rows if isinstance(row, Delivery))
    letters = sum(len(row.ids) for row in rows if isinstance(row, Mark) and row.what == "dead_letter")
    watched = sum(len(row.ids) for row in rows if isinstance(row, Watched))
    return (
        f"produces {calls['unknown']} unknown, {calls['fail']} refused; acks {ends['ack unknown']} unknown, "
        f"{ends['ack fail']} skipped; nacks {ends['nack ok']}, extends {ends['extend ok']}; {again} redeliveries, "
        f"{letters} dead letters, {watched} records watched"
    )


def _ids_of(row: Row) -> list[str]:
    match row:
        case Call() | Mark() | Watched():
            return row.ids
        case Delivery():
            return [row.id]
        case End():
            return []


def _is_about(row: Row, id: str, places: set[tuple[str, int]]) -> bool:
    match row:
        case End():
            return (row.topic, row.seq) in places
        case _:
            return id in _ids_of(row)


def _time_of(row: Row) -> int:
    return 0 if isinstance(row, Watched) else row.at


def _show(row: Row, id: str) -> str:
    match row:
        case Call():
            seq = row.seqs[row.ids.index(id)] if row.seqs else "-"
            return f"produce of {len(row.ids)} by {row.by}: {row.outcome}, seq {seq}"
        case Delivery():
            lease = f"{row.lease} for {row.deadline - row.at} ms"
            return f"delivery {row.deliveries} of seq {row.seq} to {row.node}, {lease}"
        case End():
            return f"{row.what} under {row.lease}: {row.outcome}"
        case Mark():
            return row.what
        case Watched():
            return f"seen by {row.by} as seq {row.seqs[row.ids.index(id)]}"

"""What handlers wrote, held against what the broker's log says: at least once, and twice only after a lost lease."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from tenure.testing import History, HistoryReport, check_history
from tests.acceptance.worker.chaos import Noted
from tests.acceptance.worker.chaos_log import Held, Logged

__all__ = ["Verdict", "judge"]

_LOST = frozenset({"expired", "disconnect", "nack", "lost", "returned"})
_PROVOKED = ("stopped", "killed", "out of memory")


class Verdict(msgspec.Struct):
    """``problems`` must be empty. ``again`` counts handlings after the first of a job, by how the lease before ended
    and what had been done to the broker or to its worker; ``finished_again`` those that brought a job to its end again,
    ``unprovoked`` those before which nothing had been done to anybody: a busy machine, or heartbeats that fail.
    """

    report: HistoryReport
    problems: list[str] = []
    never_handled: list[str] = []
    handled: int = 0
    again: Counter[str] = msgspec.field(default_factory=Counter)
    finished_again: int = 0
    unprovoked: int = 0
    cancelled: int = 0

    def __str__(self) -> str:
        causes = "; ".join(f"{count} {cause}" for cause, count in sorted(self.again.items())) or "none"
        return (
            f"{self.report}; {self.handled} handlings, {self.cancelled} of them cancelled; "
            f"{self.again.total()} handled again after a lost lease [{causes}], {self.finished_again} finished twice, "
            f"{self.unprovoked} lost without a cause"
        )


def judge(
    noted: Iterable[Noted],
    logged: Logged,
    *,
    sent: list[str],
    acknowledged: list[str],
    fates: Mapping[str, str],
) -> Verdict:
    """Put both sides together."""
    lines = list(noted)
    begins = [line for line in lines if line.event == "begin"]
    problems = logged.problems
    covered = _covered(begins, logged, problems)
    history = History()
    history.produce(sent, "invoke")
    history.produce(acknowledged, "ok")
    for line, held in covered:
        _note(history, line, held)
    verdict = Verdict(report=check_history(history), problems=problems, handled=len(begins))
    finished = {line.id for line in lines if line.event == "end"}
    verdict.never_handled = [id for id in acknowledged if id not in finished]
    ends = Counter(line.id for line in lines if line.event == "end")
    verdict.finished_again = sum(count - 1 for count in ends.values())
    verdict.cancelled = sum(line.event == "cancelled" for line in lines)
    _count_again(verdict, covered, logged, fates)
    _check_answers(verdict, lines, logged)
    return verdict


def _covered(begins: list[Noted], logged: Logged, problems: list[str]) -> list[tuple[Noted, Held]]:
    """Each handling with the lease it ran under. One lease is one handling, by the worker that it was given to."""
    found: dict[tuple[str, int, str], tuple[Noted, Held]] = {}
    for line in begins:
        held = logged.held(line.queue, line.seq, line.lease)
        key = (line.queue, line.seq, line.lease)
        if held is None or (held.node, held.deliveries) != (line.node, line.deliveries):
            problems.append(f"{line} ran under no lease of the log")
        elif key in found:
            problems.append(f"{line} ran under the lease of {found[key][0]}")
        else:
            found[key] = (line, held)
    return list(found.values())


def _note(history: History, line: Noted, held: Held) -> None:
    history.delivery(
        line.queue,
        line.seq,
        line.id,
        lease=line.lease,
        node=line.node,
        deliveries=line.deliveries,
        at=held.at,
        deadline=held.first_deadline,
    )
    for at, deadline in held.extends:
        history.extend(line.queue, line.seq, lease=line.lease, outcome="ok", at=at, deadline=deadline)
    if held.how == "acked":
        history.ack(line.queue, line.seq, lease=line.lease, outcome="ok", at=held.ended_at)
    elif held.how in ("nack", "disconnect", "lost", "returned"):
        history.nack(line.queue, line.seq, lease=line.lease, outcome="ok", at=held.ended_at)


def _count_again(verdict: Verdict, covered: list[tuple[Noted, Held]], logged: Logged, fates: Mapping[str, str]) -> None:
    """A second handling is excused by the loss of the lease before it, and by nothing else."""
    by_job: dict[tuple[str, int], list[tuple[Noted, Held]]] = defaultdict(list)
    for line, held in covered:
        by_job[line.queue, line.seq].append((line, held))
    for handlings in by_job.values():
        handlings.sort(key=lambda pair: pair[1].deliveries)
        for (before, lease), (after, _) in pairwise(handlings):
            if lease.how in _LOST:
                why = f"worker {fates[before.node.partition('-')[0]]}" if logged.was_there(lease) else "broker killed"
                verdict.again[f"{lease.how}, {why}"] += 1
                verdict.unprovoked += not any(word in why for word in _PROVOKED)
            else:
                verdict.problems.append(f"{after} follows {before}, whose lease ended by {lease.how}")


def _check_answers(verdict: Verdict, lines: list[Noted], logged: Logged) -> None:
    """What a handler was told about its ack is what the log says: taken for good, or fenced."""
    for line in lines:
        if line.event == "asked" and line.taken is not None:
            held = logged.held(line.queue, line.seq, line.lease)
            if held is None or line.taken != (held.how == "acked"):
                verdict.problems.append(f"{line} was told {line.taken}, but its lease ended by {held and held.how}")

"""Findings: what stands out, in sentences, for the operator to read first.

The limits are rough on purpose. A finding says where to look, not what is right for a queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tenure.spark.report.model import Figures
from tenure.spark.report.page.units import amount, duration, share, shorten

__all__ = ["Finding", "findings"]

RETURNED_NOTED: Final = 0.05
RETURNED_BAD: Final = 0.20
DEAD_BAD: Final = 0.01
OPEN_NOTED: Final = 0.20
OPEN_JOBS_MIN: Final = 10
DELIVERIES_NOTED: Final = 5
JAIN_NOTED: Final = 0.75
WAIT_TIMES_WORK: Final = 5
WAIT_NOTED_MS: Final = 1_000
_NAMED_MAX: Final = 3


class Finding(NamedTuple):
    """A sentence, how bad it is (``bad``, ``warn``, ``info`` or ``good``), and the section that shows more."""

    level: str
    sentence: str
    anchor: str


def findings(figures: Figures) -> list[Finding]:
    """Return the findings, the worst first; where there is none, one that says so."""
    found = [
        *_dead(figures),
        *_returned(figures),
        *_open(figures),
        *_slow(figures),
        *_poison(figures),
        *_uneven(figures),
        *_idle(figures),
    ]
    if all(each.level == "info" for each in found):
        found.insert(0, Finding("good", "Nothing stands out: work is done soon and at the first try.", "queues"))
    return sorted(found, key=lambda each: ("bad", "warn", "good", "info").index(each.level))


def _dead(figures: Figures) -> Iterator[Finding]:
    dead = figures.all.dead_lettered
    if not dead:
        return
    most = figures.dead_letters[0] if figures.dead_letters else None
    where = f"; most of them in {_name(most.queue)}: {_name(most.reason)}" if most is not None else ""
    part = f" ({share(dead, figures.all.produced)} of the number produced)" if figures.all.produced else ""
    level = "bad" if dead >= DEAD_BAD * figures.all.produced else "warn"
    yield Finding(level, f"{_jobs(dead)} ended as dead letters{part}{where}.", "dead")


def _returned(figures: Figures) -> Iterator[Finding]:
    returned, claimed = figures.all.given_back, figures.all.claimed
    if not claimed or returned < RETURNED_NOTED * claimed:
        return
    most = figures.returns[0] if figures.returns else None
    why = f"; the most common reason is {_name(most.reason)}, in {_name(most.queue)}" if most is not None else ""
    hint = ""
    if figures.all.lost > figures.all.released:
        hint = " Workers were lost: the log of their supervisor says how each ended, and what it ran."
    elif figures.all.expired > figures.all.released:
        hint = " Leases run out where workers die, or take longer than the lease lasts."
    level = "bad" if returned >= RETURNED_BAD * claimed else "warn"
    yield Finding(level, f"{share(returned, claimed)} of all deliveries ended without an ack{why}.{hint}", "returns")


def _open(figures: Figures) -> Iterator[Finding]:
    for row in figures.queues:
        left = row.held + row.waiting
        if left >= OPEN_JOBS_MIN and left >= OPEN_NOTED * row.arrived:
            part = f" ({share(left, row.arrived)} of the number that came in)" if left < row.arrived else ""
            yield Finding("warn", f"{_jobs(left)} of {_name(row.queue)} still open at the end{part}.", "queues")
            return


def _slow(figures: Figures) -> Iterator[Finding]:
    """Yield the queue whose jobs wait longest, if they wait much longer than they are processed."""
    slow = []
    for row in figures.queues:
        wait, work = figures.latency_of(row.queue, "wait"), figures.latency_of(row.queue, "processing")
        if wait is not None and work is not None and wait.p90_ms >= max(WAIT_NOTED_MS, WAIT_TIMES_WORK * work.p90_ms):
            slow.append((wait.p90_ms, work.p90_ms, row.queue))
    if slow:
        wait_ms, work_ms, queue = max(slow, key=lambda each: each[0])
        sentence = (
            f"Jobs of {_name(queue)} wait much longer than they are worked at: one in ten waited {duration(wait_ms)} "
            f"or more, while nine in ten were done within {duration(work_ms)}. More workers would help."
        )
        yield Finding("warn", sentence, "queues")


def _poison(figures: Figures) -> Iterator[Finding]:
    worst = figures.poison[0] if figures.poison else None
    if worst is not None and worst.deliveries >= DELIVERIES_NOTED:
        why = f", the last time: {_name(worst.reason)}" if worst.reason else ""
        sentence = f"Job {worst.seq} of {_name(worst.queue)} was delivered {worst.deliveries} times{why}."
        yield Finding("warn", sentence, "poison")


def _uneven(figures: Figures) -> Iterator[Finding]:
    index = figures.all.jain_acked
    if figures.all.workers < 2 or index is None or index >= JAIN_NOTED:
        return
    first = figures.workers[0]
    sentence = (
        f"The work is spread unevenly over {figures.all.workers:,} workers (Jain’s index {index:.2f}): "
        f"{_name(first.node)} completed {share(first.acked, figures.all.acked)} of all jobs."
    )
    yield Finding("warn", sentence, "workers")


def _idle(figures: Figures) -> Iterator[Finding]:
    if not figures.idle_count:
        return
    named = ", ".join(_name(row.queue) for row in figures.idle[:_NAMED_MAX])
    more = f" and {figures.idle_count - _NAMED_MAX:,} more" if figures.idle_count > _NAMED_MAX else ""
    sentence = f"Nothing was claimed from {named}{more}: logs, dead letters, or queues that nobody works at."
    yield Finding("info", sentence, "idle")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{amount(number)} jobs"


def _name(name: str | None) -> str:
    return f"“{shorten(name)}”" if name else "no reason given"

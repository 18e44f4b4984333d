"""The verdicts on a run: what clients were told, and whether every member folded the same.

A change of leader may forget the youngest leases of a queue whose leases are not durable, as a power loss may: there
the history begins an era with each epoch. On a queue with durable leases nothing is excused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tenure.cli.commands.directory import open_disk, replay
from tenure.contract.records import parse_lease_id
from tenure.core.state.state import State
from tenure.testing import History, HistoryReport, check_history
from tenure.testing.history import Delivery, Mark, Row
from tests.cluster.load import CAREFUL, DELIVERIES_MAX
from tests.model.machine import assert_same, dumped, let_pass

__all__ = ["compare_folds", "epochs", "judge"]

_COUNTER_BITS: Final = 40


def judge(history: History) -> dict[str, HistoryReport]:
    """Return the verdicts: on all with an era per epoch, and on durable leases alone."""
    marks = [Mark("power_loss", [], at) for at in epochs(history).values()]
    careful = History(row for row in map(_careful, history) if row is not None)
    return {
        "all": check_history(History([*history, *marks]), deliveries_max=DELIVERIES_MAX),
        "durable leases": check_history(careful, deliveries_max=DELIVERIES_MAX),
    }


def epochs(history: History) -> dict[int, int]:
    """Return the epochs in which leases were given, each with the time of its first one."""
    found: dict[int, int] = {}
    for row in history:
        if isinstance(row, Delivery):
            epoch = parse_lease_id(row.lease) >> _COUNTER_BITS
            found[epoch] = min(found.get(epoch, row.at), row.at)
    return found


def _careful(row: Row) -> Row | None:
    """Return the row as far as it is about queues with durable leases."""
    if not isinstance(row, Mark):
        return row if row.topic.startswith(CAREFUL) else None
    mine = [(id, count) for id, count in zip(row.ids, row.tries, strict=True) if id.startswith(CAREFUL)]
    return Mark(row.what, [id for id, _ in mine], row.at, [count for _, count in mine]) if mine else None


def compare_folds(directories: Sequence[Path]) -> list[str]:
    """Fold the logs of stopped members, which hold the same jobs; return where they differ."""
    states = {directory.name: replay(open_disk(directory)).state for directory in directories}
    now = max(state.log_ms for state in states.values())
    (first, expected), *others = ((name, _topics(state, now)) for name, state in states.items())
    problems = list[str]()
    for name, topics in others:
        try:
            assert_same(topics, expected)
        except AssertionError as error:
            problems.append(f"{name} and {first} fold to different states: {error}")
    return problems


def _topics(state: State, now: int) -> dict[str, bytes]:
    """Return the canonical form of every topic at a moment of log time; the rest of a state tells who led when."""
    let_pass(state, now)
    return {name: dump for name, dump in dumped(state, now).items() if name}

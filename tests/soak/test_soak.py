"""The short form of `make soak`, and that it would find something: the history of a real round, doctored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.testing import History, check_history
from tenure.testing.history import Call, Delivery, End, Mark, Row, Watched
from tests.soak.excerpt import excerpt
from tests.soak.load import DELIVERIES_MAX
from tests.soak.nemesis import FAULTS, schedule
from tests.soak.round import DISK_FAULTS, play

SEED = 1
SECONDS = 11.0


def test_a_seed_makes_one_schedule_and_begins_with_every_kind_of_fault() -> None:
    long = schedule(SEED, seconds=60)
    assert {fault.what for fault in long[: len(FAULTS)]} == set(FAULTS)
    assert long == schedule(SEED, seconds=60) != schedule(SEED + 1, seconds=60)
    short = schedule(SEED, seconds=SECONDS)
    assert short == long[: len(short)]
    assert not any("disk" in fault.what for fault in schedule(SEED, seconds=60, without=DISK_FAULTS))


# A real history, doctored: each rule finds its own


def acked(history: History) -> tuple[Delivery, End]:
    """Return a job's only delivery and the ack that ended it."""
    deliveries: dict[tuple[str, int], list[Delivery]] = {}
    for row in history:
        if isinstance(row, Delivery) and row.topic == "synced":
            deliveries.setdefault((row.topic, row.seq), []).append(row)
    for row in history:
        if isinstance(row, End) and row.what == "ack" and row.outcome == "ok":
            found = deliveries.get((row.topic, row.seq), [])
            if len(found) == 1:
                return found[0], row
    raise AssertionError("no job was delivered once and acked")


def without(history: History, drop: Callable[[Row], bool]) -> History:
    return History(row for row in history if not drop(row))


def lost(history: History) -> History:
    delivery, _ = acked(history)
    return without(history, lambda row: isinstance(row, Delivery) and row.id == delivery.id)


def vanished(history: History) -> History:
    _, ack = acked(history)
    return without(history, lambda row: row is ack)


def made_up(history: History) -> History:
    delivery, _ = acked(history)
    return without(history, lambda row: isinstance(row, Call) and delivery.id in row.ids)


def again(delivery: Delivery, **changes: int) -> Delivery:
    values = {name: getattr(delivery, name) for name in delivery.__struct_fields__}
    return Delivery(**(values | {"lease": "lease_x", "node": "other"} | changes))


def delivered_after_its_ack(history: History) -> History:
    delivery, ack = acked(history)
    return History([*history, again(delivery, at=ack.at + 5_000, deliveries=2, deadline=ack.at + 6_000)])


def held_twice(history: History) -> History:
    delivery, ack = acked(history)
    second = again(delivery, at=delivery.at + 1, deliveries=2)
    return History([*(row for row in history if row is not ack), second, Mark("remaining", [delivery.id])])


def counted_back(history: History) -> History:
    delivery, ack = acked(history)
    second = again(delivery, at=ack.at + 90_000, deadline=ack.at + 91_000)
    return History([*(row for row in history if row is not ack), second, Mark("remaining", [delivery.id])])


def keyed_twice(history: History) -> History:
    delivery, _ = acked(history)
    return History([*history, Call([delivery.id], "ok", 0, delivery.topic, "p", [delivery.seq + 10**9])])


def answered_backwards(history: History) -> History:
    last = next(row for row in reversed(history.rows) if isinstance(row, Call) and row.outcome == "ok")
    earlier = Call(["new"], "ok", last.at, last.topic, last.by, [1 << 40])
    later = Call(["newer"], "ok", last.at, last.topic, last.by, [(1 << 40) - 1])
    return History([*history, earlier, later, Mark("remaining", ["new", "newer"])])


def half_appended(history: History) -> History:
    return History([*history, Call(["one", "two"], "unknown"), Mark("remaining", ["one"])])


def gap_in_a_watch(history: History) -> History:
    rows = [row for row in history if isinstance(row, Watched) and row.by == "watcher"]
    return without(history, lambda row: row is rows[len(rows) // 2])


def buried_early(history: History) -> History:
    delivery, ack = acked(history)
    return History([*(row for row in history if row is not ack), Mark("dead_letter", [delivery.id], 0, [1])])


DOCTORED: dict[str, tuple[Callable[[History], History], str]] = {
    "an acknowledged job is lost": (lost, "lost"),
    "a delivered job is gone without an ack": (vanished, "vanished"),
    "a delivery was never sent": (made_up, "unexpected"),
    "an acked job is delivered again": (delivered_after_its_ack, "undone ack"),
    "two workers hold one job": (held_twice, "overlapping leases"),
    "a delivery count does not rise": (counted_back, "duplicated without redelivery"),
    "a key is appended twice": (keyed_twice, "duplicated without redelivery"),
    "seqs of one producer fall": (answered_backwards, "out of order"),
    "half of an unknown call is there": (half_appended, "torn call"),
    "a watch leaves a gap": (gap_in_a_watch, "out of order"),
    "a dead letter comes too early": (buried_early, "dead letter too early or too late"),
}


@pytest.mark.timeout(300)
def test_a_round_of_every_fault_loses_nothing_and_undoes_nothing(tmp_path: Path) -> None:
    """Faults 1, 12, 20, 21, 23, 26-28, 30, 32, 38, 39, 44, under load from real clients.

    Then each rule must find its own fault in the history of this round: one test, because a round takes its time.
    """
    played = asyncio.run(play(tmp_path / "round", seed=SEED, seconds=SECONDS))
    print(played.text())
    assert played.ok, played.text()
    assert played.report.produced > 100
    assert played.report.acked > 100
    for what, (doctor, kind) in DOCTORED.items():
        history = doctor(played.journal.history)
        report = check_history(history, deliveries_max=DELIVERIES_MAX)
        assert any(name.startswith(kind) for name in report.anomalies), f"{what}: {report}"
        assert excerpt(history, report, played.done), f"{what}: the job is not shown"

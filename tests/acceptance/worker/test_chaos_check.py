"""Who watches the watchers: what must never happen is found by the check that the chaos tests rely on."""

from __future__ import annotations

from tenure.contract.records import lease_id
from tenure.core.events import Acked, Claimed, Event, Extended, Released
from tests.acceptance.worker.chaos import Noted
from tests.acceptance.worker.chaos_check import Verdict, judge
from tests.acceptance.worker.chaos_log import Logged, LoggedQueue

FIRST = Claimed(10, 1, 1, "a", 110, [1, 1])
SECOND = Claimed(200, 1, 2, "b", 300, [1, 1])


def logged(*events: Event) -> Logged:
    made = Logged()
    made.queues["q"] = LoggedQueue("q")
    for event in events:
        made.queues["q"].take(event)
    return made


def noted(event: str, lease: int, node: str, deliveries: int, *, taken: bool | None = None) -> Noted:
    return Noted(event, "x", "q", 1, lease_id(lease), node, 1, deliveries, 0.0, taken=taken)


def handled(lease: int, node: str, deliveries: int) -> list[Noted]:
    return [noted("begin", lease, node, deliveries), noted("end", lease, node, deliveries)]


def verdict(lines: list[Noted], *events: Event) -> Verdict:
    fates = {"a": "killed", "b": "left alone"}
    return judge(lines, logged(*events), sent=["x"], acknowledged=["x"], fates=fates)


def test_once_is_fine() -> None:
    found = verdict(handled(1, "a", 1), FIRST, Acked(20, 1, [1, 1], 1, "a"))
    assert found.report.ok
    assert not found.problems
    assert not found.again


def test_again_after_an_expiry_is_counted_and_fine() -> None:
    found = verdict(handled(1, "a", 1) + handled(2, "b", 2), FIRST, SECOND, Acked(210, 1, [1, 1], 1, "b"))
    assert found.report.ok
    assert not found.problems
    assert found.again == {"expired, worker killed": 1}
    assert found.finished_again == 1
    assert not found.unprovoked


def test_a_lease_that_ran_out_though_nothing_was_done_to_its_worker_is_counted() -> None:
    first, second = Claimed(10, 1, 1, "b", 110, [1, 1]), Claimed(200, 1, 2, "a", 300, [1, 1])
    found = verdict(handled(1, "b", 1) + handled(2, "a", 2), first, second, Acked(210, 1, [1, 1], 1, "a"))
    assert not found.problems
    assert found.unprovoked == 1


def test_again_though_the_lease_was_alive_is_found() -> None:
    extended = Extended(100, 1, [1, 1], 250, "a")
    found = verdict(handled(1, "a", 1) + handled(2, "b", 2), FIRST, extended, SECOND, Acked(210, 1, [1, 1], 1, "b"))
    assert "runs until 250" in found.problems[0]
    assert found.report.overlapping


def test_again_after_an_ack_is_found() -> None:
    found = verdict(handled(1, "a", 1) + handled(2, "b", 2), FIRST, Acked(20, 1, [1, 1], 1, "a"), SECOND)
    assert any("though it was acked" in problem for problem in found.problems)
    assert any("whose lease ended by acked" in problem for problem in found.problems)
    assert found.report.undone


def test_twice_under_one_lease_and_under_none_are_found() -> None:
    acked = Acked(20, 1, [1, 1], 1, "a")
    assert "ran under the lease of" in verdict(handled(1, "a", 1) * 2, FIRST, acked).problems[0]
    assert "ran under no lease" in verdict(handled(1, "b", 1), FIRST, acked).problems[0]
    assert "ran under no lease" in verdict(handled(7, "a", 1), FIRST, acked).problems[0]


def test_a_job_that_nobody_finished_is_found() -> None:
    found = verdict([noted("begin", 1, "a", 1)], FIRST, Released(20, 1, [1, 1], "a", 20))
    assert found.never_handled == ["x"]
    assert found.report.vanished == ["x"]


def test_an_answer_that_is_not_what_the_log_says_is_found() -> None:
    released = Released(20, 1, [1, 1], "a", 20)
    told = [*handled(1, "a", 1), noted("asked", 1, "a", 1, taken=True)]
    assert "was told True" in verdict(told, FIRST, released).problems[0]


def test_an_ack_beyond_the_deadline_is_found() -> None:
    assert "nobody held" in verdict(handled(1, "a", 1), FIRST, Acked(111, 1, [1, 1], 1, "a")).problems[0]

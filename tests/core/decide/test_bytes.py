"""Steps that take as many records as an answer, or a batch of the log, can carry: the longest prefix that fits."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Record, Settings
from tenure.contract.replies import JobRow
from tenure.core.events import Appended
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas
from tests.kit.rules import Rules, fail_by_expiry, make_queue, read

LARGE = b'"' + b"x" * 998 + b'"'


@pytest.fixture
def tight(clock: ManualClock) -> Rules:
    return Rules(clock, Settings(claim_bytes_max=3_500, step_bytes_max=2_500))


def large_queue(rules: Rules, jobs: int, **config: Any) -> None:
    make_queue(rules, **config)
    for _ in range(jobs):
        rules.produce("q", [LARGE])


def test_a_claim_leases_no_more_than_its_answer_carries(tight: Rules) -> None:
    large_queue(tight, 8)
    first, second = tight.claim("q", node="w", max_count=1_000), tight.claim("q", node="w", max_count=1_000)
    assert (first.seqs, second.seqs, second.ready) == ([1, 2, 3], [4, 5, 6], 2)
    jobs = tight.jobs("q", state="ready").items
    assert jobs == [JobRow(7, "ready", 0), JobRow(8, "ready", 0)], "what was not sent burns no delivery"


def test_a_job_larger_than_an_answer_comes_alone(tight: Rules) -> None:
    make_queue(tight)
    tight.produce("q", [b"1", b'"' + b"x" * 9_000 + b'"', b"3"])
    seqs = [tight.claim("q", node="w", max_count=9).seqs for _ in range(4)]
    assert seqs == [[1], [2], [3], []]


def test_work_that_came_back_and_fresh_work_share_the_answer(tight: Rules, clock: ManualClock) -> None:
    large_queue(tight, 6)
    tight.claim("q", node="w", max_count=2, lease_ms=1_000)
    clock.advance(1_001)
    assert tight.claim("q", node="w", max_count=9).seqs == [1, 2, 3]
    assert tight.claim("q", node="w", max_count=9).seqs == [4, 5, 6]


def test_one_pass_buries_as_much_as_a_step_copies_and_the_next_goes_on(tight: Rules, clock: ManualClock) -> None:
    large_queue(tight, 5, max_deliveries=1, dead_letter="dead")
    for _ in range(2):
        tight.claim("q", node="w", max_count=1_000, lease_ms=1_000)
    clock.advance(1_001)
    tight.produce("q", [b"0"])
    buried = []
    for _ in range(3):
        tight.claim("q", node="w", max_count=1, lease_ms=60_000)
        buried.append(tight.topic("dead").count)
    assert buried == [2, 4, 5]
    assert tight.topic("q").count == 1, "the healthy job is held"


def test_a_reject_of_many_large_jobs_moves_all_of_them_in_parts(tight: Rules) -> None:
    large_queue(tight, 7, dead_letter="dead")
    seqs = [seq for _ in range(3) for seq in tight.claim("q", node="w", max_count=1_000).seqs]
    appends: list[int] = []
    keep = tight.payloads.keep

    def count_and_keep(event: Appended) -> None:
        appends.append(event.count)
        keep(event)

    tight.payloads.keep = count_and_keep  # type: ignore[method-assign]
    assert tight.nack("q", node="w", seqs=seqs[::-1], dead=True).count == 7
    assert appends == [2, 2, 2, 1]
    assert (tight.topic("q").count, tight.topic("dead").count) == (0, 7)


@pytest.mark.parametrize("cap", [{"cap_records": 3}, {"cap_bytes": 500}])
def test_a_dead_letter_topic_takes_as_many_as_fit_and_the_others_are_parked(
    rules: Rules, clock: ManualClock, cap: dict[str, int]
) -> None:
    make_queue(rules, jobs=5, max_deliveries=1, dead_letter="dead")
    rules.put_topic("dead", {"discard": "reject", **cap})
    fail_by_expiry(rules, clock)
    assert rules.claim("q", node="w").seqs == []
    letters = datas(read(rules, "dead"))
    parked = rules.jobs("q", state="parked").items
    assert letters == [b"%d" % seq for seq in range(1, len(letters) + 1)]
    assert 0 < len(letters) < 5
    assert len(letters) == cap.get("cap_records", len(letters))
    assert [job.seq for job in parked] == list(range(len(letters) + 1, 6))
    assert all("the topic is full" in (job.reason or "") for job in parked)


def test_a_plain_record_and_one_with_meta_are_weighed_alike(tight: Rules) -> None:
    make_queue(tight)
    for _ in range(4):
        tight.produce("q", [Record(data=LARGE, meta=b"{}", tag="t")])
    assert len(tight.claim("q", node="w", max_count=4).seqs) == 3

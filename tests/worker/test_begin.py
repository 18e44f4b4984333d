"""A suspect is begun before it runs: repeated until answered, and not run without an answer."""

from __future__ import annotations

import asyncio

import pytest

from tenure.errors import (
    Closed,
    Conflict,
    Indeterminate,
    Invalid,
    LeaseLost,
    NotFound,
    Overloaded,
    TenureError,
)
from tenure.testing import ManualClock, ManualTiming
from tenure.worker.runtime.begin import Begin, begin, is_unsupported
from tenure.worker.runtime.job import HeldJob
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns


class FakeBackend:
    """Answers each begin with the next of ``answers``, and then with none."""

    def __init__(self, *answers: TenureError | None) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def begin(self, job: HeldJob) -> None:
        self.asked += 1
        answer = self._answers.pop(0) if self._answers else Indeterminate("no answer")
        if answer is not None:
            raise answer


async def outcome_of(backend: FakeBackend, *, lease_ms: int = 30_000, ends_after_ms: int = 3_600_000) -> Begin:
    clock = ManualClock()
    timing = ManualTiming(clock)
    job = HeldJob(topic="q", seq=1, lease_id="l", node="n", data=b"1", deadline_ms=timing.now_ms() + lease_ms)
    end_ms = timing.now_ms() + ends_after_ms
    beginning = asyncio.create_task(
        begin(
            job,
            backend,  # type: ignore[arg-type]
            timing=timing,
            settings=WorkerSettings(),
            is_ending=lambda: timing.now_ms() >= end_ms,
        )
    )
    while not beginning.done():
        clock.advance(100)
        await turns(5)
    return beginning.result()


def refused(code: str) -> Conflict:
    return Conflict("no", code=code)


def answered(status: int) -> TenureError:
    error = TenureError("no")
    error.detail = {"status": status}
    return error


async def test_a_begin_without_an_answer_is_repeated() -> None:
    backend = FakeBackend(Overloaded("later"), Indeterminate("who knows"), Closed("over"), None)
    assert await outcome_of(backend) is Begin.BEGUN
    assert backend.asked == 4


async def test_a_job_is_not_run_where_no_answer_comes_while_its_lease_lives() -> None:
    backend = FakeBackend()
    assert await outcome_of(backend) is Begin.NOT_NOW
    assert backend.asked >= 20


async def test_a_worker_that_ends_does_not_go_on_asking() -> None:
    backend = FakeBackend()
    assert await outcome_of(backend, ends_after_ms=0) is Begin.NOT_NOW
    assert backend.asked == 0


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, Begin.BEGUN),
        (LeaseLost("over"), Begin.LOST),
        (refused("busy"), Begin.NOT_NOW),
        (Invalid("what?"), Begin.NOT_NOW),
        (refused("feature_off"), Begin.BEGUN),
        (NotFound("no such path"), Begin.BEGUN),
        (answered(405), Begin.BEGUN),
        (NotFound("no such topic", code="topic_not_found"), Begin.LOST),
    ],
)
async def test_an_answer_decides(answer: TenureError | None, outcome: Begin) -> None:
    backend = FakeBackend(answer)
    assert await outcome_of(backend) is outcome
    assert backend.asked == 1


def test_only_a_broker_without_the_feature_does_not_support_it() -> None:
    assert is_unsupported(refused("feature_off"))
    assert is_unsupported(NotFound("no such path"))
    assert is_unsupported(answered(405))
    assert not is_unsupported(refused("busy"))
    assert not is_unsupported(NotFound("no such topic", code="topic_not_found"))
    assert not is_unsupported(Overloaded("later"))
    assert not is_unsupported(None)

"""The hello: repeated until it is answered, with the death of the process before; only then the board is taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.contract.bodies import Gone
from tenure.contract.replies import HelloReply
from tenure.errors import Closed, Conflict, Denied, Indeterminate, NotFound, Overloaded, TenureError
from tenure.testing import ManualClock, ManualTiming
from tenure.worker.backends.open import OpenBackend
from tenure.worker.processes.board import Board, State
from tenure.worker.runtime.entry import Entry
from tenure.worker.runtime.hello import Hello
from tenure.worker.runtime.link import Link
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns

OLDER = "the broker counts every delivery as a try"


class FakeClient:
    """Answers each hello with the next of ``answers``."""

    node = "successor"

    def __init__(self, *answers: HelloReply | TenureError) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def hello(self, queues: list[str], **fields: Any) -> HelloReply:
        self.asked.append({"queues": queues, **fields})
        answer = self._answers.pop(0)
        if isinstance(answer, TenureError):
            raise answer
        return answer


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.make("test")
    yield made
    made.close()


class Bench:
    """The hello of a process that works at two queues."""

    def __init__(self, board: Board | None, *answers: HelloReply | TenureError, hold_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.client = FakeClient(*answers)
        self.heard: dict[str, int] = {}
        hello = Hello(
            self.client,  # type: ignore[arg-type]
            {"mail": 4, "pages": 2},
            link=Link("memory"),
            board=board,
            group="group",
            timing=self.timing,
            settings=WorkerSettings(),
            on_suspects=self.heard.__setitem__,
        )
        self.entry = Entry(OpenBackend([], Link("memory")), hello, self.timing, hold_ms=hold_ms)
        self.places = asyncio.create_task(self.entry.places("mail"))

    async def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.clock.advance(100)
            await turns(5)


def died(board: Board) -> None:
    board.take("dead", {"mail": 4})["mail"].enter(17)
    board.bury(-9)


ON = HelloReply(returns=True)


async def test_the_death_of_the_process_before_is_reported_and_then_the_board_taken_over(board: Board) -> None:
    died(board)
    bench = Bench(board, ON)
    await turns()
    (asked,) = bench.client.asked
    assert asked["gone"] == [Gone(node="dead", exit_code=137, begun={"mail": [17]})]
    assert (asked["queues"], asked["group"]) == (["mail", "pages"], "group")
    assert bench.places.done()
    assert (board.read().state, board.read().node) == (State.WORKING, "successor")


async def test_it_is_repeated_until_it_is_answered_and_the_report_stays_until_then(board: Board) -> None:
    died(board)
    bench = Bench(board, Overloaded("later"), Closed("over"), Indeterminate("who knows"), ON)
    await turns()
    assert board.read().node == "dead"
    await bench.pass_ms(20_000)
    assert [asked["gone"][0].node for asked in bench.client.asked] == ["dead"] * 4
    assert bench.places.done()
    assert board.read().node == "successor"


async def test_the_first_process_has_nothing_to_report(board: Board) -> None:
    bench = Bench(board, ON)
    await turns()
    assert bench.client.asked[0]["gone"] == []


async def test_a_process_without_a_supervisor_says_hello_and_has_no_board() -> None:
    bench = Bench(None, ON)
    await turns()
    assert bench.client.asked[0]["gone"] == []
    assert bench.places.result() is None
    bench.entry.leave()


@pytest.mark.parametrize("error", [NotFound("no path"), Denied("no"), Conflict("no"), TenureError("405")])
async def test_a_broker_that_knows_no_hello_has_answered_and_that_is_said_once(
    board: Board, error: TenureError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    died(board)
    bench = Bench(board, error)
    await turns()
    assert bench.places.done()
    assert [OLDER in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(("returns", "said"), [(True, 0), (False, 1)])
async def test_a_log_without_the_feature_is_said(returns: bool, said: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = Bench(None, HelloReply(returns=returns))
    await turns()
    assert bench.places.done()
    assert sum(OLDER in message for message in caplog.messages) == said


async def test_the_suspects_of_its_queues_are_heard_of() -> None:
    bench = Bench(None, HelloReply(returns=True, suspects={"mail": 3}))
    await turns()
    assert bench.heard == {"mail": 3}


async def test_the_back_off_is_waited_out_after_the_hello(board: Board) -> None:
    died(board)
    bench = Bench(board, ON, hold_ms=5_000)
    await turns()
    await bench.pass_ms(4_900)
    assert len(bench.client.asked) == 1
    assert not bench.places.done()
    assert board.read().node == "dead", "a kill now leaves the report to the next one"
    await bench.pass_ms(100)
    assert bench.places.done()


async def test_a_process_that_ends_well_leaves_the_board_empty(board: Board) -> None:
    bench = Bench(board, ON)
    await turns()
    bench.entry.leave()
    assert board.read().state is State.EMPTY


async def test_a_process_that_ends_before_it_took_the_board_over_leaves_the_report(board: Board) -> None:
    died(board)
    bench = Bench(board, ON, hold_ms=5_000)
    await turns()
    bench.places.cancel()
    bench.entry.leave()
    await bench.entry.close()
    assert board.read().node == "dead"

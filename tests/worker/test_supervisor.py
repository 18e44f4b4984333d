"""Workers under a supervisor: one that dies comes back, slower each time; signals reach all; exit codes are told."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.errors import Invalid
from tenure.testing import ManualClock, ManualTiming
from tenure.worker.processes.board import Board
from tenure.worker.processes.place import Place
from tenure.worker.processes.supervisor import PROCESSES_MAX, Supervisor
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns

SETTINGS = WorkerSettings(restart_min_ms=1_000, restart_max_ms=8_000, suspects_restart_max_ms=3_000, drain_ms=20_000)


class FakeProcess:
    """A worker without a process: ends when the test says so, or when it is killed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.heard: list[int] = []
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send_signal(self, signal_number: int) -> None:
        self.heard.append(signal_number)
        if signal_number == signal.SIGKILL:
            self.end(-signal.SIGKILL)

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)


class Yard:
    """A supervisor on a clock in the test's hand."""

    def __init__(self, count: int) -> None:
        self.clock = ManualClock()
        self.started: list[tuple[int, FakeProcess]] = []
        self.refuses = False
        timing = ManualTiming(self.clock)
        self.supervisor = Supervisor(self._start, count, timing=timing, settings=SETTINGS, chance=lambda: 1.0)
        self.running = asyncio.create_task(self.supervisor.run())

    async def _start(self, place: Place) -> FakeProcess:
        if self.refuses:
            raise OSError("no memory")
        process = FakeProcess(place)
        self.started.append((place.index, process))
        return process

    def last(self, index: int) -> FakeProcess:
        return [process for number, process in self.started if number == index][-1]

    def work(self, index: int, **running: int) -> None:
        """Let a process come to work, and run a job of each queue."""
        places = Board(self.last(index).place.board).take(f"node-{index}", dict.fromkeys(running, 4))
        for queue, seq in running.items():
            places[queue].enter(seq)

    async def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        await turns()

    async def end(self, index: int, code: int) -> None:
        self.last(index).end(code)
        await turns()


@asynccontextmanager
async def yard(count: int) -> AsyncIterator[Yard]:
    there = Yard(count)
    await turns()
    yield there
    for _ in range(3):
        there.supervisor.stop()
    await turns()
    await there.running


async def test_one_that_dies_comes_back_and_waits_longer_each_time():
    async with yard(2) as there:
        waited = []
        for _ in range(5):
            await there.end(0, -signal.SIGSEGV)
            count, ms = len(there.started), 0
            while len(there.started) == count:
                await there.pass_ms(500)
                ms += 500
            waited.append(ms)
        assert waited == [1_000, 2_000, 4_000, 8_000, 8_000]
        assert [index for index, _ in there.started].count(1) == 1, "the other was left alone"


async def test_one_that_lasted_is_soon_started_again():
    async with yard(1) as there:
        for _ in range(3):
            await there.end(0, 3)
            await there.pass_ms(8_000)
        await there.pass_ms(8_000)
        await there.end(0, -signal.SIGKILL)
        count = len(there.started)
        await there.pass_ms(1_000)
        assert len(there.started) == count + 1


async def test_also_one_that_ends_well_comes_back_unless_it_was_asked_to_end():
    async with yard(1) as there:
        await there.end(0, 0)
        await there.pass_ms(1_000)
        assert len(there.started) == 2


@pytest.mark.parametrize("code", [1, 2, 6])
async def test_one_that_refuses_to_start_stops_all_with_its_exit_code(code: int):
    async with yard(3) as there:
        await there.end(1, code)
        assert [there.last(index).heard for index in (0, 2)] == [[signal.SIGTERM]] * 2
        for index in (0, 2):
            await there.end(index, 0)
        assert await there.running == code
        assert len(there.started) == 3


async def test_one_that_refuses_after_others_have_lasted_is_tried_again():
    async with yard(2) as there:
        await there.pass_ms(8_000)
        await there.end(0, -signal.SIGKILL)
        await there.pass_ms(1_000)
        await there.end(0, 1)
        assert there.last(1).heard == []
        await there.pass_ms(1_000)
        assert [index for index, _ in there.started] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("codes", "code"), [((0, 0), 0), ((0, 1), 1), ((-signal.SIGKILL, 0), 1), ((-signal.SIGTERM, 0), 0)]
)
async def test_a_stop_is_passed_on_and_the_exit_code_tells_whether_all_ended_well(codes: tuple[int, int], code: int):
    async with yard(2) as there:
        there.supervisor.stop()
        for index in (0, 1):
            assert there.last(index).heard == [signal.SIGTERM]
            await there.end(index, codes[index])
        assert await there.running == code
        assert len(there.started) == 2, "none is started again"


async def test_a_second_stop_is_passed_on_and_what_does_not_end_is_killed():
    async with yard(1) as there:
        there.supervisor.stop()
        there.supervisor.stop()
        await turns()
        assert there.last(0).heard == [signal.SIGTERM, signal.SIGTERM]
        await there.pass_ms(SETTINGS.cancel_ms + SETTINGS.flush_ms)
        assert there.last(0).heard[-1] == signal.SIGKILL
        assert await there.running == 1


async def test_a_third_stop_kills():
    async with yard(1) as there:
        for _ in range(3):
            there.supervisor.stop()
        assert there.last(0).heard == [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]


async def test_what_hangs_long_after_its_drain_is_killed():
    async with yard(1) as there:
        there.supervisor.stop()
        await there.pass_ms(SETTINGS.drain_ms)
        assert there.last(0).heard == [signal.SIGTERM]
        await there.pass_ms(60_000)
        assert there.last(0).heard == [signal.SIGTERM, signal.SIGKILL]


async def test_a_stop_during_a_wait_ends_it():
    async with yard(1) as there:
        await there.end(0, -signal.SIGSEGV)
        there.supervisor.stop()
        await turns()
        assert await there.running == 1


async def test_one_that_cannot_be_started_is_tried_again():
    async with yard(1) as there:
        there.refuses = True
        await there.end(0, -signal.SIGSEGV)
        await there.pass_ms(1_000)
        there.refuses = False
        await there.pass_ms(8_000)
        assert len(there.started) == 2


@pytest.mark.parametrize("count", [0, -1, PROCESSES_MAX + 1])
async def test_the_number_of_workers_is_bounded(count: int):
    async def start(place: Place) -> FakeProcess:
        return FakeProcess(place)

    with pytest.raises(Invalid, match="processes must be"):
        Supervisor(start, count)


async def test_one_that_dies_at_work_is_restarted_at_once_and_waits_before_it_takes_jobs():
    async with yard(2) as there:
        held = []
        for _ in range(5):
            there.work(0, mail=17)
            await there.end(0, -signal.SIGKILL)
            held.append(there.last(0).place.hold_ms)
        assert held == [1_000, 2_000, 4_000, 8_000, 8_000]
        assert [index for index, _ in there.started] == [0, 1, 0, 0, 0, 0, 0]


async def test_the_wait_of_one_that_takes_no_jobs_yet_does_not_count_as_having_lasted():
    async with yard(1) as there:
        for held_ms in (1_000, 2_000, 4_000, 8_000, 8_000):
            there.work(0, mail=17)
            await there.pass_ms(7_000)
            await there.end(0, -signal.SIGKILL)
            assert there.last(0).place.hold_ms == held_ms
            await there.pass_ms(held_ms)
        there.work(0)
        await there.pass_ms(8_000)
        await there.end(0, -signal.SIGKILL)
        assert there.last(0).place.hold_ms == 1_000


async def test_one_that_dies_before_it_takes_over_leaves_the_report_to_the_next():
    async with yard(1) as there:
        there.work(0, mail=17)
        await there.end(0, -signal.SIGKILL)
        await there.end(0, -signal.SIGSEGV)
        assert len(there.started) == 2, "it did not come to work: the supervisor waits"
        await there.pass_ms(2_000)
        assert there.last(0).place.hold_ms == 0
        left = Board(there.last(0).place.board).read()
        assert (left.node, left.exit_code, left.running) == ("node-0", -signal.SIGKILL, {"mail": [17]})


async def test_all_processes_of_a_supervisor_have_its_group_and_boards_of_their_own():
    async with yard(3) as there:
        there.supervisor.run_suspects()
        await turns()
        places = [process.place for _, process in there.started]
        assert [place.index for place in places] == [0, 1, 2, 3]
        assert len({place.group for place in places}) == 1
        assert len({place.board for place in places}) == 4


@pytest.mark.parametrize(
    ("running", "said"),
    [
        ({}, "worker 0 was ended by SIGKILL while it ran no job: it starts again, and takes jobs in 1000 ms"),
        ({"mail": 17}, "worker 0 was ended by SIGKILL while it ran job 17 of mail: it starts again"),
        (
            {"mail": 17, "pages": 4},
            "worker 0 was ended by SIGKILL while it ran 2 jobs, one of which may be why: 17 of mail; 4 of pages: it",
        ),
    ],
)
async def test_a_death_is_one_line_with_the_jobs_that_ran(
    running: dict[str, int], said: str, caplog: pytest.LogCaptureFixture
):
    async with yard(1) as there:
        there.work(0, **running)
        await there.end(0, -signal.SIGKILL)
        (line,) = caplog.messages
        assert line.startswith(said)


async def test_a_death_during_the_drain_is_said_too(caplog: pytest.LogCaptureFixture):
    async with yard(1) as there:
        there.work(0, mail=17)
        there.supervisor.stop()
        await there.end(0, -signal.SIGKILL)
        assert caplog.messages == ["worker 0 was ended by SIGKILL while it ran job 17 of mail"]


async def test_one_that_worked_had_a_valid_command_whatever_its_exit_code():
    async with yard(1) as there:
        there.work(0, mail=17)
        await there.end(0, 1)
        assert len(there.started) == 2
        assert not there.running.done()


async def test_suspects_get_a_process_of_their_own_until_it_ends_by_itself():
    async with yard(2) as there:
        assert len(there.started) == 2
        for _ in range(3):
            there.supervisor.run_suspects()
            await turns()
        assert [index for index, _ in there.started] == [0, 1, 2]
        assert there.last(2).place.on_demand
        await there.pass_ms(SETTINGS.suspects_idle_ms)
        await there.end(2, 0)
        await there.pass_ms(60_000)
        assert len(there.started) == 3
        there.supervisor.run_suspects()
        await turns()
        assert len(there.started) == 4


async def test_suspects_that_are_reported_while_their_process_ends_get_another_one():
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await there.pass_ms(60_000)
        there.supervisor.run_suspects()
        await there.end(1, 0)
        assert [index for index, _ in there.started] == [0, 1, 1]


async def test_a_process_for_suspects_comes_back_at_once_and_soon_takes_jobs():
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await turns()
        held = []
        for _ in range(5):
            there.work(1, mail=17)
            await there.end(1, -signal.SIGKILL)
            held.append(there.last(1).place.hold_ms)
        assert held == [1_000, 2_000, 3_000, 3_000, 3_000]


@pytest.mark.parametrize("code", [1, 2, 6])
async def test_a_process_for_suspects_that_cannot_start_stops_nobody(code: int):
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await turns()
        await there.end(1, code)
        await there.pass_ms(1_000)
        assert [index for index, _ in there.started] == [0, 1, 1]
        assert there.last(0).heard == []


async def test_a_process_for_suspects_that_cannot_start_is_not_tried_for_ever():
    """As where a startup hook takes a port that the other process has."""
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await turns()
        for _ in range(20):
            if there.running.done() or not await ends_again(there, 1, code=1):
                break
        tried = len(there.started)
        await there.pass_ms(600_000)
        assert len(there.started) == tried < 20
        there.supervisor.run_suspects()
        await turns()
        assert len(there.started) == tried + 1, "it is tried again once it is asked for"


async def ends_again(there: Yard, index: int, *, code: int) -> bool:
    """Let a process end, and wait for the longest time after which it is started again; return whether it is."""
    count = len(there.started)
    await there.end(index, code)
    await there.pass_ms(SETTINGS.restart_max_ms)
    return len(there.started) > count


async def test_a_stop_reaches_the_process_for_suspects_too():
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await turns()
        there.supervisor.stop()
        for index in (0, 1):
            assert there.last(index).heard == [signal.SIGTERM]
            await there.end(index, 0)
        assert len(there.started) == 2, "none is started again"
        assert await there.running == 0


async def test_a_stop_while_the_process_for_suspects_waits_for_its_restart_ends_that():
    async with yard(1) as there:
        there.supervisor.run_suspects()
        await turns()
        await there.end(1, -signal.SIGSEGV)
        there.supervisor.stop()
        await there.end(0, 0)
        assert [index for index, _ in there.started] == [0, 1]
        assert there.running.done()

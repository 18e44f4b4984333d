"""What becomes of the jobs of a connection that was cut: the table, and every short history of one job against it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from tenure import Broker, Conflict, LeaseLost
from tenure.broker.serving.grace import GRACE, Cut, CutState
from tenure.broker.serving.streams import WorkStream
from tenure.core.state.invariants import invariants
from tenure.log.memory import MemoryLog
from tenure.settings import Settings
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, numbers, turn

GRACE_MS, LEASE_MS = 5_000, 60_000


def test_every_state_has_a_row_for_every_event_and_loses_jobs_by_one_of_them_alone() -> None:
    assert GRACE.keys() == set(product(CutState, Cut))
    assert [row for row, (_, is_lost) in GRACE.items() if is_lost] == [(CutState.WAITING, Cut.TIME_UP)]


@pytest.mark.parametrize("history", list(product(Cut, repeat=4)))
def test_a_cut_loses_its_jobs_at_most_once_and_never_after_a_word(history: tuple[Cut, ...]) -> None:
    state, losses = CutState.WAITING, list[int]()
    for at, event in enumerate(history):
        state, is_lost = GRACE[state, event]
        losses += [at] if is_lost else []
    assert losses == ([0] if history[0] is Cut.TIME_UP else [])


@dataclass
class Life:
    """One job in the rules as they are written down: no bitmap, no lease table, no alarm."""

    place: str = "held"
    deliveries: int = 1
    spared: int = 0
    lost: int = 0
    is_begun: bool = False
    is_open: bool = True
    grace_ends_ms: int | None = None
    deadline_ms: int = LEASE_MS
    due_ms: int = 0
    now_ms: int = 0

    def cut(self) -> None:
        if self.is_open:
            self.is_open = False
            self.grace_ends_ms = self.now_ms + GRACE_MS if self.place == "held" else None

    def word(self) -> None:
        self.grace_ends_ms = None
        if self.place == "held":
            self.deadline_ms = self.now_ms + LEASE_MS

    def gone_while_it_ran(self) -> None:
        self._lose()

    def gone_before_it_ran(self) -> None:
        if self.place == "held":
            self.give_back()

    def grace_passes(self) -> None:
        self._pass(GRACE_MS)

    def lease_passes(self) -> None:
        self._pass(LEASE_MS + 1)

    def ack(self) -> None:
        self.grace_ends_ms = None
        if self.place == "held":
            self._leave("done")

    def nack(self) -> None:
        self.grace_ends_ms = None
        if self.place == "held":
            self.lost = 0
            self._leave("ready")

    def give_back(self) -> None:
        self.grace_ends_ms = None
        if self.place == "held":
            self.spared += 1
            self._leave("suspect" if self.lost else "ready")

    def begin(self) -> None:
        self.is_begun |= self.place == "held"
        if self.place == "held":
            self.grace_ends_ms = None

    def _pass(self, ms: int) -> None:
        self.now_ms += ms
        is_cut = self.grace_ends_ms is not None and self.grace_ends_ms <= self.now_ms
        if self.place == "held" and (is_cut or self.deadline_ms < self.now_ms):
            self._lose()
        if self.place == "delayed" and self.due_ms <= self.now_ms:
            self.place = "suspect"

    def _lose(self) -> None:
        if self.place != "held":
            return
        begun_ms = min(self.now_ms, self.deadline_ms) + 1_000
        self.lost += 1
        self.spared += not self.is_begun
        self.due_ms = begun_ms if self.is_begun else self.now_ms
        self._leave("delayed" if self.is_begun else "suspect")

    def _leave(self, place: str) -> None:
        self.place, self.is_begun, self.grace_ends_ms = place, False, None

    def settle(self) -> None:
        """The stream takes what is ready and no suspect."""
        if self.is_open and self.place == "ready":
            self.place, self.deadline_ms = "held", self.now_ms + LEASE_MS
            self.deliveries += 1

    @property
    def seen(self) -> tuple[str, int, int, int]:
        return self.place, self.deliveries, self.deliveries - self.spared, self.lost


class Run:
    """The same events on a real broker."""

    def __init__(self, broker: Broker, clock: ManualClock, stream: WorkStream) -> None:
        self.broker, self.clock, self.stream = broker, clock, stream

    async def cut(self) -> None:
        self.stream.close()

    async def word(self) -> None:
        await self.broker.extend("q", node="w", seqs=[1], lease_ms=LEASE_MS)

    async def gone_while_it_ran(self) -> None:
        await self.broker.end_node("q", node="w", seqs=[1], exit_code=-9)

    async def gone_before_it_ran(self) -> None:
        await self.broker.end_node("q", node="w")

    async def grace_passes(self) -> None:
        self.clock.advance(GRACE_MS)

    async def lease_passes(self) -> None:
        self.clock.advance(LEASE_MS + 1)

    async def ack(self) -> None:
        await self.broker.ack("q", node="w", seqs=[1])

    async def nack(self) -> None:
        await self.broker.nack("q", node="w", seqs=[1])

    async def give_back(self) -> None:
        await self.broker.return_jobs("q", node="w", seqs=[1])

    async def begin(self) -> None:
        for lease in self.broker.leases("q").items:
            await self.broker.begin("q", node="w", seq=1, lease_id=lease.lease_id)

    async def settle(self) -> None:
        await turn()
        while self.stream.take() is not None:
            pass
        invariants(self.broker._state)

    @property
    def seen(self) -> tuple[str, int, int, int]:
        if not self.broker.topic("q").count:
            return "done", *DONE
        row = self.broker.job("q", 1)
        suspects = numbers(self.broker)["suspects"]
        place = {"in_flight": "held", "ready": "suspect" if suspects else "ready"}.get(row.state, row.state)
        return place, row.deliveries, row.deliveries if row.tries is None else row.tries, row.lost


DONE = (0, 0, 0)
EVENTS = (
    *("cut", "word", "gone_while_it_ran", "gone_before_it_ran", "grace_passes", "lease_passes"),
    *("ack", "nack", "give_back", "begin"),
)


async def play(history: tuple[str, ...]) -> None:
    clock, settings = ManualClock(), Settings(lost_grace_ms=GRACE_MS, suspects_wait_ms=3_600_000)
    async with await Broker.open(None, clock=clock, settings=settings) as broker:
        await make_queue(broker, jobs=1, lease_ms=LEASE_MS, max_deliveries=0)
        life, run = Life(), Run(broker, clock, broker.work("q", node="w", isolate=True, group="g"))
        await run.settle()
        for at, event in enumerate(history):
            getattr(life, event)()
            await getattr(run, event)()
            life.settle()
            await run.settle()
            seen = ("done", *DONE) if life.place == "done" else life.seen
            assert run.seen == seen, f"after {history[: at + 1]}"


@pytest.mark.parametrize("first", EVENTS)
async def test_every_short_history_of_a_held_job_goes_as_it_is_written_down(first: str) -> None:
    for rest in product(EVENTS, repeat=2):
        await play((first, *rest))


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", EVENTS)
async def test_every_longer_history_of_a_held_job_goes_as_it_is_written_down(first: str) -> None:
    for rest in product(EVENTS, repeat=4):
        await play((first, *rest))


async def test_a_plain_stream_that_is_cut_gives_back_at_once_and_that_was_a_try(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    stream = broker.work("q", node="w", max_count=2)
    assert (await anext(stream)).seqs == [1, 2]
    stream.close()
    assert (numbers(broker)["ready"], numbers(broker)["suspects"]) == (2, 0)
    assert broker.job("q", 1).tries is None


async def test_what_was_not_read_of_a_cut_stream_is_given_back_at_once_as_no_try(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w", max_count=2, isolate=True)
    assert (await anext(stream)).seqs == [1]
    await broker.produce("q", [b"2"])
    stream.close()
    assert (broker.job("q", 1).state, broker.job("q", 2).state) == ("in_flight", "ready")
    assert (broker.job("q", 2).deliveries, broker.job("q", 2).tries, broker.job("q", 2).lost) == (1, 0, 0)


async def test_any_request_of_a_node_keeps_its_jobs_of_every_queue(broker: Broker, clock: ManualClock) -> None:
    for name in ("a", "b"):
        await make_queue(broker, name, jobs=1)
        stream = broker.work(name, node="w", isolate=True)
        await anext(stream)
        stream.close()
    await broker.claim("b", node="w", isolate=True)
    clock.advance(20_000)
    await turn()
    assert (numbers(broker, "a")["in_flight"], numbers(broker, "b")["in_flight"]) == (1, 1)


async def test_a_request_of_another_node_keeps_nothing(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w", isolate=True, group="g")
    await anext(stream)
    stream.close()
    await broker.claim("q", node="other", isolate=True, group="g")
    clock.advance(GRACE_MS)
    await turn()
    assert numbers(broker)["suspects"] == 1


async def test_leases_of_before_the_last_opening_that_run_out_say_nothing_of_their_workers() -> None:
    clock, log = ManualClock(), MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
    grant = await broker.claim("q", node="w", isolate=True)
    await broker.begin("q", node="w", seq=1, lease_id=grant.lease_id or "")
    await broker.close()
    clock.advance(LEASE_MS + 1)
    async with await Broker.open(log.reopen(), clock=clock) as broker:
        job = broker.job("q", 1)
        assert (job.state, job.deliveries, job.tries, job.lost) == ("ready", 1, 0, 0)
        assert job.history[-1].end == "expired"


async def test_begin_is_refused_for_a_job_that_is_not_held_or_does_not_isolate(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    plain = await broker.claim("q", node="w")
    with pytest.raises(Conflict) as refused:
        broker.begin("q", node="w", seq=1, lease_id=plain.lease_id or "")
    assert refused.value.code == "not_isolated"
    with pytest.raises(LeaseLost):
        broker.begin("q", node="w", seq=2, lease_id=plain.lease_id or "")
    with pytest.raises(LeaseLost):
        broker.begin("q", node="other", seq=1, lease_id=plain.lease_id or "")

"""What becomes of a caller that waits: the table of its answer, and every short history of a waiting claim and read.

A history is a list of things that happen, to the caller (it goes away, however it does, or its key is revoked), to its
topic (a job comes, one comes back from another worker, it is deleted, or made again), to its time, and to the broker
(a sync ends, the disk fails, the lead is lost, it closes). Whatever happens in whatever order: the caller hears exactly
one thing or is gone, nobody is left in line, and a job is leased to whoever got it and to nobody else.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import pytest

from tenure import Broker
from tenure.broker.answer import STEPS, OpenAnswer, Promise, PromiseEvent, PromiseState
from tenure.core.state.invariants import invariants
from tenure.errors import Closed, Denied, Indeterminate, NotLeader, TenureError
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, turn

WAIT_MS, LEASE_MS = 30_000, 600_000

# The table


ENDS = (PromiseState.TAKEN, PromiseState.REFUSED, PromiseState.GONE)


class Watched(Promise[str]):
    """A promise that writes down what is done by it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.when_done(lambda error: self.done.append("told" if error is None else "refused"), takes=False)

    def withdraw(self) -> None:
        self.done.append("withdrawn")

    def take_back(self, reply: str) -> None:
        self.done.append("taken back")

    def meet(self, event: PromiseEvent) -> None:
        match event:
            case PromiseEvent.DECIDE:
                self.decide("reply")
            case PromiseEvent.GIVE:
                self.finish("reply")
            case PromiseEvent.REFUSE:
                self.refuse(Closed("over"))
            case PromiseEvent.TAKE:
                if self.state is PromiseState.GIVEN:
                    assert self.take() == "reply"
            case PromiseEvent.CANCEL:
                self.cancel()


@pytest.mark.parametrize("history", list(product(PromiseEvent, repeat=4)))
def test_an_answer_is_given_once_refused_once_or_taken_back(history: tuple[PromiseEvent, ...]) -> None:
    promise, state = Watched(), PromiseState.OPEN
    had_reply = False
    for event in history:
        after = STEPS.get((state, event), (state, ()))[0]
        assert state not in ENDS or after is state, "an end is an end"
        promise.meet(event)
        state = after
        assert promise.state is state
        had_reply = had_reply or state in (PromiseState.DECIDED, PromiseState.GIVEN)
    assert promise.done.count("told") + promise.done.count("refused") <= 1
    assert ("withdrawn" in promise.done) is (state is not PromiseState.OPEN), "nothing waits for what has been decided"
    is_lost = state is PromiseState.GONE or (state is PromiseState.REFUSED and had_reply)
    after_the_end = sum(event is PromiseEvent.DECIDE for event in history[1:])
    assert promise.done.count("taken back") <= int(had_reply) + after_the_end
    assert ("taken back" in promise.done) >= (is_lost and had_reply), "what nobody got goes back"
    if state is PromiseState.TAKEN:
        assert "taken back" not in promise.done


# Histories of callers

CALLERS = ("task", "callback", "dropped")
EVENTS = (
    "a job comes",
    "a job comes back",
    "the caller goes",
    "its key is revoked",
    "the topic is deleted",
    "the topic is made again",
    "its time is up",
    "a sync ends",
    "the disk fails",
    "the lead is lost",
    "the broker closes",
)
ENDINGS = {"the disk fails", "the lead is lost", "the broker closes"}


class Life:
    """A claim or a read that waits on a broker whose syncs end when the history says so."""

    def __init__(self, *, caller: str, durable: bool, reads: bool) -> None:
        self.caller = caller
        self.durable = durable
        self.reads = reads
        self.clock = ManualClock()
        self.log = GatedLog()
        self.heard: list[object] = []
        self.is_gone = self.is_over = self.is_new = False
        self.answer: Any = None
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.broker = await Broker.open(self.log, clock=self.clock)
        await self._make_topic()
        await self.broker.produce("q", [b"0"])
        self.other = await self.broker.claim("q", node="other", lease_ms=LEASE_MS)
        await self.broker.synced()
        if self.durable:
            self.log.gate.clear()
        if self.reads:
            answer: Any = self.broker.diff("q", from_seq=1, wait_ms=WAIT_MS)
        else:
            answer = self.broker.claim("q", node="w", wait_ms=WAIT_MS, lease_ms=LEASE_MS)
        if self.caller == "task":
            self.task = asyncio.ensure_future(self._await(answer))
            await asyncio.sleep(0)
        elif self.caller == "callback":
            self.answer = answer
            assert isinstance(answer, OpenAnswer)
            answer.when_done(self._called)
        else:
            self.answer = answer

    async def _make_topic(self) -> None:
        config = {"leases_durable": self.durable, "durability": "fsync" if self.durable else "disk"}
        making = asyncio.ensure_future(self.broker.put_topic("q", {"type": "queue", **config}))
        await turn()
        if not making.done():  # its sync has not come
            making.cancel()

    async def _await(self, answer: Any) -> None:
        try:
            self.heard.append(await answer)
        except TenureError as error:
            self.heard.append(error)

    def _called(self, error: TenureError | None) -> None:
        self.heard.append(self.answer.reply if error is None else error)

    async def meet(self, event: str) -> None:
        if self.is_over:
            return
        match event:
            case "a job comes":
                self._quietly(lambda: self.broker.produce("q", [b"1"], create=False))
            case "a job comes back":
                self._quietly(lambda: self.broker.nack("q", node="other", seqs=[1], delay_ms=0))
            case "the caller goes":
                await self._go()
            case "its key is revoked":
                self._revoke()
            case "the topic is deleted":
                self._quietly(lambda: self.broker.delete_topic("q"))
            case "the topic is made again":
                self._quietly(lambda: self.broker.delete_topic("q"))
                await self._make_topic()
                self.is_new = True
            case "its time is up":
                self.clock.advance(WAIT_MS + 1)
            case "a sync ends":
                await self._sync()
            case "the disk fails":
                self.broker.give_up(Indeterminate("the disk has failed"))
                self.is_over = True
            case "the lead is lost":
                self.broker.give_up(NotLeader("another leads", leader="http://b", epoch=2))
                self.is_over = True
            case _:
                self.log.gate.set()
                await self.broker.close()
                self.is_over = True
        await asyncio.sleep(0)

    def _quietly(self, run: Any) -> None:
        """Send a command of somebody else, which may be too late, and whose answer nobody awaits."""
        try:
            run()
        except TenureError:
            return

    async def _sync(self) -> None:
        if self.durable:
            self.log.gate.set()
            await self.broker.synced()
            await turn()
            self.log.gate.clear()
        await turn()

    async def _go(self) -> None:
        """The caller is gone, unless it has heard something."""
        if self.task is not None:
            self.task.cancel()
            await turn()
        elif self.caller == "callback":
            self.answer.cancel()
        else:
            self.answer = None
            gc.collect(0)
            await turn()
        self.is_gone = self.is_gone or not self.heard

    def _revoke(self) -> None:
        if self.caller == "callback":
            self.answer.cancel(Denied("taken away"))

    async def end(self) -> None:
        """Let everything come to its end: the time of the wait, and every sync."""
        if not self.is_over:
            self.clock.advance(WAIT_MS + 1)
            await turn()
            self.log.gate.set()
            await self._settled()
        await turn()
        if self.caller == "dropped" and self.answer is not None:  # it awaits at last
            self.task = asyncio.ensure_future(self._await(self.answer))
            self.answer = None
            await turn()
        serving = self.broker._serving
        assert len(serving.lines) == 0, "nobody is left in line"
        assert not serving.claims._waiting, "no lease is kept alive for nobody"
        if self.is_gone:
            assert not self.heard
        else:
            assert len(self.heard) == 1, self.heard
        self._check_jobs()
        self.log.gate.set()
        await self.broker.close()

    async def _settled(self) -> None:
        """Wait for every sync that is asked for; that of a claim may be followed by that of a later deadline."""
        for _ in range(10):
            await self.broker.synced()
            await turn()
            if not self.broker._serving.claims._waiting:
                break

    def _check_jobs(self) -> None:
        """A job is held by who got it: the waiting caller, the other worker, or nobody."""
        topic = self.broker._state.topics.get("q")
        invariants(self.broker._state)
        if topic is None or topic.queue is None:
            return
        held = {seq for seq in topic.queue.in_flight if topic.queue.holder(seq).node == "w"}  # type: ignore[union-attr]
        got = self.heard[0] if self.heard and not isinstance(self.heard[0], TenureError) else None
        seqs: set[int] = set() if got is None or self.reads else set(got.seqs)  # type: ignore[attr-defined]
        if self.is_over:  # nothing can be given back any more: what nobody got runs out
            assert seqs <= held or self.is_new
        elif not self.is_new:
            assert held == seqs


def histories(length: int) -> Iterator[tuple[str, ...]]:
    """All histories in which nothing comes after an end."""
    for history in product(EVENTS, repeat=length):
        if not any(event in ENDINGS for event in history[:-1]):
            yield history


KINDS = [
    {"caller": caller, "durable": durable, "reads": reads}
    for caller in CALLERS
    for durable in (False, True)
    for reads in (False, True)
]


async def live(kind: dict[str, Any], history: tuple[str, ...]) -> None:
    life = Life(**kind)
    await life.begin()
    try:
        for event in history:
            await life.meet(event)
        await life.end()
    except BaseException as error:
        life.log.gate.set()
        error.add_note(f"{kind}: {history}")
        raise


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
async def test_whatever_happens_to_a_waiting_caller_it_hears_one_thing_and_holds_what_it_got(
    kind: dict[str, Any],
) -> None:
    for history in histories(2):
        await live(kind, history)
    for history in Random(34).sample(list(histories(3)), 25):
        await live(kind, history)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
async def test_every_history_of_three_and_many_of_four(kind: dict[str, Any]) -> None:
    for history in histories(3):
        await live(kind, history)
    for history in Random(4).sample(list(histories(4)), 1_000):
        await live(kind, history)

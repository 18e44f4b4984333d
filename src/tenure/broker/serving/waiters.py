"""Long polls of workers: claims that wait for jobs, or for their cohort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tenure.broker.answer import Answer
from tenure.broker.serving.alarms import Alarm
from tenure.broker.serving.pending import Pending
from tenure.contract.commands import Claim
from tenure.contract.replies import Grant
from tenure.core.catching_up import CatchingUp
from tenure.core.decide.claim import check_claim, clamp_claim
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.broker.serving.loop import ServingLoop

__all__ = ["ClaimWaiter", "Waiting"]


class ClaimWaiter:
    """A taker that wants one claim, and waits in line until it comes or its time is up."""

    def __init__(self, serving: ServingLoop, topic: Topic, claim: Claim) -> None:
        settings = serving.engine.settings
        check_claim(claim, settings)
        serving.check_waiters()
        self._serving = serving
        self._topic = topic
        self._max_count = clamp_claim(claim.max_count, settings)
        self._alarm: Alarm | None = None
        self.claim = claim
        self.future: asyncio.Future[Answer[Grant]] = serving.loop.create_future()

    def start(self, wait_ms: int) -> None:
        """Get in line, and wait up to ``wait_ms`` if nothing is ready yet."""
        coordinator = self._serving.coordinator
        coordinator.add(self._topic, self)
        coordinator.serve(self._topic)
        if self.future.done():
            return
        if wait_ms:
            self._alarm = self._serving.alarms.at(self._serving.engine.now() + wait_ms, self._time_up)
        else:
            self._time_up()

    def wants(self) -> int:
        return 0 if self.future.done() else self._max_count

    def give(self, answer: Answer[Grant]) -> bool:
        self._cancel_alarm()
        if not self.future.done():
            self.future.set_result(answer)
        return True

    def announce(self, suspects: int) -> None:
        """Do nothing: the reply to a claim says how many suspects wait."""

    def refuse(self, error: TenureError) -> None:
        self._cancel_alarm()
        if not self.future.done():
            self.future.set_exception(error)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _time_up(self) -> None:
        """Claim what is ready when the time is up; answer with an empty claim or an error where nothing is. On a queue
        that is behind, do so when it has caught up.
        """
        self._claim_now(self._serving.claim)

    def _claim_now(self, claim: Callable[[Topic, Claim], Answer[Grant]]) -> None:
        if self.future.done():
            return
        try:
            answer = claim(self._topic, self.claim)
        except CatchingUp:
            self._serving.catch_up.then(self._topic, self._claim_as_of)
            return
        except TenureError as error:
            self.refuse(error)
        else:
            self.give(answer)
        self._serving.coordinator.remove(self._topic, self)

    def _claim_as_of(self, came_ms: int) -> None:
        self._claim_now(partial(self._serving.claim, came_ms=came_ms))

    def abandon(self) -> None:
        """Stop waiting, because the caller is gone, and give back what was handed over meanwhile."""
        self._cancel_alarm()
        self._serving.coordinator.remove(self._topic, self)
        if not self.future.cancel() and not self.future.cancelled() and self.future.exception() is None:
            self._serving.give_back(self.future.result().reply)


class Waiting(Pending[Grant]):
    """The awaitable of a claim that waits: in a cohort, or until a job comes or its time is up. Cancelling or dropping
    it gives back what it got.
    """

    def __init__(self, serving: ServingLoop, waiter: ClaimWaiter, *, wait_ms: int) -> None:
        self._serving = serving
        self._waiter = waiter
        waiter.start(wait_ms)
        super().__init__(serving.loop)
        serving.settle()

    async def _finish(self) -> Grant:
        try:
            answer = await self._waiter.future
        except BaseException:
            self._waiter.abandon()
            raise
        return await self._serving.answer_claim(answer)

    def _abandon(self) -> None:
        self._waiter.abandon()

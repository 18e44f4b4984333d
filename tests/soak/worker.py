"""`Worker`: claims or is fed jobs of one queue, and acks, nacks, extends or forgets them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Final, Literal, TypedDict

from tenure import AsyncClient, Indeterminate, TenureError
from tenure.client import Job, Settled
from tenure.testing.history import Outcome
from tests.soak.journal import EARLY_MS, ROUNDING_MS, Journal, id_of

__all__ = ["LEASE_MS", "POISON", "Isolation", "Worker"]

Settling = Literal["ack", "nack", "return_jobs"]

LEASE_MS: Final = 1_200
POISON: Final = "poison"
"""A word in the payloads of jobs that are nacked until they are dead letters."""
_NACKS_MAX: Final = 8
"""How often such a job is nacked on a queue that has no limit of its own."""
_PAUSE_S: Final = 0.02


class Isolation(TypedDict, total=False):
    """The options of a claim about isolation."""

    isolate: bool
    group: str
    suspects: bool


class Worker:
    """One node with one client. It ends when it is told to stop, and leaves what it holds to its lease."""

    def __init__(
        self, client: AsyncClient, journal: Journal, topic: str, *, random: Random, stopping: asyncio.Event
    ) -> None:
        self._client, self._journal, self._topic = client, journal, topic
        self._random, self._stopping = random, stopping

    @property
    def node(self) -> str:
        """The name under which it holds jobs now."""
        return self._client.node

    def isolation(self) -> Isolation:
        """Return what its claims ask for about isolation."""
        return {}

    async def poll(self) -> None:
        """Claim, then settle, one claim after the other."""
        async with self._client:
            while not self._stopping.is_set():
                jobs = await self._claim()
                if jobs:
                    await self._handle(jobs)

    async def _claim(self) -> list[Job]:
        patience_s = self._random.uniform(0.001, 0.2) if self._random.random() < 0.03 else None
        max_count = self._random.choice((1, 5, 40))
        node, isolation = self.node, self.isolation()
        claiming = self._client.claim(
            self._topic, node=node, max_count=max_count, lease_ms=LEASE_MS, wait_ms=200, **isolation
        )
        try:
            claimed = await asyncio.wait_for(claiming, patience_s)
        except (TenureError, TimeoutError):  # jobs that nobody heard of come back when their lease ends
            await asyncio.sleep(_PAUSE_S)
            return []
        self.take(claimed.jobs, node=node)
        return claimed.jobs

    def take(self, jobs: Sequence[Job], *, node: str) -> None:
        """Record jobs that are delivered to a node of this worker."""
        self._journal.delivered(self._topic, jobs, node=node, lease_ms=LEASE_MS)

    async def follow(self) -> None:
        """Be fed over a stream; when it breaks, what is held may have been given back."""
        async with self._client:
            while not self._stopping.is_set():
                held: dict[int, Job] = {}
                with suppress(TenureError):
                    await self._follow_once(held)
                self.note_released(held.values())
                await asyncio.sleep(_PAUSE_S)

    async def _follow_once(self, held: dict[int, Job]) -> None:
        node, isolation = self.node, self.isolation()
        async with self._client.work(self._topic, node=node, max_count=8, lease_ms=LEASE_MS, **isolation) as batches:
            async for jobs in batches:
                self.take(jobs, node=node)
                held |= {job.seq: job for job in jobs}
                for job in jobs:
                    for seq in await self._handle([job]):
                        del held[seq]
                if self._stopping.is_set() or self.node != node:
                    return

    def note_released(self, jobs: Collection[Job]) -> None:
        """Record that these jobs may be given back, since the last claim that was made of them; more is not known."""
        at = max(map(self._claimed_ms, jobs), default=0)
        for job in jobs:
            self._journal.history.release(self._topic, job.seq, lease=job.lease_id or "", at=at)

    async def _handle(self, jobs: Sequence[Job]) -> set[int]:
        """Return the jobs that are settled for certain."""
        sound = [job for job in jobs if POISON not in id_of(job.data) or job.deliveries > _NACKS_MAX]
        settled = set[int]()
        if len(sound) < len(jobs):
            settled |= await self.settle([job for job in jobs if job not in sound], "nack")
        return settled | await self.handle_sound(sound) if sound else settled

    async def handle_sound(self, jobs: Sequence[Job]) -> set[int]:
        """Do something with jobs that are not poisoned; return those that are settled for certain."""
        choice = self._random.random()
        if choice < 0.02:
            return set()  # now and then a worker forgets its jobs
        if choice < 0.05:
            await asyncio.sleep(self._random.uniform(0, LEASE_MS * 1.5 / 1000))
        if choice < 0.12:
            await self._extend(jobs)
        return await self.settle(jobs, "nack" if choice > 0.92 else "ack")

    async def settle(self, jobs: Sequence[Job], what: Settling) -> set[int]:
        """Send it until its outcome is known, or give up; an earlier copy may have done what a later one skips."""
        seqs, leases = [job.seq for job in jobs], [job.lease_id or "" for job in jobs]
        node, at, unknown = self.node, self._journal.early_ms(), False
        settle: Callable[..., Awaitable[Settled]] = getattr(self._client, what)
        for _ in range(3):
            patience_s = self._random.uniform(0.001, 0.05) if self._random.random() < 0.03 else None
            try:
                settled = await asyncio.wait_for(settle(self._topic, seqs, node=node, lease_ids=leases), patience_s)
            except (Indeterminate, TimeoutError):
                unknown = True
            except TenureError:
                await asyncio.sleep(_PAUSE_S)
            else:
                self._note_settled(what, jobs, settled, at=at, unknown=unknown or settled.repeated)
                return set(seqs).difference(settled.skipped)
        for job in jobs if unknown else ():
            self._note(what, job, "unknown", at=at)
        return set()

    def _note_settled(self, what: Settling, jobs: Sequence[Job], settled: Settled, *, at: int, unknown: bool) -> None:
        self._journal.depth[self._topic] = settled.ready + settled.in_flight
        if settled.count + len(settled.skipped) != len(jobs):
            self._journal.problems.append(f"{what} of {len(jobs)} jobs counted and skipped others: {settled}")
        skipped = set(settled.skipped)
        for job in jobs:
            otherwise: Outcome = "unknown" if unknown else "fail"
            self._note(what, job, otherwise if job.seq in skipped else "ok", at=at)

    def _note(self, what: Settling, job: Job, outcome: Outcome, *, at: int) -> None:
        """Record it no earlier than the claim itself."""
        note = self._journal.history.ack if what == "ack" else self._journal.history.nack
        at = max(at, self._claimed_ms(job))
        note(self._topic, job.seq, lease=job.lease_id or "", outcome=outcome, at=at)

    def _claimed_ms(self, job: Job) -> int:
        return self._journal.claimed_ms(self._topic, job)

    async def _extend(self, jobs: Sequence[Job]) -> None:
        journal, sent_ms = self._journal, self._journal.now_ms()
        seqs, leases = [job.seq for job in jobs], [job.lease_id or "" for job in jobs]
        deadlines: dict[int, int] = {}
        known = False
        try:
            extended = await self._client.extend(self._topic, seqs, node=self.node, lease_ids=leases, lease_ms=LEASE_MS)
            known = not extended.repeated
            deadlines = {
                seq: journal.real_ms(deadline, ahead_ms=LEASE_MS) for seq, deadline in extended.deadlines.items()
            }
        except Indeterminate:
            pass
        except TenureError:
            return
        for job in jobs:
            deadline = deadlines.get(job.seq, sent_ms + LEASE_MS) - ROUNDING_MS
            outcome: Outcome = "ok" if job.seq in deadlines else "fail" if known else "unknown"
            at = max(sent_ms - EARLY_MS, self._claimed_ms(job))
            journal.history.extend(
                self._topic, job.seq, lease=job.lease_id or "", outcome=outcome, at=at, deadline=deadline
            )

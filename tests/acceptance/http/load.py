"""Producers and workers that outlive the server they talk to, and note what they were told as rows of a history.

Times are the server's own where an answer tells one. What only a client can time is noted a little early: the server's
clock may stand for one turn of its loop, and a client's clock is another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from random import Random
from typing import Any

from tenure.testing.history import History, Outcome
from tests.acceptance.http.callers import Aiohttp, Caller, Httpx, Lost, Place

__all__ = ["DEPTH_MAX", "LEASE_MS", "QUEUES", "Load"]

LEASE_MS = 600
DEPTH_MAX = 400
QUEUES: dict[str, dict[str, Any]] = {
    "synced": {"type": "queue", "durability": "fsync", "max_deliveries": 6, "dead_letter": "dead"},
    "written": {"type": "queue", "durability": "disk"},
}
_EARLY_MS = 100
_ROUNDING_MS = 2


class Load:
    """Everything that goes on at once. ``answered`` counts answers, so that a test can wait for work to be done."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place = place
        self.random = Random(seed)
        self.history = History()
        self.answered = 0
        self.lost = 0
        self.repeated = 0
        """Answers that a repeated request got of work done by its first copy."""
        self.depth = dict.fromkeys(QUEUES, 0)
        self.callers: list[Caller] = []

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for topic in QUEUES:
                    tasks.create_task(self.produce_keyed(topic, self._caller(Httpx(self.place))))
                    tasks.create_task(self.produce_marked(topic, self._caller(Aiohttp(self.place))))
                    tasks.create_task(self.produce_once(topic, self._caller(Httpx(self.place, http2=True))))
                    tasks.create_task(self.poll(topic, "poller", self._caller(Aiohttp(self.place))))
                    tasks.create_task(self.poll(topic, "second", self._caller(Httpx(self.place, http2=True))))
                    tasks.create_task(self.follow(topic, "follower", self._caller(Aiohttp(self.place))))
        finally:
            for caller in self.callers:
                await caller.close()

    def _caller(self, caller: Caller) -> Caller:
        self.callers.append(caller)
        return caller

    async def _call(self, caller: Caller, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            answer = await caller.call("POST", path, body)
        except Lost:
            self.lost += 1
            raise
        self.answered += 1
        return answer

    async def _insist(self, caller: Caller, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
        """Send the same request until it is answered; True with the answer where an earlier copy got none."""
        again = False
        while True:
            try:
                return *await self._call(caller, path, body), again
            except Lost:
                again = True
                await asyncio.sleep(0.01)

    # Producing

    async def _batches(self, topic: str, name: str) -> AsyncGenerator[tuple[int, list[str], dict[str, Any]], None]:
        """Number, ids and body of one append after the other, as fast as the workers take them away."""
        number = 0
        while True:
            count = self.random.choice((1, 1, 3, 20))
            ids = [f"{topic}-{name}-{number}-{i}" for i in range(count)]
            pad = "." * self.random.randrange(200)
            yield number, ids, {"records": [{"data": {"id": id, "pad": pad}} for id in ids]}
            number += 1
            while self.depth[topic] > DEPTH_MAX:
                await asyncio.sleep(0.005)

    async def produce_keyed(self, topic: str, caller: Caller) -> None:
        """Fault 26: one record for one key, however often it is sent."""
        async with aclosing(self._batches(topic, "keyed")) as batches:
            async for number, ids, body in batches:
                self.history.produce(ids, "invoke", at=_now_ms())
                body["idempotency_key"] = f"{topic}-{number}"
                status, answer, again = await self._insist(caller, f"/v0/topics/{topic}", body)
                assert status == 200, answer
                assert len(answer["seqs"]) == len(ids)
                assert again or not answer["deduped"]
                self.repeated += answer["deduped"]
                self.history.produce(ids, "ok", at=_now_ms())

    async def produce_marked(self, topic: str, caller: Caller) -> None:
        """Fault 26: the same by a client's own numbers."""
        async with aclosing(self._batches(topic, "marked")) as batches:
            async for number, ids, body in batches:
                self.history.produce(ids, "invoke", at=_now_ms())
                body |= {"client_id": f"{topic}-client", "client_seq": number + 1}
                status, answer, again = await self._insist(caller, f"/v0/topics/{topic}", body)
                if status == 409:
                    assert again, answer
                    assert answer["error"]["code"] == "idempotency_conflict"
                    assert answer["error"]["detail"]["last_client_seq"] == number + 1
                    self.repeated += 1
                else:
                    assert status == 200, answer
                self.history.produce(ids, "ok", at=_now_ms())

    async def produce_once(self, topic: str, caller: Caller) -> None:
        """Fault 30: what is not answered is unknown, and stays so."""
        async with aclosing(self._batches(topic, "once")) as batches:
            async for _, ids, body in batches:
                self.history.produce(ids, "invoke", at=_now_ms())
                try:
                    status, answer = await self._call(caller, f"/v0/topics/{topic}", body)
                except Lost:
                    await asyncio.sleep(0.01)
                    continue
                assert status == 200, answer
                self.history.produce(ids, "ok", at=_now_ms())

    # Working

    def delivered(self, topic: str, node: str, jobs: list[dict[str, Any]], lease_ms: int = LEASE_MS) -> None:
        for job in jobs:
            self.history.delivery(
                topic,
                job["$seq"],
                job["data"]["id"],
                lease=job["lease_id"],
                node=node,
                deliveries=job["deliveries"],
                at=job["deadline"] - lease_ms,
                deadline=job["deadline"] - _ROUNDING_MS,
            )

    async def poll(self, topic: str, name: str, caller: Caller) -> None:
        """Fault 28: a claim whose answer was lost is sent again with its id."""
        number, node = 0, f"{topic}-{name}"
        while True:
            number += 1
            body = {
                "node": node,
                "max": self.random.choice((1, 10, 50)),
                "lease_ms": LEASE_MS,
                "wait_ms": 100,
                "claim_id": f"{node}-{number}",
            }
            status, answer, _ = await self._insist(caller, f"/v0/topics/{topic}/claim", body)
            assert status == 200, answer
            jobs = answer["claimed"]
            self.delivered(topic, node, jobs)
            choice = self.random.random()
            if not jobs or choice < 0.02:
                continue  # now and then a worker forgets its jobs
            if choice < 0.1:
                await self.extend(topic, node, jobs, caller)
            await self.settle(topic, node, jobs, caller, ack=choice < 0.95)

    async def settle(
        self, topic: str, node: str, jobs: list[dict[str, Any]], caller: Caller, *, ack: bool, lease_ms: int = LEASE_MS
    ) -> None:
        """Fault 27: an ack or a nack is sent until answered; what that skips, an earlier copy may have done."""
        lease, seqs = jobs[0]["lease_id"], [job["$seq"] for job in jobs]
        note = self.history.ack if ack else self.history.nack
        claimed_ms = jobs[0]["deadline"] - lease_ms
        body = {"node": node, "seqs": seqs, "lease_ids": [lease] * len(seqs)}
        again, at = False, 0
        answer: dict[str, Any] = {}
        while not answer:
            at = max(_now_ms() - _EARLY_MS, claimed_ms)
            for seq in seqs:
                note(topic, seq, lease=lease, outcome="unknown", at=at)
            try:
                status, answer = await self._call(caller, f"/v0/topics/{topic}/{'ack' if ack else 'nack'}", body)
                assert status == 200, answer
            except Lost:
                again = True
                await asyncio.sleep(0.01)
        assert answer["acked" if ack else "nacked"] + len(answer["skipped"]) == len(seqs)
        self.repeated += again and len(answer["skipped"]) == len(seqs)
        self.depth[topic] = answer["ready"] + answer["in_flight"]
        for seq in seqs:
            outcome: Outcome = "fail" if seq in answer["skipped"] else "ok"
            note(topic, seq, lease=lease, outcome=outcome, at=at)

    async def extend(self, topic: str, node: str, jobs: list[dict[str, Any]], caller: Caller) -> None:
        lease, seqs = jobs[0]["lease_id"], [job["$seq"] for job in jobs]
        sent_ms = _now_ms()
        at = max(sent_ms - _EARLY_MS, jobs[0]["deadline"] - LEASE_MS)
        body = {"node": node, "seqs": seqs, "lease_ms": LEASE_MS}
        deadlines: dict[str, int] = {}
        outcome: Outcome = "unknown"
        with suppress(Lost):
            _, answer = await self._call(caller, f"/v0/topics/{topic}/extend", body)
            deadlines, outcome = answer["deadlines"], "ok"
        for seq in seqs:
            deadline = deadlines.get(str(seq), sent_ms + LEASE_MS) - _ROUNDING_MS
            what: Outcome = "fail" if outcome == "ok" and str(seq) not in deadlines else outcome
            self.history.extend(topic, seq, lease=lease, outcome=what, at=at, deadline=deadline)

    async def follow(self, topic: str, name: str, caller: Caller) -> None:
        """A worker that is pushed to. When its stream is cut, what it holds may be given back."""
        node = f"{topic}-{name}"
        path = f"/v0/topics/{topic}/work?node={node}&max=8&lease_ms={LEASE_MS}"
        while True:
            held: dict[int, dict[str, Any]] = {}
            with suppress(Lost):
                async with aclosing(caller.events(path)) as events:
                    async for event in events:
                        job = event["data"]
                        self.answered += 1
                        self.delivered(topic, node, [job])
                        held[job["$seq"]] = job
                        if self.random.random() < 0.95:
                            await self.settle(topic, node, [job], caller, ack=True)
                            del held[job["$seq"]]
            for job in held.values():
                at = max(_now_ms() - _EARLY_MS, job["deadline"] - LEASE_MS)
                self.history.release(topic, job["$seq"], lease=job["lease_id"], at=at)
            await asyncio.sleep(0.01)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""The longest turn of the loop: CPU time of the longest single turn for calls that touch a million jobs.

A turn is one round of the event loop: everything that runs before the loop looks at its sockets again. The broker is in
memory and its clock is moved by hand, so a figure is the broker's own work; CPU time does not count waiting for a core.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bench.measure import Row, calibrate, report
from tenure import Broker, Record, Settings
from tenure.errors import TenureError
from tenure.testing.clock import ManualClock

__all__ = ["main"]

_BAR_MS = 50
_TOPICS_BAR_MS = 200
_CALL_RECORDS = 10_000
_CLAIM = 1_000
_LEASE_MS = 60_000
_CALLS_PER_MS = 20
_LONG_MS = 86_400_000


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop that measures the CPU time of its turns that begin and end while ``is_timed`` is set."""

    is_timed = False
    longest_s = 0.0

    def _run_once(self) -> None:
        started, is_timed = time.thread_time(), self.is_timed
        super()._run_once()  # type: ignore[misc]
        if is_timed and self.is_timed:
            self.longest_s = max(self.longest_s, time.thread_time() - started)


class Bed:
    """A broker with one queue ``q`` and the clock that it goes by."""

    def __init__(self, broker: Broker, clock: ManualClock, jobs: int) -> None:
        self.broker = broker
        self.clock = clock
        self.jobs = jobs

    async def fill(self, topic: str = "q", *, record: bytes | Record = b"x" * 100, per: int = _CALL_RECORDS) -> None:
        """Append the jobs, ``per`` in one call."""
        answers = []
        for number in range(self.jobs // per):
            answers.append(self.broker.produce(topic, [record] * per))
            if number % 1_000 == 999 or per > 1:
                await asyncio.gather(*answers)
                answers = []
        await asyncio.gather(*answers)

    async def lease(self, per: int = _CLAIM) -> None:
        """Claim all jobs, ``per`` in one lease."""
        for number in range(self.jobs // per):
            await self.broker.claim("q", node="n", max_count=per)
            self.tick(number)

    def tick(self, number: int) -> None:
        """Let a millisecond pass after some calls, as it does: a deadline is shared by those of one millisecond."""
        if number % _CALLS_PER_MS == 0:
            self.clock.advance(1)


Case = Callable[[Bed], Coroutine[Any, Any, Callable[[], Any]]]
"""Prepare a case, and return the call that is measured."""


async def _expiry(bed: Bed, *, per: int = _CLAIM, **config: Any) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LEASE_MS, **config})
    await bed.fill()
    await bed.lease(per)
    bed.clock.advance(_LEASE_MS + 1)
    return lambda: bed.broker.claim("q", node="n")


async def _expiry_of_singles(bed: Bed) -> Callable[[], Any]:
    return await _expiry(bed, per=1)


async def _expiry_with_backoff(bed: Bed) -> Callable[[], Any]:
    return await _expiry(bed, retry_backoff={"min_ms": 1_000})


async def _poison(bed: Bed) -> Callable[[], Any]:
    await _expiry(bed, max_deliveries=1, dead_letter="dead")
    return lambda: asyncio.wait_for(_until_dead(bed), None)


async def _until_dead(bed: Bed) -> None:
    waiting = asyncio.ensure_future(bed.broker.claim("q", node="n", wait_ms=30_000))
    while bed.broker.metrics.dead_lettered < bed.jobs:
        await asyncio.sleep(0)
    waiting.cancel()


async def _delays_due(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue"})
    await bed.fill(record=Record(data=b"x", delay_ms=1_000))
    bed.clock.advance(1_001)
    return lambda: bed.broker.claim("q", node="n")


async def _ttl(bed: Bed, *, per: int = _CALL_RECORDS) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "ttl_ms": 1_000})
    await bed.fill(per=per)
    bed.clock.advance(5_000)
    return lambda: bed.broker.claim("q", node="n")


async def _ttl_of_singles(bed: Bed) -> Callable[[], Any]:
    return await _ttl(bed, per=1)


async def _delete(bed: Bed, *, per: int = _CALL_RECORDS) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {})
    await bed.fill(per=per)
    return lambda: bed.broker.delete_records("q", before_seq=1 << 40)


async def _delete_singles(bed: Bed) -> Callable[[], Any]:
    return await _delete(bed, per=1)


async def _delete_held(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS})
    await bed.fill()
    await bed.lease()
    return lambda: bed.broker.delete_records("q", before_seq=1 << 40)


async def _delete_tagged(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {})
    await bed.fill(record=Record(data=b"x", tag="a"))
    return lambda: bed.broker.delete_records("q", match=["tag", "Eq", "a"])


async def _lower_cap(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {})
    await bed.fill(per=1)
    return lambda: bed.broker.put_topic("q", {"cap_records": 10})


async def _letters(bed: Bed) -> None:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS, "dead_letter": "dead"})
    await bed.fill()
    await _give_up(bed)


async def _give_up(bed: Bed) -> None:
    """Make a dead letter, or a parked job, of every job."""
    for _ in range(bed.jobs // _CLAIM):
        grant = await bed.broker.claim("q", node="n", max_count=_CLAIM)
        await bed.broker.nack("q", node="n", lease_id=grant.lease_id, dead=True, reason="boom")


async def _redrive_none(bed: Bed) -> Callable[[], Any]:
    await _letters(bed)
    return lambda: bed.broker.redrive("dead", reason_like="no such reason")


async def _redrive_last(bed: Bed) -> Callable[[], Any]:
    await _letters(bed)
    return lambda: bed.broker.redrive("dead", seqs=[bed.jobs])


async def _redrive_many(bed: Bed) -> Callable[[], Any]:
    await _letters(bed)
    return lambda: bed.broker.redrive("dead", limit=10_000)


async def _redrive_parked(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS, "dlq_strategy": "block"})
    await bed.fill()
    await _give_up(bed)
    return lambda: bed.broker.redrive("q", reason_like="no such reason")


async def _diff_own(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {})
    await bed.fill(record=Record(data=b"x" * 100, node="me"))
    return lambda: bed.broker.diff("q", node="me")


async def _delayed(bed: Bed) -> None:
    await bed.broker.put_topic("q", {"type": "queue"})
    await bed.fill(record=Record(data=b"x", delay_ms=_LONG_MS))


async def _get_delayed(bed: Bed) -> Callable[[], Any]:
    await _delayed(bed)
    return lambda: bed.broker.topic("q")


async def _strip_delayed(bed: Bed) -> Callable[[], Any]:
    await _delayed(bed)
    return lambda: bed.broker.strip("q")


async def _list_delayed(bed: Bed) -> Callable[[], Any]:
    await _delayed(bed)
    return lambda: bed.broker.jobs("q", state="delayed", limit=10)


async def _claim_among_cancelled(bed: Bed) -> Callable[[], Any]:
    await _delayed(bed)
    for lo in range(1, bed.jobs, 2 * _CALL_RECORDS):
        await bed.broker.delete_records("q", seqs=list(range(lo, lo + 2 * _CALL_RECORDS, 2)))
    return lambda: bed.broker.claim("q", node="n")


async def _cancel_delays(bed: Bed) -> Callable[[], Any]:
    await _delayed(bed)

    async def cancel() -> None:
        for lo in range(1, bed.jobs, 1_000):
            await bed.broker.delete_records("q", seqs=list(range(lo, min(lo + 1_000, bed.jobs))))

    return cancel


async def _held(bed: Bed, *, per: int = _CLAIM) -> None:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS})
    await bed.fill()
    await bed.lease(per)


async def _list_in_flight(bed: Bed) -> Callable[[], Any]:
    await _held(bed)
    return lambda: bed.broker.jobs("q", state="in_flight", limit=10)


async def _list_leases(bed: Bed) -> Callable[[], Any]:
    await _held(bed, per=1)
    return lambda: bed.broker.leases("q", limit=100)


async def _strip_held(bed: Bed) -> Callable[[], Any]:
    await _held(bed)
    return lambda: bed.broker.strip("q")


async def _produce_at_cap(bed: Bed) -> Callable[[], Any]:
    config = {"type": "queue", "lease_ms": _LONG_MS, "cap_records": bed.jobs, "discard": "old"}
    await bed.broker.put_topic("q", config)
    await bed.fill(per=1)
    await bed.lease()

    async def nack_and_produce() -> None:
        await bed.broker.produce("q", [b"x"])
        await bed.broker.nack("q", node="n", seqs=[1])
        await bed.broker.produce("q", [b"x"])
        await bed.broker.produce("q", [b"x"])

    return nack_and_produce


async def _heartbeats(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS // 2})
    await bed.fill()
    await bed.lease()
    bed.clock.advance(1_000)
    for seq in range(1, bed.jobs + 1):
        await bed.broker.extend("q", node="n", seqs=[seq], lease_ms=_LONG_MS // 2)
        bed.tick(seq)
    for seq in range(1, bed.jobs + 1):
        await bed.broker.extend("q", node="n", seqs=[seq], lease_ms=_LONG_MS)
    bed.clock.advance(_LONG_MS // 2 + 1)
    return lambda: bed.broker.claim("q", node="n")


async def _long_polls(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue"})
    polls = [asyncio.ensure_future(_poll(bed)) for _ in range(5_000)]
    await asyncio.sleep(0)

    async def produce() -> None:
        await bed.broker.produce("q", [b"x" * 100] * 5_000)
        await asyncio.gather(*polls)

    return produce


async def _poll(bed: Bed) -> None:
    await bed.broker.claim("q", node="n", wait_ms=30_000)


async def _busy_streams(bed: Bed) -> Callable[[], Any]:
    await bed.broker.put_topic("q", {"type": "queue", "lease_ms": _LONG_MS})
    streams = [bed.broker.work("q", node=f"n{number}", max_count=10) for number in range(1_000)]
    await bed.fill()
    held = [(stream.node, await anext(stream)) for stream in streams]

    async def ack() -> None:
        for node, grant in held[:100]:
            await bed.broker.ack("q", node=node, seqs=grant.seqs[:1])

    return ack


async def _routers(bed: Bed) -> Callable[[], Any]:
    count = min(bed.jobs, 10_000) - 1
    for number in range(count):
        await bed.broker.put_router(f"r{number}", source=f"s{number}", dest=f"d{number}")
    return lambda: bed.broker.put_router("last", source="s", dest="d")


async def _keys_at_limit(bed: Bed) -> Callable[[], Any]:
    count = bed.jobs // 10
    for number in range(count):
        await bed.broker.produce(f"t{number}", [b"x"], idempotency_key="k")
    return lambda: bed.broker.produce("t0", [b"x"], idempotency_key="another")


async def _clock_step(bed: Bed) -> Callable[[], Any]:
    count = bed.jobs // 10
    for number in range(count):
        record = Record(data=b"x", deliver_at=bed.clock.wall_ms() + _LONG_MS)
        await bed.broker.produce(f"t{number}", [record], config={"type": "queue"})

    async def step() -> None:
        bed.clock.jump_wall(1_000)
        await bed.broker.produce("t0", [b"x"])

    return step


CASES: dict[str, tuple[Case, int]] = {
    "expiry, leases of 1,000": (_expiry, _BAR_MS),
    "expiry, leases of one": (_expiry_of_singles, _BAR_MS),
    "expiry, with a back-off": (_expiry_with_backoff, _BAR_MS),
    "poison, one long poll": (_poison, _BAR_MS),
    "delays that end together": (_delays_due, _BAR_MS),
    "TTL, batches": (_ttl, _BAR_MS),
    "TTL, singles": (_ttl_of_singles, _BAR_MS),
    "delete before a seq, batches": (_delete, _BAR_MS),
    "delete before a seq, singles": (_delete_singles, _BAR_MS),
    "delete before a seq, all held": (_delete_held, _BAR_MS),
    "delete by tag": (_delete_tagged, _BAR_MS),
    "a cap lowered to 10": (_lower_cap, _BAR_MS),
    "redrive, no letter matches": (_redrive_none, _BAR_MS),
    "redrive, the last letter": (_redrive_last, _BAR_MS),
    "redrive, 10,000 letters": (_redrive_many, _BAR_MS),
    "redrive, no parked job matches": (_redrive_parked, _BAR_MS),
    "diff, all records are the reader's": (_diff_own, _BAR_MS),
    "get a topic, all delayed": (_get_delayed, _BAR_MS),
    "strip, all delayed": (_strip_delayed, _BAR_MS),
    "list delayed jobs": (_list_delayed, _BAR_MS),
    "claim, every second delay cancelled": (_claim_among_cancelled, _BAR_MS),
    "cancel delays, 1,000 a call": (_cancel_delays, _BAR_MS),
    "list jobs in flight": (_list_in_flight, _BAR_MS),
    "list leases of one": (_list_leases, _BAR_MS),
    "strip, all held": (_strip_held, _BAR_MS),
    "produce at a cap, all held": (_produce_at_cap, _BAR_MS),
    "deadlines of jobs extended one by one": (_heartbeats, _BAR_MS),
    "produce for 5,000 long polls": (_long_polls, _BAR_MS),
    "ack, 1,000 full streams": (_busy_streams, _BAR_MS),
    "put a router beside 10,000": (_routers, _BAR_MS),
    "keyed produce, keys at their limit": (_keys_at_limit, _TOPICS_BAR_MS),
    "clock step, a queue for every ten jobs": (_clock_step, _TOPICS_BAR_MS),
}


async def _measure(loop: TimedLoop, case: Case, jobs: int) -> float:
    """Return the CPU time of the longest turn that a case takes, in ms."""
    clock = ManualClock()
    settings = Settings(idempotency_keys_max=max(jobs // 10, 1), spare_segments=1_000)  # trimming is not measured here
    async with await Broker.open(clock=clock, settings=settings) as broker:
        broker._serving.turns._clock_ms = lambda: time.perf_counter() * 1_000
        call = await case(Bed(broker, clock, jobs))
        await asyncio.sleep(0)
        gc.collect()
        gc.freeze()  # as the server does: what the set-up made is not looked through again
        loop.is_timed = True
        await asyncio.sleep(0)
        try:
            result = call()
            if isinstance(result, Awaitable):
                await result
        except TenureError as error:
            print(f"    ({error.message})")
            await asyncio.sleep(0)
        while broker._serving.turns:  # what the call has left to do
            await asyncio.sleep(0)
        loop.is_timed = False
    gc.unfreeze()
    return loop.longest_s * 1_000


def _run(case: Case, jobs: int) -> float:
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TimedLoop)
        return runner.run(_measure(loop, case, jobs))


def main() -> int:
    """Measure every case, or those whose name contains ``--only``; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    rows: list[Row] = []
    for name, (case, bar_ms) in CASES.items():
        if chosen.only in name:
            took_ms = _run(case, chosen.jobs)
            rows.append((name, f"{took_ms:.1f} ms", f"{bar_ms} ms", took_ms <= bar_ms))
            print(f"  {name:<40} {took_ms:8.1f} ms", flush=True)
    report(f"Longest turn at {chosen.jobs:,} jobs ({calibrate() / 1e6:.0f} M loop turns/s)", rows)
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

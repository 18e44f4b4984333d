"""Made-up lifecycle events, any number of them, straight into a buffer: what a broker of seven queues would export."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tenure.buffer import Producer

__all__ = ["events", "fill"]

_QUEUES = 7
_WORKERS = 20
_BATCH = 50_000
_START_MS = 1_700_000_000_000


def events(count: int) -> Iterator[bytes]:
    """Entries as an exporter writes them. Four jobs at a time are produced, claimed together and acked but for one,
    which is given back, claimed and acked alone.
    """
    return islice(_lives(), count)


def _lives() -> Iterator[bytes]:
    number = 0
    while True:
        queue, seq, node = number % _QUEUES, number // _QUEUES * 4 + 1, number * 7 % _WORKERS
        ts = _START_MS + number // 25 + number * 13 % 5
        wait_ms, work_ms = number * 31 % 400, 50 + number * 17 % 900
        head, last = b'"topic":"queue-%d"' % queue, seq + 3
        held = b'"node":"worker-%d","lease_id":"lease_%d","deliveries"' % (node, number)
        steps = (
            (b"produced", ts, b"[%d,4]" % seq, b""),
            (b"claimed", ts + wait_ms, b"[%d,4]" % seq, b",%b:1" % held),
            (b"acked", ts + wait_ms + work_ms, b"[%d,3]" % seq, b",%b:1" % held),
            (b"released", ts + wait_ms + work_ms, b"[%d,1]" % last, b',%b:1,"reason":"busy"' % held),
            (b"claimed", ts + 2 * wait_ms + work_ms, b"[%d,1]" % last, b",%b:2" % held),
            (b"acked", ts + 2 * (wait_ms + work_ms), b"[%d,1]" % last, b",%b:2" % held),
        )
        for n, (event, at, runs, rest) in enumerate(steps):
            place = b'"batch":%d,"n":%d' % (number, n)
            yield b'{"event":"%b",%b,"ts":%d,"runs":%b%b,%b}' % (event, head, at, runs, rest, place)
        number += 1


async def fill(url: str, count: int) -> None:
    """Write that many events to a new buffer, in large batches."""
    made = events(count)
    async with Producer(url) as producer:
        while batch := list(islice(made, _BATCH)):
            await producer.produce(batch)
            await producer.flush()

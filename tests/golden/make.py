"""Make a golden data directory: run once for each format, then commit what it made and never change it.

    python -m tests.golden.make tests/golden/v1

It holds a little of everything that is logged: topics of both types, tags, delays, keys, marks, leases, nacks, dead
letters, parked jobs, a router, deletes, evictions, rolls, trimmed segments and checkpoints. ``expected.json`` beside
it says what a program of any later version must find there.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import asdict

from tenure import Broker, Record, Settings
from tenure.testing.clock import ManualClock

WALL_MS = 1_700_000_000_000
SETTINGS = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=1024, checkpoint_bytes=2048)


def clock_at(passed_ms: int) -> ManualClock:
    """The clock of the machine that made the directory, so long after it was started."""
    return ManualClock(wall_ms=WALL_MS + passed_ms, boot_ms=1_000 + passed_ms, boot_id="golden")


async def fill(home: Path) -> None:
    clock = clock_at(0)
    async with await Broker.open(home, clock=clock, settings=SETTINGS) as broker:
        queue = {"type": "queue", "durability": "fsync", "lease_ms": 60_000, "max_deliveries": 2, "dead_letter": "dead"}
        await broker.put_topic("jobs", queue)
        for number in range(12):
            await broker.produce("churn", [b'"%d%s"' % (number, b"." * 300)] * 3, config={"type": "queue"})
            await broker.ack("churn", node="w", seqs=(await broker.claim("churn", node="w", max_count=3)).seqs)
            await broker.produce("jobs", [b'"job %d"' % number])
        await broker.put_topic("parking", {"type": "queue", "max_deliveries": 1, "dlq_strategy": "block"})
        await broker.put_topic("capped", {"cap_records": 2})
        await broker.put_router("copies", source="capped", dest="copied")
        await broker.produce("jobs", [Record(data=b'"tagged"', tag="a.1", node="n", meta=b'{"k":1}')])
        await broker.produce("jobs", [Record(data=b'"delayed"', delay_ms=3_600_000)])
        await broker.produce("jobs", [Record(data=b'"unique"', unique_key="only")])
        await broker.produce("jobs", [b'"keyed"'], idempotency_key="key-1")
        await broker.produce("jobs", [b'"marked"'], client_id="client", client_seq=7)
        await broker.produce("capped", [b"1", b"2", b"3", b"4"])
        await broker.produce("plain", [b"%d" % number for number in range(10)])
        await broker.delete_records("plain", before_seq=4)
        await broker.delete_records("plain", seqs=[6])
        await broker.produce("parking", [b'"parked"'])
        await broker.nack("parking", node="w", seqs=(await broker.claim("parking", node="w")).seqs)
        await broker.claim("parking", node="w")
        held = await broker.claim("jobs", node="w", max_count=3)
        await broker.nack("jobs", node="w", seqs=held.seqs[2:], delay_ms=5_000, reason="later")
        await broker.ack("jobs", node="w", seqs=held.seqs[1:2])
        poison = await broker.claim("jobs", node="w2", max_count=1)
        await broker.nack("jobs", node="w2", seqs=poison.seqs, dead=True, reason="poison")
        await broker.produce("gone", [b"1"])
        await broker.delete_topic("gone")


async def look(home: Path, *, passed_ms: int = 1_000) -> dict[str, Any]:
    """What a program finds in the directory, in plain words."""
    found: dict[str, Any] = {}
    async with await Broker.open(home, clock=clock_at(passed_ms), settings=SETTINGS) as broker:
        for name in broker.topics().items:
            info = broker.topic(name, touch=False)
            records = (await broker.diff(name, limit=1000)).records
            found[name] = {
                "type": info.type,
                "durability": info.config.durability,
                "head_seq": info.head_seq,
                "earliest_seq": info.earliest_seq,
                "count": info.count,
                "queue": info.queue and {k: v for k, v in asdict(info.queue).items() if k != "oldest_ready_ms"},
                "records": [[r.seq, r.ts, r.data.decode(), r.tag, r.node, r.meta and r.meta.decode()] for r in records],
                "leases": [asdict(lease) for lease in broker.leases(name).items] if info.queue else [],
            }
        router = broker.router("copies")
        found["router"] = [router.source, router.dest, router.cursor, router.forwarded]
        repeat = await broker.produce("jobs", [b'"keyed"'], idempotency_key="key-1")
        found["repeat"] = [repeat.first_seq, repeat.deduped]
    return found


def main() -> None:
    home = Path(sys.argv[1])
    asyncio.run(fill(home / "data"))
    (home / "data" / "lock").unlink()
    with TemporaryDirectory() as elsewhere:
        copy = Path(elsewhere) / "data"
        shutil.copytree(home / "data", copy)
        found = asyncio.run(look(copy))
    (home / "expected.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

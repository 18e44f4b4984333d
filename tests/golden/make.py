"""Make a golden data directory: run once for each format, then commit what it made and never change it.

    python -m tests.golden.make tests/golden/v3

The directory is that of a killed process, and holds every kind of event: leases in pages, bases whole and in parts,
rewritten records, routers, delays, keys, marks, dead letters, dropped segments, checkpoints in the middle, and an
unpublished segment. Beside it is what a program of any later version must find there: ``expected.json`` through a
broker, ``state.json`` in the folded state. Add the digests of the new files to ``digests.json`` with

    python -m tests.golden.digests
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
from pyroaring import BitMap

from tenure import Broker, Record, Settings
from tenure.broker.durability.bases import begin_bases
from tenure.broker.durability.trim import is_all_deferred, trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.core.events import KINDS, BaseBegun, BasePart, Carried, TopicCarried
from tenure.core.state.snapshot import dump_topic
from tenure.log import FileLog, PosixDisk, checkpoint
from tenure.log.damage.survey import Survey
from tenure.log.disk import Disk
from tenure.log.spare_segments import unpublished_name
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.golden.describe import describe
from tests.kit import run

WALL_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SETTINGS = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=1024, checkpoint_bytes=2048)
_CHURNING = Settings(segment_bytes=4096, spare_segments=8, trim_step_bytes=1024, base_items_max=20)
LEFT_OUT = ("oldest_ready_ms", "suspects")
"""Counts that depend on when one looks, or that older directories do not have."""
_TURNS_MAX = 30
_LEASES = 260  # a page of leases has 256
_PARTS = 3


def clock_at(passed_ms: int) -> ManualClock:
    """The clock of the machine that made the directory, so long after it was started."""
    return ManualClock(wall_ms=WALL_MS + passed_ms, boot_ms=1_000 + passed_ms, boot_id="golden")


def opened(disk: Disk, *, passed_ms: int = 0, settings: Settings = SETTINGS) -> Engine:
    """An engine on the directory, from its newest checkpoint."""
    log = FileLog.open(disk, segment_bytes=settings.segment_bytes, log_id=b"a golden log id.")
    engine = Engine(log, clock=clock_at(passed_ms), settings=settings)
    engine.recover(checkpoint.load(disk))
    return engine


def kinds_in(disk: Disk) -> set[int]:
    """The kinds of event in a directory, unpublished segments included."""
    return {kind for batch in Survey(disk).batches() for kind, *_ in batch.frames}


# The story


def fill(disk: SimDisk) -> SimDisk:
    """Live the whole story; return the disk after a kill."""
    engine = opened(disk, settings=_CHURNING)
    _begin(engine)
    for _ in range(_TURNS_MAX):
        _churn(engine)
        if {Carried, TopicCarried, BaseBegun, BasePart} <= {KINDS[kind] for kind in kinds_in(disk)}:
            break
    engine.log.close()
    engine = opened(disk)
    _queues(engine)
    _save(engine, disk)
    _logs_and_routers(engine)
    _save(engine, disk)
    _ends(engine)
    _losses(engine)
    engine.sync()
    last = engine.log.pending_segment
    while engine.log.pending_segment == last:
        run.produce(engine, "plain", [b'"not synced %s"' % (b"." * 200)])
    engine.write()
    world = disk.kill()
    assert unpublished_name(last + 1) in world.names()
    return world


def _begin(engine: Engine) -> None:
    """Topics and leases that are old by the end: what is left of them was rewritten."""
    queue = {"type": "queue", "durability": "fsync", "lease_ms": DAY_MS, "max_deliveries": 2, "dead_letter": "dead"}
    run.put_topic(engine, "jobs", queue)
    run.put_topic(engine, "pages", {"type": "queue", "lease_ms": DAY_MS, "retry_backoff": {"min_ms": 500}})
    run.produce(engine, "pages", [b"%d" % number for number in range(_LEASES + 40)])
    engine.sync()
    for number in range(_LEASES):
        run.claim(engine, "pages", node=f"w{number % 3}", lease_ms=DAY_MS - number)
    run.claim(engine, "pages", node="several", max_count=6, claim_id="claim-1")
    run.extend(engine, "pages", node="several", seqs=[_LEASES + 2, _LEASES + 3], lease_ms=DAY_MS // 2)
    engine.sync()


def _churn(engine: Engine) -> None:
    """Fill the log with what is soon gone, so that it is rolled, trimmed and dropped."""
    for number in range(4):
        run.produce(engine, "churn", [b'"%d%s"' % (number, b"." * 300)] * 3, config={"type": "queue"})
        run.ack(engine, "churn", node="w", seqs=run.claim(engine, "churn", node="w", max_count=3).reply.seqs)
        run.produce(engine, "jobs", [b'"old job"'])
        engine.sync()
    deferred = BitMap()
    while trim_due(engine):
        trim_step(engine, deferred)
        engine.sync()
        if deferred and is_all_deferred(engine, deferred):
            _write_parts(engine, deferred)
            deferred.clear()


def _write_parts(engine: Engine, topics: BitMap) -> None:
    """Log large bases as a broker does, in smaller parts."""
    for topic_id, segment in begin_bases(engine, topics).items():
        data = dump_topic(engine.state.by_id[topic_id], now_ms=engine.state.log_ms)
        cuts = range(0, len(data), -(-len(data) // _PARTS))
        for cut in cuts:
            part = data[cut : cut + cuts.step]
            engine.rewrite(BasePart(engine.now(), topic_id, segment, cut, part, cut == cuts[-1]))
    engine.sync()


def _queues(engine: Engine) -> None:
    """Everything that a job can live through."""
    run.produce(engine, "jobs", [Record(data=b'"tagged"', tag="a.1", node="n", meta=b'{"k":1}')])
    run.produce(engine, "jobs", [Record(data=b'"delayed"', delay_ms=3_600_000)])
    run.produce(engine, "jobs", [Record(data=b'"at a time"', deliver_at=WALL_MS + DAY_MS)])
    run.produce(engine, "jobs", [Record(data=b'"unique"', unique_key="only")])
    run.produce(engine, "jobs", [b'"keyed"'], idempotency_key="key-1")
    run.produce(engine, "jobs", [b'"marked"'], client_id="client", client_seq=7)
    run.put_topic(engine, "parking", {"type": "queue", "max_deliveries": 1, "dlq_strategy": "block"})
    run.put_topic(
        engine,
        "copying",
        {"type": "queue", "max_deliveries": 1, "dlq_strategy": "block_and_dlq", "dead_letter": "dead"},
    )
    engine.sync()
    for name in ("parking", "copying"):
        run.produce(engine, name, [b'"first"', b'"second"'])
        engine.sync()
        run.nack(engine, name, node="w", seqs=run.claim(engine, name, node="w", max_count=2).reply.seqs)
        run.claim(engine, name, node="w")
    run.redrive(engine, "parking", limit=1)
    held = run.claim(engine, "jobs", node="w", max_count=4).reply
    run.nack(engine, "jobs", node="w", seqs=held.seqs[2:3], delay_ms=5_000, reason="later")
    run.ack(engine, "jobs", node="w", seqs=held.seqs[1:2])
    run.extend(engine, "jobs", node="w", seqs=held.seqs[:1], lease_ms=DAY_MS)
    for reason in ("poison", "venom"):
        poison = run.claim(engine, "jobs", node="w2").reply
        run.nack(engine, "jobs", node="w2", seqs=poison.seqs, dead=True, reason=reason)
    engine.sync()
    run.redrive(engine, "dead", limit=1)
    gone = run.claim(engine, "jobs", node="leaves").reply
    run.release(engine, engine.state.topics["jobs"], [int(gone.lease)])


def _logs_and_routers(engine: Engine) -> None:
    """Everything that records, topics and routers can live through."""
    run.put_topic(engine, "capped", {"cap_records": 2})
    run.put_topic(engine, "short", {"ttl_ms": 1_000})
    run.put_topic(engine, "plain", {"type": "log", "priority": 5})
    run.put_router(engine, "copies", source="capped", dest="copied")
    run.put_router(engine, "gone", source="plain", dest="copied", filter=["tag", "Glob", "a*"])
    run.produce(engine, "capped", [b"1", b"2", b"3", b"4"])
    run.produce(engine, "short", [b"1"])
    run.produce(engine, "plain", [b"%d" % number for number in range(10)])
    engine.sync()
    capped, short = engine.state.topics["capped"], engine.state.topics["short"]
    run.forward(engine, capped)
    run.evict_over_cap(engine, capped, engine.now())
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance(2_000)
    run.evict_over_ttl(engine, short, engine.now())
    run.delete_records(engine, "plain", before_seq=4)
    run.delete_records(engine, "plain", seqs=[6])
    run.delete_router(engine, "gone")


def _ends(engine: Engine) -> None:
    """Topics that are deleted, and a wall clock that is set."""
    run.put_topic(engine, "retired", {"auto_create": False})
    run.produce(engine, "passing", [b"1"])
    for name in ("retired", "passing"):
        run.delete_topic(engine, name)
    assert isinstance(engine.clock, ManualClock)
    engine.clock.jump_wall(5_000)
    engine.now()
    run.patch_topic(engine, "plain", {"priority": 7})


def _losses(engine: Engine) -> None:
    """A worker that is lost with two jobs begun, what it had not begun, and a suspect that runs alone."""
    run.put_topic(engine, "losing", {"type": "queue", "lease_ms": DAY_MS})
    run.produce(engine, "losing", [b'"%d"' % number for number in range(6)])
    engine.sync()
    run.claim(engine, "losing", node="lost", max_count=4, isolate=True, group="group")
    run.end_node(engine, "losing", node="lost", seqs=[1, 2], exit_code=137)
    suspect = run.claim(engine, "losing", node="alone", isolate=True, group="group", suspects=True).reply
    run.begin(engine, "losing", node="alone", seq=1, lease_id=suspect.lease_id)
    run.claim(engine, "losing", node="lives", max_count=2, isolate=True, group="group")
    held = run.claim(engine, "losing", node="plain").reply
    run.return_jobs(engine, "losing", node="plain", seqs=held.seqs, delay_ms=DAY_MS, reason="drained")


def _save(engine: Engine, disk: Disk) -> None:
    engine.sync()
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())


# Looking


async def look(home: Path, *, passed_ms: int = 1_000) -> dict[str, Any]:
    """What a caller of a broker finds in the directory, in plain words."""
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
                "queue": info.queue
                and {k: v for k, v in asdict(info.queue).items() if k not in LEFT_OUT or (v and k == "suspects")},
                "records": [[r.seq, r.ts, r.data.decode(), r.tag, r.node, r.meta and r.meta.decode()] for r in records],
                "leases": [asdict(lease) for lease in broker.leases(name).items] if info.queue else [],
            }
        router = broker.router("copies")
        found["router"] = [router.source, router.dest, router.cursor, router.forwarded]
        repeat = await broker.produce("jobs", [b'"keyed"'], idempotency_key="key-1")
        found["repeat"] = [repeat.first_seq, repeat.deduped]
    return found


def fold(home: Path, *, passed_ms: int = 4_000) -> dict[str, Any]:
    """What the directory folds to, in plain words."""
    engine = opened(PosixDisk(home), passed_ms=passed_ms)
    try:
        return describe(engine)
    finally:
        engine.log.close()


def main() -> None:
    home = Path(sys.argv[1])
    if home.exists():
        raise SystemExit(f"{home} is there already: a golden directory is never made again")
    disk = fill(SimDisk(1))
    missing = {KINDS[kind].__name__ for kind in KINDS.keys() - kinds_in(disk)}
    assert not missing, f"the directory has no {sorted(missing)}"
    for name in [name for name in disk.names() if disk.content(name)]:
        file = home / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(disk.content(name))
    for name, find in (("expected", lambda copy: asyncio.run(look(copy))), ("state", fold)):
        with TemporaryDirectory() as elsewhere:
            copy = Path(elsewhere) / "data"
            shutil.copytree(home / "data", copy)
            (home / f"{name}.json").write_text(json.dumps(find(copy)) + "\n")


if __name__ == "__main__":
    main()

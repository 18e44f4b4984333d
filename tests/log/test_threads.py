"""A sync on another thread while the owner appends, writes, rolls, drops and reads, on real files."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

from tenure.log import FileLog, Frame, PosixDisk, Sync


def test_syncs_run_beside_rolls_drops_and_reads(tmp_path: Path) -> None:
    """Fault 15: the owner never waits for a sync it did not ask for, and every handle outlives its sync."""
    random = Random(1)
    log = FileLog.open(PosixDisk(tmp_path), segment_bytes=16_384, handles_max=2)
    list(log.replay())
    kept: list[Frame] = []
    under_way: tuple[Sync, Future[None]] | None = None
    ended = 0
    with ThreadPoolExecutor(1) as thread:
        for number in range(3000):
            body = random.randbytes(random.choice((10, 300, 2000)))
            kept.append((20, number, log.append([(20, number, body)])[0], body))
            if number % 3 == 0:
                log.write()
            if under_way is None:
                log.write()
                sync = log.begin_sync()
                under_way = (sync, thread.submit(sync.run))
            elif under_way[1].done() or number % 200 == 0:
                under_way[1].result()
                assert log.end_sync(under_way[0]) <= log.written_batch
                under_way = None
                ended += 1
            if number % 100 == 99 and len(log.segments()) > 3:
                segment = log.segments()[0].number
                log.drop(segment)
                kept = [frame for frame in kept if frame[2] >> 32 > segment]
            _, topic, location, body = random.choice(kept)
            assert log.read(location) == (20, topic, body)
        if under_way is not None:
            under_way[1].result()
            log.end_sync(under_way[0])
    assert ended > 5
    log.close()
    log = FileLog.open(PosixDisk(tmp_path), segment_bytes=16_384)
    assert list(log.replay()) == kept
    log.close()

"""kill -9 in the middle of everything, again and again, on one directory: nothing lost, undone or unexpected."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from tenure import Broker
from tenure.testing import HistoryReport, check_history
from tenure.testing.history import History
from tests.acceptance.life import LEASE_MS, QUEUES, SETTINGS, Notes, note_claim, settle
from tests.acceptance.processes import start, stop


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def wait_until_open(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n", "the process ended by itself"


def kill_often(home: Path, notes: Path, *, kills: int, seed: int) -> int:
    """Let one life after the other run for a while and kill it; give how many were killed before they were open.

    The next process is loaded while the one before it still works.
    """
    random, early = Random(seed), 0
    notes.mkdir()
    following = start("life", home, notes / "000", "life-0")
    try:
        for number in range(kills):
            process, following = following, start("life", home, notes / f"{number + 1:03}", f"life-{number + 1}")
            go(process)
            if random.random() < 0.2:
                early += 1
                time.sleep(random.random() * 0.05)
            else:
                wait_until_open(process)
                time.sleep(random.random() * 0.35)
            assert process.poll() is None, "it died before it was killed"
            stop(process)
    finally:
        stop(following)
    return early


async def drain(home: Path, notes_path: Path) -> None:
    """Open what is left, deliver and ack everything, and note the dead letters."""
    notes = Notes(notes_path)
    async with await Broker.open(home, settings=SETTINGS) as broker:
        for topic in QUEUES:
            if topic not in broker.topics().items:
                continue
            while broker.topic(topic).count:
                claim = await broker.claim(topic, node="drain", max_count=500, lease_ms=60_000, wait_ms=2 * LEASE_MS)
                if claim.jobs:
                    note_claim(broker, notes, claim, 60_000)
                    await settle(broker, notes, claim, ack=True)
        if "dead" in broker.topics().items:
            cursor, found = 0, []
            while True:
                page = await broker.diff("dead", from_seq=cursor, limit=1000)
                found += [record.data.decode().strip('".') for record in page.records]
                cursor = page.next_from_seq
                if page.caught_up:
                    break
            notes.rows.dead_letters(found)
            notes.keep()


def judge(notes: Path) -> HistoryReport:
    """Check what all the lives noted, each in a file of its own: a kill may cut off the last line of it."""
    parts = [path.read_bytes() for path in sorted(notes.iterdir())]
    report = check_history(History.from_lines(*parts))
    assert report.ok, str(report)
    return report


@pytest.mark.full
@pytest.mark.timeout(300)
def test_fault_1_38_44_kills_lose_nothing_and_undo_nothing(tmp_path: Path) -> None:
    """Faults 1, 20, 38, 44: 35 lives on one directory, each killed at a random moment, some while they recover."""
    home, notes = tmp_path / "data", tmp_path / "notes"
    early = kill_often(home, notes, kills=35, seed=20)
    asyncio.run(drain(home, notes / "999"))
    report = judge(notes)
    assert report.produced > 3_000, str(report)
    assert report.acked > 3_000
    assert early > 3
    oldest = min(int(path.stem) for path in (home / "segments").glob("*.log"))
    assert oldest > 5, "segments were rolled and dropped on the way"
    assert list((home / "checkpoints").glob("*.checkpoint"))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_fault_1_38_44_many_more_kills(tmp_path: Path, seed: int) -> None:
    home, notes = tmp_path / "data", tmp_path / "notes"
    kill_often(home, notes, kills=200, seed=seed)
    asyncio.run(drain(home, notes / "999"))
    judge(notes)


async def fill(home: Path) -> None:
    """A log that takes a while to replay: twenty thousand single appends, leases and acks, and no checkpoint."""
    async with await Broker.open(home, settings=SETTINGS) as broker:
        await broker.put_topic("written", QUEUES["written"])
        for start in range(0, 20_000, 100):
            answers = [broker.produce("written", [b'"x-%d"' % (start + i)]) for i in range(100)]
            await answers[-1]
        for _ in range(40):
            claim = await broker.claim("written", node="w", max_count=50, lease_ms=3_600_000)
            await broker.ack("written", node="w", seqs=claim.seqs[:25])
    shutil.rmtree(home / "checkpoints")


async def look(home: Path) -> tuple[int, dict[str, int]]:
    async with await Broker.open(home, settings=SETTINGS) as broker:
        info = broker.topic("written")
        assert info.queue is not None
        return info.count, {key: getattr(info.queue, key) for key in ("ready", "in_flight", "ack_holes")}


def test_fault_20_kills_all_through_a_recovery_change_nothing(tmp_path: Path) -> None:
    """Fault 20: each opening is killed at another moment of its replay; the one that gets through finds everything."""
    home, notes = tmp_path / "data", tmp_path / "notes"
    asyncio.run(fill(home))
    shutil.copytree(home, tmp_path / "copy")
    process = start("life", tmp_path / "copy", notes, "idle")
    began = time.monotonic()
    go(process)
    wait_until_open(process)
    whole = time.monotonic() - began
    stop(process)
    interrupted = 0
    for step in range(16):
        process = start("life", home, notes, "idle")
        go(process)
        time.sleep(whole * step / 16)
        process.kill()
        assert process.stdout is not None
        interrupted += process.stdout.read() == ""
        stop(process)
    assert interrupted > 5
    count, queue = asyncio.run(look(home))
    assert count == 19_000
    assert queue == {"ready": 18_000, "in_flight": 1_000, "ack_holes": 39}

"""Real small file systems that fill up, and a mount laid over a data directory. Needs root and mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import Broker, Settings
from tenure.errors import Indeterminate, Overloaded
from tests.acceptance.processes import RemoteBroker

QUEUE = {"type": "queue", "durability": "fsync"}
SETTINGS = Settings(segment_bytes=1 << 18, spare_segments=1, trim_step_bytes=1 << 16)


def run(*command: object) -> str | None:
    """Run a command; give what it complained about, None if it went well."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


def mount(target: Path, *options: object) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    target.mkdir(exist_ok=True)
    complaint = run("mount", *options, target)
    if complaint is not None:
        pytest.skip(f"mount was refused here: {complaint}")


@pytest.fixture(params=["tmpfs", "ext4"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system with room for about a dozen segments."""
    target = tmp_path / "mounted"
    if request.param == "tmpfs":
        mount(target, "-t", "tmpfs", "-o", "size=3m", "tmpfs")
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("there is no mkfs.ext4 here")
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(4 << 20)
        complaint = run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", image)
        if complaint is not None:
            pytest.skip(f"mkfs.ext4 was refused here: {complaint}")
        mount(target, "-o", "loop", image)
    yield target
    run("umount", "-l", target)


async def fill(broker: Broker) -> int:
    before = broker.topic("q").head_seq
    with pytest.raises(Overloaded) as full:
        await _fill(broker)
    assert full.value.code == "disk_full"
    return broker.topic("q").head_seq - before


async def _fill(broker: Broker) -> None:
    for _ in range(10_000):
        await broker.produce("q", [b'"%s"' % (b"." * 2_000)])


async def test_fault_12_a_really_full_disk_refuses_appends_serves_acks_and_comes_back(small: Path) -> None:
    home = small / "data"
    async with await Broker.open(home, settings=SETTINGS) as broker:
        await broker.put_topic("q", QUEUE)
        for _ in range(2):
            count = await fill(broker)
            assert count > 500
            before = broker.topic("q", touch=False)
            with pytest.raises(Overloaded):
                broker.produce("q", [b'"%s"' % (b"." * 2_000)])
            assert broker.topic("q", touch=False) == before
            assert len((await broker.diff("q", limit=100)).records) == 100
            while (claim := await broker.claim("q", node="w", max_count=100)).jobs:
                assert (await broker.ack("q", node="w", seqs=claim.seqs)).count == len(claim.seqs)
        await broker.produce("q", [b'"after"'])
    async with await Broker.open(home, settings=SETTINGS) as again:
        assert [job.data for job in (await again.claim("q", node="w", max_count=10)).jobs] == [b'"after"']


async def test_fault_12_a_disk_that_others_filled_is_usable_again_when_they_leave(small: Path) -> None:
    home, other = small / "data", small / "other"
    async with await Broker.open(home, settings=SETTINGS) as broker:
        await broker.put_topic("q", QUEUE)
        await broker.produce("q", [b'"before"'])
        with other.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 14))
            except OSError:
                pass
        count = await fill(broker)
        claim = await broker.claim("q", node="w")
        assert (await broker.ack("q", node="w", seqs=claim.seqs)).count == 1
        other.unlink()
        await broker.produce("q", [b'"after"'])
        assert broker.topic("q").count == count + 1


def test_fault_12_a_kill_on_a_full_disk_recovers_on_the_full_disk(small: Path) -> None:
    """Faults 12, 20: opening needs no room that is not there."""
    home = str(small / "data")
    sizes = {"segment_bytes": SETTINGS.segment_bytes}
    with RemoteBroker() as broker:
        broker.call("open", home=home, **sizes)
        broker.call("put_topic", topic="q", config=QUEUE)
        count = broker.call("fill", topic="q", size=2_000, count_max=10_000)
        assert count > 500
    for _ in range(3):
        with RemoteBroker() as again:
            again.call("open", home=home, **sizes)
            assert again.call("count", topic="q") == count
            claim = again.call("claim", topic="q", node="w", max_count=10)
            assert again.call("ack", topic="q", node="w", seqs=claim["seqs"])["count"] == 10
            count -= 10


async def test_fault_17_a_mount_laid_over_the_directory_acknowledges_nothing_more(tmp_path: Path) -> None:
    home = tmp_path / "data"
    broker = await Broker.open(home, settings=SETTINGS)
    try:
        await broker.put_topic("q", QUEUE)
        await broker.produce("q", [b"1"])
        mount(home, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
        try:
            with pytest.raises(Indeterminate):
                await broker.produce("q", [b"2"])
            assert len((await broker.diff("q")).records) >= 1
            assert not list(home.iterdir()), "nothing was written to what lies over it"
        finally:
            run("umount", "-l", home)
    finally:
        await broker.close()
    async with await Broker.open(home, settings=SETTINGS) as again:
        assert again.topic("q").count in (1, 2)


async def test_fault_17_a_file_system_that_turns_read_only_stops_writes_and_serves_reads(tmp_path: Path) -> None:
    """Fault 17: ext4 remounts itself read-only after an error; the shutdown of a loop device does the same to us."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4 here")
    image, target = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    complaint = run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    if complaint is not None:
        pytest.skip(f"mkfs.ext4 was refused here: {complaint}")
    mount(target, "-o", "loop,errors=remount-ro", image)
    try:
        broker = await Broker.open(target / "data", settings=SETTINGS)
        try:
            await broker.put_topic("q", QUEUE)
            await broker.produce("q", [b"1"])
            complaint = run("mount", "-o", "remount,abort", target)
            if complaint is not None:
                pytest.skip(f"this ext4 cannot be made to fail: {complaint}")
            with pytest.raises(Indeterminate):
                await broker.produce("q", [b"2"])
            assert [record.data for record in (await broker.diff("q")).records][:1] == [b"1"]
        finally:
            await broker.close()
    finally:
        run("umount", "-l", target)

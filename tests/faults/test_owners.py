"""One directory, one owner, one format: faults 16 and 18, here in process; with real processes in tests/acceptance."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tenure import Broker
from tenure.errors import Conflict, Corrupt
from tenure.log import checkpoint
from tenure.log.checkpoint import FORMAT as CHECKPOINT_FORMAT
from tenure.log.disk import PosixDisk
from tenure.log.segment import FORMAT, segment_name, segment_numbers
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import SETTINGS, Ledger, Session, check_fold, check_leases, events_of
from tests.golden import digests
from tests.golden import make as golden
from tests.kit import run

GOLDEN = Path(golden.__file__).parent


async def test_fault_16_a_second_opener_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    home, link = tmp_path / "data", tmp_path / "link"
    first = await Broker.open(home, settings=SETTINGS)
    link.symlink_to(home)
    await first.put_topic("q", {"type": "queue", "durability": "fsync"})
    await first.produce("q", [b"1"])
    before = snapshot(home)
    for path in (home, link, tmp_path / "x" / ".." / "data", str(home) + "/"):
        if ".." in str(path):
            (tmp_path / "x").mkdir()
        with pytest.raises(Conflict) as refused:
            await Broker.open(path, settings=SETTINGS)
        assert refused.value.code == "locked"
    assert snapshot(home) == before, "the first one is unharmed"
    await first.produce("q", [b"2"])
    assert (await first.claim("q", node="w", max_count=5)).seqs == [1, 2]
    await first.close()
    async with await Broker.open(link, settings=SETTINGS) as second:
        assert second.topic("q").count == 2


def snapshot(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


async def test_fault_16_an_older_writer_is_fenced_by_its_epoch() -> None:
    """Fault 16 where a lock was no lock: frames of an older epoch behind a newer one are never believed."""
    disk, clock = SimDisk(1), ManualClock()
    first = Session(disk, Ledger(), clock)
    first.queue()
    first.produce(1)
    first.sync()
    disk.unlock()
    second = Session(disk, Ledger(), clock)
    second.produce(1)
    second.sync()
    second.log.seal()
    assert second.log.epoch > first.log.epoch
    assert second.claim(5).lease >> 40 > first.engine.state.epoch - 1
    kept = [event.at_ms for event in events_of(second.engine)]
    world = disk.kill()
    again = Session(world, Ledger(), clock)
    assert [event.at_ms for event in events_of(again.engine)][: len(kept)] == kept
    check_fold(again.engine)


def test_fault_16_a_failed_opening_lets_the_directory_go(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    disk.lock()
    with pytest.raises(Conflict):
        PosixDisk(tmp_path).lock()
    disk.unlock()
    other = PosixDisk(tmp_path)
    other.lock()
    other.unlock()


@pytest.mark.parametrize("place", ["first", "last"])
async def test_fault_18_a_format_newer_than_the_program_is_refused_untouched(place: str) -> None:
    session = Session(SimDisk(1), Ledger(), ManualClock())
    session.queue()
    session.produce(30, size=300)
    session.produce(30, size=300)
    session.close()
    numbers = [segment.number for segment in session.log.segments()]
    assert len(numbers) > 1
    name = segment_name(numbers[0 if place == "first" else -1])
    content = session.disk.content(name)
    session.disk.put(name, content[:8] + (FORMAT + 1).to_bytes(4, "little") + content[12:])
    before = {each: session.disk.content(each) for each in session.disk.names()}
    with pytest.raises(Corrupt) as refused:
        await Broker.open(session.disk, clock=ManualClock(), settings=SETTINGS)
    assert refused.value.code == "format_too_new"
    assert refused.value.detail["file"] == name
    assert {each: session.disk.content(each) for each in session.disk.names()} == before


async def test_fault_18_a_checkpoint_of_a_newer_format_is_passed_over() -> None:
    session = Session(SimDisk(1), Ledger(), ManualClock())
    session.queue()
    session.produce(3)
    session.checkpoint()
    session.close()
    [name] = [name for name in session.disk.names() if name.endswith(".checkpoint")]
    content = session.disk.content(name)
    session.disk.put(name, content[:8] + (CHECKPOINT_FORMAT + 1).to_bytes(4, "little") + content[12:])
    async with await Broker.open(session.disk, clock=ManualClock(), settings=SETTINGS) as broker:
        assert broker.topic("q").count == 3


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.glob("v*")))
@pytest.mark.parametrize("checkpoints", [True, False], ids=["as it is", "without its checkpoints"])
async def test_fault_18_golden_directories_open_and_hold_what_they_held(
    version: str, checkpoints: bool, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN / version / "data", tmp_path / "data")
    if not checkpoints:
        shutil.rmtree(tmp_path / "data" / "checkpoints")
    expected: dict[str, Any] = json.loads((GOLDEN / version / "expected.json").read_text())
    found = json.loads(json.dumps(await golden.look(tmp_path / "data")))
    assert found == expected
    assert json.loads(json.dumps(await golden.look(tmp_path / "data"))) == expected, "and again, rewritten by this one"


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.glob("v*")))
@pytest.mark.parametrize("checkpoints", [True, False], ids=["as it is", "without its checkpoints"])
def test_fault_18_golden_directories_fold_to_the_state_that_they_had(
    version: str, checkpoints: bool, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN / version / "data", tmp_path / "data")
    if not checkpoints:
        shutil.rmtree(tmp_path / "data" / "checkpoints")
    expected: dict[str, Any] = json.loads((GOLDEN / version / "state.json").read_text())
    assert json.loads(json.dumps(golden.fold(tmp_path / "data"))) == expected


def test_fault_18_no_file_of_a_golden_directory_was_changed_added_or_removed() -> None:
    assert digests.present() == digests.listed(), "golden directories are frozen: see CONTRIBUTING"


def test_fault_18_the_second_golden_directory_has_every_kind_of_event_of_its_time() -> None:
    disk = PosixDisk(GOLDEN / "v2" / "data", create=False)
    assert golden.kinds_in(disk) == set(range(16, 37))
    assert segment_numbers(disk)[0] > 1, "segments were dropped"
    assert any(name.endswith(".new") for name in disk.listdir("segments")), "one was not published"
    assert len(list(checkpoint.load(disk))) == 2


def test_fault_18_a_golden_directory_goes_on_working(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v1" / "data", tmp_path / "data")
    disk = PosixDisk(tmp_path / "data")
    session = Session(disk, Ledger(), golden.clock_at(1_000))  # type: ignore[arg-type]
    check_fold(session.engine)
    check_leases(events_of(session.engine))
    held = session.engine.state.topics["jobs"].queue
    assert held is not None
    [number] = held.leases.numbers_after(0, 2)
    lease = held.lease(number)
    assert lease is not None
    assert run.ack(session.engine, "jobs", node=lease.node, seqs=held.held(number)).reply.count == 1
    session.produce(2, to="jobs")
    session.sync()
    assert len(session.claim(100, name="jobs").jobs) >= 2
    session.close()

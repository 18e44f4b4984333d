"""Every event of the log is in the buffer once, in order, wherever the exporter was cut off."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import msgspec
import pytest

from tenure import Broker, Settings
from tenure.buffer import Collector, Consumer
from tenure.errors import Conflict, NotFound
from tenure.export.buffer_outlet import BufferOutlet, producer_name
from tenure.export.exporter import Exporter
from tenure.export.follower import Follower
from tenure.export.intents import Intents
from tenure.export.settings import ExportSettings
from tenure.log.disk import PosixDisk
from tenure.testing.clock import ManualClock
from tests.export.reading import batches_in, rows_in
from tests.kit.broker_life import life, polled, rows_of
from tests.kit.buffers import quick

SETTINGS = ExportSettings(call_bytes_max=1_000, checkpoint_bytes=4_000, flush_ms=1)


class Cut(Exception):
    """The process ends here."""


class Outlet(BufferOutlet):
    """A buffer at which the exporter is cut off: before its call, in the middle of it, or when it was answered."""

    def __init__(self, url: str, name: str, *, at: int, when: str) -> None:
        super().__init__(url, name)
        self._at = at
        self._when = when

    async def send(self, rows: list[bytes], metadata: bytes) -> None:
        self._at -= 1
        if self._at == 0 and self._when == "before":
            raise Cut
        await super().send(rows, metadata)
        if self._at == 0:
            raise Cut


async def make_log(home: Path, *, seed: int = 1, steps: int = 120, settings: Settings | None = None) -> None:
    clock = ManualClock()
    async with await Broker.open(home, clock=clock, settings=settings) as broker:
        await life(broker, clock, Random(seed), steps=steps)


async def export(home: Path, url: str, *, at: int = 0, when: str = "", settings: ExportSettings = SETTINGS) -> bool:
    """Run an exporter until everything is exported; return False where it was cut off."""
    stop = asyncio.Event()
    stop.set()
    async with Outlet(url, producer_name(PosixDisk(home)), at=at, when=when) as outlet:
        exporter = Exporter(home, outlet, settings=settings)
        try:
            await exporter.run(stop)
        except Cut:
            return False
        finally:
            exporter.close()
    return True


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/buffer"


async def test_a_log_is_exported_whole_and_only_what_is_new_the_next_time(home: Path, url: str) -> None:
    for turn in range(3):
        await make_log(home, seed=turn)
        assert await export(home, url)
        assert await rows_in(url) == polled(PosixDisk(home))
    assert await export(home, url)
    assert len(await rows_in(url)) == len(polled(PosixDisk(home)))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_exporter_cut_off_at_any_call_loses_nothing_and_repeats_nothing(
    home: Path, url: str, when: str
) -> None:
    """Faults 51 and 53: cut off before call k or right after it, then started again, for every k."""
    await make_log(home)
    calls = 0
    while not await export(home, url, at=2, when=when):
        calls += 1
    assert calls >= 5
    assert rows_of(await rows_in(url)) == rows_of(polled(PosixDisk(home)))


@pytest.mark.parametrize("seed", range(6))
async def test_a_life_with_an_exporter_that_dies_all_the_time_is_exported_once(home: Path, url: str, seed: int) -> None:
    """Faults 1 and 20, for the export: cut off at random, several times in a row, while the log grows and rolls."""
    random = Random(seed)
    small = Settings(segment_bytes=1 << 14, spare_segments=1, trim_step_bytes=1 << 12, checkpoint_bytes=1 << 14)
    settings = ExportSettings(call_bytes_max=1_000, checkpoint_bytes=random.choice([1, 3_000]), flush_ms=1)
    clock, follower = ManualClock(), Follower(PosixDisk(home))
    expected = []
    for _ in range(6):
        async with await Broker.open(home, clock=clock, settings=small) as broker:
            broker.pin(0, bytes_max=1 << 30)
            await life(broker, clock, random, steps=random.randint(5, 60))
        expected += polled(follower)
        for _ in range(random.randint(0, 3)):
            await export(home, url, at=random.randint(1, 3), when=random.choice(["before", "after"]), settings=settings)
    assert await export(home, url, settings=settings)
    assert await rows_in(url) == expected


async def make_crowd(home: Path, *, leases: int) -> None:
    """A log with one batch in which all of these leases run out together, and a life around it."""
    clock = ManualClock()
    async with await Broker.open(home, clock=clock) as broker:
        await life(broker, clock, Random(1), steps=20)
        await broker.put_topic("crowd", {"type": "queue", "lease_ms": 1_000})
        await broker.produce("crowd", [b"1"] * leases)
        for number in range(leases):
            await broker.claim("crowd", node=f"w{number}")
        clock.advance(60_000)
        await life(broker, clock, Random(2), steps=20)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_batch_of_the_log_with_more_rows_than_a_call_takes_is_told_in_several_calls(
    home: Path, url: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 51, within a batch of the log: cut off at every call and started again."""
    monkeypatch.setattr("tenure.export.follower._STEP_ROWS_MAX", 5)
    await make_crowd(home, leases=60)
    settings = ExportSettings(call_rows_max=7, checkpoint_bytes=1, flush_ms=1)
    while not await export(home, url, at=2, when=when, settings=settings):
        pass
    assert await rows_in(url) == polled(PosixDisk(home))
    batches = await batches_in(url)
    assert max(len(batch.entries) for batch in batches) == 7
    places = [msgspec.json.decode(batch.ranges[0].metadata)["position_rows"] for batch in batches]
    assert sum(place > 0 for place in places) >= 8


@pytest.mark.parametrize("settings", [{"call_rows_max": 3}, {"call_bytes_max": 300}, {}])
async def test_a_call_in_doubt_keeps_its_rows_whatever_the_limits_are_by_then(
    home: Path, url: str, settings: dict[str, int]
) -> None:
    await make_crowd(home, leases=60)
    before = ExportSettings(call_rows_max=11, flush_ms=1)
    for when in ("before", "after"):
        for _ in range(4):
            assert not await export(home, url, at=2, when=when, settings=before)
    assert await export(home, url, settings=ExportSettings(flush_ms=1, **settings))
    assert await rows_in(url) == polled(PosixDisk(home))


async def test_an_exporter_that_lost_its_directory_within_a_batch_goes_on_with_its_next_row(
    home: Path, url: str
) -> None:
    await make_crowd(home, leases=60)
    settings = ExportSettings(call_rows_max=7, flush_ms=1)
    lost = 0
    while not await export(home, url, at=2, when="after", settings=settings):
        shutil.rmtree(home / "export")
        lost += 1
    assert lost >= 4
    assert await rows_in(url) == polled(PosixDisk(home))


async def test_a_call_of_a_dead_exporter_that_arrives_late_is_not_taken_twice(home: Path, url: str) -> None:
    """Fault 53: a zombie's commit lands before, or after, the next exporter has exported the same rows."""
    await make_log(home)
    name = producer_name(PosixDisk(home))
    late: list[tuple[BufferOutlet, list[bytes], bytes]] = []

    class Slow(BufferOutlet):
        async def send(self, rows: list[bytes], metadata: bytes) -> None:
            late.append((self, rows, metadata))
            raise Cut

    stop = asyncio.Event()
    stop.set()
    async with Slow(url, name) as outlet:
        exporter = Exporter(home, outlet, settings=SETTINGS)
        with pytest.raises(Cut):
            await exporter.run(stop)
        exporter.close()
        async with BufferOutlet(url, name) as second:
            other = Exporter(home, second, settings=SETTINGS)
            first, rows, metadata = late[0]
            await BufferOutlet.send(first, rows, metadata)
            await other.run(stop)
            other.close()
    assert rows_of(await rows_in(url)) == rows_of(polled(PosixDisk(home)))


async def test_a_call_in_doubt_waits_until_the_log_shows_all_of_it_again(home: Path, url: str) -> None:
    """Fault 2, for the export: power was lost with what proved that the end of the log is durable."""
    await make_log(home, seed=1)
    assert not await export(home, url, at=3, when="before")
    [directory] = [path for path in (home / "export").iterdir() if path.is_dir()]
    last, rows = Intents(directory / "intents").known[0].after
    assert not rows, "it ends with a batch of the log"
    segment = home / "segments" / f"{last.segment:010d}.log"
    content = segment.read_bytes()
    segment.write_bytes(content[: last.offset].ljust(len(content), b"\0"))
    shutil.rmtree(home / "checkpoints")
    told = await rows_in(url)
    assert await export(home, url)
    assert await rows_in(url) == told, "the call is not made with less"
    await make_log(home, seed=2)
    assert await export(home, url)
    assert rows_of(await rows_in(url)) == rows_of(polled(PosixDisk(home)))


async def test_a_call_that_was_consumed_and_collected_before_its_answer_came_is_not_made_again(
    home: Path, url: str
) -> None:
    """However long the exporter was away: the buffer remembers a producer with a name by its last ordinal."""
    await make_log(home, seed=1)
    assert not await export(home, url, at=3, when="after")
    told = await rows_in(url)
    settings = quick(forget_producer_ms=0)
    async with Consumer(url, settings=settings, collect=False) as consumer:
        await consumer.ack_through((await consumer.next_descriptors(100))[-1].seq)
    collector = Collector(url, settings=settings)
    assert (await collector.run_once()).objects == 3
    await collector.close()
    assert await rows_in(url) == []
    assert await export(home, url)
    assert rows_of(told + await rows_in(url)) == rows_of(polled(PosixDisk(home)))


async def test_a_buffer_that_lost_the_exporters_record_is_not_given_everything_again(home: Path, url: str) -> None:
    await make_log(home, seed=1)
    assert await export(home, url)

    class Forgotten(BufferOutlet):
        async def __aenter__(self) -> BufferOutlet:
            await super().__aenter__()
            self.ordinal, self.recalled = -1, b""
            return self

    async with Forgotten(url, producer_name(PosixDisk(home))) as outlet:
        with pytest.raises(Conflict) as caught:
            Exporter(home, outlet, settings=SETTINGS)
    assert caught.value.code == "export_unknown"


async def test_two_exporters_on_one_directory_are_one_too_many(home: Path, url: str) -> None:
    """Fault 16, for the export."""
    await make_log(home)
    name = producer_name(PosixDisk(home))
    async with BufferOutlet(url, name) as outlet:
        exporter = Exporter(home, outlet, settings=SETTINGS)
        with pytest.raises(Conflict):
            Exporter(home, outlet, settings=SETTINGS)
        exporter.close()


async def test_a_new_buffer_gets_everything_that_the_log_still_holds(home: Path, url: str, tmp_path: Path) -> None:
    await make_log(home)
    assert await export(home, url)
    other = f"file://{tmp_path}/other"
    assert await export(home, other)
    assert await rows_in(other) == await rows_in(url)
    assert await export(home, url)
    assert rows_of(await rows_in(url)) == rows_of(polled(PosixDisk(home)))


async def test_a_log_that_was_set_back_is_told_as_a_gap(home: Path, url: str, tmp_path: Path) -> None:
    """An old copy of the log was put in its place: the export says so and begins with what is there.

    Rows of the two histories may share their names; the gap between them shares its own with none, so a reader that
    drops repeats by name still meets it.
    """
    await make_log(home, seed=1, steps=30)
    shutil.copytree(home / "segments", tmp_path / "old")
    await make_log(home, seed=2)
    assert await export(home, url)
    gaps = []
    for seed in (3, 4):
        told = len(await rows_in(url))
        for part in ("segments", "checkpoints"):
            shutil.rmtree(home / part)
        shutil.copytree(tmp_path / "old", home / "segments")
        await make_log(home, seed=seed, steps=20)
        assert await export(home, url)
        rows = (await rows_in(url))[told:]
        assert (rows[0].event, rows[0].reason) == ("gap", "history")
        assert rows_of(rows[1:]) == rows_of(polled(PosixDisk(home)))
        gaps.append(rows[0])
    names = rows_of(await rows_in(url))
    assert [names.count(name) for name in rows_of(gaps)] == [1, 1]


async def test_an_exporter_that_fell_behind_the_trimmed_log_reports_the_gap_and_goes_on(home: Path, url: str) -> None:
    small = Settings(segment_bytes=1 << 14, spare_segments=1, trim_step_bytes=1 << 12)
    await make_log(home, seed=1, steps=50, settings=small)
    assert await export(home, url)
    told = await rows_in(url)
    for seed in range(2, 12):
        await make_log(home, seed=seed, steps=200, settings=small)
    assert await export(home, url)
    rows = (await rows_in(url))[len(told) :]
    gap = rows[0]
    assert (gap.event, gap.reason) == ("gap", "trimmed")
    assert gap.first_batch == told[-1].batch + 1 or gap.first_batch is not None
    assert gap.last_batch is not None
    assert gap.last_batch < rows[1].batch
    assert rows_of(rows[1:]) == rows_of(polled(PosixDisk(home)))


async def test_what_a_batch_is_made_of_stands_in_its_metadata(home: Path, url: str) -> None:
    await make_log(home)
    assert await export(home, url)
    batches = await batches_in(url)
    following = None
    for batch in batches:
        [call] = batch.ranges
        about = msgspec.json.decode(call.metadata)
        assert about["rows"] == len(batch.entries)
        assert following in (None, about["first_batch"])
        following = about["last_batch"] + (0 if about["position_rows"] else 1)
    assert len(batches) > 5


async def test_an_exporter_that_lost_its_directory_reads_in_the_buffer_how_far_it_was(home: Path, url: str) -> None:
    await make_log(home, seed=1)
    assert await export(home, url)
    shutil.rmtree(home / "export")
    await make_log(home, seed=2)
    assert await export(home, url)
    assert rows_of(await rows_in(url)) == rows_of(polled(PosixDisk(home)))


async def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        producer_name(PosixDisk(tmp_path / "empty"))

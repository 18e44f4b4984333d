"""Large appends: a record is read at its own cost, and damage is found all the same."""

from __future__ import annotations

import errno

import pytest

from tenure import Record, Settings
from tenure.broker.durability.trim import trim_step
from tenure.broker.engine import Engine
from tenure.broker.salvage.rebuild import rebuild
from tenure.errors import Corrupt
from tenure.log.log import FileLog
from tenure.log.segment import segment_name
from tenure.testing import ManualClock, SimDisk
from tests.kit import run


class CountingDisk(SimDisk):
    """A disk that counts the bytes that are read."""

    read_bytes = 0

    def pread(self, file: int, count: int, offset: int) -> bytes:
        data = super().pread(file, count, offset)
        self.read_bytes += len(data)
        return data


def opened(disk: SimDisk) -> Engine:
    engine = Engine(FileLog.open(disk), clock=ManualClock(), settings=Settings())
    engine.recover()
    return engine


def filled(disk: SimDisk, queues: int, records: int, size: int = 100) -> Engine:
    """Queues with one append each, after a restart: nothing is cached."""
    engine = opened(disk)
    for number in range(queues):
        run.put_topic(engine, f"q{number}", {"type": "queue"})
        run.produce(engine, f"q{number}", [b"%0*d" % (size, n) for n in range(records)])
    engine.sync()
    engine.log.close()
    return opened(disk)


def claimed_bytes(disk: CountingDisk, engine: Engine, queues: int, times: int = 20) -> int:
    """How many bytes are read to claim and ack jobs one by one, in turn over the queues, after the first of each."""
    for number in range(queues):
        run.claim(engine, f"q{number}", node="w")
    before = disk.read_bytes
    for turn in range(times):
        name = f"q{turn % queues}"
        [job] = run.claim(engine, name, node="w").reply.jobs
        assert int(job.data) == job.seq - 1
        run.ack(engine, name, node="w", seqs=[job.seq])
    return disk.read_bytes - before


def test_a_job_of_a_large_append_costs_the_same_however_large_that_is() -> None:
    """Ten times the append, the same bytes; and more appends than any cache of payloads holds."""
    small, large = CountingDisk(1), CountingDisk(1)
    some = claimed_bytes(small, filled(small, 12, 1_000), 12)
    many = claimed_bytes(large, filled(large, 12, 10_000), 12)
    assert many == some <= 20 * 200


def test_a_large_append_that_left_the_cache_is_not_read_again_as_a_whole() -> None:
    disk = CountingDisk(1)
    engine = filled(disk, 3, 10_000)
    engine.reader._cache_bytes_max = 0
    assert claimed_bytes(disk, engine, 3) < 20 * 60_000, "its table, and the record"


def test_records_of_a_large_append_are_what_was_put() -> None:
    engine = opened(SimDisk(1))
    records = [Record(data=b"%05d" % n * 20, tag=f"t{n % 7}", meta=b'{"n": %d}' % n) for n in range(2_000)]
    run.produce(engine, "t", records)
    for is_written in (False, True):
        if is_written:
            engine.sync()
        found = run.diff(engine, "t", from_seq=500, limit=50).records
        assert [(each.seq, each.data, each.tag, each.meta) for each in found] == [
            (n + 1, records[n].data, records[n].tag, records[n].meta) for n in range(500, 550)
        ]
        assert engine.reader.records(engine.state.topics["t"], [1999, 1])[0].data == records[1998].data


@pytest.mark.parametrize("at", [0, 4, 30, 60, 5_000, 90_000, 104_000])
def test_damage_anywhere_in_a_large_append_is_met_by_its_first_reader(at: int) -> None:
    disk = SimDisk(1)
    engine = filled(disk, 1, 1_000)
    [entry] = engine.state.topics["q0"].frame_index
    disk.flip_bit(segment_name(1), (entry.offsets[0] + at) * 8)
    with pytest.raises(Corrupt):
        engine.reader.records(engine.state.topics["q0"], [7, 1])


def test_a_large_append_is_rewritten_in_parts_of_a_step() -> None:
    """Trimming moves it piece by piece, and every record can be read, weighed and acked all the time."""
    disk = SimDisk(1)
    settings = Settings(segment_bytes=1 << 21, spare_segments=1, trim_step_bytes=1 << 17)
    engine = Engine(FileLog.open(disk, segment_bytes=1 << 21), clock=ManualClock(), settings=settings)
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue"})
    run.produce(engine, "q", [b"%01000d" % n for n in range(1_500)])
    run.produce(engine, "q", [b"after"])
    gone = set(range(10, 300, 3)) | {1_499}
    run.delete_records(engine, "q", seqs=sorted(gone))
    while len(engine.log.segments()) < 3:
        run.produce(engine, "filler", [b"." * 100_000], config={"cap_records": 1})
    engine.sync()
    topic, steps = engine.state.topics["q"], 0
    while engine.log.segments()[0].number == 1:
        before = engine.rewritten_bytes
        trim_step(engine)
        engine.sync()
        assert engine.rewritten_bytes - before < 4 * settings.trim_step_bytes
        steps += 1
        assert engine.reader.weigh(topic, topic.live_runs(1, 1 << 40)) == topic.bytes
        assert sum(size for _, size in engine.reader.sizes(topic, 1, 1 << 40)) == topic.bytes
        [job] = run.claim(engine, "q", node="w").reply.jobs
        run.ack(engine, "q", node="w", seqs=[job.seq])
        gone.add(job.seq)
    assert steps >= 5
    expected = [(n + 1, b"%01000d" % n) for n in range(1_500) if n + 1 not in gone] + [(1_501, b"after")]
    engine.sync()
    engine.log.close()
    again = opened(disk)
    topic = again.state.topics["q"]
    found = again.reader.records(topic, topic.live_runs(1, 1 << 40))
    assert [(record.seq, record.data) for record in found] == expected
    assert topic.bytes == sum(len(data) for _, data in expected)


def test_a_replay_between_two_parts_finds_every_record() -> None:
    disk = SimDisk(1)
    settings = Settings(segment_bytes=1 << 21, spare_segments=1, trim_step_bytes=1 << 17)
    engine = Engine(FileLog.open(disk, segment_bytes=1 << 21), clock=ManualClock(), settings=settings)
    engine.recover()
    run.produce(engine, "t", [b"%01000d" % n for n in range(1_500)])
    while len(engine.log.segments()) < 3:
        run.produce(engine, "filler", [b"." * 100_000], config={"cap_records": 1})
    for _ in range(3):
        trim_step(engine)
    engine.sync()
    assert len(engine.state.topics["t"].frame_index) > 1
    again = opened(disk.kill())
    topic = again.state.topics["t"]
    assert [int(each.data) for each in again.reader.records(topic, [1, 1_500])] == list(range(1_500))
    target = SimDisk(2)
    rebuild(disk.kill(), target, clock=ManualClock(), settings=settings)
    saved = opened(target)
    assert [int(each.data) for each in saved.reader.records(saved.state.topics["t"], [1, 1_500])] == list(range(1_500))


def test_a_part_that_the_disk_refuses_makes_the_append_unverified() -> None:
    """Else trimming would never give up on an append that can be read no more."""
    disk = SimDisk(1)
    engine = filled(disk, 1, 1_000)
    topic, reader = engine.state.topics["q0"], engine.reader
    assert reader.records(topic, [7, 1])[0].data == b"%0100d" % 6
    real = disk.pread

    def refused(file: int, count: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "I/O error")

    disk.pread = refused  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(Corrupt):
            reader.records(topic, [8, 1])
    assert not reader._verified
    assert not reader._frames
    disk.pread = real  # type: ignore[method-assign]
    assert reader.records(topic, [8, 1])[0].data == b"%0100d" % 7

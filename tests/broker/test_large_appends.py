"""Large appends: a record is read at its own cost, and damage is found all the same."""

from __future__ import annotations

import pytest

from tenure import Record, Settings
from tenure.broker.engine import Engine
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

"""A tailer in another process than the broker's: every durable batch once, in order, through rolls, drops and kills."""

from __future__ import annotations

import select
import signal
from pathlib import Path

from tenure.core.events import Appended, decode
from tenure.core.records import ends_of, slice_blob
from tenure.log.tail import TailBatch, Tailer, TailGap
from tests.acceptance.processes import RemoteBroker

QUEUE = {"type": "queue", "durability": "fsync"}
SETTINGS = {"segment_bytes": 1 << 16, "spare_segments": 4, "trim_step_bytes": 1 << 14}
ROUND = 40
SIZE = 1_000


class Follower:
    """Reads along and keeps what it saw."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._tailer = Tailer(home)
        self.batches: list[int] = []
        self.numbers: list[int] = []
        self.segments: set[int] = set()

    def poll(self) -> None:
        for item in self._tailer.poll():
            assert not isinstance(item, TailGap), f"fell behind: {item}"
            self._take(item)

    def restart(self) -> None:
        """Go on from the position alone, as a process does that was started again."""
        self._tailer = Tailer(self._home, self._tailer.position)

    def _take(self, item: TailBatch) -> None:
        self.batches.append(item.batch)
        self.segments.add(item.position.segment)
        for kind, _, _, body in item.frames:
            event = decode(kind, body)
            if isinstance(event, Appended):
                ends, blobs = ends_of(event.ends, len(event.blobs)), memoryview(event.blobs)
                found = [slice_blob(ends, blobs, index) for index in range(event.count)]
                self.numbers += [int(data.strip(b'".')) for data in found]


def work(broker: RemoteBroker, follower: Follower, first: int) -> None:
    """Let the broker work and read along meanwhile, then until everything it acknowledged was seen."""
    broker.send("churn", topic="q", first=first, count=ROUND, size=SIZE)
    assert broker.process.stdout is not None
    while not select.select([broker.process.stdout], [], [], 0.002)[0]:
        follower.poll()
    assert broker.answer() == {"ok": None}
    while not follower.numbers or follower.numbers[-1] < first + ROUND - 1:
        follower.poll()  # the broker seals the log as soon as it falls silent


def test_a_tailer_follows_a_live_broker_across_rolls_and_drops(tmp_path: Path) -> None:
    with RemoteBroker() as broker:
        broker.call("open", home=str(tmp_path), **SETTINGS)
        broker.call("put_topic", topic="q", config=QUEUE)
        follower = Follower(tmp_path)
        for number in range(25):
            work(broker, follower, number * ROUND)
            if number % 5 == 4:
                follower.restart()
        broker.call("close")
        follower.poll()
    assert follower.batches == list(range(1, len(follower.batches) + 1)), "each batch once, in order"
    assert follower.numbers == list(range(25 * ROUND)), "each record once, in order"
    assert len(follower.segments) > 10
    assert min(int(path.stem) for path in (tmp_path / "segments").glob("*.log")) > 5, "segments were dropped meanwhile"


def test_a_tailer_shows_what_was_synced_before_a_kill_once_and_nothing_that_was_lost(tmp_path: Path) -> None:
    """Across kill -9: what the tailer gave out is what the next broker still has, and batches go on counting."""
    follower = Follower(tmp_path)
    for life in range(4):
        with RemoteBroker() as broker:
            broker.call("open", home=str(tmp_path), **SETTINGS)
            broker.call("put_topic", topic="q", config=QUEUE)
            work(broker, follower, life * 1_000)
            broker.send("churn", topic="q", first=life * 1_000 + ROUND, count=ROUND, size=SIZE)
            follower.poll()
            broker.signal(signal.SIGKILL)
            broker.process.wait()
        follower.poll()
    with RemoteBroker() as broker:
        broker.call("open", home=str(tmp_path), **SETTINGS)
        broker.call("close")
    follower.poll()
    assert follower.batches == list(range(1, len(follower.batches) + 1))
    assert follower.numbers == sorted(set(follower.numbers))
    for life in range(4):
        acknowledged = range(life * 1_000, life * 1_000 + ROUND)
        assert set(acknowledged) <= set(follower.numbers)

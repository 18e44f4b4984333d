"""Logs to back up and places to put them, on simulated disks and stores."""

from __future__ import annotations

from collections.abc import Mapping

from tenure.backup.manifest import Manifest
from tenure.backup.place import Place
from tenure.backup.settings import BackupSettings
from tenure.backup.take import take_backup
from tenure.broker.engine import Engine
from tenure.core.events import decode
from tenure.core.fold import fold
from tenure.core.state.frame_index import places
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.log import FileLog
from tenure.log.disk import Disk
from tenure.log.recovery import Scan
from tenure.log.segment import list_heads
from tenure.objects.store import ObjectStore
from tenure.settings import Settings
from tenure.testing.clock import ManualClock

SETTINGS = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=1024)
SMALL = BackupSettings(
    piece_bytes=1000, synced_bytes=1000, rate_bytes_max=0, call_attempts_max=3, backoff_ms=1, backoff_ms_max=1
)


def place_on(store: ObjectStore, settings: BackupSettings = SMALL) -> Place:
    return Place(store, settings)


def taken(disk: Disk, place: Place) -> Manifest:
    return take_backup(disk, place, version="1.2.3", created_ms=5)


def opened(disk: Disk, clock: ManualClock) -> Engine:
    """An engine on a log, from the log alone."""
    engine = Engine(FileLog.open(disk, segment_bytes=SETTINGS.segment_bytes), clock=clock, settings=SETTINGS)
    engine.recover()
    return engine


def folded(disk: Disk) -> State:
    """What a log says, read without opening it."""
    state = State()
    scan = Scan(disk, list_heads(disk))
    for kind, _, location, body in scan.frames():
        fold(state, decode(kind, body), location)
    return state


def records_of(engine: Engine) -> Mapping[tuple[int, int], bytes]:
    """Every live record, by topic id and seq, read as a reader would."""
    found = {}
    for topic in engine.state.by_id.values():
        for seq in each(topic.live_runs(topic.floor, topic.head_seq + 1)):
            _, location, size, _ = next(places(topic.frame_index, seq, seq + 1))
            frame = engine.reader.frame(location, size)
            found[topic.id, seq] = frame.payload(frame.table.between(seq, seq + 1))
    return found

"""`tenure inspect --data`: show a data directory, folded from its log without opening anything for writing.

A broker may use the directory at the same time. Then the end of the log moves while it is read, and a half-written
batch looks torn, or for an instant damaged. So damage counts only when a second read finds it at the same place.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from tenure.cli.main import OK
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import count, format_path, size
from tenure.clock import SystemClock
from tenure.core.events import decode
from tenure.core.fold import fold
from tenure.core.ready_jobs import ready_count
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt, NotFound
from tenure.log import checkpoint
from tenure.log.disk import Disk, PosixDisk
from tenure.log.recovery import Scan
from tenure.log.segment import SEGMENTS, Head, list_heads, segment_name, segment_numbers

__all__ = ["Replay", "find", "open_disk", "replay", "show"]

_LOOKS_MAX = 5
_TOPICS_SHOWN = 50


class Replay:
    """A log read from end to end: its segments, its state, and its end."""

    def __init__(self, disk: Disk) -> None:
        self.heads: list[Head] = list_heads(disk)
        self.state = State()
        self.frames = 0
        scan = Scan(disk, self.heads)
        for kind, _, location, body in scan.frames():
            fold(self.state, decode(kind, body), location)
            self.frames += 1
        if self.state.orphans:
            topics = sorted(self.state.orphans)[:5]
            raise Corrupt(f"topics {topics} have records but were never declared: the log misses a part", topics=topics)
        self.end, self.batches, self.epoch = scan.end, scan.batches, scan.epoch
        self.torn_bytes = max(0, scan.torn_end - scan.end.offset)
        for topic in self.state.by_id.values():
            topic.durable_seq = topic.head_seq

    def now(self) -> int:
        """Return log time as of a broker that opened this log now."""
        clock, state = SystemClock(), self.state
        if state.boot_id == clock.boot_id:
            return max(state.log_ms, state.opened_ms + clock.boot_ms() - state.boot_ms)
        return max(state.log_ms, clock.wall_ms() - state.wall_offset_ms)


def open_disk(directory: Path) -> PosixDisk:
    """Open the disk of a directory with a log. Raises NotFound without one, Corrupt where only the
    segments are gone.
    """
    if not directory.is_dir():
        raise NotFound(f"{directory} is not a directory: name the one given to Broker.open", path=str(directory))
    disk = PosixDisk(directory, create=False)
    if not segment_numbers(disk):
        if checkpoint.exists(disk):
            raise Corrupt(
                f"{directory} has checkpoints but no segments: the log itself is missing; restore {SEGMENTS}/"
            )
        raise NotFound(f"{directory} holds no log: name the directory given to Broker.open", path=str(directory))
    return disk


def replay(disk: Disk) -> Replay:
    """Read a log that may be in use. Raises Corrupt where it is damaged."""
    met: tuple[Any, ...] | None = None
    for _ in range(_LOOKS_MAX):
        try:
            return Replay(disk)
        except FileNotFoundError:
            continue  # a segment was dropped during the read
        except Corrupt as error:
            where = (error.detail.get("file"), error.detail.get("offset"), error.message)
            if where == met:
                raise
            met = where
    raise Corrupt("the log changes faster than it can be read: stop what writes it, then look again")


def find(directory: Path) -> Shown:
    """Return the contents of a data directory."""
    disk = open_disk(directory)
    found = replay(disk)
    now, state = found.now(), found.state
    ends = [head.previous_end for head in found.heads[1:]] + [found.end.offset]
    segments = [
        {"file": segment_name(head.number), "first_batch": head.first_batch, "used_bytes": end}
        for head, end in zip(found.heads, ends, strict=True)
    ]
    payload: Payload = {
        "directory": format_path(directory),
        "epoch": found.epoch,
        "batches": found.batches,
        "frames": found.frames,
        "torn_bytes": found.torn_bytes,
        "last_event_ms": state.log_ms + state.wall_offset_ms,
        "live_bytes": state.live_bytes,
        "segments": segments,
        "topics": [_topic(state, state.topics[name], now) for name in sorted(state.topics)],
        "routers": [
            {"router": r.name, "source": r.source, "dest": r.dest, "cursor": r.cursor, "forwarded": r.forwarded}
            for _, r in sorted(state.routers.items())
        ],
    }
    return payload, OK


def _topic(state: State, topic: Topic, now: int) -> dict[str, Any]:
    state.pass_time(topic, now)
    about: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "durability": topic.config.durability,
        "count": topic.count,
        "bytes": topic.bytes,
        "head_seq": topic.head_seq,
        "earliest_seq": topic.floor,
    }
    if topic.queue is not None:
        about["queue"] = {
            "ready": ready_count(topic, topic.queue),
            "in_flight": len(topic.queue.in_flight),
            "leases": topic.queue.leases.count,
            "delayed": len(topic.queue.delayed),
            "parked": len(topic.queue.parked),
            "dead_lettered": topic.queue.dead_lettered,
        }
    return about


def show(console: Console, payload: Payload) -> None:
    """Print the contents as text."""
    segments, topics, routers = payload["segments"], payload["topics"], payload["routers"]
    last = datetime.fromtimestamp(payload["last_event_ms"] / 1000, UTC)
    batches = count(payload["batches"], "batch", "batches")
    console.print(f"{batches} in {count(len(segments), 'segment')}, epoch {payload['epoch']:,}")
    console.print(f"last event {last:%Y-%m-%d %H:%M:%S} UTC, {size(payload['live_bytes'])} live")
    if payload["torn_bytes"]:
        console.print(
            f"a torn tail of {size(payload['torn_bytes'])}: never acknowledged as durable, cut at next opening"
        )
    table(
        console,
        ("segment", "first batch#", "used#"),
        ((each["file"], each["first_batch"], size(each["used_bytes"])) for each in segments),
    )
    heads = (
        "topic",
        "type",
        "durability",
        "records#",
        "bytes#",
        "ready#",
        "in flight#",
        "delayed#",
        "parked#",
        "dead#",
    )
    rows = []
    for each in topics[:_TOPICS_SHOWN]:
        queue = each.get("queue", {})
        depths = [queue.get(name, "") for name in ("ready", "in_flight", "delayed", "parked", "dead_lettered")]
        rows.append((each["topic"], each["type"], each["durability"], each["count"], size(each["bytes"]), *depths))
    table(console, heads, rows)
    if len(topics) > _TOPICS_SHOWN:
        console.print(f"and {len(topics) - _TOPICS_SHOWN:,} more topics; --json lists them all")
    if routers:
        columns = ("router", "source", "dest", "cursor#", "forwarded#")
        table(console, columns, ([each[name.rstrip("#")] for name in columns] for each in routers))

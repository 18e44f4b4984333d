"""Topics and routers as one would write them in an afternoon: dicts of records, and a loop for every question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HOPS_MAX = 3
STEP_RECORDS = 3
CLIENT_MARKS_MAX = 2
MARK_KEPT_MS = 600_000
MARKS_IDLE_MS = 7 * 86_400_000


@dataclass
class Kept:
    """A record in a topic. ``at`` is its log time, ``ts`` its wall time."""

    seq: int
    at: int
    ts: int
    data: bytes
    tag: str | None = None
    node: str | None = None
    hops: int = 0
    size: int = 0


@dataclass
class Naive:
    """One log."""

    config: dict[str, Any] = field(default_factory=dict)
    records: dict[int, Kept] = field(default_factory=dict)
    head: int = 0
    #: One above the highest seq lost to a cap, and to a TTL.
    cap_floor: int = 0
    ttl_floor: int = 0
    #: The seq burnt for records that a router's source lost, and how many those were.
    trim_seq: int = 0
    trim_missed: int = 0
    #: key → (last ms it is remembered, first seq, count, payload)
    keys: dict[str, tuple[int, int, int, bytes]] = field(default_factory=dict)
    #: client → (its last number, first seq, last seq, log time)
    marks: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def has_room_for(self, client: str, now: int, *, marks_max: int) -> bool:
        """Whether a client's mark has a place, if need be that of another that has been idle for long enough."""
        idle_ms = [now - mark[3] for mark in self.marks.values()]
        return client in self.marks or len(idle_ms) < marks_max or max(idle_ms) > MARK_KEPT_MS

    def mark(self, client: str, mark: tuple[int, int, int, int], *, marks_max: int) -> None:
        """Note how far a client has come; the ``marks`` stay in the order of their last advance."""
        gone = [name for name, known in self.marks.items() if known[3] < mark[3] - MARKS_IDLE_MS]
        if client not in self.marks and len(self.marks) >= marks_max:
            gone.append(next(iter(self.marks)))
        for name in {client, *gone} & self.marks.keys():
            del self.marks[name]
        self.marks[client] = mark

    def setting(self, name: str) -> Any:
        return self.config.get(name) or 0

    @property
    def earliest(self) -> int:
        return min(self.records, default=self.head + 1)

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.records.values())

    def append(self, record: Kept) -> None:
        self.head += 1
        record.seq = self.head
        self.records[self.head] = record

    def room_for(self, records: list[Kept]) -> int:
        """How many of the first of them fit."""
        cap, cap_bytes = self.setting("cap_records"), self.setting("cap_bytes")
        held, held_bytes = len(self.records), self.bytes
        for room, record in enumerate(records):
            held, held_bytes = held + 1, held_bytes + record.size
            if (cap and held > cap) or (cap_bytes and held_bytes > cap_bytes):
                return room if self.config.get("discard") == "reject" else len(records)
        return len(records)

    def is_full_for(self, records: list[Kept]) -> bool:
        return self.room_for(records) < len(records)

    def evict_old(self, now: int) -> None:
        ttl_ms = self.setting("ttl_ms")
        for seq, record in sorted(self.records.items()):
            if ttl_ms and record.at <= now - ttl_ms:
                del self.records[seq]
                self.ttl_floor = max(self.ttl_floor, seq + 1)

    def evict_over_cap(self) -> None:
        """The oldest go while it is over a cap, but never the newest."""
        if self.config.get("discard") == "reject":
            return
        cap, cap_bytes = self.setting("cap_records"), self.setting("cap_bytes")
        for seq in sorted(self.records):
            over = (cap and len(self.records) > cap) or (cap_bytes and self.bytes > cap_bytes)
            if not over or seq == self.head:
                return
            del self.records[seq]
            self.cap_floor = max(self.cap_floor, seq + 1)

    def after(self, from_seq: int, nodes: set[str]) -> list[Kept]:
        """The records a reader from there wants."""
        if self.config.get("dedupe_node") is False:
            nodes = set()
        return [r for seq, r in sorted(self.records.items()) if seq > from_seq and r.node not in nodes]

    def tombstone(self, from_seq: int) -> str | None:
        """Return why a reader from there missed records, or None."""
        if from_seq > self.head:
            return "recreated"
        by_cap, by_ttl = from_seq + 1 < self.cap_floor, from_seq + 1 < self.ttl_floor
        if by_cap or by_ttl:
            return "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
        return "source_trim" if from_seq < self.trim_seq else None


@dataclass
class NaiveRouter:
    """A router; ``filter`` is a tag, or a prefix with an asterisk."""

    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: str | None
    allow_cycle: bool
    cursor: int
    forwarded: int = 0
    missed: int = 0

    def takes(self, record: Kept) -> bool:
        if self.filter is not None:
            prefix = self.filter.removesuffix("*")
            if record.tag is None or not record.tag.startswith(prefix):
                return False
            if prefix == self.filter and record.tag != prefix:
                return False
        return record.hops < HOPS_MAX


@dataclass
class NaiveWorld:
    """All topics and routers."""

    topics: dict[str, Naive] = field(default_factory=dict)
    routers: dict[str, NaiveRouter] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)

    def tick(self, now: int, wall: int) -> None:
        """Nothing in a log changes by time alone: a TTL takes effect at the next command."""

    def restart(self) -> None:
        """Nothing is hidden until it is durable."""

    def closes_a_cycle(self, name: str, source: str, dest: str) -> bool:
        """Whether records would come back to ``source`` through another router."""
        reached, more = {dest}, True
        while more:
            onward = {r.dest for other, r in self.routers.items() if r.source in reached and other != name}
            more = not onward <= reached
            reached |= onward
        return source in reached

    def delete_topic(self, name: str) -> list[str]:
        removed = sorted(key for key, router in self.routers.items() if name in (router.source, router.dest))
        for key in removed:
            del self.routers[key]
        if not self.topics.pop(name).config.get("auto_create", True):
            self.retired.add(name)
        return removed

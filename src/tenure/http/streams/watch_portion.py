"""A portion of a topic for watchers: records read once, and the frames of them that several watchers share."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.broker.broker import Broker
from tenure.contract.records import Stored
from tenure.contract.replies import Difference, Tombstone
from tenure.http.api.render import encode, record
from tenure.http.streams import sse
from tenure.http.streams.forms import Forms
from tenure.http.streams.watch import Following, encode_cursors
from tenure.http.wire.message import SharedBytes

__all__ = ["Portion"]

_Event = tuple[bytes, bytes, int]
"""The name of an event, its data, and the cursor of the reader after it."""


class Portion:
    """What one read found of a topic after ``from_seq``, up to ``reached``.

    ``gap`` is a loss that has to be reported first; the portion then begins after it (`begin_after`). ``is_last`` says
    that nothing more is there to be read after it.
    """

    __slots__ = (
        "_rendered",
        "_shared",
        "_show_all",
        "from_seq",
        "gap",
        "head",
        "is_last",
        "name",
        "reached",
        "records",
    )

    def __init__(self, broker: Broker, found: Difference, *, from_seq: int, strong: bool) -> None:
        records, reached, head = found.records, found.next_from_seq, found.head_seq
        if strong:
            durable = broker.topic(found.topic, touch=False).durable_seq
            records = [stored for stored in records if stored.seq <= durable]
            reached, head = min(reached, durable), min(head, durable)
        self.name = found.topic
        self.records = records
        self.gap: Tombstone | None = found.tombstone
        self.reached = reached
        self.head = head
        self._show_all = not any(stored.node is not None for stored in records) or not (
            broker.topic(found.topic, touch=False).config.dedupe_node
        )
        self._rendered = Forms[tuple[Following, bool], list[_Event]]()
        self._shared = Forms[tuple[Following, bool, bytes], list[tuple[SharedBytes, int]]]()
        if self.gap is None:
            self.begin_after(from_seq)

    def begin_after(self, from_seq: int) -> None:
        """Begin where the readers are."""
        self.from_seq = from_seq
        self.reached = max(self.reached, from_seq)
        self.head = max(self.head, self.reached)
        self.is_last = self.reached == self.head

    def events(self, following: Following, *, caught_up: bool) -> Iterator[_Event]:
        """Yield the events for a reader: the records that it wants, in batches; and that it has caught up, unless it
        had before.
        """
        records, cursor = self.records, self.from_seq
        if following.nodes and not self._show_all:
            records = [stored for stored in records if stored.node not in following.nodes]
        for batch, is_last in _batches(records, following.batch_bytes_max):
            to_seq = self.reached if is_last else batch[-1].seq
            yield b"record", self._render(following, batch, from_seq=cursor, to_seq=to_seq), to_seq
            cursor = to_seq
        if self.is_last and not caught_up:
            yield b"caught-up", encode({"topic": self.name, "head_seq": self.head}), self.reached

    def shared(
        self, following: Following, cursors: dict[str, int], *, caught_up: bool
    ) -> list[tuple[SharedBytes, int]]:
        """Return the frames of `events`, and the cursor after each: rendered once for all readers that want the same,
        and encoded once for those of them that have the same cursors.
        """
        key = (following, caught_up, encode(cursors) if len(cursors) > 1 else b"")
        frames = self._shared.get(key)
        if frames is None:
            events = self._rendered.get(key[:2])
            if events is None:
                events = self._rendered.keep(key[:2], list(self.events(following, caught_up=caught_up)))
            frames = self._shared.keep(key, [self._frame(event, cursors) for event in events])
        return frames

    def _frame(self, event: _Event, cursors: dict[str, int]) -> tuple[SharedBytes, int]:
        name, data, to_seq = event
        frame_id = encode_cursors(cursors | {self.name: to_seq})
        return SharedBytes(sse.frame(name, data, event_id=frame_id)), to_seq

    def _render(self, following: Following, batch: list[Stored], *, from_seq: int, to_seq: int) -> bytes:
        tags, meta, data = following.include_tags, following.include_meta, following.include_data
        return b'{"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
            self.name.encode(),
            b",".join([record(stored, tags=tags, meta=meta, data=data) for stored in batch]),
            from_seq,
            to_seq,
            self.head,
        )


def _batches(records: list[Stored], bytes_max: int) -> Iterator[tuple[list[Stored], bool]]:
    """Yield records in batches of a bounded size, at least one in each; True with the last."""
    batch: list[Stored] = []
    size = 0
    for stored in records:
        weight = len(stored.data) + len(stored.meta or b"")
        if batch and size + weight > bytes_max:
            yield batch, False
            batch, size = [], 0
        batch.append(stored)
        size += weight
    if batch:
        yield batch, True

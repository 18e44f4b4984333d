"""Streams that resume by themselves: records of many topics, and the life of a topic's jobs.

A line that breaks is taken up again where it was: with the id of the last frame that was given out, after a pause that
grows and is drawn by chance, so that many readers do not come back together (fault 36). What was lost in between is a
value that the reader gets, a `Tombstone` or a `Gap`, and never silence (fault 32).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.json import Decoder

from tenure.client.answers import decode_text
from tenure.client.calls.calling import posting
from tenure.client.core import Core
from tenure.client.encode import path_of, query_of
from tenure.client.feed import error_in, opened
from tenure.client.plan import Plan, Read, Sleep
from tenure.client.replies import CaughtUp, Gap, Lifecycle, Records, Tombstone, TopicDeleted
from tenure.client.retry import Repeat, backoff_s, exchange, reply_of, unreached
from tenure.client.sse import Frame, FrameReader
from tenure.client.wire import Request, WireError
from tenure.core.names import check_topic_name
from tenure.core.values import check_whole
from tenure.errors import Closed, Invalid, NotFound, Overloaded, TenureError

__all__ = ["Events", "Watch", "WatchEvent"]

T = TypeVar("T")
WatchEvent = Records | Tombstone | CaughtUp | TopicDeleted


class _Resuming(ABC, Generic[T]):
    """The rules of coming back. A subclass says how to connect and what its frames mean."""

    def __init__(self, core: Core, *, last_event_id: str | None = None) -> None:
        self._core = core
        self._ready: deque[tuple[T, str]] = deque()
        self._broken_count = 0
        self._broken_since_s = 0.0
        self.stream: Any = None
        self.last_event_id = last_event_id or ""
        """The id of the last item that was given out: to come back with, in another process too."""

    @abstractmethod
    def _connect(self) -> Plan[Any]:
        """Open the stream from `last_event_id` on."""

    def _over(self) -> bool:
        """Whether nothing more can come."""
        return False

    @abstractmethod
    def _parse(self, frame: Frame) -> T | None:
        """What a frame stands for, or None where it is nothing to us."""

    def next(self) -> Plan[T | None]:
        """The next item, or None where nothing more can come; comes back by itself, for as long as the settings say."""
        while not self._ready:
            if self._over():
                return None
            try:
                yield from self._read()
            except WireError as error:
                broken = Overloaded(f"the stream broke: {error.message}", code="disconnected")
                yield from self._rest(unreached(error) if error.closed else broken)
            except (Overloaded, Closed) as error:
                yield from self._rest(error)
        item, frame_id = self._ready.popleft()
        self.last_event_id = frame_id or self.last_event_id
        return item

    def _read(self) -> Plan[None]:
        """Take in one chunk, connecting first where that is needed."""
        if self.stream is None:
            self._frames = FrameReader(self._core.settings.frame_bytes_max)
            self.stream = yield from self._connect()
        chunk = yield Read(self.stream)
        if not chunk:
            raise WireError("the server ended it", sent=True)
        for frame in self._frames.feed(chunk):
            if frame.event == b"error":
                raise error_in(frame)
            item = self._parse(frame)
            if item is not None:
                self._ready.append((item, frame.id))
        if self._ready:
            self._broken_count = 0

    def _rest(self, error: TenureError) -> Plan[None]:
        """Let go of the line and wait a little. Raises the error where the time for coming back is over."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if self._ready:
            return
        if error.code == "client_closed":
            raise error
        now_s, settings = self._core.now_s(), self._core.settings
        if not self._broken_count:
            self._broken_since_s = now_s
        self._broken_count += 1
        if settings.reconnect_for_ms and now_s - self._broken_since_s > settings.reconnect_for_ms / 1000:
            raise error
        pause = backoff_s(
            self._core, self._broken_count, min_ms=settings.reconnect_min_ms, max_ms=settings.reconnect_max_ms
        )
        yield Sleep(pause)


class _Begin(msgspec.Struct):
    from_seq: int = 0


class _Session(msgspec.Struct):
    stream_url: str
    topics: dict[str, _Begin] = {}


_session = Decoder(_Session)
_cursors = Decoder(dict[str, int])
_records = Decoder(Records)
_tombstone = Decoder(Tombstone)
_caught_up = Decoder(CaughtUp)
_topic_deleted = Decoder(TopicDeleted)


class Watch(_Resuming[WatchEvent]):
    """Records of many topics over one connection. A session that the server has forgotten is begun anew from where
    this reader is.
    """

    def __init__(
        self, core: Core, topics: str | Iterable[str] | Mapping[str, int | None], *, options: Mapping[str, Any]
    ) -> None:
        super().__init__(core)
        self._begins = _begins(topics)
        self._options = options
        self._url = ""
        self._gone: set[str] = set()

    def _connect(self) -> Plan[Any]:
        if not self._url:
            yield from self._begin()
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        try:
            return (yield from opened(Request("GET", self._url, headers=headers)))
        except NotFound:  # the session is no more: the server was started again, or we were away too long
            yield from self._begin()
            return (yield from opened(Request("GET", self._url)))

    def _over(self) -> bool:
        return self._gone.issuperset(self._begins)

    def _begin(self) -> Plan[None]:
        """Have the server remember what we follow, from where we are."""
        reached = self._reached() if self.last_event_id else {}
        begins = {
            name: {"from_seq": reached[name]} if name in reached else begin
            for name, begin in self._begins.items()
            if name not in self._gone
        }
        request = posting(query_of("/v0/watch", lenient=bool(self._url)), {"topics": begins, **self._options})
        session = reply_of(_session, (yield from exchange(self._core, request, Repeat.READ)), Repeat.READ)
        self._url = session.stream_url
        for name in begins.keys() - session.topics.keys():  # deleted while we were away
            self._gone.add(name)
            self._ready.append((TopicDeleted(name, reached.get(name, 0), "deleted"), ""))
        # Where a topic began with its tail, that is now a number: a later session must not skip what came since.
        self._begins = {name: {"from_seq": begin.from_seq} for name, begin in session.topics.items()}

    def _reached(self) -> dict[str, int]:
        """Where we are on each topic: an id is that, written down."""
        text = self.last_event_id
        return decode_text(_cursors, urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def _parse(self, frame: Frame) -> WatchEvent | None:
        match frame.event:
            case b"record":
                return decode_text(_records, frame.data)
            case b"tombstone":
                return decode_text(_tombstone, frame.data)
            case b"caught-up":
                return decode_text(_caught_up, frame.data)
            case b"topic-deleted":
                deleted = decode_text(_topic_deleted, frame.data)
                self._gone.add(deleted.topic)
                return deleted
            case _:
                return None


def _begins(topics: str | Iterable[str] | Mapping[str, int | None]) -> dict[str, dict[str, Any]]:
    """Where to begin on each topic, as it is sent. Raises Invalid."""
    listed: Mapping[str, int | None]
    if isinstance(topics, str):
        listed = {topics: 0}
    else:
        listed = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 0)
    if not listed:
        raise Invalid("topics must name at least one topic")
    return {
        check_topic_name(name): {"tail": True} if seq is None else {"from_seq": check_whole(seq, "from_seq")}
        for name, seq in listed.items()
    }


def watch_options(
    *,
    node: str | Sequence[str] | None,
    limit: int,
    include_tags: bool,
    include_meta: bool,
    include_data: bool,
    strong: bool,
) -> dict[str, Any]:
    """What a watch is asked with, beside its topics."""
    return {
        "node": node if node is None or isinstance(node, str) else list(node),
        "limit": check_whole(limit, "limit"),
        "include_tags": include_tags,
        "include_meta": include_meta,
        "include_data": include_data,
        "consistency": "strong" if strong else "eventual",
    }


_lifecycle = Decoder(Lifecycle)
_gap = Decoder(Gap)


class Events(_Resuming[Lifecycle | Gap]):
    """The life of a topic's jobs, from now on or from behind ``last_event_id``."""

    def __init__(self, core: Core, topic: str, *, last_event_id: str | None) -> None:
        super().__init__(core, last_event_id=last_event_id)
        self._topic = topic
        self._path = path_of(topic, "events")
        self._was_open = False

    def _connect(self) -> Plan[Any]:
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        stream = yield from opened(Request("GET", self._path, headers=headers))
        if self._was_open and not self.last_event_id:  # it broke before anything came: there is no place to go back to
            self._ready.append((Gap(self._topic, "disconnected"), ""))
        self._was_open = True
        return stream

    def _parse(self, frame: Frame) -> Lifecycle | Gap | None:
        return decode_text(_gap, frame.data) if frame.event == b"gap" else decode_text(_lifecycle, frame.data)

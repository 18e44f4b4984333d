"""`Watch`, the records of many topics, and `Events`, the lifecycle of jobs: streams that resume by themselves."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec.json import Decoder
from msgspec.structs import replace

from tenure.client.calls.requests import call, request_of
from tenure.client.plan.answers import decode_text
from tenure.client.plan.encode import path_of, query_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.streams.resuming import Resuming
from tenure.client.streams.sse import Frame
from tenure.client.transport.wire import Request
from tenure.contract.bodies import WatchBody, WatchFrom
from tenure.contract.names import check_topic_name
from tenure.contract.repeat import Repeat
from tenure.contract.replies import CaughtUp, Gap, Lifecycle, Records, Tombstone, TopicDeleted
from tenure.contract.values import check_whole
from tenure.errors import Invalid, NotFound

__all__ = ["Events", "Watch", "WatchEvent", "parse_starts"]

_lifecycle = Decoder(Lifecycle)
_gap = Decoder(Gap)


class Events(Resuming[Lifecycle | Gap]):
    """The lifecycle of a topic's jobs, from now on or after ``last_event_id``."""

    def __init__(self, session: Session, topic: str, *, last_event_id: str | None) -> None:
        super().__init__(session, last_event_id=last_event_id)
        self._topic = topic
        self._path = path_of(topic, "events")
        self._was_open = False

    def _connect(self) -> Plan[None]:
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        yield from self.line.open(Request("GET", self._path, headers=headers))
        if self._was_open and not self.last_event_id:  # it broke before the first id: there is nothing to resume from
            self._ready.append((Gap(self._topic, "disconnected"), ""))
        self._was_open = True

    def _parse(self, frame: Frame) -> Lifecycle | Gap | None:
        return decode_text(_gap, frame.data) if frame.event == b"gap" else decode_text(_lifecycle, frame.data)


U64_MAX = 2**64 - 1
WatchEvent = Records | Tombstone | CaughtUp | TopicDeleted


class _WatchSession(msgspec.Struct):
    """The reply to a watch: where its stream is, and where it begins on each topic.

    The path goes into the head of a request with the caller's key, to whichever server leads by then: it is held to the
    one form that there is, or its text could be another request.
    """

    stream_url: Annotated[str, msgspec.Meta(pattern=r"\A/v0/watch/[A-Za-z0-9_-]{1,256}\Z")]
    topics: dict[str, WatchFrom] = {}


_watch_session = Decoder(_WatchSession)
_cursors = Decoder(dict[str, int])
_records = Decoder(Records)
_tombstone = Decoder(Tombstone)
_caught_up = Decoder(CaughtUp)
_topic_deleted = Decoder(TopicDeleted)


class Watch(Resuming[WatchEvent]):
    """Records of many topics over one connection. Where the server has forgotten the watch session, another begins
    where this reader is.
    """

    def __init__(self, session: Session, body: WatchBody) -> None:
        super().__init__(session)
        self._body = body
        self._begins = body.topics
        self._url = ""
        self._gone: set[str] = set()
        # Raises where it would not fit in one request, however far this reader comes.
        request_of("", replace(body, topics=dict.fromkeys(body.topics, WatchFrom(from_seq=U64_MAX))))

    def _connect(self) -> Plan[None]:
        if not self._url:
            yield from self._begin()
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        try:
            yield from self.line.open(Request("GET", self._url, headers=headers))
        except NotFound:  # the watch session is gone: the server was restarted, or this reader was away for too long
            yield from self._begin()
            yield from self.line.open(Request("GET", self._url))

    def _over(self) -> bool:
        return self._gone.issuperset(self._begins)

    def _begin(self) -> Plan[None]:
        """Begin a watch session on the server, from where this reader is."""
        reached = self._reached() if self.last_event_id else {}
        begins = {
            name: WatchFrom(from_seq=reached[name]) if name in reached else begin
            for name, begin in self._begins.items()
            if name not in self._gone
        }
        request = request_of(query_of("/v0/watch", lenient=bool(self._url)), replace(self._body, topics=begins))
        watch, _ = yield from call(self._session, request, _watch_session, Repeat.READ)
        self._url = watch.stream_url
        for name in begins.keys() - watch.topics.keys():  # deleted while this reader was away
            self._gone.add(name)
            self._ready.append((TopicDeleted(name, reached.get(name, 0), "deleted"), ""))
        # Where a topic began with its tail, that is now a number: a later session must not skip what came since.
        self._begins = {name: WatchFrom(from_seq=begin.from_seq) for name, begin in watch.topics.items()}

    def _reached(self) -> dict[str, int]:
        """Return where this reader is on each topic, which is what the id of a frame encodes."""
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


def parse_starts(topics: str | Iterable[str] | Mapping[str, int | None]) -> dict[str, WatchFrom]:
    """Return where a watch begins on each topic. Raises Invalid."""
    listed: Mapping[str, int | None]
    if isinstance(topics, str):
        listed = {topics: 0}
    else:
        listed = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 0)
    if not listed:
        raise Invalid("topics must name at least one topic")
    return {check_topic_name(name): _parse_start(seq) for name, seq in listed.items()}


def _parse_start(seq: int | None) -> WatchFrom:
    return WatchFrom(tail=True) if seq is None else WatchFrom(from_seq=check_whole(seq, "from_seq"))

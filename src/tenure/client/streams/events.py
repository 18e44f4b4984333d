"""The life of a topic's jobs, as a stream that resumes by itself."""

from __future__ import annotations

from msgspec.json import Decoder

from tenure.client.plan.answers import decode_text
from tenure.client.plan.encode import path_of
from tenure.client.plan.session import Core
from tenure.client.plan.steps import Plan
from tenure.client.replies import Gap, Lifecycle
from tenure.client.streams.resuming import Resuming
from tenure.client.streams.sse import Frame
from tenure.client.transport.wire import Request

__all__ = ["Events"]

_lifecycle = Decoder(Lifecycle)
_gap = Decoder(Gap)


class Events(Resuming[Lifecycle | Gap]):
    """The life of a topic's jobs, from now on or from behind ``last_event_id``."""

    def __init__(self, core: Core, topic: str, *, last_event_id: str | None) -> None:
        super().__init__(core, last_event_id=last_event_id)
        self._topic = topic
        self._path = path_of(topic, "events")
        self._was_open = False

    def _connect(self) -> Plan[None]:
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        yield from self.line.open(Request("GET", self._path, headers=headers))
        if self._was_open and not self.last_event_id:  # it broke before anything came: there is no place to go back to
            self._ready.append((Gap(self._topic, "disconnected"), ""))
        self._was_open = True

    def _parse(self, frame: Frame) -> Lifecycle | Gap | None:
        return decode_text(_gap, frame.data) if frame.event == b"gap" else decode_text(_lifecycle, frame.data)

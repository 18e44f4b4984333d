"""Look around: ask the other servers of a client whether one of them leads, while an answer does not come.

A leader that was stopped, or that the network lost, keeps its connections open and says nothing; without a look its
clients would wait for their whole timeout, although another server leads within two seconds. A look is one small
request to each of the others. It begins only once an answer is late, and a client never has two looks under way.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tenure.client.settings import ClientSettings
from tenure.client.transport.endpoints import Endpoints, Server
from tenure.client.transport.wire import Request, Response, WireError
from tenure.contract.replies.cluster import ClusterInfo

__all__ = ["Patience", "given_up", "look_request", "note_answer", "patience_for"]

_GROWTH: Final = 20
_decode = msgspec.json.Decoder(ClusterInfo).decode


class Patience(msgspec.Struct):
    """When to look while one answer is outstanding: after ``pause_s``, then again and again, ever more seldom.

    A stream may be silent for long, so there each pause is as long as the silence before it. Of a call the pauses are a
    twentieth of that, and at least ``every_s``: a failover takes two seconds, and should not take much longer here.
    """

    pause_s: float
    every_s: float
    begun_s: float
    is_stream: bool = False

    def looked(self, now_s: float) -> None:
        """Set the next pause after a look."""
        waited_s = now_s - self.begun_s
        self.pause_s = max(self.every_s, waited_s if self.is_stream else waited_s / _GROWTH)


def patience_for(settings: ClientSettings, *, now_s: float, wait_ms: int = 0, is_stream: bool = False) -> Patience:
    """Return when to look for one request; ``wait_ms`` is how long the server keeps it on purpose."""
    first_ms = settings.stream_look_ms if is_stream else settings.look_ms + wait_ms
    return Patience(first_ms / 1000, settings.look_again_ms / 1000, now_s, is_stream)


def look_request(settings: ClientSettings) -> Request:
    """Return the question; each step of it takes at most ``look_ms``."""
    return Request("GET", "/v0/cluster", step_ms_max=settings.look_ms)


def note_answer(endpoints: Endpoints[Any], server: Server[Any], response: Response, *, now_s: float) -> None:
    """Note where a server says that it leads; any other answer means nothing."""
    if response.status != 200:
        return
    try:
        info = _decode(response.body)
    except msgspec.DecodeError:
        return
    if info.role == "leader":
        endpoints.note_leader(server, info.epoch, now_s)


def given_up(server: Server[Any], *, sent: bool) -> WireError:
    """Return the error of a request that was given up because another server leads."""
    where = f"{server.address.host}:{server.address.port}"
    return WireError(f"{where} did not answer, and another server leads now", sent=sent)

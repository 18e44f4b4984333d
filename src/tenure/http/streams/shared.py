"""What the streams of one server share: watch sessions and feeds, the hub of lifecycle events, heartbeats."""

from __future__ import annotations

from tenure.http.api.context import Context
from tenure.http.streams.event_hub import Hub
from tenure.http.streams.watch import Sessions
from tenure.http.streams.watch_feed import Feeds

__all__ = ["Streams", "streams_of"]

_NAME = "streams"


class Streams:
    """Made on first use and kept with the context, for as long as its broker is this one."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self.broker = context.broker
        self.heartbeat_ms = settings.heartbeat_ms
        self.sessions = Sessions(sessions_max=settings.watch_sessions_max, ttl_ms=settings.watch_ttl_ms)
        self.feeds = Feeds(self.broker)
        self.events = Hub(self.broker)


def streams_of(context: Context) -> Streams:
    """Return the streams of a server, of its present broker: one that leads again has another."""
    streams = context.extras.get(_NAME)
    if not isinstance(streams, Streams) or streams.broker is not context.broker:
        streams = context.extras[_NAME] = Streams(context)
    return streams

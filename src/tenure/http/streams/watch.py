"""Watch sessions: what a reader follows, and its cursor on each topic.

A session outlives its connection, so that a reader comes back to where it was. Its id is a secret of 128 random bits
and opens only for the key that made it (fault 47). Sessions without a reader are forgotten after a while; that is
checked when one is made or opened, and never by a timer.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Any, Final

import msgspec

from tenure.errors import Denied, Invalid, NotFound, Overloaded

__all__ = ["Following", "Session", "Sessions", "decode_cursors", "encode_cursors", "following_of"]

_WID_BYTES: Final = 16
_FORMS_MAX: Final = 1_024
"""Sets of options that are remembered; readers share what they get with those whose options are the same object."""
_decode_map = msgspec.json.Decoder(dict[str, int]).decode


class Following(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The options of a watch: what the reader wants, and in which form.

    They are compared by identity, because that is done for each reader of each record: `following_of` returns the same
    object for the same options.
    """

    nodes: frozenset[str] | None
    limit: int
    batch_bytes_max: int
    heartbeat_ms: int
    include_meta: bool
    include_tags: bool
    include_data: bool
    strong: bool


following_of = lru_cache(_FORMS_MAX)(Following)


class Session:
    """One reader's place: the last seq that was handed over, by topic.

    ``reader`` is the stream that serves it now. A later stream takes its place, because the earlier one is most often
    a connection whose end the server has not noticed yet.
    """

    __slots__ = ("cursors", "following", "idle_since", "owner", "reader", "streams", "wid")

    def __init__(self, wid: str, *, owner: str, following: Following, cursors: dict[str, int]) -> None:
        self.wid = wid
        self.owner = owner
        self.following = following
        self.cursors = cursors
        self.reader: Any = None
        self.streams = 0
        self.idle_since = 0.0

    def rewind(self, cursors: dict[str, int]) -> None:
        """Go back to where the reader says it was. Never forward: that would lose what it did not see."""
        for topic, seq in cursors.items():
            if topic in self.cursors:
                self.cursors[topic] = min(self.cursors[topic], seq)


class Sessions:
    """Every session of a server. ``now_s`` is real time: a session is about connections."""

    def __init__(self, *, sessions_max: int, ttl_ms: int, now_s: Callable[[], float] = monotonic) -> None:
        self.ttl_ms = ttl_ms
        self._sessions_max = sessions_max
        self._now_s = now_s
        self._open: dict[str, Session] = {}
        self._idle: OrderedDict[str, Session] = OrderedDict()
        self._owners = Counter[str]()

    def __len__(self) -> int:
        return len(self._open) + len(self._idle)

    def owned(self, owner: str) -> int:
        """Return how many sessions one owner has."""
        self._forget_idle()
        return self._owners[owner]

    def create(self, *, owner: str, following: Following, cursors: dict[str, int]) -> Session:
        """Create a session. Raises Overloaded at the limit (0: none)."""
        self._forget_idle()
        if 0 < self._sessions_max <= len(self):
            raise Overloaded(
                f"{len(self)} watch sessions are there already: try again once some are given up, or raise the"
                " server's setting watch_sessions_max",
                limit="watch_sessions_max",
                max=self._sessions_max,
            )
        wid = f"wid_{secrets.token_urlsafe(_WID_BYTES)}"
        session = Session(wid, owner=owner, following=following, cursors=cursors)
        self._owners[owner] += 1
        self._rest(session)
        return session

    def find(self, wid: str, *, owner: str) -> Session:
        """Return the session of an id. Raises NotFound for an unknown or forgotten one, Denied for another's key."""
        self._forget_idle()
        session = self._open.get(wid) or self._idle.get(wid)
        if session is None:
            raise NotFound("no such watch session, or it was given up: POST /v0/watch again", code="not_found")
        if session.owner != owner:
            raise Denied("a watch session opens only with the key that made it", code="unauthorized")
        return session

    def attach(self, session: Session) -> None:
        """Keep a session while a stream serves it."""
        session.streams += 1
        self._idle.pop(session.wid, None)
        self._open[session.wid] = session

    def detach(self, session: Session) -> None:
        """Let a session become idle after its stream has ended."""
        session.streams -= 1
        if not session.streams:
            del self._open[session.wid]
            self._rest(session)

    def _rest(self, session: Session) -> None:
        session.idle_since = self._now_s()
        self._idle[session.wid] = session

    def _forget_idle(self) -> None:
        """Forget sessions that have been idle for too long; the longest idle come first."""
        horizon = self._now_s() - self.ttl_ms / 1000
        while self._idle:
            wid, session = next(iter(self._idle.items()))
            if session.idle_since >= horizon:
                return
            del self._idle[wid]
            self._owners[session.owner] -= 1
            if not self._owners[session.owner]:
                del self._owners[session.owner]


def encode_cursors(cursors: dict[str, int]) -> bytes:
    """Return the id of a frame: the cursors of the reader on every topic after it has seen the frame."""
    return urlsafe_b64encode(msgspec.json.encode(cursors)).rstrip(b"=")


def decode_cursors(text: str) -> dict[str, int]:
    """Return the cursors in a Last-Event-ID. Raises Invalid for one that no frame carried."""
    try:
        raw = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursors = _decode_map(raw)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise _refusal() from None
    if any(seq < 0 for seq in cursors.values()):
        raise _refusal()
    return cursors


def _refusal() -> Invalid:
    return Invalid("this Last-Event-ID was on no frame of a watch: leave it out", field="last-event-id")

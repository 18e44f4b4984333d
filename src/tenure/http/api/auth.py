"""Authorization: keys, scopes and prefixes, and how many requests and streams one key may have open.

Deny by default: a route without scopes is open to all callers, and every other one wants a key that has them all. Names
in the path are checked against the key's prefixes here; names in a body or a query by the route, through `check_name`
and `visible`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs
from weakref import finalize

from tenure.broker.answer import OpenAnswer
from tenure.errors import Denied, Overloaded
from tenure.http.api.app import Call, Route
from tenure.http.api.hosts import HostCheck
from tenure.http.api.keys import Key, KeyRing
from tenure.http.wire.message import Later, Request, Response, Send, Stream

__all__ = ["Gatekeeper", "check_name", "check_whole_server", "may_configure", "visible"]

# Parts of a path that name no topic and no router. Everything else in a path is checked against the prefixes.
_NOT_NAMES: Final = frozenset({"seq", "wid"})
_QUERY_FIELDS_MAX: Final = 32


def check_name(call: Call, name: str) -> None:
    """Raise Denied where the caller's key does not reach a topic or router of this name."""
    if call.key is not None and not call.key.allows(name):
        raise Denied("this key does not reach that name: use one whose prefixes do")


def check_whole_server(call: Call) -> None:
    """Raise Denied for a key with prefixes: the call concerns every name on the server."""
    if call.key is not None and call.key.prefixes is not None:
        raise Denied("this concerns the whole server: use a key without prefixes")


def may_configure(call: Call) -> bool:
    """Return whether the caller may create a topic with a config, or change one."""
    return call.key is None or "admin" in call.key.scopes


def visible(call: Call, name: str) -> bool:
    """Return whether a listing may show the caller this name."""
    return call.key is None or call.key.allows(name)


class Gatekeeper:
    """The checks of an App: ``admit``, ``recheck``, ``start``, ``hold``, ``track``; and `account_of`, its ``account``.

    An empty ring means that there are no keys: then every caller may do everything, and the Host is checked instead.
    The caps per key hold for servers with keys; 0 turns a cap off.
    """

    def __init__(
        self,
        ring: KeyRing,
        *,
        hosts: HostCheck,
        requests_per_key_max: int = 1_000,
        streams_per_key_max: int = 1_000,
        streams_max: int = 10_000,
    ) -> None:
        self.ring = ring
        self.hosts = hosts
        self.requests = Counter[str]()
        self.streams = Counter[str]()
        self.requests_per_key_max = requests_per_key_max
        self.streams_per_key_max = streams_per_key_max
        self.streams_max = streams_max
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._waits: dict[OpenAnswer[Any], str] = {}

    @property
    def streams_open(self) -> int:
        return self.streams.total()

    def replace(self, ring: KeyRing) -> None:
        """Use new keys from now on. For keys that are gone, or may do less than before, end streams and answer long
        polls 401; a body on its way is refused by the wire, which calls `recheck`.
        """
        kept = {(key.id, key.scopes, key.prefixes) for key in ring.keys}
        gone = {key.id for key in self.ring.keys if (key.id, key.scopes, key.prefixes) not in kept}
        self.ring = ring
        for task, key_id in list(self._tasks.items()):
            if key_id in gone:
                task.cancel()
        for answer, key_id in list(self._waits.items()):
            if key_id in gone:
                answer.cancel(_taken_away())

    async def streams_ended(self, timeout_s: float) -> None:
        """Wait until no stream runs, for a bounded time."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    def admit(self, route: Route, call: Call) -> None:
        """Admit a request to its body, or raise Denied (401, 403) or Overloaded (429)."""
        request = call.request
        self.hosts.check(request.headers, navigable=not route.scopes and request.method in ("GET", "HEAD"))
        if self.ring.keys:
            self._authorize(route, call)
        call.ring = self.ring
        if route.sse or self.is_crowded(call):
            self._check_caps(route, call)

    def recheck(self, route: Route, call: Call) -> None:
        """Raise Denied where the keys have changed since the call was admitted and its own is not valid any more."""
        if call.ring is not self.ring:
            self._authorize(route, call)

    def start(self, route: Route, call: Call) -> None:
        """Admit a call to its handler: since its head was read, its key may have been removed and other calls may have
        filled the caps. Raises as `admit` does.
        """
        if call.ring is not self.ring:
            self._authorize(route, call)
        self._check_caps(route, call)

    def is_crowded(self, call: Call) -> bool:
        """Return whether the key of a call has as many requests open as it may."""
        return call.key is not None and 0 < self.requests_per_key_max <= self.requests.get(call.key_id, 0)

    def _authorize(self, route: Route, call: Call) -> None:
        if route.scopes and self.ring.keys:
            key = self._key_of(route, call.request)
            if not route.scopes <= key.scopes:
                missing = sorted(route.scopes - key.scopes)
                raise Denied(f"this key lacks the scope {' and '.join(missing)}", missing=missing)
            call.key, call.key_id = key, key.id
            for part, name in call.names.items():
                if part not in _NOT_NAMES:
                    check_name(call, name)
        call.ring = self.ring

    def _check_caps(self, route: Route, call: Call) -> None:
        if self.is_crowded(call):
            raise _at_cap(self.requests_per_key_max, "requests_per_key_max")
        if route.sse:
            if 0 < self.streams_max <= self.streams_open:
                raise _at_cap(self.streams_max, "streams_max")
            if call.key is not None and 0 < self.streams_per_key_max <= self.streams.get(call.key_id, 0):
                raise _at_cap(self.streams_per_key_max, "streams_per_key_max")

    def account_of(self, route: Route | None, request: Request) -> str:
        """Return who is charged for a request that was refused at its head: its key, or where there are none the
        address; "" where it came without a valid key.
        """
        if not self.ring:
            return request.client
        try:
            return self._key_of(route, request).id
        except Denied:
            return ""

    def _key_of(self, route: Route | None, request: Request) -> Key:
        token = _bearer(request)
        if token is None and route is not None and route.sse and request.method in ("GET", "HEAD"):
            token = _token_in_query(request.query)
        if token is None:
            raise Denied("a key is needed: send Authorization: Bearer <key>", code="unauthorized")
        key = self.ring.find(token)
        if key is None:
            raise Denied("this key is not known here", code="unauthorized")
        return key

    def hold(self, call: Call, later: Later[Any] | None) -> Callable[[], None] | None:
        """Count a call that stays open, until what is returned is called. One that waits for its caller alone is ended
        with 401 where its key is taken away.
        """
        if call.key is None:
            return None
        name = call.key_id
        self.requests[name] += 1
        if later is None or not later.ends_with_peer or not isinstance(later.answer, OpenAnswer):
            return partial(_release, self.requests, name)
        waits = later.answer
        self._waits[waits] = name

        def end() -> None:
            self._waits.pop(waits, None)
            _release(self.requests, name)

        return end

    def track(self, call: Call, response: Response) -> None:
        """Count a response that is a stream, until it has ended."""
        if response.stream is not None:
            response.stream = self._counted(call, response.stream)

    def _is_taken_away(self, call: Call) -> bool:
        """Return whether the key that the call was admitted with is gone, or may do less than before."""
        return call.ring is not self.ring and bool(self.ring) and call.key not in self.ring.keys

    def _counted(self, call: Call, stream: Stream) -> Stream:
        name = call.key_id

        async def run(send: Send) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks[task] = name
            try:
                if self._is_taken_away(call):  # while the stream waited for the answers before it
                    raise ConnectionAbortedError("the key of this stream was taken away before it began")
                await stream(send)
            finally:
                del self._tasks[task]
                free()

        self.streams[name] += 1
        free = finalize(run, _release, self.streams, name)  # also where it is dropped before it began
        return run


def _release(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


def _taken_away() -> Denied:
    return Denied("this key was taken away, or may do less than before: ask with one that is good", code="unauthorized")


def _at_cap(maximum: int, limit: str) -> Overloaded:
    what = "streams" if limit.startswith("streams") else "requests"
    return Overloaded(
        f"{maximum} {what} are open already: close one, try again later, or raise the server's setting {limit}",
        limit=limit,
        max=maximum,
    )


def _bearer(request: Request) -> str | None:
    """Return the token of an Authorization header; None where there is none or it is of another kind."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip(" \t") or None if scheme.lower() == "bearer" else None


def _token_in_query(query: str) -> str | None:
    try:
        found = parse_qs(query, max_num_fields=_QUERY_FIELDS_MAX).get("token", [])
    except ValueError:
        return None
    return found[0] if len(found) == 1 else None

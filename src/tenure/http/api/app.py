"""The app: a table of routes, and the way from a request to a result.

Deny by default: a route names the scopes it needs, and one that names none is open. A request is admitted by its head,
before its body is read, and answered when it is whole. No exception leaves either step.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any

import msgspec

from tenure.errors import NotFound, NotLeader, TenureError
from tenure.http.api.keys import Key, KeyRing
from tenure.http.wire.errors import MethodNotAllowed, error_response, too_large
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.message import Body, Later, Request, Response, Result

__all__ = ["App", "Call", "Check", "Handler", "Observe", "Route"]

log = logging.getLogger("tenure.http")

_PATHS_KEPT_MAX = 1024
_PATH_KEPT_MAX = 256
"""Paths whose route is remembered, and how long one may be: clients ask for the same few over and over."""


class Call:
    """A request that found its route, from its head to its answer: what the wire knows as an Admission.

    ``names`` are the parts of the path that the route left open. ``key`` is the key it came with and ``key_id`` a name
    for it that is no secret; None and "" where there are no keys. ``ring`` are the keys that were valid when it was
    admitted. From its admission on there are ``app``, ``route``, ``body_bytes_max``, and ``account``, which its bytes
    are charged to: the key, or without one the address.
    """

    __slots__ = ("account", "app", "body_bytes_max", "key", "key_id", "names", "request", "ring", "route")

    account: str
    app: App
    route: Route
    body_bytes_max: int

    def __init__(self, request: Request, names: dict[str, str]) -> None:
        self.request = request
        self.names = names
        self.key: Key | None = None
        self.key_id = ""
        self.ring: KeyRing | None = None

    def lapsed(self) -> Response | None:
        """Return the refusal where its key is not valid any more, else None."""
        return self.app.lapsed(self.route, self)

    def answer(self, body: Body) -> Result:
        """Answer the call, whose body is complete now."""
        self.request.body, self.request.started = body, perf_counter()
        return self.app.answer(self.route, self)

    def hold(self, later: Later[Any] | None) -> Callable[[], None] | None:
        """Count the call as open, until what is returned is called; None where nobody counts."""
        return None if self.app.holds is None else self.app.holds(self, later)

    def observed(self, response: Response) -> Response:
        """Count the response to a call that waited; return it."""
        if self.app.observes is not None:
            self.app.observes(self.route, self.request, response.status)
        return response


Handler = Callable[[Any, Call], Result]
Observe = Callable[["Route | None", Request, int], None]
Hold = Callable[["Call", "Later[Any] | None"], Callable[[], None] | None]
AwaitLeader = Callable[["Route"], Callable[[], Awaitable[None]] | None]
AccountOf = Callable[["Route | None", Request], str]


class Route(msgspec.Struct, frozen=True):
    """One method on one path. ``:name`` in the pattern stands for one segment.

    ``scopes`` are those a key needs; an empty set is open to every caller. ``body`` is the schema of the request, for
    the document; ``sse`` marks a stream, which alone may carry its token in the query; ``bulk`` a route whose body may
    be as large as ``body_bytes_max`` and not only as ``command_bytes_max``; ``anywhere`` a route that needs no broker:
    it is served during a replay too, and by a server that follows another one.
    """

    method: str
    pattern: str
    handler: Handler
    scopes: frozenset[str] = frozenset()
    body: type[msgspec.Struct] | None = None
    summary: str = ""
    sse: bool = False
    bulk: bool = False
    anywhere: bool = False


Check = Callable[[Route, Call], None]


class App:
    """The router of requests. ``context`` is handed to every handler: it holds the broker and what else they share.

    Three checks may refuse a call by raising: ``admit`` when its head is complete, ``start`` before its handler runs,
    and ``recheck`` while its body comes, which checks only whether its key is still valid. ``hold`` counts a call that
    stays open, and ``track`` a stream. ``observe`` is called with every status, and with the route where one was found.
    ``await_leader`` is asked about a call that met no leader: it returns what to wait for before the call is tried once
    more, or None where it is refused at once. ``account`` names who a request is charged to that was refused at its
    head; "" where it came without a valid key.
    """

    def __init__(
        self,
        context: Any,
        routes: Iterable[Route],
        *,
        limits: WireLimits | None = None,
        admit: Check | None = None,
        recheck: Check | None = None,
        start: Check | None = None,
        hold: Hold | None = None,
        track: Callable[[Call, Response], None] | None = None,
        observe: Observe | None = None,
        await_leader: AwaitLeader | None = None,
        account: AccountOf | None = None,
    ) -> None:
        self.context = context
        self.routes = list(routes)
        limits = limits or WireLimits()
        self._command_bytes_max, self._bulk_bytes_max = limits.command_bytes_max, limits.body_bytes_max
        self._admit = admit
        self._recheck = recheck
        self._start = start
        self._track = track
        self.observes = observe
        self.holds = hold
        self._await_leader = await_leader
        self._account = account
        self._found: dict[tuple[str, str], tuple[Route, dict[str, str]]] = {}
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        for pattern in dict.fromkeys(route.pattern for route in self.routes):
            methods = {route.method: route for route in self.routes if route.pattern == pattern}
            if ":" in pattern:
                self._patterns.append((_compile(pattern), methods))
            else:
                self._exact[pattern] = methods

    def admit_whole(self, request: Request) -> Call | Response:
        """Admit a request that has its body already, as a caller in this process has it. Nothing is raised."""
        admitted = self.admit(request)
        if isinstance(admitted, Call) and len(request.body) > admitted.body_bytes_max:
            return error_response(too_large("the body", admitted.body_bytes_max), request)
        return admitted

    def admit(self, request: Request) -> Call | Response:
        """Admit a request by its head, or refuse it with an error body. Nothing is raised."""
        route: Route | None = None
        try:
            route, call = self._find(request)
            if self._admit is not None:
                self._admit(route, call)
            call.app, call.route, call.account = self, route, call.key_id or request.client
            call.body_bytes_max = self._bulk_bytes_max if route.bulk else self._command_bytes_max
            return call
        except TenureError as error:
            response = error_response(error, request)
        except Exception:
            response = _unexpected(request)
        request.account = request.client if self._account is None else self._account(route, request)
        return self.observed(route, request, response)

    def lapsed(self, route: Route, call: Call) -> Response | None:
        """Return the refusal of an admitted call whose key is not valid any more, else None."""
        try:
            if self._recheck is not None:
                self._recheck(route, call)
        except TenureError as error:
            return self.observed(route, call.request, error_response(error, call.request))
        return None

    def answer(self, route: Route, call: Call) -> Result:
        """Answer an admitted call whose request is whole. What goes wrong becomes an error body; nothing is raised."""
        request = call.request
        result: Result
        try:
            result = self._handle(route, call)
        except TenureError as error:
            if self._await_leader is not None and isinstance(error, NotLeader):
                known = self._await_leader(route)
                if known is not None:
                    return self._handle_after(known, route, call)
            result = error_response(error, request)
        except Exception:
            result = _unexpected(request)
        if isinstance(result, Response):
            return self.observed(route, request, result)
        return result  # the wire waits for it, renders it, and has it observed

    def _handle(self, route: Route, call: Call) -> Result:
        if self._start is not None:
            self._start(route, call)
        result = route.handler(self.context, call)
        if self._track is not None and isinstance(result, Response):
            self._track(call, result)
        return result

    async def _handle_after(
        self, known: Callable[[], Awaitable[None]], route: Route, call: Call
    ) -> Response | Later[Any]:
        """Answer a call that met no leader, and so changed nothing, after it waited for one here."""
        await known()
        result = self._handle(route, call)
        return result if isinstance(result, (Response, Later)) else await result

    def observed(self, route: Route | None, request: Request, response: Response) -> Response:
        """Report the status of a response; return it."""
        if self.observes is not None:
            self.observes(route, request, response.status)
        return response

    def _find(self, request: Request) -> tuple[Route, Call]:
        known = self._found.get((request.method, request.path))
        if known is not None:
            return known[0], Call(request, known[1])
        route, names = self._search(request)
        if len(request.path) <= _PATH_KEPT_MAX:
            if len(self._found) >= _PATHS_KEPT_MAX:
                self._found.clear()
            self._found[request.method, request.path] = route, names
        return route, Call(request, names)

    def _search(self, request: Request) -> tuple[Route, dict[str, str]]:
        methods, names = self._exact.get(request.path), dict[str, str]()
        if methods is None:
            for pattern, candidates in self._patterns:
                found = pattern.fullmatch(request.path)
                if found is not None:
                    methods, names = candidates, found.groupdict()
                    break
        if methods is None:
            raise NotFound("there is nothing at this path", code="not_found")
        wanted = "GET" if request.method == "HEAD" and "GET" in methods else request.method
        route = methods.get(wanted)
        if route is None:
            allowed = sorted(methods | ({"HEAD": None} if "GET" in methods else {}))
            raise MethodNotAllowed(f"{request.method} is not possible here", code="method_not_allowed", allow=allowed)
        return route, names


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(
        "/".join(f"(?P<{part[1:]}>[^/]*)" if part.startswith(":") else re.escape(part) for part in pattern.split("/"))
    )


def _unexpected(request: Request) -> Response:
    """Log a bug of ours, and return a response that says so without details."""
    log.exception("a handler failed", extra={"method": request.method, "path_length": len(request.path)})
    return error_response(TenureError("the server met a fault of its own: report it; the outcome is unknown"), request)

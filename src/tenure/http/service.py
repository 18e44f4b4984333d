"""A whole server: settings become keys, an app, sockets and a broker; `Service.stop` ends them in order.

It accepts before the log has been replayed, so that ``/v0/ready`` can report the progress; everything else is answered
503 meanwhile. It stops from the outside in: nothing new is accepted, streams end (their jobs stay leased: the workers
go on, and the next server knows their leases), waiting callers are refused, what was written becomes durable and is
answered, and then the directory is released.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure.broker.broker import Broker
from tenure.broker.open import Replay, open_watched
from tenure.clock import Clock, OffsetClock, SystemClock
from tenure.errors import Closed, Invalid
from tenure.export.supervisor import Supervisor, child_arguments
from tenure.http.api import openapi
from tenure.http.api.app import App, Call, Route
from tenure.http.api.auth import Gatekeeper
from tenure.http.api.context import Context
from tenure.http.api.hosts import HostCheck, is_loopback
from tenure.http.api.keys import KeyRing, entries_of_file, entries_of_text, parse_keys
from tenure.http.api.prometheus import Exposition, Traffic
from tenure.http.api.shares import Shares
from tenure.http.log_home import LogHome
from tenure.http.memory import MemoryKeeper
from tenure.http.routes import ROUTES, test_clock
from tenure.http.server import Server, serve, tls_context
from tenure.http.settings import ServerSettings, check_start
from tenure.http.shared_home import SharedHome
from tenure.http.wire.message import Request

__all__ = ["Service", "exposed", "load_keys", "log_request"]

_SECRET: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP
"""Others may not read a secret; a group may, because that is how a file of root's is given to a service."""
_PRIVATE: Final = stat.S_IRWXG | stat.S_IRWXO


def exposed(settings: ServerSettings) -> list[str]:
    """Return a warning for each file or directory that is there already and open to others, with the cure."""
    places = (
        ("the data directory", settings.data, _PRIVATE, "700"),
        ("the keys file", settings.keys_file, _SECRET, "600"),
        ("the TLS key", settings.tls_key, _SECRET, "600"),
    )
    return [
        f"other users of this machine can reach {what} {path} (mode {mode:03o}): chmod {cure} it"
        for what, path, mask, cure in places
        if path and (mode := _mode(path)) & mask
    ]


def _mode(path: str) -> int:
    """Return the permissions of a path; 0 where there is nothing: opening it reports that."""
    try:
        return stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return 0


access = logging.getLogger("tenure.http.access")


def log_request(route: Route | None, request: Request, *, status: int) -> None:
    """Log one line for a request that was answered; at level debug, because a queue answers many."""
    pattern = route.pattern if route is not None else "-"
    method = request.method if request.method.isalpha() else "-"
    about = {"method": method[:16], "route": pattern, "status": status, "ms": round(request.elapsed_ms, 3)}
    access.debug("request", extra=about)


log = logging.getLogger("tenure.server")

_STREAMS_END_S = 1.0


def load_keys(settings: ServerSettings, environment: Mapping[str, str]) -> KeyRing:
    """Return the keys of the environment and of the keys file together. Raises Invalid where any is malformed."""
    text = environment.get("TENURE_API_KEYS", "")
    entries = entries_of_text(text) if text else []
    if settings.keys_file:
        found = entries_of_file(Path(settings.keys_file))
        if not found:
            raise Invalid(f"the keys file {settings.keys_file} holds no key: add one, or start without the file")
        entries += found
    return KeyRing(parse_keys(entries))


class Service:
    """One server, from settings. ``start``, then ``open``, then ``stop``; a failure to open is raised by ``open``.

    Raises Invalid where the settings would be unsafe or cannot work.
    """

    def __init__(self, settings: ServerSettings, *, environment: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._environment = environment
        ring = load_keys(settings, environment)
        check_start(settings, has_keys=bool(ring))
        self.clock: Clock = OffsetClock() if settings.test_clock else SystemClock()
        self.replay = Replay()
        self.context = Context(settings=settings, replay=self.replay)
        self.traffic = Traffic()
        self.gate = Gatekeeper(
            ring,
            hosts=HostCheck(settings.host_names, loopback_only=not ring, addresses=not is_loopback(settings.host)),
            requests_per_key_max=settings.requests_per_key_max,
            streams_per_key_max=settings.streams_per_key_max,
            streams_max=settings.streams_max,
        )
        self.shares = self.context.shares = Shares(settings, keys=lambda: self.gate.ring.keys)
        routes = [*ROUTES, *(test_clock.routes(self.clock) if isinstance(self.clock, OffsetClock) else [])]
        self.app = App(
            self.context,
            routes,
            limits=settings.limits,
            admit=self._admit,
            recheck=self.gate.recheck,
            start=self._start,
            hold=self.gate.hold,
            track=self.gate.track,
            observe=self._observe,
            await_leader=self._await_leader,
            account=self.gate.account_of,
        )
        document = msgspec.json.encode(openapi.document(routes))
        self.context.openapi = lambda: document
        self._memory = MemoryKeeper(look_ms=settings.memory_look_ms, spare_bytes_max=settings.memory_spare_bytes_max)
        self._server: Server | None = None
        self._broker: Broker | None = None
        #: Set once this server cannot go on, such as one alone whose log another one leads.
        self.ended = asyncio.Event()
        self._home = self._make_home()
        self.context.exposition = Exposition(
            self.traffic,
            wire=self._wire,
            topics_max=settings.metrics_topics_max,
            home=self._home.families if self._home is not None else tuple,
        )
        self._export: Supervisor | None = None

    def _make_home(self) -> LogHome | SharedHome | None:
        settings = self.settings
        if not settings.home:
            return None
        if not settings.advertise:
            return LogHome(settings, clock=self.clock, address=lambda: self.address)
        home = SharedHome(settings, clock=self.clock, replay=self.replay, stage=self, on_end=self.ended.set)
        self.context.cluster = home
        return home

    def _make_export(self) -> Supervisor | None:
        settings = self.settings
        if not settings.events:
            return None
        arguments = child_arguments(
            settings.data,
            settings.events,
            log_format=settings.log_format,
            log_level=settings.log_level,
            settings=settings.export,
        )
        return Supervisor(arguments, settings=settings.export)

    # Requests

    def _admit(self, route: Route, call: Call) -> None:
        self.gate.admit(route, call)
        context = self.context
        if not context.is_open and self._is_held(route):
            return
        if context.draining:
            self._refuse_late(route)
        if not context.is_open and route.scopes and not route.anywhere:
            _ = context.broker  # raises while the log is replayed, and where another server leads

    def _start(self, route: Route, call: Call) -> None:
        gate, context = self.gate, self.context
        if call.ring is not gate.ring or route.sse or gate.is_crowded(call):
            gate.start(route, call)
        if context.draining:
            self._refuse_late(route)
        elif not context.is_open and route.scopes and not route.anywhere:
            context.check_leads()

    def _is_held(self, route: Route) -> bool:
        """Return whether a request should wait until somebody is known to lead."""
        context, cluster = self.context, self.context.cluster
        if context.is_open or cluster is None or not route.scopes or route.anywhere:
            return False
        return cluster.is_undecided

    def _await_leader(self, route: Route) -> Callable[[], Awaitable[None]] | None:
        cluster = self.context.cluster
        return cluster.decided if cluster is not None and self._is_held(route) else None

    def _refuse_late(self, route: Route) -> None:
        if route.scopes and not route.anywhere:
            self.context.check_leads()
            raise Closed("this server is shutting down: use another, or wait", code="shutting_down")

    def _observe(self, route: Route | None, request: Request, status: int) -> None:
        self.traffic.observe(route, request, status)
        if access.isEnabledFor(logging.DEBUG):
            log_request(route, request, status=status)

    def _wire(self) -> dict[str, float]:
        if self._server is None:
            return {}
        connections = self._server.connections
        counts: dict[str, Any] = msgspec.structs.asdict(connections.counts)
        return {
            "connections": len(connections),
            "body_bytes": connections.bodies.held_bytes,
            "unsent_bytes": connections.unsent.total_bytes,
            "streams": self.gate.streams_open,
            **{f"connections_{name}_total": counts[name] for name in counts if name != "requests"},
            **(self._export.metrics() if self._export is not None else {}),
        }

    # Life

    @property
    def address(self) -> str:
        """The URL it listens on."""
        assert self._server is not None
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{'https' if self.settings.tls_cert else 'http'}://{host}:{self._server.port}"

    async def start(self) -> None:
        """Accept connections. Raises OSError where the address cannot be bound, Invalid for unusable TLS files."""
        settings = self.settings
        self._server = await serve(
            self.app,
            host=settings.host,
            port=settings.port,
            limits=settings.limits,
            ssl_context=_tls(settings) if settings.tls_cert else None,
        )
        self._memory.start()
        self._warn_of_exposure()
        if not self.gate.ring:
            reach = "this machine" if is_loopback(settings.host) else "the network"
            log.warning("there are no keys: everybody on %s may do everything", reach)

    async def open(self) -> None:
        """Replay the log and begin to serve. Raises what `Broker.open` raises."""
        settings = self.settings
        if isinstance(self._home, SharedHome):
            await self._home.open()
            return
        data = settings.data if self._home is None else self._home.open
        broker = await open_watched(data, clock=self.clock, settings=settings.engine, replay=self.replay)
        if self._home is not None:
            broker.when_failed(self.ended.set)
            self._home.keep(broker)
        self.begin(broker)

    def begin(self, broker: Broker) -> None:
        """Serve with a broker whose log this server leads."""
        self._broker = broker
        self._export = self._make_export()
        if self._export is not None:
            self._export.start(broker)
        self.context.set_broker(broker)
        report = broker.recovery
        if report is not None:
            extra = {"batches": report.batches, "torn_bytes": report.torn_bytes, "topics": self.context.topics_count}
            log.info("the log is open", extra=extra)

    async def end(self) -> None:
        """Serve no more with the broker: requests are refused, and streams end; their jobs stay leased."""
        broker, export = self._broker, self._export
        self.context.set_broker(None)
        self._broker = self._export = None
        if broker is not None:
            _detach(broker)
        await self.gate.streams_ended(_STREAMS_END_S)
        if export is not None:
            export.detach()
            await export.stop(0)

    def reload_keys(self) -> None:
        """Read the keys again; where they are malformed, keep the old ones and log why."""
        if not self.settings.keys_file:
            log.warning("there is no keys file to read again")
            return
        try:
            ring = load_keys(self.settings, self._environment)
        except Invalid as error:
            log.error("the keys stay as they were: %s", error.message)
            return
        self.gate.replace(ring)
        self.shares.keep(ring.keys)
        self._warn_of_exposure()
        log.info("the keys were read again", extra={"keys": len(ring.keys)})

    def _warn_of_exposure(self) -> None:
        for warning in exposed(self.settings):
            log.warning("%s", warning)

    @property
    def failed(self) -> bool:
        """Whether the disk failed while it served, or another server took over the log that it led alone."""
        if isinstance(self._home, SharedHome) and self._home.failed is not None:
            return True
        return self._broker is not None and self._broker.failed is not None

    async def stop(self) -> bool:
        """Stop within the time for draining; return True where no connection had to be cut."""
        self.context.draining = True
        self._memory.stop()
        if self._home is not None:
            self._home.give_up_soon(self.settings.drain_ms / 1000)
        if isinstance(self._home, SharedHome):
            await self._home.close()  # somebody else goes on; this one says who, and then ends
        if self._broker is not None:
            _detach(self._broker)
        clean = True
        draining: asyncio.Task[bool] | None = None
        if self._server is not None:
            draining = asyncio.create_task(self._server.drain(self.settings.drain_ms / 1000))
            await asyncio.sleep(0)
            await self.gate.streams_ended(_STREAMS_END_S)
        if self._export is not None:
            self._export.detach()
        try:
            if isinstance(self._home, LogHome):
                await self._home.close()
            if self._broker is not None:
                await self._broker.close()
            if self._export is not None:
                clean = await self._export.stop(self.settings.drain_ms / 1000)
        finally:
            if draining is not None:
                clean = await draining and clean
        log.info("stopped" if clean else "stopped; some connections had to be cut")
        return clean


def _detach(broker: Broker) -> None:
    """End the work streams, whose jobs stay leased. A broker that has failed has none left."""
    with suppress(Closed):
        broker.detach()


def _tls(settings: ServerSettings) -> ssl.SSLContext:
    try:
        return tls_context(Path(settings.tls_cert), Path(settings.tls_key))
    except OSError as error:  # an SSLError is one too
        why = error.strerror or type(error).__name__
        raise Invalid(f"the TLS files {settings.tls_cert} and {settings.tls_key} cannot be used: {why}") from error

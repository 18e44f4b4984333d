"""`StatusPage`: ``/metrics``, ``/healthz`` and ``/readyz`` of a worker over HTTP, from threads of its own.

It needs no key, so it listens on loopback by default. A connection is answered once and closed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from tenure.errors import Invalid
from tenure.extras import importing
from tenure.worker.observing.metrics import Stats, StatsCollector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Health", "LoopHealth", "StatusPage"]


class Health(Protocol):
    """The answers to probes: None for healthy, or a text that names the problem."""

    def why_dead(self) -> str | None: ...

    def why_not_ready(self) -> str | None: ...


class LoopHealth:
    """The health of the loop that it is made on, which must answer within ``answer_ms``;
    ``why_not_ready`` runs there.
    """

    def __init__(self, why_not_ready: Callable[[], str | None], *, answer_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._why_not_ready = why_not_ready
        self._answer_ms = answer_ms

    def why_dead(self) -> str | None:
        """Return the problem of the loop, or None."""
        return self._ask(lambda: None)

    def why_not_ready(self) -> str | None:
        """Return the problem of the loop, or else why the worker takes no jobs, or None."""
        return self._ask(self._why_not_ready)

    def _ask(self, question: Callable[[], str | None]) -> str | None:
        answer: Future[str | None] = Future()

        def reply() -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(question())

        try:
            self._loop.call_soon_threadsafe(reply)
            return answer.result(self._answer_ms / 1000)
        except TimeoutError:
            answer.cancel()
            return f"the event loop did not answer within {self._answer_ms} ms: a handler blocks it"
        except RuntimeError:
            return "the worker has ended"


_TEXT: Final = "text/plain; charset=utf-8"
_CLOSE_S: Final = 0.1
"""The longest time that closing the page takes."""
_READ_S: Final = 5.0
"""How long a peer may take to send its request, or to read the answer."""


class StatusPage:
    """A server on ``host`` and ``port``; 0 takes a free port, which `port` then holds. At most ``connections_max`` are
    served at once, others are closed.

    Raises Invalid where prometheus-client is missing or the port cannot be had.
    """

    def __init__(
        self, stats: Stats, health: Health, *, port: int, host: str = "127.0.0.1", connections_max: int = 32
    ) -> None:
        registry = _registry(stats)
        try:
            self._server = _Server(host, port, registry, health, connections_max=connections_max)
        except OSError as error:
            raise Invalid(f"the metrics page cannot listen on {host}:{port}: {error.strerror or error}") from error
        serve = partial(self._server.serve_forever, poll_interval=_CLOSE_S)
        self._thread = threading.Thread(target=serve, name="status-page", daemon=True)
        self._thread.start()
        self.host = host
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop listening; returns once the thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: Health, *, connections_max: int
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.registry = registry
        self.health = health
        self._free = threading.BoundedSemaphore(connections_max)
        super().__init__((host, port), _Request)

    def server_bind(self) -> None:
        """Bind without a name look-up, which may take long where there is no resolver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "worker", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a peer that closed its connection."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _READ_S

    def do_GET(self) -> None:
        match urlsplit(self.path).path:
            case "/metrics":
                self._answer_metrics()
            case "/healthz":
                self._answer_probe(self.server.health.why_dead())
            case "/readyz":
                self._answer_probe(self.server.health.why_not_ready())
            case _:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"here are /metrics, /healthz and /readyz\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer_metrics(self) -> None:
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(self.headers.get("accept", ""))
        self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))

    def _answer_probe(self, trouble: str | None) -> None:
        status = HTTPStatus.OK if trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, _TEXT, f"{trouble or 'ok'}\n".encode())

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log probes."""


def _registry(stats: Stats) -> CollectorRegistry:
    with importing("a metrics page needs prometheus-client", "metrics"):
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(StatsCollector(stats))
    return registry

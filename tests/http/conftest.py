"""An app over a broker in memory whose clock only the test moves, called without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import Broker
from tenure.chain.settings import ChainSettings
from tenure.core.state.snapshot import dump_checkpoint
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.server import serve
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.http.wire.message import Request, Response
from tenure.http.wire.respond import Pending, Work, carry_out
from tenure.testing.clock import ManualClock

__all__ = ["Reply", "Site", "when"]


class Reply:
    """An answer, its body still as bytes; ``[name]`` looks into it as JSON."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.raw = response.body
        self.headers = dict(response.headers)
        self.response = response

    @property
    def json(self) -> Any:
        return json.loads(self.raw, parse_int=_number)  # more lenient with what is inside data

    @property
    def code(self) -> str | None:
        """The error's code; None on success."""
        error = self.json.get("error")
        if error is None:
            return None
        assert error["message"], "it says what to do"
        code: str = error["code"]
        return code

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def __contains__(self, name: str) -> bool:
        return name in self.json


def _number(text: str) -> Any:
    return int(text) if len(text) < 4_000 else text  # Python refuses to read longer ones


async def _wait(outcome: Pending | Work, done: asyncio.Future[Response]) -> Response:
    """Wait for a response; cancelled, wait for what the caller is answered then."""
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        outcome.cancel()
        return await done


def _give(done: asyncio.Future[Response], response: Response) -> None:
    if not done.done():
        done.set_result(response)


class Site:
    """Requests to an app, answered as a protocol would: what is later is waited for, what fails becomes its error."""

    def __init__(self, app: App, broker: Broker, clock: ManualClock) -> None:
        self.app = app
        self.broker = broker
        self.clock = clock

    async def send(self, request: Request) -> Reply:
        admitted, done = self.app.admit_whole(request), asyncio.get_running_loop().create_future()
        outcome = (
            admitted if isinstance(admitted, Response) else carry_out(admitted, request.body, partial(_give, done))
        )
        response = outcome if isinstance(outcome, Response) else await _wait(outcome, done)
        reply = Reply(response)
        assert reply.status != 500, reply.raw
        if response.stream is None and response.content_type == b"application/json":
            assert reply["performance"]["server_total_ms"] >= 0
        return reply

    async def call(self, method: str, target: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Reply:
        """``body`` is bytes as they are, or a value to be sent as JSON; a content type goes with it."""
        path, _, query = target.partition("?")
        raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        given = {"content-type": "application/json"} if body is not None else {}
        return await self.send(Request(method, path, query=query, headers=given | (headers or {}), body=raw))

    async def get(self, target: str, **options: Any) -> Reply:
        return await self.call("GET", target, **options)

    async def put(self, target: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("PUT", target, body, **options)

    async def patch(self, target: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("PATCH", target, body, **options)

    async def post(self, target: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("POST", target, body, **options)

    async def delete(self, target: str, **options: Any) -> Reply:
        return await self.call("DELETE", target, **options)

    def start(self, method: str, target: str, body: Any = None) -> asyncio.Task[Reply]:
        """Send a request that will wait."""
        return asyncio.ensure_future(self.call(method, target, body))

    def state(self) -> bytes:
        """Everything the broker holds, as canonical bytes: equal before and after means that nothing changed."""
        return dump_checkpoint(self.broker._engine.state)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    async with await Broker.open(None, clock=clock) as broker:
        yield broker


@pytest.fixture
def make_site(broker: Broker, clock: ManualClock) -> Callable[..., Site]:
    """A site with options of one's own: ``admit`` and the like go to the App."""

    def make(**options: Any) -> Site:
        return Site(App(Context(broker), ROUTES, **options), broker, clock)

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
async def address(site: Site) -> AsyncIterator[str]:
    """The site behind a real socket: where it listens."""
    async with await serve(site.app) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Service, Service]]:
    """Two whole servers that share a home: the first leads, the second follows."""
    services = _member(tmp_path, "a"), _member(tmp_path, "b")
    for service in services:
        await service.start()
        await service.open()
    await when(lambda: services[0].context.is_open)
    yield services
    for service in reversed(services):
        await service.stop()


def _member(tmp_path: Path, name: str) -> Service:
    """A server with a grant so long that no pause of this machine makes the other one take over."""
    home, data, chain = (tmp_path / "home").as_uri(), str(tmp_path / name), ChainSettings(grant_ms=60_000)
    settings = ServerSettings(port=0, data=data, home=home, advertise=f"http://{name}:4000", chain=chain)
    return Service(settings, environment={})


async def when(condition: Callable[[], bool]) -> None:
    """Wait for a condition; how long it takes decides nothing."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)

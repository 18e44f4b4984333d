"""Hosts with several addresses, some of which lead nowhere."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tenure import AsyncClient, Overloaded
from tenure.client import ClientSettings
from tenure.client.transport import loop_connect
from tenure.client.transport.origin import Origin
from tests.client.both_clients import make_client
from tests.kit.members import Member, members

FOR_EVER_MS = 600_000
SETTINGS = ClientSettings(connect_ms=FOR_EVER_MS, attempts_max=1)
Host = Callable[..., None]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Says which addresses the host ``several.test`` has."""
    known: list[str] = []
    real = socket.getaddrinfo

    def resolve(name: Any, port: Any, *args: Any, flags: int = 0, **options: Any) -> Any:
        if name != "several.test":
            return real(name, port, *args, **options | {"flags": flags})
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name and no number")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return lambda *addresses: known.__setitem__(slice(None), addresses)


@pytest.fixture
def server() -> Iterator[Member]:
    with members(1) as (made,):
        yield made.leads(1)


def port_of(server: Member) -> int:
    return int(server.url.rpartition(":")[2])


def swallow(held: ExitStack, address: str, port: int) -> None:
    """No connection reaches this address: its queue is full, so the kernel drops the first packet."""
    listening = held.enter_context(socket.socket())
    listening.bind((address, port))
    listening.listen(0)
    for _ in range(2):
        filling = held.enter_context(socket.socket())
        filling.setblocking(False)
        filling.connect_ex((address, port))


async def test_the_second_address_answers_where_the_first_one_swallows_every_packet(
    kind: str, server: Member, host: Host
) -> None:
    port = port_of(server)
    with ExitStack() as held:
        swallow(held, "127.0.0.2", port)
        host("127.0.0.2", "127.0.0.1")
        async with make_client(kind, f"http://several.test:{port}", settings=SETTINGS) as client:
            await asyncio.wait_for(client.redrive("t"), 20)
    assert len(server.asked) == 1, "it was sent once"


def test_so_it_does_on_the_loop_of_the_workers(server: Member, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the system for addresses without Python's help."""
    port = port_of(server)

    async def places(origin: Origin) -> Any:
        return socket.getaddrinfo(origin.host, origin.port)

    monkeypatch.setattr(loop_connect, "_places", places)

    async def call() -> int:
        async with AsyncClient(f"http://several.test:{port}", settings=SETTINGS) as client:
            await asyncio.wait_for(client.redrive("t"), 20)
            (connection,) = client._wire._endpoints.first.wire._pool._idle  # type: ignore[attr-defined]
            sock = connection._transport.get_extra_info("socket")
            delays: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            return delays

    with ExitStack() as held, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        swallow(held, "127.0.0.2", port)
        host("127.0.0.2", "127.0.0.1")
        assert runner.run(call()), "small requests are not held back"


async def test_an_address_that_refuses_gives_way_and_where_all_do_the_last_one_is_told(
    kind: str, server: Member, host: Host
) -> None:
    port = port_of(server)
    host("127.0.0.2", "127.0.0.3", "127.0.0.1")
    async with make_client(kind, f"http://several.test:{port}", settings=SETTINGS) as client:
        await client.redrive("t")
    host("127.0.0.2", "127.0.0.3")
    async with make_client(kind, f"http://several.test:{port}", settings=SETTINGS) as client:
        with pytest.raises(Overloaded) as caught:
            await client.redrive("t")
    assert caught.value.code == "unreachable"
    assert f"several.test:{port}: [Errno {errno.ECONNREFUSED}]" in caught.value.message
    assert len(server.asked) == 1


async def test_where_every_address_swallows_packets_the_time_ends_it(kind: str, server: Member, host: Host) -> None:
    port = port_of(server)
    settings = ClientSettings(connect_ms=100, attempts_max=1)
    with ExitStack() as held:
        for address in ("127.0.0.2", "127.0.0.3"):
            swallow(held, address, port)
        host("127.0.0.2", "127.0.0.3")
        async with make_client(kind, f"http://several.test:{port}", settings=settings) as client:
            with pytest.raises(Overloaded) as caught:
                await asyncio.wait_for(client.redrive("t"), 20)
    assert caught.value.code == "unreachable"


async def test_an_address_whose_tls_breaks_gives_way(kind: str, host: Host, certificate: tuple[Path, Path]) -> None:
    """A balancer that has nobody behind it accepts connections and ends them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    trusting.check_hostname = False
    with members(1, tls=context) as (server,), socket.create_server(("127.0.0.2", port_of(server))) as balancer:
        server.leads(1)

        def hang_up() -> None:
            connection, _ = balancer.accept()
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        host("127.0.0.2", "127.0.0.1")
        url = f"https://several.test:{port_of(server)}"
        async with make_client(kind, url, tls=trusting, settings=SETTINGS) as client:
            await asyncio.wait_for(client.redrive("t"), 20)
    assert len(server.asked) == 1

"""A real server for a module, and clients of both kinds on it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client.driving import KINDS, Both, make_client
from tests.client.proxy import Proxy, proxy_to
from tests.http.serving import Running, serving


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`tenure serve`, shared by the tests of a module: each has topics of its own."""
    data: Path = tmp_path_factory.mktemp("client") / "data"
    with serving(data) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    which: str = request.param
    return which


@pytest.fixture
async def client(kind: str, real: Running) -> AsyncIterator[Both]:
    async with make_client(kind, real.url, node="me") as made:
        yield made


@pytest.fixture
def name() -> str:
    """A topic of the test's own."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
def proxy(real: Running) -> Iterator[Proxy]:
    """Something unreliable in front of the server."""
    with proxy_to(int(real.url.rpartition(":")[2])) as made:
        yield made

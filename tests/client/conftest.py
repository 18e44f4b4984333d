"""A real server, and clients of both kinds on it."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.client.both_clients import KINDS, Both, make_client
from tests.kit.http_proxy import Proxy, proxy_to
from tests.kit.server import Running, serving


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`tenure serve`, shared by all tests: each has topics of its own."""
    with serving(tmp_path_factory.mktemp("client")) as server:
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One that refuses long tags, which a client cannot know."""
    with serving(tmp_path_factory.mktemp("client"), "--set", "engine.tag_bytes_max=8") as running:
        yield running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for the loopback, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


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

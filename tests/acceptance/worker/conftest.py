"""Real servers with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.worker.working import Work, works

__all__: list[str] = []


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """A server that runs, and no worker yet."""
    for made in works(tmp_path):
        made.server.start()
        yield made

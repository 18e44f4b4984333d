"""`tenure serve` as a process that can be signalled, killed and started again on its data directory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

__all__ = ["PATIENCE_S", "SMALL_LOG", "Serve", "Serving", "until"]

# How long anything may take before a test gives up; nothing is right or wrong because of it.
PATIENCE_S = 30.0
# Segments so small that a short test rolls, trims and checkpoints.
SMALL_LOG = {
    "engine.segment_bytes": 1 << 16,
    "engine.spare_segments": 1,
    "engine.trim_step_bytes": 1 << 14,
    "engine.checkpoint_bytes": 1 << 14,
}


class Serving:
    """One data directory and the server on it, which may be killed and started again. Its address changes then, unless
    it has a ``listen_port`` of its own.
    """

    def __init__(
        self,
        home: Path,
        *,
        keys: str = "",
        test_clock: bool = False,
        settings: dict[str, Any] | None = None,
        files_max: int = 0,
        listen_port: int = 0,
        program: Sequence[str | Path] = (Path(sys.executable).with_name("tenure"),),
    ) -> None:
        self.home = home
        self._program = program
        self._files_max = files_max
        self._listen_port = listen_port
        self.keys = keys
        self.address = ""
        self._flags = [f"--set={name}={value}" for name, value in (settings or {}).items()]
        if test_clock:
            self._flags.append("--test-clock")
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def spawn(self) -> Serving:
        """Start the process and do not wait for it."""
        assert self._process is None or self._process.poll() is not None, "it still runs"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        environment["PYTHONFAULTHANDLER"] = "1"
        if self.keys:
            environment["TENURE_API_KEYS"] = self.keys
        self._process = subprocess.Popen(
            [*self._program, "serve", "--data", self.home, "--port", str(self._listen_port), *self._flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            preexec_fn=self._limit_files if self._files_max else None,
        )
        return self

    def _limit_files(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files_max, self._files_max))

    def open_files(self) -> int:
        """How many file descriptors the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def wait_until_it_listens(self) -> str:
        """Wait for the line that tells the address; returns the address."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), f"it ended by itself:\n{self.log()}"
        self.address = line.removeprefix("listening on ").strip()
        return self.address

    def start(self) -> Serving:
        """Start it, and wait until it serves: it listens before its log is open."""
        self.spawn().wait_until_it_listens()
        until(lambda: self.call("GET", "/v0/ready").status_code == 200, "it is ready")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end of the process; returns its exit code. Raises with the stacks of one that does not end."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            self.process.wait(PATIENCE_S)
            raise AssertionError(f"it does not end:\n{self.log()[-8_000:]}") from None
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.wait()

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """End it if it still runs, and hold it to having met no fault of its own, whatever it was sent."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        log = self.log()
        self._log.close()
        assert "Traceback" not in log, log
        assert "a handler failed" not in log, log

    def log(self) -> str:
        """What the processes wrote so far. The place in the file is theirs too, so it is not moved."""
        file = self._log.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def resident_bytes(self) -> int:
        """Memory of the process that is its own."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process tells no RssAnon")

    # Plain calls

    def client(self, **options: Any) -> httpx.Client:
        """A client that ignores what the environment says about proxies, and loads no certificates."""
        return httpx.Client(base_url=self.address, trust_env=False, verify=False, timeout=PATIENCE_S, **options)

    def call(self, method: str, path: str, body: Any = None, *, key: str = "", accept: str = "*/*") -> httpx.Response:
        """One request on a connection of its own."""
        headers = {"accept": accept} | ({"authorization": f"Bearer {key}"} if key else {})
        options: dict[str, Any] = {}
        if isinstance(body, bytes):
            options["content"] = body
            headers["content-type"] = "application/json"
        elif body is not None:
            options["json"] = body
        with self.client() as client:
            return client.request(method, path, headers=headers, **options)

    def ok(self, method: str, path: str, body: Any = None, *, key: str = "") -> Any:
        """The same, where it must succeed; returns the body."""
        answer = self.call(method, path, body, key=key)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def queue(self, name: str, *, key: str = "") -> dict[str, int]:
        """A queue's counters."""
        counters: dict[str, int] = self.ok("GET", f"/v0/topics/{name}?touch=false", key=key)["queue"]
        return counters

    def advance(self, ms: int) -> None:
        self.ok("POST", "/v0/_test/advance", {"ms": ms})


Serve = Callable[..., Serving]


def until(condition: Callable[[], bool], what: str, *, within_s: float = PATIENCE_S) -> None:
    """Look again and again until something holds."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.005)


def servings(directory: Path) -> Iterator[Serve]:
    """What the fixtures are made of: starts servers, and ends them all."""
    made: list[Serving] = []

    def make(*, start: bool = True, **options: Any) -> Serving:
        serving = Serving(directory / f"data-{len(made)}", **options)
        made.append(serving)
        return serving.start() if start else serving

    try:
        yield make
    finally:
        for serving in made:
            serving.close()

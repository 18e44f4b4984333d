"""`make bench-hostile`: an honest client beside a hostile one of each kind, on the same two cores.

The honest one appends, claims, acks and reads a hundred times a second. Its p99 beside the hostile one is compared with
its p99 in the quiet seconds just before, in the same process of the same server; so is the server's memory. The first
two rows send nothing: they show what sharing two cores costs, with the server idle; a kind that keeps the server busy
cannot be below the second.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import granted, neighbours
from bench.attacks import HONEST, KINDS, head
from bench.hosting import resident_bytes, server
from bench.measure import Row, calibrate, report

QUIET_S, HOSTILE_S, REST_S = 5.0, 10.0, 15.0
PAUSE_S = 0.005
P99_RATIO_MAX, ABOVE_BYTES_MAX, AFTER_BYTES_MAX = 3.0, 200 << 20, 50 << 20


class Job(msgspec.Struct):
    """As much of a claimed job as an ack needs."""

    seq: int = msgspec.field(name="$seq")


class Claimed(msgspec.Struct):
    """As much of a claim's answer as an ack needs."""

    claimed: list[Job]


class Seen(msgspec.Struct):
    """Seconds that each call of the honest client took, and the answers that were errors."""

    p50_s: float
    p99_s: float
    calls: int
    errors: int
    examples: list[str]


# The honest client, a process of its own


class Caller:
    """One connection that is opened again where it was closed, which counts as an error."""

    def __init__(self, port: int, *, tls: bool) -> None:
        self._port = port
        self._tls = tls
        self._connect()

    def _connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self._port), 30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(plain) if self._tls else plain

    def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and body of one answer. Raises OSError and connects again."""
        try:
            self._socket.sendall(head(method, path, len(body), key=HONEST) + body)
            data = b""
            while (at := data.find(b"\r\n\r\n")) < 0:
                data += self._more()
            found = re.search(rb"content-length: (\d+)", data[:at])
            length = int(found[1]) if found else 0
            while len(data) < at + 4 + length:
                data += self._more()
            return int(data[9:12]), data[at + 4 :]
        except OSError:
            self._connect()
            raise

    def _more(self) -> bytes:
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionResetError("the server closed the connection")
        return part


def be_honest(port: int, seconds: float, *, tls: bool) -> Seen:
    """Live one job after the other for so long."""
    decoder, caller = msgspec.json.Decoder(Claimed), Caller(port, tls=tls)
    took: list[float] = []
    errors = list[str]()

    def call(method: str, path: str, body: bytes = b"") -> bytes:
        started = time.perf_counter()
        try:
            status, answer = caller.call(method, path, body)
            if status >= 300:
                errors.append(f"{method} {path}: {status} {answer[:120]!r}")
        except OSError as error:
            errors.append(f"{method} {path}: {error}")
            answer = b""
        took.append(time.perf_counter() - started)
        return answer

    until = time.perf_counter() + seconds
    call("PUT", "/v0/topics/honest", b'{"type":"queue","durability":"fsync"}')
    while time.perf_counter() < until:
        call("POST", "/v0/topics/honest", b'{"records":[{"data":{"to":"ada@example.org"}}]}')
        claimed = call("POST", "/v0/topics/honest/claim", b'{"node":"honest","max":10}')
        if claimed.startswith(b"{") and (jobs := decoder.decode(claimed).claimed):
            seqs = [job.seq for job in jobs]
            call("POST", "/v0/topics/honest/ack", msgspec.json.encode({"node": "honest", "seqs": seqs}))
        call("GET", "/v0/topics/honest")
        time.sleep(PAUSE_S)
    took.sort()
    return Seen(took[len(took) // 2], took[int(len(took) * 0.99)], len(took), len(errors), errors[:5])


def honest(port: int, seconds: float, *, tls: bool) -> Seen:
    """The same in a process of its own, so that the hostile one does not slow its clock."""
    command = [sys.executable, "-m", "bench.hostile", str(port), str(seconds), str(tls)]
    return msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout, type=Seen)


# Processes


@contextmanager
def attacker(kind: str, port: int) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-m", "bench.attacks", kind, str(port)], stderr=subprocess.DEVNULL)
    try:
        yield
        if child.poll() is not None:
            raise SystemExit(f"the attack {kind!r} ended by itself")
    finally:
        child.kill()
        child.wait(10)


def certificate(home: Path) -> None:
    """A certificate for loopback that nobody but this run trusts."""
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", *kind, *files], check=True, capture_output=True)


# The bars


def measure(kind: str) -> list[Row]:
    """One kind of hostile client: latency, errors and memory of the server beside it and afterwards."""
    tls = "TLS" in kind
    with tempfile.TemporaryDirectory(prefix="tenure-hostile-") as name:
        home = Path(name)
        if tls:
            certificate(home)
        with server(home, tls=tls) as (port, pid):
            quiet = honest(port, QUIET_S, tls=tls)
            before = resident_bytes(pid)
            with attacker(kind, port):
                time.sleep(1)
                beside = honest(port, HOSTILE_S, tls=tls)
                above = resident_bytes(pid) - before
            after = _settled_bytes(pid, before)
    ratio = beside.p99_s / quiet.p99_s
    if beside.errors:
        print(f"{kind}: {beside.examples[0]}")
    met = ratio <= P99_RATIO_MAX and not beside.errors and above <= ABOVE_BYTES_MAX and after <= AFTER_BYTES_MAX
    figures = f"{ratio:5.1f} × ({quiet.p99_s * 1e3:.1f} ms), {beside.errors} errors"
    return [(kind, f"{figures}, {above >> 20:+d}, then {after >> 20:+d} MiB", "≤ 3 ×, 0, +200, +50", met)]


def _settled_bytes(pid: int, before: int) -> int:
    """Memory above quiet once the hostile client is gone: the least that is seen while the server rests."""
    least, until = 1 << 62, time.monotonic() + REST_S
    while time.monotonic() < until and least > AFTER_BYTES_MAX:
        least = min(least, resident_bytes(pid) - before)
        time.sleep(0.5)
    return least


def main() -> None:
    if len(sys.argv) == 4:
        port, seconds, tls = sys.argv[1:]
        seen = be_honest(int(port), float(seconds), tls=tls == "True")
        print(json.dumps(msgspec.to_builtins(seen)))
        return
    rows: list[Row] = []
    for kind in KINDS:
        if len(sys.argv) == 1 or sys.argv[1] in kind:
            rows += measure(kind)
    for kind in granted.KINDS:
        if len(sys.argv) == 1 or sys.argv[1] in kind:
            rows += granted.measure(kind)
    for kind in neighbours.KINDS:
        if len(sys.argv) == 1 or sys.argv[1] in kind:
            rows += neighbours.measure(kind)
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    report("bench-hostile: an honest client's p99 against quiet, its errors, the server's memory", rows)


if __name__ == "__main__":
    main()

"""`tenure serve` as a process: how it starts, what it refuses, and how it stops (faults 16, 37)."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Tenure
from tests.kit.server import environment, serving

QUEUE = {"type": "queue", "durability": "fsync"}


@pytest.fixture
def tenure() -> Tenure:
    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("tenure"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=environment(**variables)
        )

    return run


def fill(client: httpx.Client, count: int = 3) -> None:
    client.put("/v0/topics/jobs", json=QUEUE).raise_for_status()
    client.post("/v0/topics/jobs", json={"records": [{"data": n} for n in range(count)]}).raise_for_status()


def test_it_prints_where_it_listens_serves_and_stops_with_0(tmp_path: Path):
    with serving(tmp_path / "data") as server:
        assert server.url.startswith("http://127.0.0.1:")
        with server.client() as client:
            assert client.get("/v0/ready").json()["wal_replay_complete"] is True
            fill(client)
        assert server.stop() == 0
    with serving(tmp_path / "data") as server, server.client() as client:
        assert client.get("/v0/topics/jobs").json()["count"] == 3


_AT_ITS_END = """
import atexit, gc, sys
def say():
    print("at its end:", sys.getswitchinterval(), gc.get_freeze_count(), file=sys.stderr, flush=True)
atexit.register(say)
"""


def test_the_thread_that_syncs_asks_for_the_interpreter_and_the_collector_leaves_what_stays(tmp_path: Path):
    """Seen from within: how long a sync is passed over depends on what else the machine does, these two do not."""
    (tmp_path / "sitecustomize.py").write_text(_AT_ITS_END)
    with serving(tmp_path / "data", PYTHONPATH=str(tmp_path)) as server:
        server.stop()
        interval_s, frozen = server.wait_for_line("at its end:").split()[-2:]
    assert float(interval_s) <= 20e-6  # longer than a callback of the loop, and a waiting thread starves
    assert int(frozen) > 10_000


def test_http_2_on_the_same_port(tmp_path: Path):
    with serving(tmp_path / "data") as server, server.client(http1=False, http2=True) as client:
        answer = client.get("/v0/health")
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)


@pytest.mark.parametrize(
    ("flags", "variables", "why"),
    [
        (["--host", "0.0.0.0"], {}, "no keys"),
        (["--host", "0.0.0.0", "--test-clock"], {"TENURE_API_KEYS": "x"}, "loopback"),
        ([], {"TENURE_API_KEYS": "hunter2:bogus"}, "entry 1 of TENURE_API_KEYS"),
        ([], {"TENURE_PORT": "tcp://1.2.3.4:5"}, "the environment sets port"),
        (["--tls-cert", "x"], {}, "--tls-key"),
        (["--tls-cert", "nowhere", "--tls-key", "nowhere"], {}, "cannot be used"),
        (["--set", "bogus=1"], {}, "no setting"),
        (["--keys-file", "nowhere"], {}, "cannot be read"),
        (["--log-format", "xml"], {}, "log_format"),
    ],
)
def test_what_is_unsafe_or_wrong_is_refused_in_one_line(
    tenure: Tenure, tmp_path: Path, flags: list[str], variables: dict[str, str], why: str
):
    done = tenure("serve", "--data", tmp_path / "data", *flags, **({"TENURE_PORT": "0"} | variables))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("tenure:")]
    assert why in line
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_in_use_and_a_taken_port_are_refused(tenure: Tenure, tmp_path: Path):
    """Fault 16: the second server refuses, the first is unharmed."""
    with serving(tmp_path / "data") as server, server.client() as client:
        fill(client)
        done = tenure("serve", "--data", tmp_path / "data", "--port", "0")
        assert done.returncode == 2
        assert "in use" in done.stderr
        port = server.url.rpartition(":")[2]
        done = tenure("serve", "--data", tmp_path / "other", "--port", port)
        assert done.returncode == 2
        assert f"tenure: 127.0.0.1:{port}: Address already in use" in done.stderr
        assert client.get("/v0/topics/jobs").json()["count"] == 3


def test_a_damaged_log_ends_it_with_1(tenure: Tenure, tmp_path: Path):
    with serving(tmp_path / "data") as server, server.client() as client:
        fill(client)
    segment = next((tmp_path / "data" / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    for checkpoint in (tmp_path / "data" / "checkpoints").iterdir():
        checkpoint.unlink()
    done = tenure("serve", "--data", tmp_path / "data", "--port", "0")
    assert done.returncode == 1
    assert segment.name in done.stderr


def test_keys_are_read_again_on_sighup_and_stay_where_the_file_is_bad(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("first:r\n")
    with serving(tmp_path / "data", "--keys-file", keys) as server, server.client() as client:

        def status(key: str) -> int:
            return client.get("/v0/topics", headers={"authorization": f"Bearer {key}"}).status_code

        assert (status("first"), status("second")) == (200, 401)
        keys.write_text("second:r\n")
        server.signal(signal.SIGHUP)
        server.wait_for_line("the keys were read again")
        assert (status("first"), status("second")) == (401, 200)
        keys.write_text("hunter2:bogus\n")
        server.signal(signal.SIGHUP)
        server.wait_for_line("the keys stay as they were")
        assert status("second") == 200
        assert server.stop() == 0
        assert "hunter2" not in "".join(server.lines)


def test_what_a_key_has_under_way_ends_with_the_key(tmp_path: Path):
    """Long polls, a request pipelined behind them, and a body half sent: none of them outlives the reload."""
    keys = tmp_path / "keys"
    keys.write_text("gone\nstays\n")
    flags = ("--keys-file", keys, "--set", "limits.tick_ms=20")
    stays = {"authorization": "Bearer stays"}
    with serving(tmp_path / "data", *flags) as server, server.client(headers=stays) as client:
        client.put("/v0/topics/jobs", json={"type": "queue"}).raise_for_status()
        poll, append = b'{"node":"w","wait_ms":30000}', b'{"records":[{"data":1}]}'
        head = b"POST /v0/topics/jobs%b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer gone\r\n"
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with socket.create_connection(address, 60) as polling, socket.create_connection(address, 60) as sending:
            polls = [head % (b"/claim", len(poll)) + poll] * 32
            polling.sendall(b"".join(polls) + head % (b"", len(append)) + append)
            sending.sendall(head % (b"", 1_000) + append)
            while _body_bytes(client) != 32 * len(poll) + 2 * len(append):
                pass
            keys.write_text("stays\n")
            server.signal(signal.SIGHUP)
            assert _statuses(polling, 33) == {b"401"}
            assert _statuses(sending, 1) == {b"401"}
        assert client.get("/v0/topics/jobs").json()["head_seq"] == 0
        assert _body_bytes(client) == 0


def _body_bytes(client: httpx.Client) -> int:
    found = client.get("/v0/metrics", headers={"accept": "application/json"}).json()
    return int(found["metrics"]["tenure_body_bytes"])


def _statuses(peer: socket.socket, count: int) -> set[bytes]:
    """The statuses of so many answers."""
    found, answers = set(), peer.makefile("rb")
    for _ in range(count):
        found.add(answers.readline().split()[1])
        length = 0
        while line := answers.readline().strip():
            if line.startswith(b"content-length: "):
                length = int(line.split()[1])
        answers.read(length)
    return found


def test_logs_are_json_lines_without_tokens_or_payloads(tmp_path: Path):
    flags = ("--log-format", "json", "--log-level", "debug")
    with serving(tmp_path / "data", *flags, TENURE_API_KEYS="hunter2") as server:
        with server.client(headers={"authorization": "Bearer hunter2"}) as client:
            client.put("/v0/topics/jobs", json={}).raise_for_status()
            client.post("/v0/topics/jobs", json={"records": [{"data": "payload"}]}).raise_for_status()
            client.get("/v0/topics/jobs?token=hunter2")
            client.get("/nowhere/hunter2?token=hunter2")
        server.stop()
        text = "".join(server.lines)
    assert "hunter2" not in text
    assert "payload" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["message"] == "request" and line["route"] != "/v0/ready"]
    assert [(line["method"], line["route"], line["status"]) for line in requests] == [
        ("PUT", "/v0/topics/:topic", 201),
        ("POST", "/v0/topics/:topic", 200),
        ("GET", "/v0/topics/:topic", 200),
        ("GET", "-", 404),
    ]


def test_the_test_clock_moves_time_and_wakes_those_who_wait(tmp_path: Path):
    with serving(tmp_path / "data", "--test-clock") as server, server.client() as client:
        fill(client, 1)
        first = client.post("/v0/topics/jobs/claim", json={"node": "a", "lease_ms": 3_600_000}).json()
        assert first["count"] == 1
        found: list[int] = []

        def wait() -> None:
            body = {"node": "b", "wait_ms": 30_000}
            with server.client() as other:
                found.append(other.post("/v0/topics/jobs/claim", json=body).json()["claimed"][0]["deliveries"])

        waiter = threading.Thread(target=wait)
        waiter.start()
        # Once the second claim waits it is in flight; a claim that came after the clock moved would pass as well.
        moved = client.post("/v0/_test/advance", json={"ms": 3_600_001}).json()
        assert moved["offset_ms"] == 3_600_001
        assert moved["now_ms"] > first["claimed"][0]["deadline"]
        waiter.join(60)
        assert found == [2]
        for bad in ({}, {"ms": -1}, {"ms": "1"}, {"ms": 1e30}):
            assert client.post("/v0/_test/advance", json=bad).status_code == 400


def test_without_the_test_clock_there_is_no_such_route(tmp_path: Path):
    with serving(tmp_path / "data") as server, server.client() as client:
        assert client.post("/v0/_test/advance", json={"ms": 1}).status_code == 404


def test_sigterm_ends_streams_leaves_their_jobs_leased_and_tells_those_who_wait(tmp_path: Path):
    """Fault 37: bounded, and nothing is left held."""
    with serving(tmp_path / "data") as server, server.client() as client:
        fill(client, 2)
        client.put("/v0/topics/empty", json=QUEUE).raise_for_status()
        told: list[httpx.Response] = []
        parked = threading.Event()

        def wait() -> None:
            with server.client() as other:
                other.get("/v0/health")
                parked.set()
                told.append(other.post("/v0/topics/empty/claim", json={"node": "w", "wait_ms": 30_000}))

        waiter = threading.Thread(target=wait)
        with client.stream("GET", "/v0/topics/jobs/work?node=w&max=2", headers={"accept": "text/event-stream"}) as work:
            lines = work.iter_lines()
            while not next(lines).startswith("data:"):
                pass
            waiter.start()
            parked.wait(30)
            until_claims_wait(server.url)
            server.signal(signal.SIGTERM)
            for _ in lines:
                pass  # the stream ends by itself
        waiter.join(30)
        assert [(answer.status_code, answer.json()["error"]["code"]) for answer in told] == [(503, "shutting_down")]
        assert server.wait() == 0
        assert any("stopped" in line and "cut" not in line for line in server.lines)
    with serving(tmp_path / "data") as server, server.client() as client:
        assert client.get("/v0/topics/jobs").json()["queue"]["in_flight"] == 2


def until_claims_wait(url: str) -> None:
    """Until the server has begun the claim: its connection is there, and one more round trip went behind it."""
    with httpx.Client(base_url=url, headers={"accept": "application/json"}) as client:
        while client.get("/v0/metrics").json()["metrics"]["tenure_connections"] < 3:
            pass
        for _ in range(20):
            client.get("/v0/health")


def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    """Fault 37. A peer that asks for much and reads nothing keeps the first stop waiting."""
    with serving(tmp_path / "data", "--set", "drain_ms=60000") as server, server.client() as client:
        server.wait_until_ready()
        records = [{"data": "x" * 500_000}] * 4
        client.post("/v0/topics/a", json={"records": records}).raise_for_status()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as deaf:
            head = b"POST /v0/topics/a/diff HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            deaf.sendall((head + b"content-length: 2\r\n\r\n{}") * 30)
            deaf.recv(1)
            server.signal(signal.SIGTERM)
            server.wait_for_line("stopping")
            server.signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGTERM
    with serving(tmp_path / "data") as server, server.client() as client:
        assert client.get("/v0/topics/a").json()["count"] == 4


# A replay that takes as long as the test wants: it goes on once there is a line to read.
SLOW = """
import sys
from tenure.broker import open as opening
from tests.kit import run
recover = opening._recover
def slowly(home, clock, settings, replay, *more):
    replay.frames, replay.segment, replay.segment_last = 7, 1, 3
    sys.stdin.readline()
    return recover(home, clock, settings, replay, *more)
opening._recover = slowly
from tenure.cli.main import main
main()
"""


@pytest.fixture
def replaying(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SLOW, "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as process:
        yield process
        if process.poll() is None:
            process.kill()


def test_while_the_log_is_replayed_it_answers_how_far_it_is(replaying: subprocess.Popen[str]):
    assert replaying.stdout is not None
    assert replaying.stdin is not None
    url = replaying.stdout.readline().split()[-1]
    with httpx.Client(base_url=url) as client:
        answer = client.get("/v0/ready")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        about = answer.json()
        assert (about["status"], about["wal_replay_complete"]) == ("replaying", False)
        assert about["error"]["detail"] == {"frames": 7, "segment": 1, "segment_last": 3}
        assert client.get("/v0/health").status_code == 200
        other = client.put("/v0/topics/a", json={})
        assert (other.status_code, other.json()["error"]["code"]) == (503, "not_ready")
        replaying.stdin.write("\n")
        replaying.stdin.flush()
        while client.get("/v0/ready").status_code == 503:
            pass
        assert client.put("/v0/topics/a", json={}).status_code == 201
    replaying.terminate()
    assert replaying.wait(60) == 0


def test_sigterm_in_the_middle_of_a_replay_ends_it(replaying: subprocess.Popen[str]):
    """Fault 37: a replay changes nothing that the next one would miss."""
    assert replaying.stdout is not None
    replaying.stdout.readline()
    replaying.terminate()
    assert replaying.wait(60) == 0


def test_tls_from_files(tmp_path: Path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    with serving(tmp_path / "data", "--tls-cert", cert, "--tls-key", key, is_awaited=False) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with server.client(verify=ssl.create_default_context(cafile=cert)) as client:
            assert client.get("/v0/health").status_code == 200


def test_settings_come_from_a_file_too(tmp_path: Path):
    file = tmp_path / "tenure.toml"
    file.write_text('log_format = "json"\n[engine]\nrecords_max = 2\n')
    with serving(tmp_path / "data", "--settings", file) as server, server.client() as client:
        three = client.post("/v0/topics/a", json={"records": [{"data": 1}] * 3})
        assert (three.status_code, three.json()["error"]["code"]) == (400, "batch_too_large")
        assert json.loads(server.wait_for_line("the log is open"))["level"] == "info"


def test_help_names_every_flag(tenure: Tenure):
    done = tenure("serve", "--help", COLUMNS="200")
    for flag in (
        "--data",
        "--host",
        "--port",
        "--keys-file",
        "--tls-cert",
        "--log-format",
        "--settings",
        "--test-clock",
    ):
        assert flag in done.stdout
    assert os.environ.get("TENURE_API_KEYS", "\0") not in done.stdout

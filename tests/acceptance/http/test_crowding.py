"""Peers that take memory and file descriptors without sending a request, and honest ones beside them."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.http.bare import Bare
from tests.kit.restartable_server import PATIENCE_S, SMALL_LOG, Serve, Serving, until

LARGE = 64 << 20
HALF = 48 << 20
SMALL = {"records": [{"data": "x"}]}
FIFTY_MB = {"records": [{"data": "x" * 1_000_000}] * 50}
FILES_MAX = 600
SILENT = 2_000


def _half(peer: Bare, *, key: str, sent: int) -> None:
    """Announce a large body and send a part of it. After a refusal 16 MiB more are heard before the line is cut."""
    line = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST /v0/topics/t HTTP/1.1\r\nhost: 127.0.0.1\r\n{line}content-type: application/json\r\n"
    peer.send(f"{head}content-length: {LARGE}\r\n\r\n".encode())
    for _ in range(sent >> 20):
        peer.send(b" " * (1 << 20))


def _held(server: Serving, key: str) -> int:
    with server.client(headers={"authorization": f"Bearer {key or '-'}", "accept": "application/json"}) as client:
        return int(client.get("/v0/metrics").json()["metrics"]["tenure_body_bytes"])


def test_half_sent_bodies_without_a_key_take_no_memory(serve: Serve) -> None:
    server = serve(keys="honest")
    server.ok("POST", "/v0/topics/t", SMALL, key="honest")
    before = server.resident_bytes()
    peers = [Bare(server) for _ in range(4)]
    try:
        for number, peer in enumerate(peers):
            _half(peer, key="" if number % 2 else "stranger", sent=12 << 20)
            server.ok("POST", "/v0/topics/t", SMALL, key="honest")
        for peer in peers:
            assert peer.answer()[0] == 401
        assert _held(server, "honest") == 0
        assert server.resident_bytes() - before < 32 << 20
        server.ok("POST", "/v0/topics/t", FIFTY_MB, key="honest")
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("keys", ["", "small:w:t,honest"])
def test_half_sent_bodies_of_one_caller_leave_room_for_everybody_elses_writes(serve: Serve, keys: str) -> None:
    """Four of 64 MiB: one caller may hold 128 MiB, so two of them are refused, and all that is small goes on."""
    server = serve(keys=keys)
    honest = "honest" if keys else ""
    server.ok("POST", "/v0/topics/t", SMALL, key=honest)
    before = server.resident_bytes()
    peers = [Bare(server) for _ in range(4)]
    try:
        for number, peer in enumerate(peers):
            _half(peer, key="small" if keys else "", sent=HALF if number < 2 else 1 << 20)
            server.ok("POST", "/v0/topics/t", SMALL, key=honest)
        until(lambda: _held(server, honest) == 2 * HALF, "what was sent of the first two is held")
        assert server.resident_bytes() - before < 192 << 20
        for peer in peers[2:]:
            status, answer = peer.answer()
            assert (status, answer["error"]["detail"]["limit"]) == (429, "limits.bodies_bytes_per_caller_max")
        for _ in range(20):
            server.ok("POST", "/v0/topics/t", SMALL, key=honest)
        if keys:
            server.ok("POST", "/v0/topics/t", FIFTY_MB, key=honest)  # the other half is for others
    finally:
        for peer in peers:
            peer.close()
    until(lambda: _held(server, honest) == 0, "what was held is free again")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_silent_sockets_take_no_descriptor_from_the_log_and_no_place_from_clients(
    serve: Serve, tmp_path: Path, tls: bool
) -> None:
    """Two thousand peers that connect and say nothing, to a server that may open six hundred files. The log rolls to
    its next segment all the while, and every request on a new connection is answered.
    """
    settings = SMALL_LOG | {"limits.tls_handshake_ms": 600_000, "limits.header_ms": 600_000}
    server = serve(settings=settings | (_certificate(tmp_path) if tls else {}), files_max=FILES_MAX)
    server.ok("PUT", "/v0/topics/t", {"durability": "fsync", "cap_records": 10})
    segments: set[str] = set()
    silent: list[socket.socket] = []
    try:
        for number in range(SILENT):
            silent.append(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            if number % 50 == 49:
                server.ok("POST", "/v0/topics/t", {"records": [{"data": "x" * 30_000}]})
                segments.update(path.name for path in server.home.rglob("*") if path.is_file())
        assert server.open_files() < FILES_MAX - 128
        with server.client(headers={"accept": "application/json"}) as client:
            metrics = client.get("/v0/metrics").json()["metrics"]
        assert metrics["tenure_connections_silent_cut_total"] > SILENT - FILES_MAX
        assert server.ok("GET", "/v0/topics/t")["head_seq"] == SILENT // 50
        assert len(segments) > 15, "the log went on to new segments"
    finally:
        for one in silent:
            one.close()


def _certificate(directory: Path) -> dict[str, Path]:
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=PATIENCE_S)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return {"tls_cert": cert, "tls_key": key}

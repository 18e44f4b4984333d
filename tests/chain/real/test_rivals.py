"""Two servers and one home: one of them leads, and the other says so and ends."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import httpx

from tests.chain.real.kit import home_settings, put_queue, texts, wait_until_ready
from tests.kit.restartable_server import Serve, Serving


def test_a_second_server_is_refused_while_the_first_lives(serve: Serve, home: str):
    first = serve(settings=home_settings(home))
    put_queue(first, "mail")
    second = serve(start=False, settings=home_settings(home, **{"chain.silence_ms": 20_000}))
    assert second.spawn().wait() == 2
    [refusal] = [line for line in second.log().splitlines() if line.startswith("tenure: ")]
    assert (
        refusal
        == f"tenure: {first.address} leads this home and lives: stop it first, or give this one a home of its own"
    )
    first.ok("POST", "/v0/topics/mail", {"records": [{"data": "after"}]})
    assert texts(first, "mail") == ["after"]
    assert first.terminate() == 0


def test_a_server_that_was_overtaken_ends_and_its_tail_is_moved_aside(serve: Serve, home: str):
    """It stands still while another takes over; then nothing that it was asked for happened, and it says so."""
    first = serve(settings=home_settings(home, **{"engine.sync_interval_ms": 3_600_000}))
    put_queue(first, "mail")
    put_queue(first, "notes", durability="disk")
    first.ok("POST", "/v0/topics/mail", {"records": [{"data": "kept"}]})
    first.ok("POST", "/v0/topics/notes", {"records": [{"data": "written here alone"}]})
    first.signal(signal.SIGSTOP)
    second = serve(settings=home_settings(home))
    wait_until_ready(second)
    assert texts(second, "mail") == ["kept"]
    late = _Late(first)
    second.ok("POST", "/v0/topics/mail", {"records": [{"data": "from the second"}]})
    first.signal(signal.SIGCONT)
    assert first.wait() == 1
    late.join()
    assert late.answer != 200
    assert "has taken over this log" in first.log()
    assert second.terminate() == 0
    first.start()
    wait_until_ready(first)
    assert texts(first, "mail") == ["kept", "from the second"]
    assert texts(first, "notes") == []
    assert b"written here alone" in _diverged(first.home)


class _Late(threading.Thread):
    """A produce that is sent to a server which stands still; ``answer`` is its status, or 0 where none came."""

    def __init__(self, server: Serving) -> None:
        super().__init__()
        self.answer = -1
        self._server = server
        self.start()

    def run(self) -> None:
        try:
            sent = self._server.call("POST", "/v0/topics/mail", {"records": [{"data": "never"}]})
            self.answer = sent.status_code
        except httpx.TransportError:
            self.answer = 0


def _diverged(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (directory / "diverged").rglob("*") if path.is_file())

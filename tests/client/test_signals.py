"""The time limits of the blocking client in a process that gets signals: a timer, a profiler, the end of a child."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.client import ClientSettings, Request, WireError
from tenure.client.transport.blocking import SocketWire

LIMIT_MS = 200
SIGNAL_EVERY_S = 0.02
SIGNALS_MAX = 100
"""Ten limits in a row: a wait that begins again with each signal takes all of them, and would take more."""
SETTINGS = ClientSettings(answer_ms=LIMIT_MS, stream_idle_ms=LIMIT_MS)


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Signals that interrupt this thread again and again; what came so far."""
    came: list[int] = []
    over = threading.Event()
    here = threading.get_ident()

    def handle(number: int, _: Any) -> None:
        came.append(number)
        if len(came) > SIGNALS_MAX:
            over.set()
            raise AssertionError("the limit began again with each signal")

    def send() -> None:
        while not over.wait(SIGNAL_EVERY_S):
            signal.pthread_kill(here, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    yield came
    over.set()
    sending.join(30)
    signal.signal(signal.SIGUSR1, before)


ASKED = Request("GET", "/v0/health")


@pytest.mark.parametrize(
    "ask",
    [
        lambda wire: wire.send(ASKED),
        lambda wire: wire.open(ASKED),
        lambda wire: wire.send(Request("POST", "/v0/topics/t/records", b"x" * 60_000_000)),
    ],
    ids=["an-answer", "the-head-of-a-stream", "a-request-that-is-not-taken"],
)
def test_a_signal_now_and_then_makes_no_limit_longer(signals: list[int], ask: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wire = SocketWire(f"http://127.0.0.1:{silent.getsockname()[1]}", settings=SETTINGS)
        with pytest.raises(WireError) as caught:
            ask(wire)
        wire.close()
    assert caught.value.sent
    assert signals, "it was interrupted"

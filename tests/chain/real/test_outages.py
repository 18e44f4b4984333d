"""A store that is away, hangs, or refuses: writes wait, a start or a stop ends in time, and the message is clear."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.chain.real.kit import home_settings, put_queue, texts, wait_until_ready
from tests.kit.ports import free_ports
from tests.kit.restartable_server import Serve, Serving, until
from tests.kit.seaweed import Seaweed


class Producing(threading.Thread):
    """One produce that may take its time; ``answer`` is its status once it came."""

    def __init__(self, server: Serving, text: str) -> None:
        super().__init__(daemon=True)
        self.answer: int | None = None
        self._server, self._text = server, text
        self.start()

    def run(self) -> None:
        with self._server.client() as client:
            sent = client.post("/v0/topics/mail", json={"records": [{"data": self._text}]}, timeout=60)
        self.answer = sent.status_code


@pytest.mark.full
def test_writes_wait_for_a_store_that_is_away_and_nothing_is_lost(serve: Serve, seaweed: Seaweed):
    server = serve(settings=home_settings(seaweed.url("away")))
    put_queue(server, "mail")
    server.ok("POST", "/v0/topics/mail", {"records": [{"data": "before"}]})
    seaweed.kill()
    waiting = Producing(server, "meanwhile")
    until(lambda: "the home does not answer" in server.log(), "the outage is logged")
    assert (waiting.answer, waiting.is_alive()) == (None, True)
    assert server.call("GET", "/v0/health").status_code == 200
    seaweed.start()
    waiting.join(60)
    assert waiting.answer in (200, 201)
    server.kill()
    shutil.rmtree(server.home)
    server.start()
    wait_until_ready(server)
    assert texts(server, "mail") == ["before", "meanwhile"]


@pytest.mark.full
@pytest.mark.parametrize("how", ["gone", "hangs"])
def test_a_stop_ends_within_the_time_for_draining_while_the_store_is_away(serve: Serve, seaweed: Seaweed, how: str):
    """The patience of the test is many times the time for draining, and a tenth of what the calls would take."""
    server = serve(settings=home_settings(seaweed.url("stop"), drain_ms=500))
    put_queue(server, "mail")
    if how == "gone":
        seaweed.kill()
    else:
        seaweed.pause()
    waiting = Producing(server, "unknown")
    until(lambda: server.ok("GET", "/v0/topics/mail?touch=false")["head_seq"] == 1, "the job is written")
    code = server.terminate()
    waiting.join(30)
    assert waiting.answer not in (200, 201)
    assert code == 1
    if how == "hangs":
        seaweed.resume()
    else:
        seaweed.start()
    server.start()
    wait_until_ready(server)
    assert texts(server, "mail") == ["unknown"]


def refusal(server: Serving) -> tuple[int, str]:
    """Start a server that cannot; return its exit code and its last word."""
    code = server.spawn().wait()
    assert "Traceback" not in server.log()
    return code, server.log().splitlines()[-1]


def test_wrong_credentials_are_refused_at_the_start(serve: Serve, s3_server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    settings = home_settings(s3_server.format(name="denied"))
    server = serve(start=False, settings=settings)
    code, said = refusal(server)
    assert code == 2
    assert said.startswith(
        f"tenure: the home {settings['home']} refuses: check the bucket, the keys and what they may do"
    )
    assert "another" not in server.log()


def test_a_bucket_that_is_not_there_is_refused_at_the_start(serve: Serve, s3_server: str):
    url = s3_server.format(name="x").replace("s3://tests", "s3://no-such-bucket")
    code, said = refusal(serve(start=False, settings=home_settings(url)))
    assert code == 2
    assert said.startswith(f"tenure: the home {url} refuses: check the bucket, ")


def test_a_store_that_is_away_at_the_start_is_named(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "x"}.items():
        monkeypatch.setenv(name, value)
    settings: dict[str, Any] = home_settings(f"s3://tests/x?endpoint=http://127.0.0.1:{free_ports(1)[0]}")
    code, said = refusal(serve(start=False, settings=settings))
    assert code == 2
    assert said.startswith(f"tenure: the home {settings['home']} does not answer: ")
    assert said.endswith("Check the address and the network, then start again")

"""A batch into a topic of a real server, once: drivers die, answers are lost, servers are killed. No Spark in here."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from tenure.client.client import Client
from tenure.errors import Conflict, Corrupt, NotFound
from tenure.spark.topic.staging.delivery import RESUME_MS_MAX, deliver, resume
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, StagedFile, make_record
from tests.kit.http_proxy import proxy_to
from tests.kit.ports import free_port
from tests.kit.server import Running, environment, serving
from tests.spark import topic_driver
from tests.spark.topic_driver import WRITER, numbers_in, staged

ROWS = 2_000
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("topics"), "--test-clock") as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"t-{secrets.token_hex(6)}"
    client.put_topic(name)
    return name


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "staging").as_uri()


def files_left(url: str) -> list[str]:
    root = Path(url.removeprefix("file://"))
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def drive(url: str, server_url: str, topic: str, **asked: Any) -> int:
    """Run a driver in a process of its own; returns how it ended."""
    told = {"staging": url, "url": server_url, "topic": topic, "batch": 0, "rows": ROWS, **asked}
    command = [sys.executable, topic_driver.__file__, json.dumps(told)]
    return subprocess.run(command, env=environment(), check=False, timeout=100).returncode


def test_a_replay_in_another_order_adds_nothing(client: Client, topic: str, url: str):
    staging, batch = Staging(url), Batch(WRITER, 0, topic)
    assert deliver(staging, client, batch, staged(url, ROWS, seed=1))
    assert not deliver(staging, client, batch, staged(url, ROWS, seed=2))
    assert numbers_in(client, topic) == list(range(ROWS))
    assert files_left(url) == [f"done/{WRITER}/{0:020}.json"]


@pytest.mark.full
@pytest.mark.parametrize(
    "kill", ["before:choose", "after:choose", "chunk:0", "chunk:9", "before:finish", "before:forget", "after:discard"]
)
def test_a_killed_driver_leaves_what_its_successor_completes(
    server: Running, client: Client, topic: str, url: str, kill: str
):
    """Fault 54: every row once, whichever step was the last."""
    assert drive(url, server.url, topic, seed=1, kill=kill) == -signal.SIGKILL
    before = numbers_in(client, topic)
    if kill.startswith("chunk"):
        assert 0 < len(before) < ROWS, "it died on the way"
    assert deliver(Staging(url), client, Batch(WRITER, 0, topic), staged(url, ROWS, seed=2)) == (
        kill not in ("before:forget", "after:discard")
    )
    assert numbers_in(client, topic) == list(range(ROWS))
    assert Staging(url).done(WRITER) == 0
    assert deliver(Staging(url), client, Batch(WRITER, 1, topic), staged(url, 10, seed=3, first=ROWS))
    assert numbers_in(client, topic) == list(range(ROWS + 10))
    orphans = [name for name in files_left(url) if name.startswith("staged/")]
    assert len(orphans) == (3 if kill == "before:choose" else 0), "only what nobody chose waits for the sweep"


@pytest.mark.full
def test_a_driver_that_is_killed_again_and_again_loses_and_doubles_nothing(
    server: Running, client: Client, topic: str, url: str
):
    """300,000 rows in 3,000 chunks, five kills at random, each driver with an order of its own."""
    dice, count = random.Random(54), 300_000
    for seed in range(5):
        told = {"staging": url, "url": server.url, "topic": topic, "batch": 0, "rows": count, "kill": "never"}
        command = [sys.executable, topic_driver.__file__, json.dumps({**told, "seed": seed})]
        with subprocess.Popen(command, env=environment()) as driver:
            before = client.topic(topic).head_seq
            until = before + dice.randrange(1, count // 8)
            while client.topic(topic).head_seq < until and driver.poll() is None:
                time.sleep(dice.uniform(0, 0.01))
            driver.kill()
    assert client.topic(topic).head_seq < count, "it was killed on the way"
    assert drive(url, server.url, topic, seed=9, rows=count, kill="never") == 0
    assert numbers_in(client, topic) == list(range(count))


def test_a_batch_that_was_chosen_is_completed_without_its_rows(server: Running, client: Client, topic: str, url: str):
    assert drive(url, server.url, topic, seed=1, kill="chunk:3") == -signal.SIGKILL
    assert not resume(Staging(url), client, Batch("spark-other", 0, topic))
    assert resume(Staging(url), client, Batch(WRITER, 0, topic))
    assert numbers_in(client, topic) == list(range(ROWS))
    assert resume(Staging(url), client, Batch(WRITER, 0, topic)), "it is done"


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_server_that_was_killed_still_knows_how_far_a_batch_came(
    tmp_path: Path, url: str, durability: Literal["disk", "fsync"]
):
    port = free_port()
    server_url = f"http://127.0.0.1:{port}"
    with Client(server_url) as client:
        with serving(tmp_path / "data", "--port", str(port)) as first:
            client.put_topic("t", durability=durability)
            assert drive(url, server_url, "t", seed=1, kill="chunk:7") == -signal.SIGKILL
            first.signal(signal.SIGKILL)
            first.wait()
        with serving(tmp_path / "data", "--port", str(port)):
            assert deliver(Staging(url), client, Batch(WRITER, 0, "t"), staged(url, ROWS, seed=2))
            assert numbers_in(client, "t") == list(range(ROWS))


def test_a_server_killed_in_the_middle_of_the_appends_is_waited_for(tmp_path: Path, url: str):
    port = free_port()
    server_url = f"http://127.0.0.1:{port}"
    with Client(server_url) as client, ThreadPoolExecutor(1) as threads:
        with serving(tmp_path / "data", "--port", str(port)) as first:
            client.put_topic("t", durability="fsync")
            driving = threads.submit(drive, url, server_url, "t", rows=20_000, seed=1, kill="never")
            while client.topic("t").head_seq < 1_000:
                assert not driving.done()
                time.sleep(0.001)
            first.signal(signal.SIGKILL)
            first.wait()
        with serving(tmp_path / "data", "--port", str(port)):
            assert driving.result() == 0
            assert numbers_in(client, "t") == list(range(20_000))


def test_lost_answers_lose_and_double_nothing(server: Running, client: Client, topic: str, url: str):
    with proxy_to(int(server.url.rpartition(":")[2])) as proxy, Client(proxy.url) as through:
        proxy.lose_answers = 3
        assert deliver(Staging(url), through, Batch(WRITER, 0, topic), staged(url, ROWS, seed=1))
    assert numbers_in(client, topic) == list(range(ROWS))


def test_two_drivers_at_once_append_one_batch(server: Running, client: Client, topic: str, url: str):
    def one(seed: int) -> None:
        with Client(server.url) as mine:
            deliver(Staging(url), mine, Batch(WRITER, 0, topic), staged(url, ROWS, seed=seed))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(one, range(3)))
    assert numbers_in(client, topic) == list(range(ROWS))
    assert files_left(url) == [f"done/{WRITER}/{0:020}.json"]


def test_a_stale_driver_that_wakes_up_late_finds_its_batch_done(client: Client, topic: str, url: str):
    """Its choice succeeds, because the record of the finished batch is gone; ``done`` shows it."""
    staging, old = Staging(url), staged(url, ROWS, seed=1)
    for number in range(3):
        deliver(staging, client, Batch(WRITER, number, topic), staged(url, 10, seed=2, first=number * 10))
    staging.choose(make_record(Batch(WRITER, 1, topic), old))
    assert not deliver(staging, client, Batch(WRITER, 1, topic), old)
    assert numbers_in(client, topic) == list(range(30))
    assert files_left(url) == [f"done/{WRITER}/{2:020}.json"]


def test_what_is_done_protects_when_the_server_has_forgotten(server: Running, client: Client, topic: str, url: str):
    """A client's mark is kept for seven days; the record of what is done for ever."""
    deliver(Staging(url), client, Batch(WRITER, 0, topic), staged(url, 500, seed=1))
    with server.client() as plain:
        assert plain.post("/v0/_test/advance", json={"ms": 8 * DAY_MS}).status_code == 200
    client.produce(topic, [{"n": 500}], client_id=WRITER, client_seq=0)  # it has forgotten indeed
    assert not deliver(Staging(url), client, Batch(WRITER, 0, topic), staged(url, 500, seed=2))
    assert numbers_in(client, topic) == list(range(501))


def test_a_batch_that_was_left_for_too_long_is_not_resumed_by_guessing(
    server: Running, client: Client, topic: str, url: str
):
    assert drive(url, server.url, topic, seed=1, kill="chunk:3") == -signal.SIGKILL
    chosen = Path(url.removeprefix("file://")) / f"chosen/{WRITER}/{0:020}.json"
    long_ago_s = time.time() - RESUME_MS_MAX / 1000 - 60
    os.utime(chosen, (long_ago_s, long_ago_s))
    before = numbers_in(client, topic)
    for attempt in (lambda: resume(Staging(url), client, Batch(WRITER, 0, topic)), lambda: _again(client, topic, url)):
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.code == "resume_expired"
    assert numbers_in(client, topic) == before


def _again(client: Client, topic: str, url: str) -> bool:
    return deliver(Staging(url), client, Batch(WRITER, 0, topic), staged(url, ROWS, seed=2))


def test_a_batch_does_not_begin_behind_an_unfinished_one(server: Running, client: Client, topic: str, url: str):
    assert drive(url, server.url, topic, seed=1, kill="chunk:3") == -signal.SIGKILL
    with pytest.raises(Conflict) as refused:
        deliver(Staging(url), client, Batch(WRITER, 1, topic), staged(url, 10, seed=2))
    assert refused.value.code == "batch_unfinished"


def test_an_absent_topic_is_not_made(client: Client, url: str):
    with pytest.raises(NotFound):
        deliver(Staging(url), client, Batch(WRITER, 0, "t-absent"), staged(url, 10, seed=1))


def test_an_empty_batch_is_done_too(client: Client, topic: str, url: str):
    assert deliver(Staging(url), client, Batch(WRITER, 4, topic), [])
    assert Staging(url).done(WRITER) == 4
    assert numbers_in(client, topic) == []


def test_damaged_rows_are_not_appended(client: Client, topic: str, url: str):
    files = staged(url, 300, seed=1, tasks=1)
    path = Path(url.removeprefix("file://")) / files[0].key
    data = bytearray(path.read_bytes())
    data[files[0].chunks[1].offset + 50] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt) as refused:
        deliver(Staging(url), client, Batch(WRITER, 0, topic), files)
    assert refused.value.code == "staged_damaged"
    assert len(numbers_in(client, topic)) == 100


def test_a_sweep_takes_what_is_old_and_in_no_record(client: Client, topic: str, url: str):
    staging, root = Staging(url), Path(url.removeprefix("file://"))
    orphans, named, young = (staged(url, 10, seed=seed, tasks=1) for seed in range(3))
    staging.choose(make_record(Batch(WRITER, 0, topic), named))
    for file in (*orphans, *named):
        os.utime(root / file.key, (time.time() - 7_200,) * 2)
    assert staging.sweep(grace_ms=3_600_000) == 1
    assert [name for name in files_left(url) if name.startswith("staged/")] == sorted(_keys(named) + _keys(young))


def _keys(files: list[StagedFile]) -> list[str]:
    return [file.key for file in files]

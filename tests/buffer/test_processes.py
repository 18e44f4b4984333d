"""Many processes on one buffer: producers side by side, producers killed, consumers that fight, and forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tenure.buffer import BufferSettings, Consumer, Descriptor, FetchHandle, Producer, open_store
from tenure.buffer.blocking import Consumer as BlockingConsumer
from tenure.buffer.blocking import Producer as BlockingProducer
from tenure.errors import Closed, LeaseLost, TenureError
from tests.kit.buffers import QUICK, consumed, folded, quick

ROOT = Path(__file__).parents[2]


def crowd(url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.buffer.crowd", url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def by_producer(entries: list[bytes]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        name, number = entry.decode().split(":")
        numbers[name].append(int(number))
    return numbers


@pytest.mark.parametrize(
    ("processes", "count"), [(6, 300), pytest.param(16, 1_000, marks=pytest.mark.full)], ids=["quick", "whole"]
)
def test_many_processes_produce_on_one_buffer(tmp_path: Path, processes: int, count: int):
    """Every entry exactly once, each producer's in its own order, sequences without a gap from 0."""
    url = f"file://{tmp_path}/buffer"
    running = [crowd(url, f"p{number}", count) for number in range(processes)]
    for process in running:
        assert len(process.communicate(timeout=110)[0].split()) == count
        assert process.returncode == 0

    async def check() -> None:
        found = await consumed(open_store(url))
        assert by_producer(found) == {f"p{number}": list(range(count)) for number in range(processes)}
        state = await folded(open_store(url))
        assert (state.first_seq, state.entries_total) == (0, processes * count)

    asyncio.run(check())


def test_what_a_killed_producer_was_promised_arrives_once(tmp_path: Path):
    """Producers are killed at random; each starts again under a new name. Faults 51 and 53 by SIGKILL."""
    url = f"file://{tmp_path}/buffer"
    dice, promised = random.Random(7), list[str]()
    for turn in range(4):
        pair = [crowd(url, f"k{turn}-{number}", 100_000) for number in range(2)]
        for process in pair:  # once it was promised something it may die at any moment
            assert process.stdout is not None
            promised.append(process.stdout.readline().strip())
        time.sleep(dice.uniform(0, 0.3))
        for process in pair:
            process.kill()
            assert process.stdout is not None
            rest = process.stdout.read()
            promised += rest[: rest.rfind("\n") + 1].split()
            process.wait()
            process.stdout.close()
    found = [entry.decode() for entry in asyncio.run(consumed(open_store(url)))]
    assert len(found) == len(set(found)), "something came twice"
    assert set(promised) <= set(found), "something promised is lost"
    for numbers in by_producer([entry.encode() for entry in found]).values():
        assert numbers == list(range(len(numbers)))


async def test_of_two_consumers_that_fight_the_loser_moves_and_deletes_nothing(tmp_path: Path):
    """Each takes over from the other again and again; every move of the frontier is by the epoch that held it."""
    store = open_store(f"file://{tmp_path}/buffer")
    async with Producer(store, settings=QUICK) as producer:
        for number in range(60):
            await (await producer.produce([b"%d" % number])).durable()
    seen: list[tuple[int, int]] = []

    async def fight(name: int) -> None:
        dice = random.Random(name)
        while True:
            try:
                consumer = await Consumer.open(open_store(store.url), settings=quick(ack_every=1))
            except TenureError:
                continue
            try:
                for _ in range(dice.randint(1, 6)):
                    batch = await consumer.next_batch()
                    if batch is None:
                        return
                    await consumer.ack(batch.seq)
                    seen.append((batch.seq, consumer.epoch))
                    await asyncio.sleep(0)
            except LeaseLost:
                continue
            finally:
                await consumer.close()

    await asyncio.wait_for(asyncio.gather(fight(1), fight(2)), 60)
    # An ack that was acknowledged is never undone, so no batch is acknowledged twice, and epochs only rise.
    assert sorted(seq for seq, _ in seen) == list(range(60))
    assert [epoch for _, epoch in sorted(seen)] == sorted(epoch for _, epoch in seen)


def _fetch_in_child(handle: FetchHandle, descriptor: Descriptor, answers: multiprocessing.SimpleQueue[object]) -> None:
    try:
        answers.put(handle.fetch_blocking(descriptor).entries)
    except TenureError as error:
        answers.put(error.code)


def in_child(method: str, handle: FetchHandle, descriptor: Descriptor) -> object:
    """What a child of that kind gets for the descriptor."""
    context: Any = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    child = context.Process(target=_fetch_in_child, args=(handle, descriptor, answers))
    child.start()
    child.join(30)
    if child.exitcode is None and child.pid is not None:
        os.kill(child.pid, signal.SIGKILL)
    assert child.exitcode == 0
    return answers.get()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("kind", "forked"), [("file", [b"a"]), ("s3", "forked")])
def test_a_handle_works_in_other_processes(tmp_path: Path, kind: str, forked: object, request: pytest.FixtureRequest):
    """Naive: a child that was forked after the parent's first S3 call hangs for ever. Here it gets an error at once."""
    url = f"file://{tmp_path}/b" if kind == "file" else request.getfixturevalue("s3_server").format(name="fork")
    with BlockingProducer(url, settings=QUICK) as producer:
        producer.produce([b"a"]).durable()
    with BlockingConsumer(url, settings=QUICK) as consumer:
        handle = consumer.fetch_handle()
        [descriptor] = consumer.next_descriptors(5)
        assert handle.fetch_blocking(descriptor).entries == [b"a"]
        assert in_child("spawn", handle, descriptor) == [b"a"]
        assert in_child("fork", handle, descriptor) == forked
        consumer.ack_through(0)


FORK_FIRST = """
import os, sys
from tenure.buffer import FetchHandle, open_store
from tenure.buffer.blocking import Producer
store = open_store(sys.argv[1])
handle = FetchHandle(store)
if os.fork() == 0:
    with Producer(store) as producer:
        assert producer.produce([b"a"]).durable().seq == 0
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_stores_and_handles_made_before_a_fork_work_after_it(s3_server: str):
    """Nothing of the client is created before its first call."""
    command = [sys.executable, "-W", "ignore", "-c", FORK_FIRST, s3_server.format(name="forked")]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_a_pickled_handle_carries_no_secret(s3_server: str):
    """Naive: the pickled client carries the secret key in clear."""
    handle = FetchHandle(s3_server.format(name="pickled"), settings=BufferSettings(batch_bytes_max=1_000))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == "a-secret-of-tests"
    data = pickle.dumps(handle)
    assert b"a-secret-of-tests" not in data
    assert b"s3" in data
    assert pickle.loads(data)._settings.batch_bytes_max == 1_000


async def test_a_producer_belongs_to_the_process_that_opened_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with Producer(f"file://{tmp_path}/b", settings=QUICK) as producer:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(Closed, match="fork"):
            await producer.produce([b"a"])
        monkeypatch.undo()

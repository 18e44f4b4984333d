"""One rule for every create: "exists" is not "stored". The key is read, and its bytes say whose it is."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tenure.errors import Conflict
from tenure.objects.retrying import Created, RetryingStore
from tenure.objects.store import Bytes, ObjectExists, OutcomeUnknown, StoreFull, StoreRefused, open_store
from tenure.testing.simdisk import PowerLoss
from tenure.testing.simstore import FAULTS, Fault, Hold, SimClient, SimStore
from tests.chain.worlds.loop import VirtualLoop
from tests.kit.stores import retrying
from tests.kit.uplinks import Uplinks


async def test_a_create_tells_its_own_bytes_from_anothers(sim: SimStore):
    writer = retrying(sim)
    assert await writer.create("k", b"mine")
    assert await writer.create("k", b"mine")
    assert not await writer.create("k", b"else")
    assert not await writer.create("k", b"me")  # what is there is longer than what was to be written
    await writer.create_own("k", b"mine")
    with pytest.raises(Conflict):
        await writer.create_own("k", b"else")


async def test_a_key_that_is_taken_and_not_there_is_created_again(sim: SimStore):
    """Naive: the "exists" of a create that meets another under way counts as stored, and nothing ever is."""
    sim.fail(0, "false_exists")
    assert await retrying(sim).create("a", b"x")
    sim.fail(len(sim.calls), "false_exists")
    await retrying(sim).create_own("b", b"x")
    assert set(sim.objects) == {"a", "b"}


async def test_a_key_that_stays_taken_and_not_there_is_unknown(sim: SimStore):
    sim.hook = lambda call: "false_exists" if call.kind == "put_new" else None
    with pytest.raises(OutcomeUnknown, match="not there"):
        await retrying(sim, call_attempts_max=3).create_own("a", b"x")
    assert [call.kind for call in sim.calls] == ["put_new", "get"] * 3


FULL, LOST, TAKEN = StoreFull("no room"), OutcomeUnknown("lost"), ObjectExists("taken")
REFUSED = StoreRefused("another key, please")


class Answers(SimStore):
    """A store whose creates fail, one after the other, the last way for good."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self._failures = list(failures)

    async def put_new(self, key: str, data: Bytes) -> None:
        raise self._failures.pop(0) if len(self._failures) > 1 else self._failures[0]


async def test_a_create_that_never_found_room_has_written_nothing():
    store = retrying(Answers(FULL), call_attempts_max=3)
    with pytest.raises(StoreFull):
        await store.create("a", b"x")
    assert store.store.metrics.retries == 2


@pytest.mark.parametrize("failures", [[LOST, FULL], [FULL, LOST, FULL], [TAKEN, FULL]])
async def test_a_full_disk_after_a_lost_answer_leaves_the_outcome_unknown(failures: list[Exception]):
    """Naive: the last failure alone is raised, and a create that may have succeeded counts as not written."""
    with pytest.raises(OutcomeUnknown):
        await retrying(Answers(*failures), call_attempts_max=3).create("a", b"x")


@pytest.mark.parametrize("failures", [[REFUSED], [FULL, REFUSED]])
async def test_a_create_that_was_refused_before_it_could_arrive_has_written_nothing(failures: list[Exception]):
    with pytest.raises(StoreRefused):
        await retrying(Answers(*failures)).create("a", b"x")


@pytest.mark.parametrize("failures", [[LOST, REFUSED], [FULL, LOST, REFUSED], [TAKEN, REFUSED]])
async def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(failures: list[Exception]):
    """Naive: keys that expire between two attempts turn a create that may have succeeded into "nothing happened"."""
    with pytest.raises(OutcomeUnknown, match="may be stored"):
        await retrying(Answers(*failures)).create("a", b"x")


async def test_a_taken_key_that_may_not_be_read_is_unknown(sim: SimStore):
    """Naive: the refused read is reported, and the caller believes that its create was refused."""
    sim.objects["a"] = (b"x", 0)
    sim.hook = lambda call: "refused" if call.kind == "get" else None
    with pytest.raises(OutcomeUnknown, match="may not be read"):
        await retrying(sim).create("a", b"x")


async def test_a_create_hands_out_what_another_writer_put_there_with_one_read(sim: SimStore):
    writer = retrying(sim)
    sim.objects["k"] = (b"the other's", 0)
    assert await writer.create_or_read("k", b"mine", limit_bytes=100) == Created(False, b"the other's")
    assert [call.kind for call in sim.calls] == ["put_new", "get"]
    assert await writer.create_or_read("k", b"mine", limit_bytes=10) == Created(False)  # too long to be handed out
    assert await writer.create_or_read("k", b"the other's", limit_bytes=10) == Created(True)
    assert await writer.create_or_read("new", b"mine", limit_bytes=10) == Created(True)


# Until it is known


def is_never_over() -> bool:
    return False


@pytest.mark.parametrize("how", ["lost_request", "refused", "false_exists"])
async def test_a_create_is_repeated_beyond_every_count_until_it_is_known(sim: SimStore, how: Fault):
    """Naive: it gives up after eight attempts, and a leader that could have gone on has to stop."""
    sim.hook = lambda call: how if call.number < 101 else None
    writer = retrying(sim, call_attempts_max=2)
    created = await writer.create_until_known("k", b"mine", limit_bytes=10, is_over=is_never_over, apart_ms=0)
    assert created == Created(True)
    assert sim.objects["k"][0] == b"mine"


async def test_a_lost_answer_is_found_to_be_mine_and_a_taken_key_is_handed_out(sim: SimStore):
    writer = retrying(sim)
    sim.fail(0, "lost_reply")
    for data, created in ((b"mine", Created(True)), (b"late", Created(False, b"mine"))):
        assert await writer.create_until_known("k", data, limit_bytes=10, is_over=is_never_over, apart_ms=0) == created


async def test_a_caller_that_gives_up_does_not_know(sim: SimStore):
    sim.hook = lambda call: "late"
    left = iter([False, False, True])
    with pytest.raises(OutcomeUnknown, match="may be stored"):
        await retrying(sim).create_until_known("k", b"x", limit_bytes=1, is_over=lambda: next(left), apart_ms=0)
    assert len(sim.calls) == 3
    sim.deliver_late()
    assert set(sim.objects) == {"k"}


async def test_repeats_of_one_key_are_a_second_apart_after_the_first_few(
    sim: SimStore, monkeypatch: pytest.MonkeyPatch
):
    """Naive: by full jitter alone some follow at once, and a store that allows one write a second refuses them all."""
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    sim.hook = lambda call: "lost_request" if call.number < 9 else None
    await retrying(sim).create_until_known("k", b"x", limit_bytes=1, is_over=is_never_over)
    assert [wait for wait in waits if wait] == [1.0] * 6


async def test_an_attempt_that_hangs_is_repeated_and_its_first_copy_may_still_arrive(sim: SimStore):
    held = sim.hold(0)
    create = retrying(sim).create_until_known
    assert await create("k", b"x", limit_bytes=1, is_over=is_never_over, attempt_ms_max=1) == Created(True)
    held.release()
    assert [call.kind for call in sim.calls] == ["put_new", "put_new"]
    held = sim.hold(2)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        await create("other", b"x", limit_bytes=1, is_over=lambda: True, attempt_ms_max=1)
    held.release()
    assert set(sim.objects) == {"k", "other"}


class SlowStore(SimStore):
    """A store behind an uplink."""

    def __init__(self, bytes_per_s: int) -> None:
        super().__init__()
        self.uplinks = Uplinks()
        self.uplinks.bytes_per_s[""] = bytes_per_s

    async def carry_out(self, client: SimClient, kind: str, key: str, size: int, act: Callable[[], None]) -> None:
        await self.uplinks.send(client.name, size)
        await super().carry_out(client, kind, key, size, act)


@pytest.mark.parametrize(("bytes_per_s", "times"), [(4_000_000, 1), (500_000, 1), (64 * 1024, 1), (10_000, 4)])
def test_a_create_ends_on_any_uplink(bytes_per_s: int, times: int):
    """Naive: ten seconds for each attempt, and a link of 56 MB is sent from its start again, for ever.

    What is slower than the slowest uplink that is reckoned with gets twice the time with each attempt.
    """
    sim, size, loop = SlowStore(bytes_per_s), 1_000_000 if bytes_per_s < 64 * 1024 else 56_000_000, VirtualLoop()

    async def create() -> Created:
        writing = retrying(sim).create_until_known("k", bytes(size), limit_bytes=size, is_over=lambda: is_late())
        return await writing

    def is_late() -> bool:
        return loop.time() > 10_000

    try:
        assert loop.run_until_complete(create()) == Created(True)
    finally:
        loop.end()
    assert sim.uplinks.sent_bytes[""] <= times * size


def test_a_small_create_that_hangs_is_repeated_as_soon_as_before():
    sim, loop = SimStore(), VirtualLoop()
    sim.hook = lambda call: Hold() if call.number < 3 else None

    async def create() -> float:
        await retrying(sim).create_until_known("k", b"x", limit_bytes=1, is_over=is_never_over)
        return loop.time()

    try:
        assert 30 <= loop.run_until_complete(create()) < 31
    finally:
        loop.end()


@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("rival", [b"mine", b"other", None])
async def test_whichever_call_of_a_create_fails_and_however_its_outcome_is_true(how: Fault, rival: bytes | None):
    """After a crash the next process sends the same bytes again, as it finds them in its log."""
    for number in range(4):
        world = SimStore()
        if rival is not None:
            world.objects["k"] = (rival, 0)
        world.fail(number, how)
        try:
            created = await until_known(retrying(world.client("first")), "k", b"mine")
        except PowerLoss:
            created = await until_known(retrying(world.client("second")), "k", b"mine")
        world.deliver_late()
        found = world.objects["k"][0]
        assert created == (Created(True) if found == b"mine" else Created(False, found)), number
        assert found == (rival or b"mine"), number


CHANCES: dict[Fault, float] = {
    **{"lost_request": 0.1, "lost_reply": 0.1, "duplicate": 0.1, "late": 0.1},
    **{"false_exists": 0.1, "refused": 0.05},
}


async def test_of_writers_that_race_under_faults_one_is_told_mine_and_the_others_get_its_bytes():
    for seed in range(200):
        world = SimStore()
        world.shake(seed, CHANCES)
        creates = (
            retrying(world.client(f"{number}")).create_until_known(
                "k", b"%d" % number, limit_bytes=10, is_over=is_never_over, apart_ms=0
            )
            for number in range(3)
        )
        outcomes = await asyncio.gather(*creates)
        world.deliver_late()
        found = world.objects["k"][0]
        assert [number for number, outcome in enumerate(outcomes) if outcome.is_mine] == [int(found)], seed
        assert {outcome.theirs for outcome in outcomes if not outcome.is_mine} == {found}, seed


async def test_a_directory_that_failed_for_good_leaves_the_outcome_unknown_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Naive: the sync failed after the link, the repeat is refused, and the refusal counts as "nothing was written"."""
    for number, create in enumerate((RetryingStore.create, until_known)):
        writer = retrying(open_store(f"file://{tmp_path}/{number}"))
        await writer.create("data/first", b"x")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", FailingOnce(os.fsync))
            with pytest.raises(OutcomeUnknown, match="synced before"):
                await create(writer, "data/second", b"x")
        with pytest.raises(StoreRefused, match="synced before") as caught:
            await writer.create("data/third", b"x")
        assert caught.value.code == "store_failed"


async def until_known(writer: RetryingStore, key: str, data: bytes) -> Created:
    return await writer.create_until_known(key, data, limit_bytes=10, is_over=is_never_over, apart_ms=0)


class FailingOnce:
    """An fsync that fails for the first directory."""

    def __init__(self, real: Callable[[int], None]) -> None:
        self._real = real
        self._has_failed = False

    def __call__(self, descriptor: int) -> None:
        if not self._has_failed and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self._has_failed = True
            raise OSError(errno.EIO, "Input/output error")
        self._real(descriptor)


# A real client


class Conflicting(BaseHTTPRequestHandler):
    """An S3 server that answers each first create with 409 ConditionalRequestConflict and stores nothing."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    seen: set[str]

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path not in self.seen:
            self.seen.add(self.path)
            return self._answer(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
        self.objects[self.path] = data
        return self._answer(200, b"")

    def do_GET(self) -> None:
        if self.path in self.objects:
            return self._answer(200, self.objects[self.path])
        return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Mon, 16 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def conflicting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Conflicting]]]:
    handler = type("Handler", (Conflicting,), {"objects": {}, "seen": set()})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"s3://b/p?endpoint=http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


async def test_the_conflict_of_a_real_client_on_an_empty_key_is_not_stored(
    conflicting: tuple[str, type[Conflicting]],
):
    """obstore reports S3's 409 as "already exists"; amid an overwrite it says nothing about the key at all."""
    url, handler = conflicting
    store = open_store(url)
    await retrying(store).create_own("data/x", b"1")
    assert list(handler.objects.values()) == [b"1"]
    with pytest.raises(OutcomeUnknown):
        await store.put("data/y", b"1")

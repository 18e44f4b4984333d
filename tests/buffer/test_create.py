"""One rule for every create: "exists" is not "stored". The key is read, and its bytes say whose it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tenure.buffer import Consumer, ObjectExists, ObjectStore, OutcomeUnknown, StoreFull, open_store
from tenure.buffer.manifest.format import State, encode
from tenure.buffer.manifest.keys import checkpoint_key
from tenure.buffer.manifest.upkeep import Upkeep
from tenure.buffer.metrics import BufferMetrics
from tenure.errors import Conflict
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import Bytes
from tenure.testing.simstore import Call, Fault, SimStore
from tests.kit.buffers import consumed, folded, produced, quick


def retrying(store: ObjectStore, **changes: object) -> RetryingStore:
    return RetryingStore(Metered(store, BufferMetrics()), quick(**changes))


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


class Answers(SimStore):
    """A store whose creates fail, one after the other, and then find no room for good."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self._failures = list(failures)

    async def put_new(self, key: str, data: Bytes) -> None:
        raise self._failures.pop(0) if self._failures else FULL


@pytest.mark.parametrize("failures", [[], [FULL]])
async def test_a_create_that_never_found_room_has_written_nothing(failures: list[Exception]):
    store = retrying(Answers(*failures), call_attempts_max=3)
    with pytest.raises(StoreFull):
        await store.create("a", b"x")
    assert store.store.metrics.retries == 2


@pytest.mark.parametrize("failures", [[LOST], [FULL, LOST], [TAKEN]])
async def test_a_full_disk_after_a_lost_answer_leaves_the_outcome_unknown(failures: list[Exception]):
    """Naive: the last failure alone is raised, and a create that may have succeeded counts as not written."""
    with pytest.raises(OutcomeUnknown):
        await retrying(Answers(*failures), call_attempts_max=3).create("a", b"x")


@pytest.mark.parametrize("prefix", ["data/", "manifest/run-", "manifest/checkpoint-", "manifest/0", "buffer.json"])
async def test_no_object_of_a_buffer_is_taken_for_stored_because_its_key_was_said_to_exist(sim: SimStore, prefix: str):
    """The first create of each object breaks off; the second meets the first one still open; nothing is stored."""
    attempts: dict[str, int] = {}

    def hook(call: Call) -> Fault | None:
        if call.kind != "put_new" or not call.key.startswith(prefix):
            return None
        attempts[call.key] = attempts.get(call.key, 0) + 1
        return {1: "lost_request", 2: "false_exists"}.get(attempts[call.key])  # type: ignore[return-value]

    sim.hook = hook
    settings = quick(run_entries=3, checkpoint_deltas=4)
    await produced(sim, *([b"%d" % number] for number in range(9)), settings=settings)
    sim.hook = lambda call: None
    assert await consumed(sim, settings=settings) == [b"%d" % number for number in range(9)]
    state = await folded(sim)
    assert state.checkpoint < 0 or checkpoint_key(state.checkpoint) in sim.objects


async def test_a_damaged_checkpoint_of_the_same_number_is_not_announced(sim: SimStore):
    state = State(format=1, buffer="B", block=4, number=8)
    sim.objects[checkpoint_key(8)] = (encode(state)[:-3], 0)
    upkeep = Upkeep(retrying(sim), quick(checkpoint_deltas=8), metrics := BufferMetrics())
    upkeep.schedule(state, state)
    await upkeep.idle()
    assert (metrics.checkpoints, metrics.upkeep_failures) == (0, 1)
    assert upkeep.pending_ops(state) == []


async def test_the_first_reason_of_a_quarantine_stands(sim: SimStore):
    await produced(sim, [b"a"], [b"b"])
    async with Consumer(sim, settings=quick(), collect=False) as consumer:
        sim.hook = lambda call: "refused" if call.kind == "put_new" and "manifest/0" in call.key else None
        for reason in ("the first", "another"):
            with pytest.raises(Exception, match="refused"):
                await consumer.quarantine(0, reason)
        sim.hook = lambda call: None
        await consumer.quarantine(0, "the last")
    [key] = [key for key in sim.objects if key.startswith("quarantine/")]
    assert b"the first" in sim.objects[key][0]


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

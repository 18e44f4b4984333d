"""Every call of the contract, over a real server, with both clients."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from tenure import Conflict, Invalid, LeaseLost, NotFound, Overloaded, Record, __version__
from tenure.client import ReadRecord
from tenure.client.batching.settings import AckerSettings
from tenure.client.calls.requests import BODY_BYTES_MAX, request_of
from tenure.contract.commands import Nack
from tenure.http.wire.limits import WireLimits
from tests.client.both_clients import Both


class Email(msgspec.Struct):
    to: str


@dataclasses.dataclass
class Note:
    text: str


class Model(pydantic.BaseModel):
    number: int


def texts(records: list[ReadRecord]) -> list[bytes]:
    return [bytes(record.data) for record in records if record.data is not None]


async def test_topics_are_put_read_listed_and_deleted(client: Both, name: str) -> None:
    put = await client.put_topic(name, type="queue", lease_ms=5_000, max_deliveries=3, dead_letter=f"{name}.dead")
    assert (put.topic, put.type, put.created) == (name, "queue", True)
    assert (put.config.lease_ms, put.config.dead_letter) == (5_000, f"{name}.dead")
    assert (await client.put_topic(name, type="queue")).created is False
    info = await client.topic(name)
    assert (info.head_seq, info.config.lease_ms, info.queue.ready) == (0, 30_000, 0)
    await client.put_topic(f"{name}-2")
    page = await client.topics(prefix=name, page_size=1)
    assert [topic.topic for topic in page.topics] == [name]
    rest = await client.topics(prefix=name, cursor=page.next_cursor)
    assert ([topic.topic for topic in rest.topics], rest.next_cursor) == ([f"{name}-2"], None)
    assert rest.topics[0].queue is None
    assert (await client.delete_topic(name)).deleted is True
    assert (await client.delete_topic(name)).deleted is False
    with pytest.raises(NotFound) as caught:
        await client.topic(name)
    assert caught.value.code == "topic_not_found"


async def test_a_patch_changes_what_it_names_and_leaves_the_rest(client: Both, name: str) -> None:
    with pytest.raises(NotFound):
        await client.patch_topic(name, lease_ms=5_000)
    put = await client.put_topic(name, type="queue", max_deliveries=3, retry_backoff={"min_ms": 5})
    patched = await client.patch_topic(name, lease_ms=5_000, retry_backoff={"max_ms": 7})
    backoff = replace(put.config.retry_backoff, max_ms=7)
    assert patched.config == replace(put.config, lease_ms=5_000, retry_backoff=backoff)
    assert (await client.patch_topic(name, max_deliveries=None)).config.max_deliveries == 0
    queue = Both(client.inner.queue(name))
    configured = await queue.configure(dead_letter=f"{name}.dead", retry_backoff=None)
    assert (configured.config.dead_letter, configured.config.retry_backoff) == (f"{name}.dead", None)
    assert configured.config.lease_ms == 5_000


async def test_a_topic_that_is_not_empty_is_kept_where_that_is_asked(client: Both, name: str) -> None:
    await client.produce(name, [1])
    with pytest.raises(Conflict) as caught:
        await client.delete_topic(name, if_empty=True)
    assert caught.value.code == "topic_not_empty"


async def test_another_type_is_a_conflict(client: Both, name: str) -> None:
    await client.put_topic(name, type="log")
    with pytest.raises(Conflict):
        await client.put_topic(name, type="queue")


async def test_values_become_json_and_json_stays_as_it_is(client: Both, name: str) -> None:
    odd = b'{ "b" : 1e400, "a": "\\ud800" }'
    models = {"a": [Model(number=2), None]}
    given = [Email("you"), Note("hi"), Model(number=1), models, "text", 7, odd, Record(data=b" [ 1 ] ")]
    produced = await client.produce(name, given)
    assert (produced.count, list(produced.seqs), produced.created, produced.deduped) == (8, [*range(1, 9)], True, False)
    found = await client.diff(name)
    assert texts(found.records) == [
        b'{"to":"you"}',
        b'{"text":"hi"}',
        b'{"number":1}',
        b'{"a":[{"number":2},null]}',
        b'"text"',
        b"7",
        odd,
        b"[ 1 ]",
    ]
    assert (found.next_from_seq, found.caught_up, found.tombstone) == (8, True, None)


async def test_everything_said_about_a_record_arrives(client: Both, name: str) -> None:
    await client.produce(name, [Record(data=b"1", tag="x", node="n", meta=b'{"a":1}'), b"2"], node="other")
    first, second = (await client.diff(name, include_tags=True)).records
    assert (first.tag, first.node, bytes(first.meta)) == ("x", "n", b'{"a":1}')
    assert (second.tag, second.node, second.meta) == (None, "other", None)
    assert [r.seq for r in (await client.diff(name, node=["n"])).records] == [2]


async def test_an_append_may_carry_a_config_and_may_not_create(client: Both, name: str) -> None:
    with pytest.raises(NotFound):
        await client.produce(name, [1], create=False)
    await client.produce(name, [1], config={"type": "queue"})
    assert (await client.topic(name)).type == "queue"


async def test_the_same_key_is_the_same_append(client: Both, name: str) -> None:
    first = await client.produce(name, [1, 2], idempotency_key="k")
    again = await client.produce(name, [1, 2], idempotency_key="k")
    assert (list(first.seqs), first.deduped) == ([1, 2], False)
    assert (list(again.seqs), again.deduped) == ([1, 2], True)
    with pytest.raises(Conflict):
        await client.produce(name, [3], idempotency_key="k")


async def test_a_mark_of_the_callers_own_is_passed_on(client: Both, name: str) -> None:
    await client.produce(name, [1], client_id="cron", client_seq=7)
    with pytest.raises(Conflict) as caught:
        await client.produce(name, [1], client_id="cron", client_seq=7)
    assert caught.value.detail["first_seq"] == 1


async def test_records_are_deleted(client: Both, name: str) -> None:
    await client.produce(name, [Record(data=b"%d" % n, tag=f"t{n}") for n in range(5)])
    assert (await client.delete_records(name, before_seq=3)).deleted == 2
    assert (await client.delete_records(name, match=["tag", "Glob", "t*"], seqs=[5])).deleted == 1
    assert [r.seq for r in (await client.diff(name)).records] == [3, 4]


async def test_a_read_waits_for_what_comes(client: Both, name: str) -> None:
    await client.produce(name, [1])
    assert (await client.diff(name, from_seq=1, wait_ms=1)).records == []


async def test_routers_are_put_read_listed_and_deleted(client: Both, name: str) -> None:
    router = f"{name}>out"
    put = await client.put_router(router, source=name, dest=f"{name}-out", filter=["tag", "Eq", "x"])
    assert (put.router, put.created, put.filter) == (router, True, ["tag", "Eq", "x"])
    await client.produce(name, [Record(data=b"1", tag="x"), b"2"])
    assert texts((await client.diff(f"{name}-out", wait_ms=5_000)).records) == [b"1"]
    assert (await client.router(router)).source == name
    assert [r.router for r in (await client.routers(source=name)).routers] == [router]
    assert await client.delete_router(router) is True
    assert await client.delete_router(router) is False
    with pytest.raises(NotFound) as caught:
        await client.router(router)
    assert caught.value.code == "router_not_found"


async def test_the_life_of_a_lease(client: Both, name: str) -> None:
    await client.put_topic(name, type="queue", lease_ms=60_000)
    await client.produce(name, [Record(data=b'{"n":1}', tag="t", meta=b'{"m":1}'), b"2", b"3"])
    claimed = await client.claim(name, max_count=2)
    job = claimed.jobs[0]
    assert (claimed.ready, len(claimed.jobs), job.lease_id) == (1, 2, claimed.lease_id)
    assert (job.seq, bytes(job.data), job.tag, bytes(job.meta), job.deliveries) == (1, b'{"n":1}', "t", b'{"m":1}', 1)
    extended = await client.extend(name, [1, 2], lease_ms=80_000)
    assert (set(extended.deadlines), extended.skipped) == ({1, 2}, [])
    assert extended.deadlines[1] > job.deadline
    assert [row.seqs for row in (await client.leases(name)).leases] == [[1, 2]]
    nacked = await client.nack(name, [1], lease_ids=[job.lease_id], reason="not now")
    assert (nacked.count, nacked.skipped) == (1, [])
    about = await client.job(name, 1)
    assert (about.state, about.deliveries, about.reason, bytes(about.data)) == ("ready", 1, "not now", b'{"n":1}')
    assert [(d.node, d.end, d.reason) for d in about.history] == [("me", "nack", "not now")]
    acked = await client.ack(name, lease_id=claimed.lease_id)
    assert (acked.count, acked.in_flight, acked.ready, acked.repeated) == (1, 0, 2, False)
    page = await client.jobs(name)
    assert [(row.seq, row.state, row.deliveries) for row in page.jobs] == [(1, "ready", 1), (3, "ready", 0)]
    assert (await client.jobs(name, limit=1)).next_cursor is not None


async def test_unknown_expired_and_foreign_leases_are_skipped_or_lost(client: Both, name: str) -> None:
    """Fault 40."""
    await client.put_topic(name, type="queue")
    await client.produce(name, [1, 2])
    await client.claim(name)
    assert (await client.ack(name, [1], node="somebody")).skipped == [1]
    assert (await client.ack(name, [1], lease_id="lease_999")).skipped == [1]
    assert (await client.nack(name, [2])).skipped == [2]
    assert (await client.extend(name, [2], lease_ms=1_000)).skipped == [2]
    with pytest.raises(LeaseLost) as caught:
        await client.ack(name, [1], node="somebody", strict=True)
    assert caught.value.detail["skipped"] == [1]
    assert (await client.ack(name, [1])).count == 1


async def test_a_claim_may_ack_by_itself_and_may_wait(client: Both, name: str) -> None:
    await client.put_topic(name, type="queue")
    await client.produce(name, [1])
    taken = await client.claim(name, auto_ack=True)
    assert (len(taken.jobs), taken.lease_id, taken.jobs[0].deadline) == (1, None, None)
    assert (await client.claim(name, wait_ms=1)).jobs == []
    with pytest.raises(NotFound):
        await client.job(name, 1)


async def test_dead_letters_are_driven_back(client: Both, name: str) -> None:
    dead = f"{name}.dead"
    await client.put_topic(name, type="queue", dead_letter=dead)
    await client.produce(name, [1])
    await client.claim(name)
    assert (await client.nack(name, [1], dead=True, reason="poison")).count == 1
    assert (await client.topic(name)).queue.dead_lettered == 1
    driven = await client.redrive(dead, reason_like="poison", limit=5)
    assert (driven.redriven, driven.to) == (1, name)
    assert len((await client.claim(name)).jobs) == 1


async def test_a_log_is_no_queue(client: Both, name: str) -> None:
    await client.put_topic(name)
    with pytest.raises(Conflict) as caught:
        await client.claim(name)
    assert caught.value.code == "not_a_queue"


async def test_a_full_topic_is_overloaded_at_once(client: Both, name: str) -> None:
    await client.put_topic(name, cap_records=1, discard="reject")
    with pytest.raises(Overloaded) as caught:
        await client.produce(name, [1, 2])
    assert caught.value.code == "topic_full"


async def test_the_server_tells_about_itself(client: Both) -> None:
    assert (await client.health()).status == "ok"
    assert (await client.ready()).wal_replay_complete is True
    assert "tenure_produced_total" in await client.metrics()


async def test_a_server_without_a_home_is_alone_and_cannot_hand_over(client: Both) -> None:
    assert (await client.cluster()).role == "alone"
    for to in ("", "http://b:4000"):
        with pytest.raises(Conflict) as caught:
            await client.hand_over(to=to)
        assert caught.value.code == "no_standby"


async def test_the_server_shows_its_features_and_turns_them_on(client: Both) -> None:
    for status in (await client.upgrade_status(), await client.finalize_upgrade(), await client.finalize_upgrade()):
        assert (status.version, status.off) == (__version__, [])


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("put_topic", ("../etc",), {}),
    ("put_topic", ("q",), {"lease_ms": "soon"}),
    ("put_topic", ("q",), {"type": "stack"}),
    ("patch_topic", ("../etc",), {}),
    ("patch_topic", ("q",), {"lease_ms": "soon"}),
    ("produce", ("a/b", [1]), {}),
    ("produce", ("t", []), {}),
    ("produce", ("t", b"1"), {}),
    ("produce", ("t", {"a": 1}), {}),
    ("produce", ("t", [object()]), {}),
    ("produce", ("t", [b"{"]), {}),
    ("produce", ("t", [b'1},{"data":2']), {}),
    ("produce", ("t", [b"NaN"]), {}),
    ("produce", ("t", [Record(data=b"1", meta=b"{")]), {}),
    ("produce", ("t", [Record(data=b"1", tag="x" * 300)]), {}),
    ("produce", ("t", [1]), {"node": ""}),
    ("produce", ("t", [1]), {"idempotency_key": ""}),
    ("produce", ("t", [1]), {"client_id": "c"}),
    ("produce", ("t", [1]), {"client_id": "c", "client_seq": -1}),
    ("produce", ("t", [1]), {"config": {"discard": "some"}}),
    ("delete_records", ("t",), {}),
    ("claim", ("t",), {"node": "x" * 129}),
    ("claim", ("t",), {"max_count": -1}),
    ("claim", ("t",), {"claim_id": ""}),
    ("ack", ("t",), {}),
    ("ack", ("t", []), {}),
    ("ack", ("t", [-1]), {}),
    ("ack", ("t", range(1_001)), {}),
    ("ack", ("t", [1]), {"lease_ids": ["a", "b"]}),
    ("nack", ("t", ["1"]), {}),
    ("job", ("t", -1), {}),
    ("put_router", ("r",), {"source": "a", "dest": "a"}),
    ("redrive", ("t",), {"to": "no/where"}),
    ("nack", ("t", [1]), {"reason": "x" * 65_536}),
    ("diff", ("t",), {"node": ["x" * 128] * 1_000}),
    ("watch", ([f"{number:03}".ljust(255, "x") for number in range(256)],), {}),
]


@pytest.mark.parametrize(("call", "args", "options"), BAD)
async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    kind: str, call: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    from tests.client.both_clients import make_client

    async with make_client(kind, "http://127.0.0.1:9") as nowhere:
        with pytest.raises(Invalid):
            await getattr(nowhere, call)(*args, **options)


def test_the_largest_batches_of_settlements_fit_in_what_a_server_reads() -> None:
    """One lease id has six letters and at most sixteen digits; escapes take six bytes for one."""
    count = 1_000
    command = Nack(
        node="\x01" * 128,
        seqs=[2**64 - 1] * count,
        lease_ids=[f"lease_{2**64 - 1:x}"] * count,
        strict=True,
        delay_ms=2**53,
        reason="\x01" * 1_024,
        dead=True,
    )
    assert len(request_of("", command).body or b"") <= BODY_BYTES_MAX
    assert WireLimits().command_bytes_max == BODY_BYTES_MAX
    assert AckerSettings().batch_seqs_max == count

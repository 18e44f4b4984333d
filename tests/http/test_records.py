"""Records over the wire: append, read, delete; what is kept to the byte, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.append.long_work import Turns
from tenure.http.append.request import DEPTH_MAX
from tenure.http.routes import ROUTES
from tenure.testing.clock import ManualClock
from tests.http.bad import NOT_COUNT, NOT_FLAG, NOT_JSON, NOT_TEXT, NOT_WHOLE, bodies, check_media, check_refused
from tests.http.conftest import Site
from tests.kit.brokers import GatedLog, start

T = "/v0/topics/a"
ONE = {"records": [{"data": 1}]}
LONE = b'"\\ud800"'


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def body_of(*datas: bytes) -> bytes:
    return b'{"records":[' + b",".join([b'{"data":' + data + b"}" for data in datas]) + b"]}"


async def read(site: Site, target: str = T, **options: Any) -> list[Any]:
    reply = await site.post(f"{target}/diff", {"include_tags": True, "limit": 1000, **options})
    records: list[Any] = reply["records"]
    return records


# Append


async def test_an_append_creates_the_topic_and_tells_the_seqs(site: Site) -> None:
    reply = await site.post(T, {"records": [{"data": 1}, {"data": {}}]})
    performance = reply.json.pop("performance")
    assert reply.status == 201
    assert {k: v for k, v in reply.json.items() if k != "performance"} == {
        **{"topic": "a", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2},
        **{"created": True, "deduped": False},
    }
    assert performance["fsync_ms"] == 0, "nothing had to be synced"
    again = await site.post(T, ONE)
    assert (again.status, again["created"], again["seqs"]) == (200, False, [3])


async def test_the_seqs_can_be_left_out(site: Site) -> None:
    assert "seqs" not in await site.post(f"{T}?return_seqs=false", ONE)
    assert (await site.post(f"{T}?return_seqs=true&x=y", ONE))["seqs"] == [2]
    before = site.state()
    assert (await site.post(f"{T}?return_seqs=no", ONE)).status == 400
    assert (await site.post(f"{T}?return_seqs=1&return_seqs=1", ONE)).status == 400
    assert site.state() == before


async def test_an_append_to_an_fsync_topic_waits_for_its_sync(site: Site) -> None:
    await site.put(T, {"durability": "fsync"})
    reply = await site.post(T, ONE)
    assert reply["performance"]["fsync_ms"] > 0
    assert (await site.get(T))["durable_seq"] == 1


async def test_an_append_that_may_not_create_does_not(site: Site) -> None:
    before = site.state()
    reply = await site.post(T, {**ONE, "create": False})
    assert (reply.status, reply.code) == (404, "topic_not_found")
    assert site.state() == before


async def test_a_config_counts_only_where_the_append_creates(site: Site) -> None:
    config = {"type": "queue", "cap_records": 3, "retry_backoff": {"min_ms": 7}}
    assert (await site.post(T, {**ONE, "config": config})).status == 201
    shown = (await site.get(T))["config"]
    assert (shown["type"], shown["cap_records"], shown["retry_backoff"]["min_ms"]) == ("queue", 3, 7)
    assert (await site.post(T, {**ONE, "config": {"cap_records": 9}})).status == 200
    assert (await site.get(T))["config"]["cap_records"] == 3


async def test_a_full_topic_that_rejects_is_full(site: Site) -> None:
    await site.put(T, {"cap_records": 2, "discard": "reject"})
    reply = await site.post(T, {"records": [{"data": 1}] * 3})
    assert (reply.status, reply.code) == (422, "topic_full")
    assert (await site.get(T))["head_seq"] == 0
    assert (await site.post(T, {"records": [{"data": 1}] * 2})).status == 200
    assert (await site.post(T, ONE)).status == 422


async def test_the_same_key_answers_the_same_seqs(site: Site) -> None:
    first = await site.post(T, {**ONE, "idempotency_key": "k"})
    again = await site.post(T, {**ONE, "idempotency_key": "k"})
    assert (again.status, again["seqs"], again["deduped"], again["created"]) == (200, [1], True, False)
    assert first["deduped"] is False
    other = await site.post(T, {"records": [{"data": 2}], "idempotency_key": "k"})
    assert (other.status, other.code) == (409, "idempotency_conflict")


async def test_the_key_may_come_in_a_header_and_the_body_wins(site: Site) -> None:
    header = {"idempotency-key": "h"}
    await site.post(T, ONE, headers=header)
    assert (await site.post(T, ONE, headers=header))["deduped"] is True
    assert (await site.post(T, {**ONE, "idempotency_key": "b"}, headers=header))["deduped"] is False
    assert (await site.post(T, {**ONE, "idempotency_key": None}, headers=header))["deduped"] is True
    before = site.state()
    for bad in ("", "x" * 257):
        assert (await site.post(T, ONE, headers={"idempotency-key": bad})).status == 400
    assert site.state() == before


async def test_a_client_seq_is_used_once(site: Site) -> None:
    assert (await site.post(T, {**ONE, "client_id": "c", "client_seq": 5})).status == 201
    reply = await site.post(T, {**ONE, "client_id": "c", "client_seq": 5})
    assert (reply.status, reply.code) == (409, "idempotency_conflict")
    assert reply["error"]["detail"] == {"last_client_seq": 5, "first_seq": 1, "last_seq": 1}
    before = site.state()
    for half in ({"client_id": "c"}, {"client_seq": 6}):
        assert (await site.post(T, {**ONE, **half})).status == 400
    assert site.state() == before


async def test_delays_and_unique_keys_belong_to_queues(site: Site) -> None:
    await site.put("/v0/topics/q", {"type": "queue"})
    for extra in ({"delay_ms": 5}, {"deliver_at": 5}, {"unique_key": "u"}):
        reply = await site.post(T, {"records": [{"data": 1, **extra}]})
        assert (reply.status, reply.code) == (400, "invalid_request")
        assert (await site.post("/v0/topics/q", {"records": [{"data": 1, **extra}]})).status == 200
    again = await site.post("/v0/topics/q", {"records": [{"data": 2, "unique_key": "u"}]})
    assert (again["seqs"], again["deduped"]) == ([3], True)


# What is kept to the byte

VERBATIM = [
    *(b"null", b"true", b"0", b"-0", b"1.50", b"1E5", b"1e400", b"-1e-400", b"9" * 5000, b'""', b"[]", b"{}"),
    *(b'{"b":1,"a":2,"b":3}', b'{ "a" :\t[ 1 ,\n2 ] }', '"é\u2028\U0001f600"'.encode(), b'"\\u00e9\\/\\u002F\\n"'),
    *(LONE, b'"\\uDC00"', b'"\\ud83d\\ude00"', b'"\\ud800\\ud83d\\ude00\\udc00\\uDBFF"', b'{"\\ud800":"\\\\ud800"}'),
    *(b'"\\\\\\ud800"', b'"\\\\\\\\ud800\\\\"', b'["\\ud800","\\\\\\\\\\udfff","x\\"\\ud800\\""]'),
    *(b'"data"', b'{"data":{"data":1},"records":[{"data":2}],"tag":3}', b'{"data":1,"data":1}', b'"},{\\"data\\":"'),
    *(deep(DEPTH_MAX), b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX, b"[" + b"[]," * 5000 + b"[]]"),
    *(b'"' + b"[" * 5000 + b'"', b'"\x7f\xc2\x80"', b'{"":{"$seq":1}}'),
]


@pytest.mark.parametrize("data", VERBATIM, ids=range(len(VERBATIM)))
async def test_data_comes_back_byte_for_byte(site: Site, data: bytes) -> None:
    for body in (
        body_of(data),
        b'{"records": [{"data": ' + data + b'}, {"data": ' + data + b"}]}",
        b'{ "records" : [ { "data" : ' + data + b' } ] , "unknown" : ' + data + b"}" if b"\\u" not in data else b"",
        b'{"records":[{"tag":"data","data":' + data + b',"meta":{"a":1}},{"data": ' + data + b',"node":"n"}]}',
        b'{"node":"n","records":[{"data":' + data + b'}],"idempotency_key":"\\u0061"}',
    ):
        if body:
            reply = await site.post(T, body)
            assert reply.status in (200, 201), reply.raw
    found = await site.post(f"{T}/diff", {"limit": 1000})
    stored = (await site.broker.diff("a", limit=1000)).records
    assert {record.data for record in stored} == {data}
    ends = (b"}", b',"meta":{"a":1}}')
    assert sum(found.raw.count(b'"data":' + data + end) for end in ends) >= len(stored)


async def test_meta_comes_back_byte_for_byte(site: Site) -> None:
    meta = b'{ "b":1e400, "a" : [ ] ,"a":"\\u00e9"}'
    await site.post(T, b'{"records":[{"data":1,"meta": ' + meta + b' },{"data":2,"meta":null},{"data":3,"meta":{}}]}')
    reply = await site.post(f"{T}/diff")
    assert b'"data":1,"meta":' + meta + b"}" in reply.raw
    assert [("meta" in record) for record in reply["records"]] == [True, False, True]


async def test_what_is_absent_is_left_out(site: Site) -> None:
    await site.post(T, {"records": [{"data": None}, {"data": 1, "tag": None, "node": None}], "node": None})
    assert [set(record) for record in await read(site)] == [{"$seq", "$ts", "data"}] * 2


async def test_a_node_of_the_call_is_the_node_of_its_records(site: Site) -> None:
    await site.post(T, {"records": [{"data": 1}, {"data": 2, "node": "own", "tag": 'é"'}], "node": "n"})
    assert [(r["$node"], r.get("$tag")) for r in await read(site)] == [("n", None), ("own", 'é"')]


# What is refused

RECORD: dict[str, list[bytes]] = {
    "tag": [*NOT_TEXT, b"[]", b'"' + b"x" * 257 + b'"', b'"%b"' % ("é" * 129).encode()],
    "node": [*NOT_TEXT, b"[]", b'""', b'"' + b"x" * 129 + b'"', b'"%b"' % ("é" * 65).encode()],
    "meta": [
        *NOT_TEXT[:3],
        b"[]",
        b'"x"',
        LONE,
        b'{"a":' + LONE + b"}",
        b"{" + b",".join(b'"%d":1' % n for n in range(65)) + b"}",
    ],
    "delay_ms": [*NOT_WHOLE, b"null", b"9007199254740992"],
    "deliver_at": [*NOT_WHOLE, b"9007199254740992"],
    "unique_key": [*NOT_TEXT, b"[]", b'""', b'"' + b"x" * 257 + b'"'],
}
CALL: dict[str, list[bytes]] = {
    "records": [
        *(
            b"null",
            b"5",
            b"{}",
            b'"x"',
            b"[]",
            b"[null]",
            b"[1]",
            b"[[]]",
            b"[{}]",
            b'[{"data":1},{}]',
            b'[{"tag":"x"}]',
        ),
        *(b'[{"data":1},{"data":}]', b'[{"data":' + deep(100_000) + b"}]", b'[{"data":' + deep(DEPTH_MAX + 1) + b"}]"),
        *(b'[{"data":"\xff"}]', b'[{"data":1,"x":"\xff"}]', b'[{"data":"\xed\xa0\x80"}]', b'[{"data":NaN}]'),
    ],
    "node": [*NOT_TEXT, b"[]", b'""', b'"' + b"x" * 129 + b'"'],
    "idempotency_key": [*NOT_TEXT, b"[]", b'""', b'"' + b"x" * 257 + b'"'],
    "create": NOT_FLAG,
    "config": [
        b"5",
        b"[]",
        b'"x"',
        b'{"ttl_ms":-1}',
        b'{"type":"x"}',
        b'{"dead_letter":"b"}',
        b'{"ttl_ms":1,"ttl_ms":1}',
    ],
    "client_id": [*NOT_TEXT, b"[]", b'""', b'"' + b"x" * 257 + b'"'],
    "client_seq": [*NOT_WHOLE, b"9223372036854775808"],
}


@pytest.mark.parametrize("field", RECORD)
async def test_a_record_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await site.put(T, {"type": "queue"})
    record = {"data": "x"}
    for one in bodies(record, field, RECORD[field]):
        await check_refused(site, "POST", T, [b'{"records":[' + one + b"]}", b'{"records":[{"data":1},' + one + b"]}"])


@pytest.mark.parametrize("field", CALL)
async def test_an_append_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    good = (
        {**ONE, "client_seq": 1}
        if field == "client_id"
        else {**ONE, "client_id": "c"}
        if field == "client_seq"
        else ONE
    )
    await check_refused(site, "POST", "/v0/topics/b", bodies(good, field, CALL[field]))


async def test_an_append_that_is_no_json_is_refused(site: Site) -> None:
    await check_refused(site, "POST", T, NOT_JSON)


async def test_an_append_takes_plain_json_only(site: Site) -> None:
    await check_media(site, "POST", T, b'{"records":[{"data":1}]}')


TWICE = [
    b'{"records":[{"data":1}],"records":[{"data":1}]}',
    b'{"records":[],"records":[{"data":1}]}',
    b'{"records":[{"data":1,"data":1}]}',
    b'{"records":[{"data":12,"data":1}]}',
    b'{"records":[{"data":1,"data":{"data":1}}]}',
    b'{"records":[{"data":1},{"data":1,"data":2}]}',
    b'{"records":[{"data":1,"d\\u0061ta":2}]}',
    b'{"records":[{"data":"\\n","d\\u0061ta":"\\n"}]}',
    b'{"x":[{"data":1}],"records":[{"data":1,"data":1}]}',
    b'{"records" : [ {"data" : 1 , "data" : 1} ] }',
    b'{"records":[{"data":1,"tag":"x","tag":"x"}]}',
    b'{"records":[{"data":1,"tag":null,"tag":"x"},{"data":1}]}',
    b'{"records":[{"tag":"x","data":1,"tag":null}]}',
    b'{"records":[{"data":1,"meta":{},"meta":{}}]}',
    b'{"records":[{"data":1}],"node":"a","node":"a"}',
    b'{"records":[{"data":1,"node":"a","node":"a"}],"node":"b"}',
    b'{"create":true,"records":[{"data":1}],"create":true}',
    b'{"records":[{"data":1,"delay_ms":0,"delay_ms":0}]}',
    b'{"records":[{"data":1}],"config":{"type":"log","type":"log"}}',
    b'{"records":[{"data":"\\ud800","data":"\\ud800"}]}',
    b'{"records":[{"data":' + b"[" * 400 + b"]" * 400 + b',"data":1}]}',
]


@pytest.mark.parametrize("body", TWICE, ids=range(len(TWICE)))
async def test_a_field_of_ours_given_twice_is_refused(site: Site, body: bytes) -> None:
    await check_refused(site, "POST", T, [body], field="twice")


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"data":1,"x":1,"x":2}],"y":1,"y":2}',
        b'{"records":[{"data":"tag","tag":"tag"}]}',
        b'{"records":[{"data":1,"tag":"data","meta":{"tag":1,"tag":2}}],"node":"node"}',
        b'{"records":[{"data":1}],"z":{"records":1,"records":2}}',
        b'{"node":"[{\\"data\\":1}]","records":[{"data":1}]}',
        b'{"node":"[{","records":[{"data":1}]}',
        b'{"records":[{"tag":"\\"data\\":1","data":1}]}',
    ],
)
async def test_what_only_looks_like_twice_is_taken(site: Site, body: bytes) -> None:
    reply = await site.post(T, body)
    assert reply.status == 201, reply.raw


async def test_half_a_pair_outside_of_data_is_refused(site: Site) -> None:
    lone = [
        b'{"records":[{"data":' + LONE + b'}],"node":' + LONE + b"}",
        b'{"records":[{"data":' + LONE + b',"tag":' + LONE + b"}]}",
        b'{"records":[{"data":1,' + LONE + b":1}]}",
        b'{"records":[{"data":1}],"unknown":' + LONE + b"}",
    ]
    await check_refused(site, "POST", T, lone)


async def test_limits_have_their_own_codes(site: Site) -> None:
    many = b'{"records":[' + b",".join([b'{"data":1}'] * 10_001) + b"]}"
    await check_refused(site, "POST", T, [many], code="batch_too_large")
    large = b'"' + b"x" * (1024 * 1024) + b'"'
    half = b'{"a":"' + b"x" * 15_000 + b'"}'
    await check_refused(site, "POST", T, [body_of(large)], code="record_too_large")
    fitting = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    both = b'{"records":[{"data":' + fitting + b',"meta":' + half + b"}]}"
    await check_refused(site, "POST", T, [both], code="record_too_large")
    meta = b'{"records":[{"data":1,"meta":{"a":"' + b"x" * 16_384 + b'"}}]}'
    await check_refused(site, "POST", T, [meta], field="meta")
    assert (await site.post(T, body_of(fitting))).status == 201
    assert (await site.post(T, b'{"records":[' + b",".join([b'{"data":1}'] * 10_000) + b"]}"))["count"] == 10_000


# Diff


async def test_a_read_tells_where_it_stands(site: Site) -> None:
    await site.post(T, {"records": [{"data": n} for n in range(5)]})
    reply = await site.post(f"{T}/diff", {"from_seq": 1, "limit": 2})
    assert {k: v for k, v in reply.json.items() if k not in ("records", "performance")} == {
        **{"topic": "a", "next_from_seq": 3, "head_seq": 5, "earliest_seq": 1},
        **{"caught_up": False, "tombstone": None, "lag": 2},
    }
    assert reply["records"] == [{"$seq": seq, "$ts": site.clock.wall_ms(), "data": seq - 1} for seq in (2, 3)]
    last = await site.post(f"{T}/diff", {"from_seq": 3})
    assert (last["caught_up"], last["lag"], last["next_from_seq"]) == (True, 0, 5)
    assert "fsync_ms" not in last["performance"]


async def test_a_read_needs_no_body(site: Site) -> None:
    await site.post(T, ONE)
    assert len((await site.post(f"{T}/diff"))["records"]) == 1


async def test_the_limit_is_clamped(site: Site) -> None:
    await site.post(T, {"records": [{"data": 1}] * 1200})
    for limit, count in ((0, 1), (1, 1), (1000, 1000), (1001, 1000), (2**64 - 1, 1000)):
        assert len((await site.post(f"{T}/diff", {"limit": limit}))["records"]) == count
    assert len((await site.post(f"{T}/diff", {}))["records"]) == 256


async def test_tags_and_meta_are_shown_as_asked(site: Site) -> None:
    await site.post(T, {"records": [{"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}]})
    for tags in (True, False, None):
        for meta in (True, False, None):
            asked = {k: v for k, v in (("include_tags", tags), ("include_meta", meta)) if v is not None}
            (record,) = (await site.post(f"{T}/diff", asked))["records"]
            assert ("$tag" in record, "meta" in record, record["$node"]) == (tags is True, meta is not False, "n")


async def test_a_reader_does_not_see_its_own_records(site: Site) -> None:
    await site.post(T, {"records": [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}]})
    assert [r["data"] for r in await read(site, node="a")] == [2, 3]
    assert [r["data"] for r in await read(site, node=["a", "b"])] == [3]
    assert [r["data"] for r in await read(site, node=[])] == [1, 2, 3]
    reply = await site.post(f"{T}/diff", {"node": "b", "from_seq": 1})
    assert (reply["next_from_seq"], reply["caught_up"]) == (3, True)
    await site.put(T, {"dedupe_node": False})
    assert [r["data"] for r in await read(site, node="a")] == [1, 2, 3]


async def test_a_read_may_wait_for_a_record(site: Site) -> None:
    await site.put(T)
    waiting = site.start("POST", f"{T}/diff", {"wait_ms": 10_000})
    await asyncio.sleep(0)
    await site.post(T, ONE)
    assert (await waiting)["records"][0]["data"] == 1
    empty = site.start("POST", f"{T}/diff", {"wait_ms": 2**64 - 1, "from_seq": 1})
    await asyncio.sleep(0)
    site.clock.advance(30_000)
    reply = await empty
    assert (reply.status, reply["records"], reply["caught_up"]) == (200, [], True)


async def test_a_read_that_waits_hears_that_the_topic_is_gone(site: Site) -> None:
    await site.put(T)
    waiting = site.start("POST", f"{T}/diff", {"wait_ms": 10_000})
    await asyncio.sleep(0)
    await site.delete(T)
    reply = await waiting
    assert (reply.status, reply.code) == (404, "topic_not_found")


async def test_loss_by_a_cap_is_told(site: Site) -> None:
    await site.put(T, {"cap_records": 2})
    await site.post(T, {"records": [{"data": n} for n in range(5)]})
    reply = await site.post(f"{T}/diff", {})
    assert (reply.status, [r["$seq"] for r in reply["records"]]) == (200, [4, 5])
    assert reply["tombstone"] == {
        **{"gap_from": 1, "gap_to": 3, "reason": "cap", "missed_estimate": 3},
        **{"earliest_seq": 4, "head_seq": 5},
    }
    assert (await site.post(f"{T}/diff", {"from_seq": 3}))["tombstone"] is None


async def test_a_cursor_from_another_life_is_told(site: Site) -> None:
    await site.post(T, ONE)
    reply = await site.post(f"{T}/diff", {"from_seq": 2**64 - 1})
    assert reply["tombstone"]["reason"] == "recreated"
    assert reply["records"][0]["$seq"] == 1


async def test_an_empty_topic_starts_behind_its_head(site: Site) -> None:
    await site.post(T, ONE)
    await site.post(f"{T}/delete", {"seqs": [1]})
    reply = await site.post(f"{T}/diff", {})
    assert (reply["earliest_seq"], reply["head_seq"], reply["tombstone"], reply["records"]) == (2, 1, None, [])


DIFF: dict[str, list[bytes]] = {
    **dict.fromkeys(("from_seq", "limit", "wait_ms"), NOT_COUNT),
    **dict.fromkeys(("include_tags", "include_meta"), NOT_FLAG),
    "node": [*NOT_TEXT, b'""', b"[1]", b"[null]", b'[""]', b'["a",' + LONE + b"]", b'"' + b"x" * 129 + b'"'],
}


@pytest.mark.parametrize("field", DIFF)
async def test_a_read_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await site.post(T, ONE)
    await check_refused(site, "POST", f"{T}/diff", bodies({}, field, DIFF[field]), field=field)


async def test_a_read_that_is_no_json_or_twice_is_refused(site: Site) -> None:
    await site.post(T, ONE)
    twice = [b'{"limit":1,"limit":1}', b'{"limit":1,"lim\\u0069t":1}']
    await check_refused(site, "POST", f"{T}/diff", [*(body for body in NOT_JSON if body), *twice])
    await check_media(site, "POST", f"{T}/diff", b"{}")


# Delete


async def test_a_delete_tells_what_is_left(site: Site) -> None:
    await site.post(T, {"records": [{"data": n, "tag": tag} for n, tag in enumerate(["x", "xy", "y", None, "x"])]})
    reply = await site.post(f"{T}/delete", {"before_seq": 2})
    assert {k: v for k, v in reply.json.items() if k not in ("performance", "bytes")} == {
        **{"topic": "a", "deleted": 1, "earliest_seq": 2, "head_seq": 5, "count": 4}
    }
    assert reply["performance"]["fsync_ms"] == 0
    assert (await site.post(f"{T}/delete", {"match": ["tag", "Glob", "x*"], "before_seq": 5}))["deleted"] == 1
    assert (await site.post(f"{T}/delete", {"match": "x"}))["deleted"] == 1
    assert (await site.post(f"{T}/delete", {"match": ["tag", "Eq", "z"]}))["deleted"] == 0
    assert [r["$seq"] for r in await read(site)] == [3, 4]
    assert (await site.post(f"{T}/delete", {"seqs": [4, 99], "before_seq": 2**64 - 1}))["deleted"] == 1


async def test_a_delete_on_an_fsync_topic_waits_for_its_sync(site: Site) -> None:
    await site.put(T, {"durable": True})
    await site.post(T, ONE)
    assert (await site.post(f"{T}/delete", {"before_seq": 9}))["performance"]["fsync_ms"] > 0


DELETE: dict[str, list[bytes]] = {
    "before_seq": NOT_WHOLE,
    "match": [
        *NOT_TEXT,
        *(b"[]", b'["tag"]', b'["tag","Eq"]', b'["tag","Eq","x","y"]', b'["node","Eq","x"]', b'["tag","Re","x"]'),
        *(
            b'["tag","Glob","x"]',
            b'["tag","Glob","*x"]',
            b'["tag","Glob","a*b*"]',
            b'["tag","Eq",5]',
            b'["tag","Eq",null]',
        ),
    ],
    "seqs": [
        b"[]",
        b"5",
        b'["1"]',
        b"[1.0]",
        b"[-1]",
        b"[true]",
        b"[null]",
        b"[18446744073709551616]",
        b"[" + b"9" * 4000 + b"]",
    ],
}


@pytest.mark.parametrize("field", DELETE)
async def test_a_delete_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await site.post(T, {"records": [{"data": 1, "tag": "x"}]})
    await check_refused(site, "POST", f"{T}/delete", bodies({}, field, DELETE[field]))
    await check_refused(site, "POST", f"{T}/delete", bodies({"before_seq": 5, "match": "x"}, field, DELETE[field]))


async def test_a_delete_must_say_what(site: Site) -> None:
    await site.post(T, ONE)
    nothing = [b"{}", b'{"before_seq":null}', b'{"before_seq":null,"match":null,"seqs":null}', b'{"before":1}']
    await check_refused(site, "POST", f"{T}/delete", [*nothing, *NOT_JSON, b'{"before_seq":1,"before_seq":2}'])
    seqs = b'{"seqs":[' + b",".join([b"1"] * 10_001) + b"]}"
    await check_refused(site, "POST", f"{T}/delete", [seqs], code="batch_too_large")
    await check_media(site, "POST", f"{T}/delete", b'{"before_seq":1}')


async def test_a_repeated_client_seq_is_refused_once_its_first_copy_is_durable(clock: ManualClock) -> None:
    """Fault 26: a client takes this refusal for success, so it may not come before the sync."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await site.put(T, {"durability": "fsync"})
        log.gate.clear()
        first = await start(site.post(T, {**ONE, "client_id": "c", "client_seq": 1}))
        again = await start(site.post(T, {**ONE, "client_id": "c", "client_seq": 1}))
        assert not first.done()
        assert not again.done()
        log.gate.set()
        assert (await first).status == 200
        assert (await again)["error"]["detail"]["last_seq"] == 1


async def test_a_large_append_is_read_in_turns_and_answered_as_any_other(site: Site) -> None:
    body = body_of(*[b'"' + b"x" * 1_000 + b'"'] * 2_000)
    assert len(body) > site.app.context.settings.limits.append_whole_bytes_max
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    site.app.context.turns = Turns(1, clock=map(float, itertools.count()).__next__)  # one step a turn
    beside = asyncio.create_task(count())
    reply = await site.post(T, body)
    beside.cancel()
    assert (reply.status, reply["last_seq"]) == (201, 2_000)
    assert turns > len(body) / 100_000
    small = await site.post(T, ONE)
    assert small["first_seq"] == 2_001
    reply = await site.post(T, body.replace(b'"data"', b'"date"'))
    assert reply.code == "invalid_request"
    assert "records[0].data is missing" in reply["error"]["message"]


async def test_a_large_append_whose_answer_is_given_up_may_have_happened(clock: ManualClock) -> None:
    """Fault 26: whoever is told that the server stops must not take that for a write that did not happen."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        site = Site(App(Context(broker), ROUTES), broker, clock)
        await site.put(T, {"durability": "fsync"})
        log.gate.clear()
        waits = site.start("POST", T, body_of(*[b'"' + b"x" * 1_000 + b'"'] * 1_000))
        while broker.topic("a", touch=False).head_seq == 0:
            await asyncio.sleep(0)
        waits.cancel()
        log.gate.set()
        assert (await waits).code == "indeterminate"

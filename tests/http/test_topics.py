"""Topics over the wire: put, look, list, delete, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.http.api.app import Call, Route
from tenure.http.api.keys import KeyRing, parse_keys
from tests.http.bad import NOT_COUNT, NOT_FLAG, NOT_JSON, NOT_NAME, bodies, check_media, check_refused
from tests.http.conftest import Site

DEFAULTS = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "durable": False,
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
    "max_ack_holes": 0,
    "max_in_flight": 0,
    "dlq_strategy": "skip",
    "retry_backoff": None,
}
STATE = {
    *("topic", "type", "head_seq", "durable_seq", "earliest_seq", "next_seq", "count", "bytes", "config"),
    *("effective_priority", "last_write_ts", "last_read_ts", "performance"),
}
NAMES_REFUSED = [
    *(
        "..",
        ".",
        ".a",
        "-a",
        "a b",
        "a\0",
        "a\n",
        "a\r\nb",
        "é",
        "a>b",
        "a\ud800",
        "x" * 256,
        "x" * 5000,
        " ",
        "%2e%2e",
    ),
    "",
]


async def test_put_creates_with_every_field_of_the_config(site: Site) -> None:
    reply = await site.put("/v0/topics/a", {})
    assert reply.status == 201
    assert reply["topic"] == "a"
    assert reply["created"] is True
    assert reply["config"] == DEFAULTS
    assert reply["performance"]["fsync_ms"] > 0, "a topic is created for good before it is answered"


async def test_put_needs_no_body(site: Site) -> None:
    reply = await site.put("/v0/topics/a")
    assert (reply.status, reply["config"]) == (201, DEFAULTS)


async def test_put_again_replaces_and_keeps_the_type(site: Site) -> None:
    await site.put("/v0/topics/q", {"type": "queue", "cap_records": 5, "durable": True})
    reply = await site.put("/v0/topics/q", {"ttl_ms": 7})
    assert (reply.status, reply["created"]) == (200, False)
    assert reply["config"] == {**DEFAULTS, "type": "queue", "ttl_ms": 7}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": False}, {"durable": False, "durability": "disk"}),
        ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "fsync", "durable": False}, {"durable": True, "durability": "fsync"}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 2**64 - 1}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 9999}, {"claim_jitter_ms": 5000}),
        ({"durability": "ephemeral"}, {"durable": False, "durability": "memory"}),
        ({"priority": -1000}, {"priority": -1000}),
        ({"priority": None, "dead_letter": None, "retry_backoff": None}, {"priority": None}),
        ({"cap_bytes": 2**64 - 1}, {"cap_bytes": 2**64 - 1}),
        ({"dead_letter": "d"}, {"dead_letter": "d"}),
        ({"unknown": {"deep": [1]}, "retry_backoff": {"min_ms": 5, "x": 1}}, {}),
        ({"retry_backoff": {"min_ms": 5, "max_ms": 10, "factor": 3}}, {}),
    ],
)
async def test_put_takes(site: Site, given: dict[str, Any], expected: dict[str, Any]) -> None:
    reply = await site.put("/v0/topics/a", given)
    assert reply.status == 201
    assert reply["config"].items() >= expected.items()
    assert set(reply["config"]) == set(DEFAULTS)


async def test_a_backoff_is_answered_whole(site: Site) -> None:
    reply = await site.put("/v0/topics/a", {"retry_backoff": {"min_ms": 5, "max_ms": 10, "factor": 3, "jitter": False}})
    assert reply["config"]["retry_backoff"] == {"min_ms": 5, "max_ms": 10, "factor": 3.0, "jitter": False}


async def test_another_type_is_a_conflict(site: Site) -> None:
    await site.put("/v0/topics/a")
    reply = await site.put("/v0/topics/a", {"type": "queue"})
    assert (reply.status, reply.code) == (409, "topic_exists_incompatible")


NOT_CHOICE = [b"null", b"5", b'"x"', b'""', b"[]", b'"Log"']
FIELDS: dict[str, list[bytes]] = {
    **dict.fromkeys(
        ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "lease_ms", "claim_jitter_ms"),
        NOT_COUNT,
    ),
    **dict.fromkeys(("max_deliveries", "max_ack_holes", "max_in_flight"), NOT_COUNT),
    **dict.fromkeys(("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"), NOT_FLAG),
    **dict.fromkeys(("type", "discard", "durability", "dlq_strategy"), NOT_CHOICE),
    "priority": [b"1001", b"-1001", b"1.0", b"true", b'"1"', b"9" * 4000, b"-" + b"9" * 4000],
    "dead_letter": [bad for bad in NOT_NAME if bad != b"null"] + [b'"a"'],
    "retry_backoff": [b"5", b'"x"', b"[]", b"true", b'{"min_ms":-1}', b'{"min_ms":9,"max_ms":1}', b'{"factor":0.5}'],
}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_config_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await check_refused(site, "PUT", "/v0/topics/a", bodies({}, field, FIELDS[field]), field=field)


async def test_what_is_no_json_is_refused(site: Site) -> None:
    await check_refused(site, "PUT", "/v0/topics/a", [body for body in NOT_JSON if body])


async def test_a_config_given_twice_is_refused(site: Site) -> None:
    twice = [
        b'{"ttl_ms":1,"ttl_ms":1}',
        b'{"ttl_ms":1,"\\u0074tl_ms":2}',
        b'{"type":"log","x":{},"type":"queue"}',
        b'{"retry_backoff":{"min_ms":1,"min_ms":2}}',
        b'{"dead_letter":"d", "dead_letter" : "e"}',
    ]
    await check_refused(site, "PUT", "/v0/topics/a", twice, field="twice")
    once = b'{"dead_letter":"ttl_ms","ttl_ms":1,"x":1,"x":2,"y":{"ttl_ms":3,"ttl_ms":4}}'
    assert (await site.put("/v0/topics/a", once)).status == 201, "what is not ours may be given as often as one likes"


async def test_put_takes_plain_json_only(site: Site) -> None:
    await check_media(site, "PUT", "/v0/topics/a", b"{}")


@pytest.mark.parametrize("name", NAMES_REFUSED)
async def test_a_name_that_is_none_is_refused_by_every_route(site: Site, name: str) -> None:
    """Fault 45."""
    before = site.state()
    for method, target, body in [
        ("PUT", f"/v0/topics/{name}", {}),
        ("GET", f"/v0/topics/{name}", None),
        ("DELETE", f"/v0/topics/{name}", None),
        ("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}),
        ("POST", f"/v0/topics/{name}/diff", {}),
        ("POST", f"/v0/topics/{name}/delete", {"before_seq": 1}),
    ]:
        reply = await site.call(method, target, body)
        assert (reply.status, reply.code) == (400, "invalid_request"), (method, reply.raw)
    assert site.state() == before


async def test_get_shows_the_state(site: Site) -> None:
    await site.post("/v0/topics/a", {"records": [{"data": 1}, {"data": 2}]})
    await site.post("/v0/topics/a/delete", {"before_seq": 2})
    reply = await site.get("/v0/topics/a")
    assert set(reply.json) == STATE
    shown = {name: reply[name] for name in ("head_seq", "earliest_seq", "next_seq", "count", "type")}
    assert shown == {"head_seq": 2, "earliest_seq": 2, "next_seq": 3, "count": 1, "type": "log"}
    assert reply["last_write_ts"] == site.clock.wall_ms()
    assert "fsync_ms" not in reply["performance"]


async def test_get_of_a_queue_counts_its_jobs(site: Site) -> None:
    await site.put("/v0/topics/q", {"type": "queue"})
    await site.post("/v0/topics/q", {"records": [{"data": 1}, {"data": 2, "delay_ms": 50}]})
    site.clock.advance(20)
    reply = await site.get("/v0/topics/q")
    assert set(reply.json) == STATE | {"queue"}
    assert reply["queue"] == {
        **{"ready": 1, "in_flight": 0, "delayed": 1, "parked": 0},
        **{"dead": 0, "dead_lettered": 0, "oldest_ready_ms": 20, "ack_holes": 0, "suspects": 0},
    }


async def test_a_look_without_touch_leaves_the_priority_alone(site: Site) -> None:
    await site.put("/v0/topics/a")
    assert (await site.get("/v0/topics/a?touch=false"))["last_read_ts"] == 0
    assert (await site.get("/v0/topics/a"))["effective_priority"] == 100
    site.clock.advance(3_600_000)
    assert (await site.get("/v0/topics/a?touch=0"))["effective_priority"] == 40
    reply = await site.get("/v0/topics/a?touch=maybe")
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_an_absent_topic_is_not_found(site: Site) -> None:
    for method, target, body in [
        ("GET", "/v0/topics/a", None),
        ("POST", "/v0/topics/a/diff", {}),
        ("POST", "/v0/topics/a/diff", {"wait_ms": 5}),
        ("POST", "/v0/topics/a/delete", {"before_seq": 1}),
    ]:
        reply = await site.call(method, target, body)
        assert (reply.status, reply.code) == (404, "topic_not_found"), target


async def test_topics_are_listed_in_pages(site: Site) -> None:
    for name in ("b", "a", "c.2", "c.1", "d"):
        await site.put(f"/v0/topics/{name}")
    reply = await site.get("/v0/topics")
    assert [topic["topic"] for topic in reply["topics"]] == ["a", "b", "c.1", "c.2", "d"]
    assert set(reply["topics"][0]) == STATE - {"performance"}
    assert "next_cursor" not in reply
    seen, target = [], "/v0/topics?page_size=2"
    while True:
        reply = await site.get(target)
        seen.append([topic["topic"] for topic in reply["topics"]])
        if "next_cursor" not in reply:
            break
        target = f"/v0/topics?page_size=2&cursor={reply['next_cursor']}"
    assert seen == [["a", "b"], ["c.1", "c.2"], ["d"]]
    reply = await site.get("/v0/topics?prefix=c.&page_size=100000")
    assert [topic["topic"] for topic in reply["topics"]] == ["c.1", "c.2"]
    assert (await site.get("/v0/topics?page_size=0&prefix=%63%2e1"))["topics"][0]["topic"] == "c.1"


async def walk(site: Site, query: str) -> list[list[str]]:
    """The names of a listing, page by page."""
    pages, cursor = list[list[str]](), ""
    while True:
        reply = await site.get(f"/v0/topics?{query}{cursor}")
        pages.append([topic["topic"] for topic in reply["topics"]])
        if "next_cursor" not in reply:
            return pages
        cursor = f"&cursor={reply['next_cursor']}"


async def test_topics_are_found_by_any_part_of_their_name(site: Site) -> None:
    for name in ("a.mail", "b", "mail", "mail.dead", "x.Mail", "xmailx"):
        await site.put(f"/v0/topics/{name}")
    assert await walk(site, "contains=mail&page_size=2") == [["a.mail", "mail"], ["mail.dead", "xmailx"]]
    assert await walk(site, "contains=mail&prefix=mail") == [["mail", "mail.dead"]]
    assert await walk(site, "contains=%2email") == [["a.mail"]]
    assert await walk(site, "contains=nothing&page_size=1") == [[]]


async def test_a_search_looks_at_a_bounded_number_of_names_per_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.http.routes.topics._LOOKED_MAX", 3)
    for name in "abcdefgh":
        await site.put(f"/v0/topics/{name}")
    assert await walk(site, "contains=g&page_size=2") == [[], [], ["g"]]


@pytest.mark.parametrize(
    "query",
    [
        *("page_size=-1", "page_size=x", "page_size=1.0", "page_size=", "page_size=%31%00", "page_size=" + "9" * 4000),
        *("page_size=18446744073709551616", "page_size=1&page_size=2", "page_size=%D9%A3", "page_size=%2B1"),
        *("cursor=x", "cursor=", "cursor=%00", "cursor=%ff", "prefix=%ff", "prefix=a&prefix=b", "prefix=%ed%a0%80"),
        *("cursor=" + "A" * 5000, "&".join(f"x{n}=1" for n in range(100))),
    ],
)
async def test_a_listing_refuses_nonsense(site: Site, query: str) -> None:
    for path in ("/v0/topics", "/v0/routers"):
        reply = await site.get(f"{path}?{query}")
        assert (reply.status, reply.code) == (400, "invalid_request")


async def test_parameters_that_are_not_ours_are_ignored(site: Site) -> None:
    assert (await site.get("/v0/topics?x=%ff&x=1&=&&%70age_size=5&prefix=a+b%2")).status == 200


async def test_delete_takes_the_routers_along(site: Site) -> None:
    await site.put("/v0/topics/a")
    await site.put("/v0/routers/r2", {"source": "a", "dest": "b"})
    await site.put("/v0/routers/r1", {"source": "x", "dest": "a"})
    await site.put("/v0/routers/r3", {"source": "x", "dest": "y"})
    reply = await site.delete("/v0/topics/a")
    assert (reply.status, reply["deleted"], reply["routers_removed"]) == (200, True, ["r1", "r2"])
    assert reply["performance"]["fsync_ms"] > 0
    again = await site.delete("/v0/topics/a")
    assert (again.status, again["deleted"], again["routers_removed"]) == (200, False, [])
    assert again["performance"]["fsync_ms"] == 0


async def test_delete_if_empty_refuses_what_is_not(site: Site) -> None:
    await site.post("/v0/topics/a", {"records": [{"data": 1}]})
    reply = await site.delete("/v0/topics/a?if_empty=true")
    assert (reply.status, reply.code) == (409, "topic_not_empty")
    assert (await site.delete("/v0/topics/a?if_empty=yes")).status == 400
    assert (await site.delete("/v0/topics/a?if_empty=false"))["deleted"] is True


async def test_a_known_path_with_another_method_says_which(site: Site) -> None:
    reply = await site.call("OPTIONS", "/v0/topics/a")
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers[b"allow"] == b"DELETE, GET, HEAD, PATCH, POST, PUT"
    assert (await site.call("PUT", "/v0/topics/a/diff", {})).headers[b"allow"] == b"POST"
    for path in ("/v0/topic", "/v0/topics/", "/v1/topics", "//v0/topics", "/v0/topics/a/diff/"):
        reply = await site.get(path)
        assert reply.status in (400, 404), path


# Patch


async def test_a_patch_changes_the_named_fields_and_echoes_the_whole_config(site: Site) -> None:
    put = await site.put("/v0/topics/a", {"type": "queue", "lease_ms": 5000, "priority": 3})
    reply = await site.patch("/v0/topics/a", {"max_deliveries": 4, "priority": None, "unknown": 1})
    assert (reply.status, reply["created"], reply["type"]) == (200, False, "queue")
    assert reply["config"] == put["config"] | {"max_deliveries": 4, "priority": None}
    assert reply["performance"]["fsync_ms"] >= 0
    assert (await site.get("/v0/topics/a"))["config"] == reply["config"]


async def test_a_null_in_a_patch_returns_a_field_to_its_default(site: Site) -> None:
    given = {"lease_ms": 5000, "durability": "fsync", "retry_backoff": {"min_ms": 5, "jitter": False}}
    await site.put("/v0/topics/a", given)
    reply = await site.patch("/v0/topics/a", {"lease_ms": None, "retry_backoff": {"jitter": None}})
    assert (reply["config"]["lease_ms"], reply["config"]["durability"]) == (30_000, "fsync")
    assert reply["config"]["retry_backoff"] == {"min_ms": 5, "max_ms": 3_600_000, "factor": 2.0, "jitter": True}
    reply = await site.patch("/v0/topics/a", dict.fromkeys(DEFAULTS))
    assert reply["config"] == DEFAULTS


async def test_a_patch_of_nothing_there_is_404_and_of_the_type_409(site: Site) -> None:
    reply = await site.patch("/v0/topics/a", {"lease_ms": 1000})
    assert (reply.status, reply.code) == (404, "topic_not_found")
    await site.put("/v0/topics/a")
    reply = await site.patch("/v0/topics/a", {"type": "queue"})
    assert (reply.status, reply.code) == (409, "topic_exists_incompatible")
    assert (await site.patch("/v0/topics/a", {"type": "log"})).status == 200


@pytest.mark.parametrize("field", FIELDS)
async def test_a_patch_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await site.put("/v0/topics/a")
    bad = [value for value in FIELDS[field] if value != b"null"]
    await check_refused(site, "PATCH", "/v0/topics/a", bodies({}, field, bad), field=field)


async def test_a_patch_needs_a_json_object(site: Site) -> None:
    await site.put("/v0/topics/a")
    await check_refused(site, "PATCH", "/v0/topics/a", [body for body in NOT_JSON if body])
    twice = [b'{"ttl_ms":1,"ttl_ms":1}', b'{"retry_backoff":{"min_ms":1,"min_ms":2}}']
    await check_refused(site, "PATCH", "/v0/topics/a", twice)
    await check_media(site, "PATCH", "/v0/topics/a", b"{}")


async def test_an_append_with_a_config_that_forbids_it_creates_nothing(site: Site) -> None:
    before = site.state()
    reply = await site.post("/v0/topics/a", {"records": [{"data": 1}], "config": {"auto_create": False}})
    assert (reply.status, reply.code, site.state()) == (404, "topic_not_found", before)


async def test_a_log_that_a_post_made_by_mistake_becomes_a_queue(site: Site) -> None:
    await site.post("/v0/topics/q", {"records": [{"data": 1}]})
    assert (await site.post("/v0/topics/q/claim", {"node": "w"})).code == "not_a_queue"
    reply = await site.put("/v0/topics/q", {"type": "queue"})
    assert (reply.status, reply["type"]) == (200, "queue")
    [job] = (await site.post("/v0/topics/q/claim", {"node": "w"}))["claimed"]
    assert job["data"] == 1


# Who may say what a topic is


@pytest.fixture
def writer(make_site: Callable[..., Site]) -> Site:
    """A site whose callers may only write."""
    key = KeyRing(parse_keys([("here", "k:read+write")])).find("k")

    def admit(_: Route, call: Call) -> None:
        call.key = key

    return make_site(admit=admit)


async def test_an_append_whose_config_would_create_a_topic_needs_admin(writer: Site) -> None:
    before = writer.state()
    reply = await writer.post("/v0/topics/q", {"records": [{"data": 1}], "config": {"type": "queue"}})
    assert (reply.status, reply.code, writer.state()) == (403, "forbidden", before)
    assert reply["error"]["detail"] == {"missing": ["admin"]}
    assert "leave config out" in reply["error"]["message"]


async def test_an_append_with_a_config_to_a_topic_that_is_there_needs_no_admin(writer: Site) -> None:
    await writer.broker.put_topic("q", {"type": "queue"})
    reply = await writer.post("/v0/topics/q", {"records": [{"data": 1}], "config": {"type": "queue", "ttl_ms": 5}})
    assert reply.status == 200
    assert writer.broker.topic("q").config.ttl_ms == 0


async def test_without_a_config_a_writer_may_create_a_plain_log(writer: Site) -> None:
    assert (await writer.post("/v0/topics/t", {"records": [{"data": 1}]})).status == 201
    reply = await writer.post("/v0/topics/u", {"records": [{"data": 1}], "create": False, "config": {"ttl_ms": 5}})
    assert (reply.status, reply.code) == (404, "topic_not_found")


@pytest.fixture
def tenants(make_site: Callable[..., Site]) -> Site:
    """A site whose callers are held to the prefix ``own.``."""
    key = KeyRing(parse_keys([("here", "k:read+write+delete+admin:own.")])).find("k")

    def admit(_: Route, call: Call) -> None:
        call.key = key

    return make_site(admit=admit)


async def test_a_listing_shows_only_what_the_key_reaches(tenants: Site) -> None:
    for number in range(5):
        for name in (f"foreign.{number}", f"own.{number}", f"zz.{number}"):
            await tenants.broker.put_topic(name)
    seen, cursor = list[str](), ""
    while True:
        reply = await tenants.get(f"/v0/topics?page_size=2{cursor}")
        assert b"foreign" not in reply.raw
        seen += [topic["topic"] for topic in reply["topics"]]
        if "next_cursor" not in reply:
            break
        cursor = f"&cursor={reply['next_cursor']}"
    assert seen == [f"own.{number}" for number in range(5)]


async def test_names_in_a_body_are_held_to_the_key(tenants: Site) -> None:
    await tenants.put("/v0/topics/own.there", {"type": "queue"})
    before = tenants.state()
    for method, target, body in [
        ("PUT", "/v0/topics/own.q", {"type": "queue", "dead_letter": "foreign"}),
        ("PATCH", "/v0/topics/own.there", {"dead_letter": "foreign"}),
        ("POST", "/v0/topics/own.q", {"records": [{"data": 1}], "config": {"dead_letter": "foreign"}}),
        ("PUT", "/v0/routers/own.r", {"source": "foreign", "dest": "own.b"}),
        ("PUT", "/v0/routers/own.r", {"source": "own.a", "dest": "foreign"}),
    ]:
        reply = await tenants.call(method, target, body)
        assert (reply.status, reply.code) == (403, "forbidden")
    assert tenants.state() == before

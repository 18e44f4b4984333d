"""Routers over the wire: put, look, list, delete, forward, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.http.api.app import Call, Route
from tenure.http.api.keys import KeyRing, parse_keys
from tests.http.bad import NOT_FLAG, NOT_JSON, NOT_NAME, NOT_TEXT, bodies, check_media, check_refused
from tests.http.conftest import Site

R = "/v0/routers/r"
GOOD = {"source": "a", "dest": "b"}
FIELDS: dict[str, Any] = {
    **{"router": "r", "source": "a", "dest": "b", "preserve_node": True, "preserve_tag": True},
    **{"create_dest": True, "filter": None, "allow_cycle": False, "forwarded_total": 0, "missed_total": 0},
}


async def test_put_creates_with_every_field(site: Site) -> None:
    reply = await site.put(R, GOOD)
    shown = {name: value for name, value in reply.json.items() if name != "performance"}
    assert (reply.status, shown) == (201, {**FIELDS, "created": True})
    assert reply["performance"]["fsync_ms"] > 0
    again = await site.put(R, {**GOOD, "preserve_tag": False, "filter": "x", "unknown": 1})
    assert (again.status, again["created"], again["preserve_tag"]) == (200, False, False)
    assert again["filter"] == ["tag", "Eq", "x"]
    assert (await site.put(R, GOOD))["filter"] is None, "a PUT replaces"


async def test_get_shows_the_router(site: Site) -> None:
    await site.put(R, GOOD)
    reply = await site.get(R)
    assert {name: value for name, value in reply.json.items() if name != "performance"} == FIELDS


async def test_a_copy_is_there_for_the_first_read_after_the_answer(site: Site) -> None:
    await site.put(R, GOOD)
    await site.post("/v0/topics/a", b'{"records":[{"data":{"x":1e400},"tag":"t","node":"n","meta":{ "m":1}}]}')
    reply = await site.post("/v0/topics/b/diff", {"include_tags": True})
    assert b'"$node":"n","$tag":"t","data":{"x":1e400},"meta":{ "m":1}' in reply.raw
    assert (await site.get(R))["forwarded_total"] == 1


async def test_what_is_not_to_be_kept_is_not(site: Site) -> None:
    await site.put(R, {**GOOD, "preserve_node": False, "preserve_tag": False, "filter": ["tag", "Glob", "t*"]})
    records = [{"data": 1, "tag": "t", "node": "n"}, {"data": 2}, {"data": 3, "tag": "u"}]
    await site.post("/v0/topics/a", {"records": records})
    (record,) = (await site.post("/v0/topics/b/diff", {"include_tags": True}))["records"]
    assert (record["data"], set(record)) == (1, {"$seq", "$ts", "data"})


async def test_a_cycle_is_a_conflict_unless_allowed(site: Site) -> None:
    await site.put(R, GOOD)
    before = site.state()
    reply = await site.put("/v0/routers/back", {"source": "b", "dest": "a"})
    assert (reply.status, reply.code) == (409, "router_cycle")
    assert set(reply["error"]["detail"]["cycle"]) == {"a", "b"}
    assert site.state() == before
    assert (await site.put("/v0/routers/back", {"source": "b", "dest": "a", "allow_cycle": True})).status == 201
    await site.post("/v0/topics/a", {"records": [{"data": 1}]})
    assert (await site.get("/v0/topics/a"))["head_seq"] < 20, "a hop cap ends the loop"


async def test_routers_are_listed_in_pages(site: Site) -> None:
    for name, source, dest in (("b", "s", "d"), ("a>x", "s", "e"), ("c", "t", "d"), ("a1", "t", "e")):
        await site.put(f"/v0/routers/{name}", {"source": source, "dest": dest})
    reply = await site.get("/v0/routers")
    assert [router["router"] for router in reply["routers"]] == ["a1", "a>x", "b", "c"]
    assert set(reply["routers"][0]) >= {"router", "source", "dest", "forwarded_total"}
    assert "next_cursor" not in reply

    async def names(query: str) -> list[str]:
        return [router["router"] for router in (await site.get(f"/v0/routers?{query}"))["routers"]]

    assert await names("prefix=a") == ["a1", "a>x"]
    assert await names("source=s") == ["a>x", "b"]
    assert await names("source=t&dest=d") == ["c"]
    assert await names("source=nobody") == []
    first = await site.get("/v0/routers?page_size=3")
    assert len(first["routers"]) == 3
    assert await names(f"page_size=3&cursor={first['next_cursor']}") == ["c"]


async def test_delete_says_whether_it_was_there(site: Site) -> None:
    await site.put(R, GOOD)
    reply = await site.delete(R)
    assert (reply.status, reply["router"], reply["deleted"]) == (200, "r", True)
    again = await site.delete(R)
    assert (again.status, again["deleted"], again["performance"]["fsync_ms"]) == (200, False, 0)
    gone = await site.get(R)
    assert (gone.status, gone.code) == (404, "router_not_found")


MATCHES = [*NOT_TEXT, b"[]", b'["tag"]', b'["node","Eq","x"]', b'["tag","Glob","x"]', b'["tag","Eq",5]']
BAD: dict[str, list[bytes]] = {
    "source": [*NOT_NAME, b'"b"'],
    "dest": [*NOT_NAME, b'"a"'],
    **dict.fromkeys(("preserve_node", "preserve_tag", "create_dest", "allow_cycle"), NOT_FLAG),
    "filter": MATCHES,
}


async def test_a_destination_that_is_missing_and_may_not_be_created_is_404(site: Site) -> None:
    body = {"source": "a", "dest": "b", "create_dest": False}
    reply = await site.put("/v0/routers/r", body)
    assert (reply.status, reply.code) == (404, "topic_not_found")
    await site.put("/v0/topics/b")
    assert (await site.put("/v0/routers/r", body)).status == 201


@pytest.mark.parametrize("field", BAD)
async def test_a_router_that_cannot_be_meant_is_refused(site: Site, field: str) -> None:
    await check_refused(site, "PUT", R, bodies(GOOD, field, BAD[field]))


async def test_a_router_that_is_not_whole_is_refused(site: Site) -> None:
    twice = b'{"source":"a","dest":"b","source":"c"}'
    await check_refused(site, "PUT", R, [*NOT_JSON, b"{}", b'{"source":"a"}', b'{"dest":"b"}', twice])
    await check_media(site, "PUT", R, b'{"source":"a","dest":"b"}')


@pytest.mark.parametrize("name", ["..", "a b", ">a", "a\0", "x" * 256, "é", ""])
async def test_a_name_that_is_none_is_refused(site: Site, name: str) -> None:
    before = site.state()
    for method, body in (("PUT", GOOD), ("GET", None), ("DELETE", None)):
        reply = await site.call(method, f"/v0/routers/{name}", body)
        assert (reply.status, reply.code) == (400, "invalid_request"), method
    assert site.state() == before


async def test_a_listing_shows_only_routers_whose_ends_the_key_reaches(make_site: Callable[..., Site]) -> None:
    key = KeyRing(parse_keys([("here", "k:read:own.")])).find("k")

    def admit(_: Route, call: Call) -> None:
        call.key = key

    site = make_site(admit=admit)
    await site.broker.put_router("own.1", source="own.a", dest="foreign")
    await site.broker.put_router("own.2", source="own.a", dest="own.b")
    await site.broker.put_router("x", source="own.c", dest="own.d")
    reply = await site.get("/v0/routers?page_size=1")
    assert [router["router"] for router in reply["routers"]] == ["own.2"]
    assert b"foreign" not in reply.raw

"""Every route × method × (no key, a wrong one, another scope, another prefix, a token in the query) (faults 46, 47).

The matrix is made from the route table of a whole server, so a new route is in it before anybody thinks of it; and what
scopes a route ought to have is said here once more, by rule, so that a new route cannot choose none by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import Route
from tenure.http.api.keys import SCOPES
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.http.wire.message import Request, Response
from tests.http.conftest import Site
from tests.http.wire_support import handle

KEYS = {
    "all": "all",
    "elsewhere": "elsewhere:rwda:zzz.",
    "within": "within:rwda:a.|r.",
    **{f"no-{scope}": f"no-{scope}:{'+'.join(sorted(SCOPES - {scope}))}" for scope in SCOPES},
}
OPEN = {"/", "/healthz", "/readyz", "/v0/health", "/v0/leader", "/v0/ready", "/openapi.json"}
OPEN |= {"/console/:file", "/console/:folder/:file"}
# The last word of a path, where it is a verb, or the method: what the contract asks for.
BY_VERB = {
    "diff": {"read"},
    "delete": {"delete"},
    "claim": {"read", "write"},
    "work": {"read", "write"},
    "ack": {"write"},
    "nack": {"write"},
    "extend": {"write"},
    "redrive": {"admin"},
    "watch": {"read"},
    "advance": {"admin"},
    "finalize": {"admin"},
    "handover": {"admin"},
}
BY_METHOD = {"GET": {"read"}, "PUT": {"admin"}, "PATCH": {"admin"}, "DELETE": {"delete"}, "POST": {"write"}}
ANSWERED = 200
VALUES = {"seq": "1", "wid": "wid_0123456789abcdefghijkl", "folder": "views", "file": "app.js"}


@pytest.fixture(scope="module")
def service() -> Service:
    settings = ServerSettings(test_clock=True)
    return Service(settings, environment={"TENURE_API_KEYS": ",".join(KEYS.values())})


TABLE = Service(ServerSettings(test_clock=True), environment={}).app.routes
GUARDED = [route for route in TABLE if route.pattern not in OPEN]


def ids(route: Route) -> str:
    return f"{route.method} {route.pattern}"


def path_of(route: Route) -> str:
    return re.sub(r":(\w+)", lambda found: VALUES.get(found[1], "a.x"), route.pattern)


def has_name(route: Route) -> bool:
    return bool(set(re.findall(r":(\w+)", route.pattern)) - set(VALUES))


def ask(service: Service, route: Route, key: str = "", *, query: str = "", method: str = "", path: str = "") -> int:
    headers = {"host": "queue.example", "content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    request = Request(method or route.method, path or path_of(route), query=query, headers=headers, body=b"{}")
    result = handle(service.app, request)
    if not isinstance(result, Response):
        assert isinstance(result, Coroutine), "no write waits where there is no broker yet"
        result.close()
        return ANSWERED
    return result.status


def admitted(status: int) -> bool:
    """There is no broker behind this table: who gets past the keys hears 503, unless the route needs none."""
    return status in (503, ANSWERED)


def test_the_open_routes_are_these_and_no_others(service: Service):
    assert {route.pattern for route in TABLE if not route.scopes} <= OPEN
    for route in TABLE:
        if not route.scopes:
            assert route.method == "GET"
            assert ask(service, route) in (200, 404, 503)


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_route_asks_for_the_scopes_of_the_contract(route: Route):
    verb = route.pattern.rpartition("/")[2]
    assert route.scopes == BY_VERB.get(verb, BY_METHOD[route.method])


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_without_a_key_or_with_a_wrong_one_it_is_401(service: Service, route: Route):
    assert ask(service, route) == 401
    for wrong in ("wrong", "al", "allall", "ALL", "all all"):
        assert ask(service, route, wrong) == 401


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_with_everything_it_is_let_through(service: Service, route: Route):
    assert admitted(ask(service, route, "all"))
    assert admitted(ask(service, route, "within"))


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_without_one_of_its_scopes_it_is_403(service: Service, route: Route):
    for scope in SCOPES:
        status = ask(service, route, f"no-{scope}")
        assert status == 403 if scope in route.scopes else admitted(status)


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_with_another_prefix_it_is_403_where_the_path_has_a_name(service: Service, route: Route):
    status = ask(service, route, "elsewhere")
    assert status == 403 if has_name(route) else admitted(status)


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_token_in_the_query_is_for_streams_only(service: Service, route: Route):
    status = ask(service, route, query="token=all")
    assert admitted(status) if route.sse else status == 401
    assert ask(service, route, query="token=wrong") == 401


@pytest.mark.parametrize("route", [route for route in GUARDED if route.method == "GET"], ids=ids)
def test_head_is_guarded_as_get_is(service: Service, route: Route):
    assert ask(service, route, method="HEAD") == 401
    assert ask(service, route, "no-read", method="HEAD") == 403
    assert admitted(ask(service, route, "all", method="HEAD"))


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_no_spelling_of_a_path_leads_around_the_keys(service: Service, route: Route):
    path = path_of(route)
    for odd in (f"/{path}", f"{path}/", path.replace("/v0/", "/v0//"), path.replace("/v0", "/V0"), f"{path}/."):
        assert ask(service, route, path=odd) in (401, 404, 405)
    for method in ("OPTIONS", "TRACE", "PATCH", "CONNECT", "get"):
        assert ask(service, route, method=method) in (401, 405)


# Names that are not in the path


@pytest.fixture
async def site(service: Service, broker: Broker, clock: Any) -> Site:
    for topic in ("a.q", "b.q"):
        await broker.put_topic(topic, {"type": "queue"})
    await broker.put_router("b.r", source="b.q", dest="b.copy")
    whole = Service(service.settings, environment=service._environment)
    whole.context.set_broker(broker)
    return Site(whole.app, broker, clock)


WITHIN = {"authorization": "Bearer within", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PUT", "/v0/routers/r.x", {"source": "b.q", "dest": "a.copy"}),
        ("PUT", "/v0/routers/r.x", {"source": "a.q", "dest": "b.q"}),
        ("PUT", "/v0/topics/a.new", {"type": "queue", "dead_letter": "b.dead"}),
        ("POST", "/v0/topics/a.new", {"records": [{"data": 1}], "config": {"dead_letter": "b.dead"}}),
        ("POST", "/v0/watch", {"topics": {"b.q": {}}}),
        ("POST", "/v0/watch", {"topics": {"a.q": {}, "b.q": {}}}),
        ("POST", "/v0/topics/a.q/redrive", {"to": "b.q"}),
        ("GET", "/v0/routers/b.r", None),
        ("DELETE", "/v0/routers/b.r", None),
    ],
)
async def test_names_in_bodies_are_held_to_the_prefix(site: Site, method: str, target: str, body: Any):
    """Another tenant's topic cannot be reached by naming it elsewhere (fault 47)."""
    before = site.state()
    reply = await site.call(method, target, body, headers=WITHIN)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert site.state() == before


async def test_lists_show_what_the_key_reaches(site: Site):
    listed = await site.get("/v0/topics", headers=WITHIN)
    assert [topic["topic"] for topic in listed["topics"]] == ["a.q"]
    assert (await site.get("/v0/routers", headers=WITHIN))["routers"] == []
    text = (await site.get("/v0/metrics", headers=WITHIN)).raw.decode()
    assert 'topic="a.q"' in text
    assert "b.q" not in text


async def test_a_watch_opens_only_with_the_key_that_made_it(site: Site):
    made = await site.post("/v0/watch", {"topics": {"a.q": {}}}, headers=WITHIN)
    assert made.status == 200
    stream = {"accept": "text/event-stream"}
    for key in ("all", "elsewhere"):
        other = await site.get(made["stream_url"], headers=stream | {"authorization": f"Bearer {key}"})
        assert other.status in (401, 403, 404)
    assert (await site.get(made["stream_url"], headers=stream | WITHIN)).status == 200

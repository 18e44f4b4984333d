"""Every route × (another method, another spelling of its path, a token in the query), with keys and without (46).

The matrix is made from the route table of a whole server, so a new route is in it before anybody thinks of it. Which
key may call a route by its own method and path is in `auth_rows.py`.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any

import pytest

from tenure import Broker
from tenure.http.api.app import Route
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.http.wire.message import Request, Response
from tests.http.conftest import Site
from tests.http.wire_support import handle

KEYS = {
    "all": "all",
    "elsewhere": "elsewhere:rwda:zzz.",
    "within": "within:rwda:a.|r.",
    "no-read": "no-read:wda",
}
OPEN = {"/", "/healthz", "/readyz", "/v0/health", "/v0/leader", "/v0/ready", "/openapi.json"}
OPEN |= {"/console/:file", "/console/:folder/:file"}
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


# Sessions


@pytest.fixture
async def site(service: Service, broker: Broker, clock: Any) -> Site:
    await broker.put_topic("a.q", {"type": "queue"})
    whole = Service(service.settings, environment=service._environment)
    whole.context.set_broker(broker)
    return Site(whole.app, broker, clock)


WITHIN = {"authorization": "Bearer within", "content-type": "application/json"}


async def test_a_watch_opens_only_with_the_key_that_made_it(site: Site):
    made = await site.post("/v0/watch", {"topics": {"a.q": {}}}, headers=WITHIN)
    assert made.status == 200
    stream = {"accept": "text/event-stream"}
    for key in ("all", "elsewhere"):
        other = await site.get(made["stream_url"], headers=stream | {"authorization": f"Bearer {key}"})
        assert other.status in (401, 403, 404)
    assert (await site.get(made["stream_url"], headers=stream | WITHIN)).status == 200

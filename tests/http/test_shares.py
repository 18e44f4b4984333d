"""What one key may use up of what all share: topics, routers, idempotency keys, watch sessions (fault 49)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.errors import Invalid
from tenure.http.api.shares import Shares, Tally
from tenure.http.service import Service
from tenure.http.settings import ServerSettings, check_start
from tenure.testing.clock import ManualClock
from tests.http.conftest import Reply, Site

ENGINE = Settings(topics_max=12, routers_max=12, idempotency_keys_max=12)
SETTINGS = ServerSettings(engine=ENGINE, watch_sessions_max=12)
SHARE = 3
WITH_PREFIXES = "one:rwda:a.,other:rwda:b."
WITHOUT = "one,other"


class Second:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    async with await Broker.open(None, clock=clock, settings=ENGINE) as broker:
        yield broker


@pytest.fixture
def second() -> Second:
    return Second()


@pytest.fixture
def serve(broker: Broker, clock: ManualClock, second: Second) -> Callable[..., Site]:
    """A server that was just started on the broker, as after a restart: it knows what is in the log and no more."""

    def make(keys: str, settings: ServerSettings = SETTINGS) -> Site:
        service = Service(settings, environment={"TENURE_API_KEYS": keys})
        service.context.shares = Shares(settings, keys=lambda: service.gate.ring.keys, now_s=second)
        service.context.set_broker(broker)
        return Site(service.app, broker, clock)

    return make


@pytest.fixture(params=[WITH_PREFIXES, WITHOUT], ids=["with prefixes", "without"])
def site(request: pytest.FixtureRequest, serve: Callable[..., Site]) -> Site:
    return serve(request.param)


def by(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "host": "queue.example"}


def put_topic(site: Site, key: str, name: str) -> Any:
    return site.put(f"/v0/topics/{name}", headers=by(key))


def append_to_new(site: Site, key: str, name: str) -> Any:
    return site.post(f"/v0/topics/{name}", {"records": [{"data": 1}]}, headers=by(key))


def put_router(site: Site, key: str, name: str) -> Any:
    ends = {"source": f"{name[:2]}source", "dest": f"{name[:2]}dest"}
    return site.put(f"/v0/routers/{name}", ends, headers=by(key))


def append_with_key(site: Site, key: str, name: str) -> Any:
    body = {"records": [{"data": 1}], "idempotency_key": name}
    return site.post(f"/v0/topics/{name[:2]}t", body, headers=by(key))


def watch(site: Site, key: str, name: str) -> Any:
    return site.post("/v0/watch?lenient=true", {"topics": {name: {}}}, headers=by(key))


def refused(reply: Reply, of: str) -> bool:
    detail = reply["error"]["detail"] if reply.status == 429 else {}
    assert not detail or reply.headers[b"retry-after"]
    return detail == {"limit": "key_share_percent", "max": 25, "share": SHARE, "of": of}


KINDS = [
    (put_topic, "engine.topics_max"),
    (append_to_new, "engine.topics_max"),
    (put_router, "engine.routers_max"),
    (append_with_key, "engine.idempotency_keys_max"),
    (watch, "watch_sessions_max"),
]


@pytest.mark.parametrize(("take", "of"), KINDS)
async def test_a_key_takes_its_share_and_leaves_the_rest_to_others(site: Site, take: Any, of: str) -> None:
    for number in range(SHARE):
        assert (await take(site, "one", f"a.{number}")).status < 300
    before = site.state()
    for number in range(SHARE, SHARE + 20):
        assert refused(await take(site, "one", f"a.{number}"), of)
    assert site.state() == before
    for number in range(SHARE):
        assert (await take(site, "other", f"b.{number}")).status < 300
    assert refused(await take(site, "other", "b.x"), of)


@pytest.mark.parametrize(
    ("take", "path"),
    [(put_topic, "/v0/topics/a.0"), (append_to_new, "/v0/topics/a.0"), (put_router, "/v0/routers/a.0")],
)
async def test_what_is_deleted_is_free_again(site: Site, second: Second, take: Any, path: str) -> None:
    for number in range(SHARE):
        assert (await take(site, "one", f"a.{number}")).status < 300
    assert (await take(site, "one", "a.x")).status == 429
    assert (await site.delete(path, headers=by("one")))["deleted"]
    second.now_s += 1
    assert (await take(site, "one", "a.x")).status == 201
    assert (await take(site, "one", "a.y")).status == 429


async def test_a_share_of_keys_is_free_again_once_their_window_has_passed(site: Site, second: Second) -> None:
    for number in range(SHARE):
        assert (await append_with_key(site, "one", f"a.{number}")).status < 300
    assert (await append_with_key(site, "one", "a.x")).status == 429
    site.clock.advance(120_001)
    second.now_s += 1
    assert (await append_with_key(site, "one", "a.x")).status == 200


async def test_what_is_there_already_needs_no_share(site: Site) -> None:
    """A config is replaced, a router too, and a repeated append is answered with its first seqs."""
    for number in range(SHARE):
        assert (await put_topic(site, "one", f"a.{number}")).status == 201
        assert (await put_router(site, "one", f"a.{number}")).status == 201
    assert (await put_topic(site, "one", "a.0")).status == 200
    assert (await put_router(site, "one", "a.0")).status == 200
    body = {"records": [{"data": 1}], "idempotency_key": "k0"}
    for number in range(SHARE):
        await site.post("/v0/topics/a.0", body | {"idempotency_key": f"k{number}"}, headers=by("one"))
    assert (await site.post("/v0/topics/a.0", body, headers=by("one")))["deduped"]
    assert (await site.post("/v0/topics/a.0", body | {"idempotency_key": "new"}, headers=by("one"))).status == 429
    assert (await site.post("/v0/topics/a.0", {"records": [{"data": 1}]}, headers=by("one"))).status == 200


async def test_a_restart_gives_a_key_with_prefixes_no_second_share(serve: Callable[..., Site]) -> None:
    first = serve(WITH_PREFIXES)
    for take in (put_topic, put_router):
        for number in range(SHARE):
            assert (await take(first, "one", f"a.{number}")).status == 201
    for number in range(SHARE):
        body = {"records": [{"data": 1}], "idempotency_key": f"k{number}"}
        assert (await first.post(f"/v0/topics/a.{number}", body, headers=by("one"))).status == 200
    again = serve(WITH_PREFIXES)
    assert refused(await put_topic(again, "one", "a.x"), "engine.topics_max")
    assert refused(await put_router(again, "one", "a.x"), "engine.routers_max")
    body = {"records": [{"data": 1}], "idempotency_key": "new"}
    assert refused(await again.post("/v0/topics/a.0", body, headers=by("one")), "engine.idempotency_keys_max")
    assert (await put_topic(again, "other", "b.x")).status == 201


async def test_two_keys_of_one_tenant_have_one_share_together(serve: Callable[..., Site]) -> None:
    site = serve("one:rwda:a.,two:rwda:a.")
    for number in range(SHARE):
        assert (await put_topic(site, "one", f"a.{number}")).status == 201
    assert (await put_topic(site, "two", "a.x")).status == 429


@pytest.mark.parametrize(
    ("keys", "settings"),
    [("one", SETTINGS), (WITH_PREFIXES, ServerSettings(engine=ENGINE, watch_sessions_max=12, key_share_percent=0))],
    ids=["a single key", "turned off"],
)
async def test_without_shares_a_key_may_use_up_the_whole_limit(
    serve: Callable[..., Site], keys: str, settings: ServerSettings
) -> None:
    site = serve(keys, settings)
    for take, limit in ((put_topic, "topics_max"), (put_router, "routers_max"), (watch, "watch_sessions_max")):
        for number in range(12):
            assert (await take(site, "one", f"a.{number}")).status < 300
        assert (await take(site, "one", "a.x"))["error"]["detail"] == {"limit": limit, "max": 12}


async def test_keys_that_are_read_again_keep_what_they_hold(broker: Broker) -> None:
    service = Service(SETTINGS, environment={"TENURE_API_KEYS": WITHOUT})
    [one, other] = service.gate.ring.keys
    share = service.shares.of(one, broker)
    service.shares.keep([one])
    assert service.shares.of(one, broker) is share
    service.shares.keep([other])
    assert service.shares.of(one, broker) is not share


def test_a_share_is_a_percentage_of_a_limit_and_at_least_one() -> None:
    assert ServerSettings().share_of(100_000) == 25_000
    assert ServerSettings().share_of(2) == 1
    assert ServerSettings().share_of(0) == ServerSettings(key_share_percent=0).share_of(9) == 0
    with pytest.raises(Invalid, match="key_share_percent"):
        check_start(ServerSettings(key_share_percent=101), has_keys=True)


# Tallies


class Things:
    """Things under names, and how often they were counted."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.looks = 0

    def alive(self, name: str) -> int:
        self.looks += 1
        return self.held.get(name, 0)

    def names(self) -> Iterator[str]:
        return iter(list(self.held))

    def tally(self, most: int, now_s: Callable[[], float], *, prefixed: bool) -> Tally:
        names = self.names if prefixed else None
        return Tally(most, total=lambda: sum(self.held.values()), alive=self.alive, names=names, now_s=now_s)

    def add(self, tally: Tally, name: str) -> bool:
        taken = tally.take(name)
        if taken:
            self.held[name] = self.held.get(name, 0) + 1
        return taken


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_tally_at_its_share_is_counted_once_a_second_however_many_ask(second: Second, prefixed: bool) -> None:
    things = Things()
    tally = things.tally(100, second, prefixed=prefixed)
    assert all(things.add(tally, f"n{number}") for number in range(100))
    things.looks = 0
    for _ in range(1_000):
        assert not things.add(tally, "x")
    assert things.looks <= 100
    second.now_s += 1
    assert not things.add(tally, "x")
    assert things.looks <= 200


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_tally_below_its_share_counts_nothing(second: Second, prefixed: bool) -> None:
    things = Things()
    tally = things.tally(100, second, prefixed=prefixed)
    assert all(things.add(tally, "n") for _ in range(99))
    assert things.looks == 0


def test_a_tally_of_a_key_without_prefixes_counts_only_what_it_took(second: Second) -> None:
    things = Things()
    things.held = {"shared": 1_000}
    tally = things.tally(2, second, prefixed=False)
    assert things.add(tally, "shared")
    assert things.add(tally, "own")
    assert not things.add(tally, "own")
    things.held = {"shared": 0, "own": 500}
    second.now_s += 1
    assert things.add(tally, "own")
    assert not things.add(tally, "own")

"""Bytes that wait for a sync, by owner: a key's appends and the copies of its routers have one share (fault 49)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.core.state.router import Router
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.testing.clock import ManualClock
from tests.http.conftest import Reply, Site
from tests.http.test_shares import by
from tests.kit.brokers import GatedLog, turn

ENGINE = Settings(
    pending_bytes_max=40_000,
    router_pending_bytes_max=2_000,
    router_step_bytes=500,
    routers_per_source_max=12,
)
SHARE = 10_000
UNCOUNTED = 5_000
"""An eighth of what may wait: below it nothing is counted, so that appends on a fast disk cost nothing."""
SETTINGS = ServerSettings(engine=ENGINE)
KEYS = "one:rwda:a.,too:rwda:a.,other:rwda:b.,plain,third:rwda:c."
BODY = {"records": [{"data": "x" * 480}]}
BODY_BYTES = 482


@pytest.fixture
def log() -> GatedLog:
    return GatedLog()


@pytest.fixture
async def broker(clock: ManualClock, log: GatedLog) -> AsyncIterator[Broker]:
    async with await Broker.open(log, clock=clock, settings=ENGINE) as broker:
        for topic in ("a.q", "b.q", "c.q", "plain"):
            await broker.put_topic(topic)
        await broker.synced()
        yield broker
        log.gate.set()


@pytest.fixture
def service(broker: Broker) -> Service:
    service = Service(SETTINGS, environment={"TENURE_API_KEYS": KEYS})
    service.context.set_broker(broker)
    return service


@pytest.fixture
def site(service: Service, broker: Broker, clock: ManualClock) -> Site:
    return Site(service.app, broker, clock)


async def append(site: Site, key: str, topic: str) -> Reply:
    reply = await site.post(f"/v0/topics/{topic}", BODY, headers=by(key))
    await turn()
    return reply


async def flood(site: Site, key: str, topic: str) -> tuple[int, Reply]:
    """Append until an append is refused; how many were taken, and the refusal."""
    for taken in range(200):
        reply = await append(site, key, topic)
        if reply.status != 200:
            return taken, reply
    raise AssertionError("no append was refused")


async def test_a_key_that_floods_a_slow_disk_is_refused_alone(site: Site, log: GatedLog) -> None:
    log.gate.clear()
    taken, refusal = await flood(site, "one", "a.q")
    assert SHARE <= taken * BODY_BYTES <= SHARE + UNCOUNTED + 3 * BODY_BYTES
    detail = {"limit": "key_share_percent", "max": 25, "share": SHARE, "of": "engine.pending_bytes_max"}
    assert (refusal.status, refusal["error"]["detail"]) == (429, detail)
    assert "wait for a sync" in refusal["error"]["message"]
    assert refusal.headers[b"retry-after"]
    assert (await append(site, "too", "a.q")).status == 429, "another key of the same tenant"
    for key, topic in (("other", "b.q"), ("plain", "plain"), ("third", "c.q")):
        for _ in range(10):
            assert (await append(site, key, topic)).status == 200
    log.gate.set()
    await site.broker.synced()
    assert (await append(site, "one", "a.q")).status == 200


async def test_a_key_without_prefixes_has_a_share_of_its_own(site: Site, log: GatedLog) -> None:
    log.gate.clear()
    _, refusal = await flood(site, "plain", "plain")
    assert refusal["error"]["detail"]["share"] == SHARE
    assert (await append(site, "one", "a.q")).status == 200


async def test_copies_count_towards_the_share_of_the_owner_of_their_router(site: Site, log: GatedLog) -> None:
    """With twelve routers the same key is refused earlier, by as much as was copied for it; the others are not."""
    for number in range(12):
        body = {"source": "a.q", "dest": f"a.to.{number}"}
        assert (await site.put(f"/v0/routers/a.{number}", body, headers=by("one"))).status == 201
    await site.broker.synced()
    account = site.app.context.shares.owner_of(site.broker.router("a.0"))
    log.gate.clear()
    assert (await append(site, "one", "a.q")).status == 200
    copied = account.held(site.broker._state.synced_bytes)
    assert 2_000 <= copied < 2_000 + 600, "what may be copied before a sync"
    taken, _ = await flood(site, "one", "a.q")
    assert SHARE <= taken * BODY_BYTES + copied <= SHARE + UNCOUNTED + 3 * BODY_BYTES
    assert (await append(site, "other", "b.q")).status == 200


async def test_one_append_to_as_many_routers_as_may_be_has_no_neighbour_refused(site: Site, log: GatedLog) -> None:
    for number in range(12):
        body = {"source": "a.q", "dest": f"a.to.{number}"}
        assert (await site.put(f"/v0/routers/a.{number}", body, headers=by("one"))).status == 201
    more = await site.put("/v0/routers/a.x", {"source": "a.q", "dest": "a.to.x"}, headers=by("one"))
    assert (more.status, more["error"]["detail"]) == (429, {"limit": "routers_per_source_max", "max": 12})
    await site.broker.synced()
    log.gate.clear()
    big = {"records": [{"data": "x" * 480}] * 10}
    assert (await site.post("/v0/topics/a.q", big, headers=by("one"))).status == 200
    await turn()
    for _ in range(20):
        assert (await append(site, "other", "b.q")).status == 200


# Owners


def router(name: str, source: str) -> Router:
    return Router(name=name, source=source, dest="d")


async def test_the_owner_of_a_router_is_found_by_its_name_its_maker_or_its_source(service: Service, site: Site) -> None:
    shares = service.shares
    one, too, other, plain, third = (shares._unsynced_of(key) for key in service.gate.ring.keys)
    assert one is too
    assert len({id(one), id(other), id(plain), id(third)}) == 4
    assert shares.owner_of(router("a.r", "b.q")) is one
    assert shares.owner_of(router("r", "b.q")) is other
    assert shares.owner_of(router("r", "q")) is None
    await site.put("/v0/routers/r", {"source": "b.q", "dest": "d"}, headers=by("plain"))
    assert shares.owner_of(site.broker.router("r")) is plain


async def test_the_longest_prefix_owns(broker: Broker) -> None:
    service = Service(SETTINGS, environment={"TENURE_API_KEYS": "one:rwda:a.,two:rwda:a.b.|c."})
    service.context.set_broker(broker)
    one, two = (service.shares._unsynced_of(key) for key in service.gate.ring.keys)
    assert service.shares.owner_of(router("a.b.r", "q")) is two
    assert service.shares.owner_of(router("a.r", "q")) is one
    assert service.shares.owner_of(router("c.r", "q")) is two


@pytest.mark.parametrize(
    ("keys", "percent"), [("one:rwda:a.", 25), ("one:rwda:a.,two", 0)], ids=["a single key", "turned off"]
)
async def test_without_shares_a_router_has_no_account(broker: Broker, keys: str, percent: int) -> None:
    settings = ServerSettings(engine=ENGINE, key_share_percent=percent)
    service = Service(settings, environment={"TENURE_API_KEYS": keys})
    service.context.set_broker(broker)
    assert service.shares.owner_of(router("a.r", "a.q")) is None


async def test_keys_that_are_read_again_keep_their_accounts_and_others_go(service: Service, site: Site) -> None:
    shares = service.shares
    [one, too, other, plain, _] = service.gate.ring.keys
    accounts = [shares._unsynced_of(key) for key in (one, other, plain)]
    await site.put("/v0/routers/r", {"source": "q", "dest": "d"}, headers=by("plain"))
    shares.keep([too, plain])
    assert shares._unsynced_of(too) is accounts[0]
    assert shares.owner_of(router("r", "q")) is accounts[2]
    assert shares._unsynced_of(other) is not accounts[1]
    shares.keep([too])
    assert shares.owner_of(router("r", "q")) is None


async def test_a_broker_that_is_opened_again_starts_with_empty_accounts(service: Service, clock: ManualClock) -> None:
    """Its bytes are counted from 0 again, so what was noted of the one before would never be synced."""
    before = service.shares._unsynced_of(service.gate.ring.keys[0])
    before.add(SHARE, 1 << 40)
    async with await Broker.open(None, clock=clock, settings=ENGINE) as again:
        service.context.set_broker(again)
        account: Any = service.shares.owner_of(router("a.r", "a.q"))
        assert account is not before
        assert not account.is_full(0)


async def test_the_makers_of_routers_that_are_gone_are_forgotten(service: Service, broker: Broker) -> None:
    plain = service.gate.ring.keys[3]
    for number in range(5_000):
        service.shares.note_maker(f"r{number}", plain, broker)
    assert len(service.shares._makers) <= 1_001

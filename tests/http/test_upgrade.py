"""The features of a server over HTTP: shown to readers, turned on by an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tenure import Broker, __version__
from tenure.contract.replies import FeatureInfo
from tenure.errors import Conflict
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.log import FileLog
from tenure.settings import Settings
from tenure.testing import ManualClock, SimDisk
from tests.http.conftest import Site, when
from tests.kit.clusters import leading
from tests.kit.versions import NEWER, OLDER

WIDGETS, GADGETS = {"name": "widgets", "since": "9.1.0"}, {"name": "gadgets", "since": "9.2.0"}


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker of the newer version on a directory of the older one."""
    disk = SimDisk(1)
    await (await Broker.open(FileLog.open(disk, known=OLDER), clock=clock)).close()
    async with await Broker.open(FileLog.open(disk, known=NEWER), clock=clock) as broker:
        yield broker


async def test_the_version_and_its_features_are_shown(site: Site) -> None:
    reply = await site.get("/v0/upgrade")
    assert reply.status == 200
    assert (reply["version"], reply["on"], reply["off"]) == (__version__, [WIDGETS], [GADGETS])


async def test_finalize_turns_every_feature_on_and_a_repeat_changes_nothing(site: Site) -> None:
    reply = await site.put("/v0/routers/r", {"source": "a", "dest": "b"})
    assert (reply.status, reply.code) == (409, "feature_off")
    for _ in range(2):
        reply = await site.post("/v0/upgrade/finalize")
        assert (reply.status, reply["on"], reply["off"]) == (200, [WIDGETS, GADGETS], [])
    assert (await site.put("/v0/routers/r", {"source": "a", "dest": "b"})).status in (200, 201)
    assert (await site.get("/v0/upgrade"))["off"] == []


async def test_a_tenant_cannot_finalize_the_upgrade_of_the_whole_server(broker: Broker, clock: ManualClock) -> None:
    service = Service(ServerSettings(), environment={"TENURE_API_KEYS": "root,blue:rwda:blue."})
    service.context.set_broker(broker)
    site = Site(service.app, broker, clock)
    headers = {"host": "queue.example", "authorization": "Bearer blue"}
    assert (await site.get("/v0/upgrade", headers=headers))["off"] == [GADGETS]
    refused = await site.post("/v0/upgrade/finalize", headers=headers)
    assert (refused.status, refused.code) == (403, "forbidden")
    assert broker.upgrade_status().off
    reply = await site.post("/v0/upgrade/finalize", headers=headers | {"authorization": "Bearer root"})
    assert (reply.status, reply["off"]) == (200, [])


async def test_a_server_that_replays_is_not_asked(broker: Broker, clock: ManualClock) -> None:
    site = Site(App(Context(), ROUTES), broker, clock)
    for reply in (await site.get("/v0/upgrade"), await site.post("/v0/upgrade/finalize")):
        assert (reply.status, reply.code) == (503, "not_ready")


async def test_finalize_is_refused_while_a_server_could_not_read_what_it_turns_on(site: Site) -> None:
    cluster = leading()
    cluster.unreadable = Conflict("http://b:4000 cannot read it", code="members_too_old", members=["http://b:4000"])
    site.app.context.cluster = cluster
    reply = await site.post("/v0/upgrade/finalize")
    assert (reply.status, reply.code) == (409, "members_too_old")
    assert cluster.wanted == ["gadgets"]
    assert (await site.get("/v0/upgrade"))["off"] == [GADGETS]
    reply = await site.post("/v0/upgrade/finalize?force=true")
    assert (reply.status, reply["off"]) == (200, [])
    assert (await site.post("/v0/upgrade/finalize")).status == 200, "a repeat asks nobody"
    assert cluster.wanted == ["gadgets"]


async def test_what_is_finalized_by_itself_waits_for_the_others_too(clock: ManualClock) -> None:
    disk, asked = SimDisk(1), list[str]()
    await (await Broker.open(FileLog.open(disk, known=OLDER), clock=clock)).close()

    async def refuse(features: Sequence[FeatureInfo]) -> None:
        asked.extend(feature.name for feature in features)
        if len(asked) < 3:
            raise Conflict("not yet", code="members_too_old")

    settings = Settings(upgrade_finalize_after_ms=1)
    async with await Broker.open(FileLog.open(disk, known=NEWER), clock=clock, settings=settings) as broker:
        broker._upgrade.check_readers = refuse
        await when(lambda: not broker.upgrade_status().off)
    assert asked == ["gadgets"] * 3

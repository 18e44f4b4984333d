"""The features of a server over HTTP: shown to readers, turned on by an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenure import Broker, __version__
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.log import FileLog
from tenure.testing import ManualClock, SimDisk
from tests.http.conftest import Site
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

"""kill -9 of a server with a home, again and again, half of the time with its disk: nothing lost, nothing undone."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.chain.real.killing import CAREFUL, Killing
from tests.chain.real.kit import home_settings, verify_home, wait_until_ready
from tests.kit.restartable_server import SMALL_LOG, Serve


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.full)])
def test_kills_and_lost_disks_lose_nothing_undo_no_ack_and_keep_the_counts(serve: Serve, home: str, kills: int):
    server = serve(start=False, settings=SMALL_LOG | home_settings(home))
    killing = Killing(server, seed=kills)
    asyncio.run(killing.run(kills))
    assert killing.burned == kills // 2
    for what, report in killing.reports().items():
        print(what, report)
        assert report.ok, f"{what}: {report}"
        assert report.acked > 5 * kills
    assert killing.journal.problems == []
    dead = server.ok("GET", "/v0/topics/dead?touch=false")
    assert server.terminate() == 0
    verified = verify_home(home)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    shutil.rmtree(server.home)
    server.start()  # at once: the lead was given up, so there is nobody's silence to wait for
    wait_until_ready(server)
    assert server.ok("GET", "/v0/topics/dead?touch=false")["count"] == dead["count"]
    assert server.queue(CAREFUL)["ready"] == 0

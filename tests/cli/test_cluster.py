"""`tenure cluster`: what servers that share a home report, the hand-over, and the proof of the home."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import Broker
from tenure.chain.open import open_shipped
from tenure.chain.settings import ChainSettings
from tenure.clock import SystemClock
from tenure.errors import Conflict
from tenure.log.disk import open_directory
from tenure.objects.store import open_store
from tests.cli.conftest import Remote, Tenure
from tests.kit.clusters import FakeCluster, leading, member, standing

NOBODY = "http://127.0.0.1:1"


def status(tenure: Tenure, *urls: str, code: int = 0) -> dict[str, Any]:
    done = tenure("cluster", "status", ",".join(urls), "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_server_that_shares_its_log_with_nobody_is_alone(remote: Remote) -> None:
    found = remote.json("cluster", "status")
    assert [server["role"] for server in found["servers"]] == ["alone"]
    assert "it is alone" in remote.ok("cluster", "status")


def test_each_server_is_asked_and_the_leader_is_named(tenure: Tenure) -> None:
    first, second = leading(), FakeCluster(follow_lag_links=2, follow_lag_ms=140)
    with standing(first) as one, standing(second) as two:
        first.found = msgspec.structs.replace(first.found, url=one, leader=one, members=[member("http://c:1")])
        second.found = msgspec.structs.replace(second.found, url=two, leader=one)
        found = status(tenure, one, two)
        assert (found["leader"], found["epoch"]) == (one, 7)
        assert [server["role"] for server in found["servers"]] == ["leader", "standby"]
        done = tenure("cluster", "status", f"{one},{two}")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"led by {one}" in done.stdout
        assert "2 links, 140ms" in done.stdout
        assert "http://c:1" in done.stdout, "seen by the first, and not asked"


def test_a_server_that_does_not_answer_is_a_problem_and_the_others_are_shown(tenure: Tenure) -> None:
    with standing(leading(member(NOBODY))) as one:
        found = status(tenure, NOBODY, one, code=1)
        assert found["servers"][0]["error"]["code"] == "unreachable"
        assert found["servers"][1]["role"] == "leader"
        rows = [line for line in tenure("cluster", "status", f"{NOBODY},{one}").stdout.splitlines() if "|" in line]
        assert [NOBODY in row for row in rows].count(True) == 1, "asked and seen is one server"
    assert tenure("cluster", "status", NOBODY).returncode == 5, "nobody answered: later"


def test_a_cluster_without_a_leader_is_a_problem(tenure: Tenure) -> None:
    with standing(FakeCluster(leader="")) as one:
        assert status(tenure, one, code=1)["leader"] is None
        assert "none of these leads" in tenure("cluster", "status", one).stdout


def test_the_lead_is_handed_over(tenure: Tenure) -> None:
    cluster = leading(member("http://b:4000"))
    with standing(cluster) as url:
        done = tenure("cluster", "handover", "--url", url, "--to", "http://b:4000")
        assert (done.returncode, done.stderr) == (0, "")
        assert "http://b:4000 takes the lead" in done.stdout
        assert cluster.asked == ["http://b:4000"]


def test_the_servers_are_named_as_for_the_status(tenure: Tenure) -> None:
    cluster = leading(member("http://b:4000"))
    with standing(cluster) as url:
        assert tenure("cluster", "handover", f"{NOBODY},{url}").returncode == 0
        assert tenure("cluster", "verify", url).returncode == 1, "it is asked, and has no home to prove"
        assert tenure("cluster", "verify", NOBODY).returncode == 5
    assert cluster.asked == [""]


@pytest.mark.parametrize(
    ("to", "code", "word"),
    [("http://c:1", 1, "no server at http://c:1"), ("", 1, "nobody follows"), ("c", 2, "url must")],
)
def test_a_hand_over_that_cannot_be_says_why(tenure: Tenure, to: str, code: int, word: str) -> None:
    cluster = leading(member("http://b:4000"))
    cluster.refusal = Conflict("nobody follows closely enough", code="no_standby")
    with standing(cluster) as url:
        done = tenure("cluster", "handover", "--url", url, *(("--to", to) if to else ()))
        assert (done.returncode, done.stdout) == (code, "")
        assert word in done.stderr


def test_a_hand_over_that_is_asked_of_a_standby_reaches_the_leader(tenure: Tenure) -> None:
    cluster = leading(member("http://c:1"))
    with standing(cluster) as leader, standing(FakeCluster(leader=leader)) as url:
        assert tenure("cluster", "handover", "--url", url).returncode == 0
    assert cluster.asked == [""]


def test_a_hand_over_without_a_known_leader_is_for_later(tenure: Tenure) -> None:
    with standing(FakeCluster(leader="")) as url:
        done = tenure("cluster", "handover", "--url", url, "--timeout", "1s")
        assert done.returncode == 5
        assert "nobody is known to lead" in done.stderr


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A home with a few links."""
    url = (tmp_path / "home").as_uri()

    def opened() -> Any:
        store, disk = open_store(url), open_directory(str(tmp_path / "data"))
        settings, clock = ChainSettings(), SystemClock()
        return open_shipped(store, disk, settings=settings, clock=clock, segment_bytes=1 << 20, url="http://a:1")

    async def fill() -> None:
        async with await Broker.open(opened()) as broker:
            await broker.produce("t", [b"1"])

    asyncio.run(fill())
    return url


def test_the_home_of_a_running_server_is_proven_as_by_its_url(tenure: Tenure, home: str) -> None:
    with standing(leading(), home=home) as url:
        done = tenure("cluster", "verify", "--url", url, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert done.stdout == tenure("cluster", "verify", "--home", home, "--json").stdout
    assert done.stdout == tenure("home", "verify", home, "--json").stdout


@pytest.mark.parametrize("scheme", ["az", "s3", "gs", "http", "file"])
def test_no_address_that_a_server_names_is_asked_with_the_credentials_of_the_caller(
    tenure: Tenure, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "secret")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        named = f"{scheme}://c/home?endpoint=http://127.0.0.1:{stranger.getsockname()[1]}"
        with standing(leading(), home=named) as url:
            done = tenure("cluster", "verify", "--url", url)
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--home '{named}'" in done.stderr


def test_a_damaged_home_is_a_problem(tenure: Tenure, home: str) -> None:
    links = sorted(path for path in Path(home.removeprefix("file://")).rglob("chain/*/*") if path.is_file())
    links[-1].write_bytes(links[-1].read_bytes()[:-1] + b"\0")
    done = tenure("cluster", "verify", "--home", home)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_server_without_a_home_has_none_to_prove(remote: Remote) -> None:
    done = remote("cluster", "verify")
    assert done.returncode == 1
    assert "--home" in done.stderr

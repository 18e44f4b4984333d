"""`tenure home status`: what a home holds, and who keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure.log import checkpoint
from tenure.log.disk import open_directory
from tenure.objects.background import background
from tenure.objects.store import open_store
from tests.chain.kit import open_log
from tests.cli.conftest import Tenure


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A home with a checkpoint of its leader."""
    url = (tmp_path / "home").as_uri()
    log = open_log(open_store(url), open_directory(str(tmp_path / "data")), url="http://a:1")
    list(log.replay())
    log.append([(20, 1, b"one")])
    log.sync()
    position = log.position()
    checkpoint.save(log.disk, position, b"state")
    background().run(log._upkeep.save(position, log._notes.notes))
    log.close()
    return url


def test_the_maker_of_the_newest_checkpoint_is_shown(tenure: Tenure, home: str) -> None:
    done = tenure("home", "status", home, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["checkpoints"] == 1
    assert found["checkpoint"].pop("stored_ms") > 0
    assert found["checkpoint"] == {"batch": 2, "made_by": "http://a:1", "role": "leader"}
    text = tenure("home", "status", home).stdout
    assert "the newest is of batch 2, made by the leader http://a:1 " in text


def test_a_home_without_a_checkpoint_has_none_to_show(tenure: Tenure, home: str) -> None:
    for path in Path(home.removeprefix("file://"), "checkpoint").iterdir():
        path.unlink()
    assert json.loads(tenure("home", "status", home, "--json").stdout)["checkpoint"] is None
    assert "the newest" not in tenure("home", "status", home).stdout

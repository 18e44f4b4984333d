"""Files that other users can reach are reported at start, with the cure, and left as they are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tenure.http.service import Service, exposed
from tenure.http.settings import ServerSettings


def settings(tmp_path: Path, *, data: int, keys: int, tls: int) -> ServerSettings:
    (tmp_path / "data").mkdir()
    for name, mode in (("keys", keys), ("key.pem", tls), ("data", data)):
        path = tmp_path / name
        if name != "data":
            path.write_text("secret\n")
        path.chmod(mode)
    return ServerSettings(data=f"{tmp_path}/data", keys_file=f"{tmp_path}/keys", tls_key=f"{tmp_path}/key.pem", port=0)


def test_what_others_can_reach_is_named_with_its_cure(tmp_path: Path) -> None:
    directory, keys, tls = exposed(settings(tmp_path, data=0o755, keys=0o644, tls=0o604))
    assert directory.endswith(f"the data directory {tmp_path}/data (mode 755): chmod 700 it")
    assert keys.endswith(f"the keys file {tmp_path}/keys (mode 644): chmod 600 it")
    assert tls.endswith(f"the TLS key {tmp_path}/key.pem (mode 604): chmod 600 it")


def test_private_files_are_not_spoken_of_and_a_group_may_read_secrets(tmp_path: Path) -> None:
    assert exposed(settings(tmp_path, data=0o700, keys=0o600, tls=0o640)) == []


def test_a_group_may_neither_write_secrets_nor_enter_the_data(tmp_path: Path) -> None:
    assert len(exposed(settings(tmp_path, data=0o710, keys=0o660, tls=0o620))) == 3


def test_what_is_not_there_yet_is_not_spoken_of(tmp_path: Path) -> None:
    assert exposed(ServerSettings(data=f"{tmp_path}/none")) == []


async def test_a_server_warns_when_it_starts_and_when_keys_are_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(tmp_path, data=0o755, keys=0o644, tls=0o600)
    service = Service(ServerSettings(data=given.data, keys_file=given.keys_file, port=0), environment={})
    with caplog.at_level(logging.WARNING, "tenure.server"):
        await service.start()
        assert sum("other users" in message for message in caplog.messages) == 2
        (tmp_path / "data").chmod(0o700)
        service.reload_keys()
        assert sum("the keys file" in message for message in caplog.messages) == 2
        await service.open()
        await service.stop()
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "data").rglob("*")}
    assert modes == {0o700, 0o600}

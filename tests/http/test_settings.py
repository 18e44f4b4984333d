"""Settings come by flag, environment and file, in that order; what would be unsafe does not start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.errors import Invalid
from tenure.http.service import Service, load_keys
from tenure.http.settings import ServerSettings, check_start, load_settings, pairs, setting_names
from tests.cli.test_reference import code, rows

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "server-settings.md"


def load(flags: Mapping[str, Any] | None = None, file: Path | None = None, **environment: str) -> ServerSettings:
    return load_settings(flags or {}, environment=environment, file=file)[0]


def load_from(environment: Mapping[str, str]) -> ServerSettings:
    return load_settings({}, environment=environment)[0]


def shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_every_setting_is_listed_with_its_default_and_its_flag():
    listed = {code(row[0])[0]: code(row[1])[0] for row in rows(PAGE.read_text()) if len(row) == 4}
    expected = {name: shown(default) for name, default in setting_names() if not name.startswith("engine.")}
    assert listed == expected


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(tmp_path: Path):
    file = tmp_path / "tenure.toml"
    file.write_text('port = 1\nhost = "::1"\nlog_format = "json"\n[limits]\nheaders_max = 7\n[engine]\nclaim_max = 9\n')
    settings = load({"port": 3}, file, TENURE_PORT="2", TENURE_HOST="127.0.0.2")
    assert (settings.port, settings.host, settings.log_format) == (3, "127.0.0.2", "json")
    assert (settings.limits.headers_max, settings.engine.claim_max) == (7, 9)
    assert load({}, file, TENURE_LIMITS_HEADERS_MAX="8", TENURE_ENGINE_CLAIM_MAX="10").engine.claim_max == 10


def test_without_anything_every_setting_has_its_default():
    assert load() == ServerSettings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("test_clock", "true", True),
        ("test_clock", "1", True),
        ("test_clock", "off", False),
        ("host_names", "a.example, b.example", ("a.example", "b.example")),
        ("drain_ms", "0", 0),
    ],
)
def test_text_becomes_the_type_of_the_setting(name: str, text: str, value: Any):
    assert getattr(load_from({f"TENURE_{name.upper()}": text}), name) == value
    assert getattr(load(pairs([f"{name}={text}"])), name) == value


@pytest.mark.parametrize(
    "environment",
    [
        {"TENURE_PORT": "tcp://10.0.0.1:4000"},
        {"TENURE_PORT": "-1"},
        {"TENURE_LOG_FORMAT": "xml"},
        {"TENURE_TEST_CLOCK": "perhaps"},
        {"TENURE_LIMITS_TICK_MS": "0"},
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(environment: dict[str, str]):
    with pytest.raises(Invalid, match="the environment sets"):
        load_from(environment)


def test_a_name_that_is_no_setting_is_refused_in_a_file_and_told_of_in_the_environment(tmp_path: Path):
    file = tmp_path / "tenure.toml"
    for text in ("prot = 1\n", "[limits]\nbogus = 1\n", "limits = 1\n", "[bogus]\nx = 1\n"):
        file.write_text(text)
        with pytest.raises(Invalid, match="no setting"):
            load({}, file)
    file.write_text("port = \n")
    with pytest.raises(Invalid, match="not TOML"):
        load({}, file)
    with pytest.raises(Invalid, match="cannot be read"):
        load({}, tmp_path / "none")
    with pytest.raises(Invalid, match="name=value"):
        pairs(["port"])
    clients = {"TENURE_URL": "http://127.0.0.1:1", "TENURE_KEY": "k", "TENURE_NODE": "n"}
    _, strangers = load_settings({}, environment={"TENURE_BOGUS": "1", "TENURE_API_KEYS": "x", "HOME": "y"} | clients)
    assert strangers == ["TENURE_BOGUS"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "queue.example", ""])
def test_beyond_loopback_it_does_not_start_without_keys(host: str):
    settings = ServerSettings(host=host)
    with pytest.raises(Invalid, match="TENURE_API_KEYS"):
        check_start(settings, has_keys=False)
    check_start(settings, has_keys=True)
    check_start(msgspec.structs.replace(settings, insecure_no_auth=True), has_keys=False)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (ServerSettings(host="0.0.0.0", test_clock=True), "test-clock"),
        (ServerSettings(port=70_000), "port"),
        (ServerSettings(heartbeat_ms=0), "heartbeat_ms"),
        (ServerSettings(tls_cert="x.pem"), "tls-key"),
        (ServerSettings(tls_key="x.pem"), "tls-cert"),
        (ServerSettings(host_names=("http://x",)), "host name"),
    ],
)
def test_what_cannot_work_does_not_start(settings: ServerSettings, why: str):
    with pytest.raises(Invalid, match=why):
        check_start(settings, has_keys=True)


@pytest.mark.parametrize(
    "advertise", ["a:4000", "http://", "http://a:4000/", "http://u:p@a:4000", "http://a:0", "ftp://a"]
)
def test_an_address_for_others_is_one_that_clients_can_use(advertise: str):
    with pytest.raises(Invalid, match="--advertise"):
        check_start(ServerSettings(home="file:///home", advertise=advertise), has_keys=True)
    check_start(ServerSettings(home="file:///home", advertise="https://a.example/queue"), has_keys=True)


def test_an_address_for_others_needs_a_home_to_share():
    with pytest.raises(Invalid, match="--home"):
        check_start(ServerSettings(advertise="http://a:4000"), has_keys=True)


def test_a_malformed_key_does_not_start_and_is_not_printed():
    with pytest.raises(Invalid) as caught:
        Service(ServerSettings(), environment={"TENURE_API_KEYS": "fine,hunter2:bogus"})
    assert "entry 2" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_keys_file_without_a_key_does_not_start(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text("# none yet\n")
    with pytest.raises(Invalid, match="holds no key"):
        load_keys(ServerSettings(keys_file=str(path)), {})


def test_keys_of_the_environment_and_of_the_file_count_together(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text("one:r\n")
    ring = load_keys(ServerSettings(keys_file=str(path)), {"TENURE_API_KEYS": "two"})
    assert ring.find("one") is not None
    assert ring.find("two") is not None
    with pytest.raises(Invalid, match="repeats a key"):
        load_keys(ServerSettings(keys_file=str(path)), {"TENURE_API_KEYS": "one"})

"""One environment leads clients, apps and commands to one server; what a caller says wins over it."""

from __future__ import annotations

import pytest

from tenure import App, Client, Invalid
from tenure.endpoint import endpoint_of

THERE = {"TENURE_URL": "https://queue.example:8443/t", "TENURE_KEY": "from-environment"}


@pytest.mark.parametrize(
    ("url", "key", "environment", "found"),
    [
        (None, None, {}, ("http://127.0.0.1:4000", None)),
        (None, None, THERE, ("https://queue.example:8443/t", "from-environment")),
        ("http://said:1", "said", THERE, ("http://said:1", "said")),
        ("http://said:1", None, THERE, ("http://said:1", "from-environment")),
        (None, None, {"TENURE_URL": "", "TENURE_KEY": ""}, ("http://127.0.0.1:4000", None)),
    ],
)
def test_an_argument_wins_over_the_environment_and_that_over_loopback(
    url: str | None, key: str | None, environment: dict[str, str], found: tuple[str, str | None]
):
    endpoint = endpoint_of(url, key, environment=environment)
    assert (endpoint.url, endpoint.key) == found


def test_a_bad_variable_is_named():
    with pytest.raises(Invalid, match=r"^TENURE_URL: url must be like http://127\.0\.0\.1:4000; got 'queue:4000'"):
        endpoint_of(environment={"TENURE_URL": "queue:4000"})


def test_a_key_is_not_shown():
    assert "from-environment" not in repr(endpoint_of(environment=THERE))


def test_apps_and_clients_take_their_address_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    for name, value in THERE.items():
        monkeypatch.setenv(name, value)
    app = App()
    assert app.url == THERE["TENURE_URL"]
    assert app._endpoint.key == THERE["TENURE_KEY"]
    assert App("http://127.0.0.1:1").url == "http://127.0.0.1:1"
    with Client() as client, app:
        assert THERE["TENURE_URL"] in repr(client)
        assert THERE["TENURE_URL"] in repr(app.blocking_client)

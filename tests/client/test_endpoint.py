"""One environment leads clients, apps and commands to one server; what a caller says wins over it."""

from __future__ import annotations

import pytest

from tenure import App, AsyncClient, Client, Invalid
from tenure.address import parse_addresses
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


def test_a_list_of_servers_is_one_url_and_keeps_its_order():
    url = "https://b.example:8443/t, https://a.example"
    assert endpoint_of(environment={"TENURE_URL": url}).url == url
    assert [address.base for address in parse_addresses(url)] == ["https://b.example:8443/t", "https://a.example:443"]
    with Client(url) as client, App(url) as app:
        assert url in repr(client)
        assert app.url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a:1,", "url must be URLs with one comma between two of them, like http://a:4000,http://b:4000"),
        ("http://a:1,,http://b:1", "url must be URLs with one comma between two of them"),
        ("http://a:1,b:1", "url must be like http://127.0.0.1:4000; got 'b:1'"),
        ("http://a:1,http://me:word@b:1", "url must hold no user and no password"),
        ("http://a:1,http://b:1/v0", "url must end before /v0"),
        ("http://a:1,http://A:1/", "url must name each server once; got http://a:1 twice"),
        ("http://a:1,https://b:1", "url must name servers of one scheme"),
        (",".join(f"http://a{number}:1" for number in range(17)), "url must name at most 16 servers; got 17"),
    ],
)
def test_a_bad_list_of_servers_is_refused_with_the_reason(url: str, message: str):
    for make in (Client, AsyncClient, lambda url: endpoint_of(environment={"TENURE_URL": url})):
        with pytest.raises(Invalid) as caught:
            make(url)
        assert message in caught.value.message


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

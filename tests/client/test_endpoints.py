"""Which of several servers is asked, and for which of them one is given up: rules without a network."""

from __future__ import annotations

import json

import pytest

from tenure.address import ENDPOINTS_MAX, parse_addresses
from tenure.client import ClientSettings, Response, WireError
from tenure.client.transport.endpoints import Endpoints
from tenure.client.transport.looking import patience_for
from tenure.client.transport.wire import all_in_use

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def endpoints(*urls: str, key: str | None = None, follow_with_key: bool = False) -> Endpoints[str]:
    """Servers whose wires are their URLs."""
    settings = ClientSettings(follow_with_key=follow_with_key)
    addresses = parse_addresses(",".join(urls))
    return Endpoints(addresses, key=key, settings=settings, connect=lambda address: address.base)


def refusal(leader: str, epoch: int = 1) -> Response:
    detail = {"leader": leader, "epoch": epoch}
    return Response(421, json.dumps({"error": {"code": "not_leader", "message": "no", "detail": detail}}).encode())


def asked(servers: Endpoints[str]) -> str:
    return servers.first.wire


def test_servers_are_asked_in_the_order_of_the_caller_until_one_answers() -> None:
    servers = endpoints(A, B, C)
    order = []
    for _ in range(4):
        order.append(asked(servers))
        servers.failed(servers.first)
    assert order == [A, B, C, A]
    servers.judge(servers.servers[2], Response(200, b"{}"))
    assert asked(servers) == C


def test_a_failure_of_a_server_that_is_not_asked_first_changes_nothing() -> None:
    servers = endpoints(A, B, C)  # of two, the one after the other is the first again
    for other in servers.servers[1:]:
        servers.failed(other)
        assert asked(servers) == A


def test_a_server_gives_way_for_an_error_of_the_network_and_not_for_one_of_the_client() -> None:
    servers = endpoints(A, B, C)
    for own in (all_in_use("connections_max"), WireError("closed", sent=False, closed=True)):
        servers.note_error(servers.first, own)
        assert asked(servers) == A
    for sent, following in ((False, B), (True, C)):
        servers.note_error(servers.first, WireError("reset", sent=sent))
        assert asked(servers) == following


@pytest.mark.parametrize("status", [200, 404, 409, 429, 500])
def test_an_answer_keeps_its_server_first(status: int) -> None:
    servers = endpoints(A, B)
    assert servers.judge(servers.first, Response(status, b"")) is None
    assert asked(servers) == A


@pytest.mark.parametrize("status", [421, 502, 503, 504])
def test_a_server_that_cannot_serve_gives_way(status: int) -> None:
    servers = endpoints(A, B)
    assert servers.judge(servers.first, Response(status, b"<html>")) is None
    assert asked(servers) == B


@pytest.mark.parametrize("leader", ["", "b:1", "http://user:word@b:1", "http://b:1/v0", A])
def test_an_address_that_is_none_or_the_speakers_own_is_not_followed(leader: str) -> None:
    servers = endpoints(A, B)
    assert servers.judge(servers.first, refusal(leader)) is None
    assert asked(servers) == B


@pytest.mark.parametrize(
    ("url", "key", "follow_with_key", "leader", "is_followed"),
    [
        (A, None, False, B, True),
        (A, "k", False, B, False),
        (A, "k", True, B, True),
        (A, None, False, "https://b:1", True),
        ("https://a:1", None, False, B, False),
        ("https://a:1", "k", True, B, False),
        ("https://a:1", "k", True, "https://b:1", True),
    ],
)
def test_an_address_that_the_caller_did_not_list_gets_no_key_and_no_plain_text_in_place_of_tls(
    url: str, key: str | None, follow_with_key: bool, leader: str, is_followed: bool
) -> None:
    servers = endpoints(url, key=key, follow_with_key=follow_with_key)
    named = servers.judge(servers.first, refusal(leader))
    assert (named is not None and named.wire == leader) is is_followed
    assert servers.has_several() is is_followed


def test_a_key_goes_to_a_listed_server_however_its_url_is_spelt() -> None:
    servers = endpoints(A, "http://B:1/", key="k")
    named = servers.judge(servers.first, refusal(B))
    assert named is servers.servers[1]


def test_the_number_of_servers_that_are_learnt_is_bounded() -> None:
    servers = endpoints(A)
    for number in range(100):
        servers.judge(servers.servers[0], refusal(f"http://s{number}:1"))
    assert len(servers.servers) == ENDPOINTS_MAX


def test_a_client_that_is_closed_learns_of_no_more_servers() -> None:
    """The connections of one that it learnt now would be closed by nobody."""
    servers = endpoints(A)
    assert [server.wire for server in servers.close()] == [A]
    assert servers.judge(servers.first, refusal(B)) is None
    assert not servers.has_several()


@pytest.mark.parametrize(
    ("led", "named", "epoch", "is_overtaken"),
    [
        *((None, None, 0, True), (None, None, 7, True), (6, None, 7, True), (7, None, 7, False), (8, None, 7, False)),
        *((None, 7, 7, True), (None, 8, 7, False)),
    ],
)
def test_a_server_is_overtaken_by_the_leader_of_a_later_epoch_alone(
    led: int | None, named: int | None, epoch: int, is_overtaken: bool
) -> None:
    """``led``: the last epoch of the first server, as far as known; ``named``: one that a refusal named."""
    servers = endpoints(A, B)
    first, second = servers.servers
    if led is not None:
        servers.note_leader(first, led, 0.0)
    if named is not None:
        servers.judge(second, refusal(A, epoch=named))
    servers.note_leader(second, epoch, 2.0)
    assert servers.is_overtaken(first, since_s=1.0) is is_overtaken
    assert not servers.is_overtaken(second, since_s=1.0)
    assert asked(servers) == (B if is_overtaken else A)


def test_what_a_leader_said_before_the_request_was_sent_overtakes_nobody() -> None:
    servers = endpoints(A, B)
    servers.note_leader(servers.servers[1], 7, 2.0)
    assert not servers.is_overtaken(servers.servers[0], since_s=3.0)


def test_a_leader_of_an_epoch_that_a_refusal_has_outdated_overtakes_nobody() -> None:
    """It said so in time, and a third server has since named a later leader: who leads is to be asked once more."""
    servers = endpoints(A, B, C)
    first, second, third = servers.servers
    servers.note_leader(second, 7, 2.0)
    servers.judge(third, refusal(A, epoch=8))
    assert not servers.is_overtaken(first, since_s=1.0)
    servers.note_leader(second, 8, 3.0)
    assert servers.is_overtaken(first, since_s=1.0)


def test_a_look_comes_after_the_answer_was_due_and_then_ever_more_seldom() -> None:
    settings = ClientSettings()
    assert patience_for(settings, now_s=0, wait_ms=20_000).pause_s == 20.5
    call, stream = patience_for(settings, now_s=0), patience_for(settings, now_s=0, is_stream=True)
    pauses = []
    now_s = 0.0
    for _ in range(80):
        pauses.append(call.pause_s)
        now_s += call.pause_s
        call.looked(now_s)
    assert pauses[:3] == [0.5, 0.1, 0.1]
    assert max(pauses[1:16]) <= 0.11, "another server leads within two seconds, and is found soon after"
    assert pauses[-1] > 1, "a client that waits for long asks seldom"
    stream.looked(3.0)
    assert stream.pause_s == 3.0
    stream.looked(6.0)
    assert stream.pause_s == 6.0

"""Keys, scopes, prefixes, caps, and what foreign pages send (faults 46, 47, 49, 50)."""

from __future__ import annotations

import asyncio
import hmac
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tenure.broker.answer import Answer, Done, OpenAnswer, Promise
from tenure.core.level import Level
from tenure.errors import Denied, Invalid
from tenure.http.api.app import App, Call, Route
from tenure.http.api.auth import Gatekeeper, check_name, visible
from tenure.http.api.hosts import HostCheck, host_of, is_loopback
from tenure.http.api.keys import SCOPES, KeyRing, entries_of_file, entries_of_text, parse_keys
from tenure.http.wire.message import Later, Request, Response, Send
from tenure.http.wire.respond import carry_out
from tests.http.wire_support import handle


def ring(text: str) -> KeyRing:
    return KeyRing(parse_keys(entries_of_text(text)))


def answer(_: Any, call: Call) -> Response:
    return Response(200, call.key_id.encode())


def wait(_: Any, call: Call) -> Any:
    return Later(OpenAnswer(Promise(), asyncio.get_running_loop()), lambda *_: Response(200), ends_with_peer=True)


def stream(_: Any, call: Call) -> Response:
    async def run(send: Send) -> None:
        await asyncio.Event().wait()

    return Response(200, stream=run)


ROUTES = [
    Route("GET", "/open", answer),
    Route("GET", "/v0/topics/:t", answer, scopes=frozenset({"read"})),
    Route("POST", "/v0/topics/:t/claim", answer, scopes=frozenset({"read", "write"})),
    Route("GET", "/v0/topics/:t/wait", wait, scopes=frozenset({"read"})),
    Route("GET", "/v0/topics/:t/jobs/:seq", answer, scopes=frozenset({"read"})),
    Route("GET", "/v0/topics/:t/work", stream, scopes=frozenset({"read"}), sse=True),
]


def guarded(text: str = "", **caps: int) -> tuple[App, Gatekeeper]:
    keys = ring(text) if text else KeyRing()
    gate = Gatekeeper(keys, hosts=HostCheck(loopback_only=not keys), **caps)
    app = App(
        None,
        ROUTES,
        admit=gate.admit,
        recheck=gate.recheck,
        start=gate.start,
        hold=gate.hold,
        track=gate.track,
        account=gate.account_of,
    )
    return app, gate


def ask(app: App, path: str, *, method: str = "GET", token: str | None = None, query: str = "", **headers: str) -> Any:
    sent = {"host": "localhost:4000"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    return handle(app, Request(method, path, headers=sent, query=query))


class Asked:
    """A request as the wire carries it out; ``response`` is there once it is answered."""

    def __init__(self, app: App, path: str, token: str) -> None:
        self.response: Response | None = None
        headers = {"host": "localhost:4000", "authorization": f"Bearer {token}"}
        admitted = app.admit_whole(Request("GET", path, headers=headers))
        outcome = admitted if isinstance(admitted, Response) else carry_out(admitted, b"", self._answer)
        self.pending = None if isinstance(outcome, Response) else outcome
        if isinstance(outcome, Response):
            self._answer(outcome)

    def _answer(self, response: Response) -> None:
        self.response = response


def status(*arguments: Any, **more: Any) -> int:
    result = ask(*arguments, **more)
    assert isinstance(result, Response)
    return result.status


# Keys


def test_a_bare_key_may_do_everything():
    [key] = parse_keys(entries_of_text("secret"))
    assert (key.scopes, key.prefixes) == (SCOPES, None)


@pytest.mark.parametrize("scopes", ["read+write", "r+w", "rw", "w+read"])
def test_scopes_are_words_or_letters(scopes: str):
    [key] = parse_keys(entries_of_text(f"secret:{scopes}"))
    assert key.scopes == {"read", "write"}


def test_prefixes_are_parted_by_a_bar_and_may_hold_colons():
    [key] = parse_keys(entries_of_text("secret:r:team-a.|team:b"))
    assert key.prefixes == ("team-a.", "team:b")
    assert key.allows("team-a.jobs")
    assert not key.allows("team-c")


@pytest.mark.parametrize(
    "entry",
    [
        "hunter2:",
        "hunter2:x",
        "hunter2:read+",
        "hunter2:r:",
        "hunter2:r:a||b",
        "hunter2:r:a*",
        ":r",
        "hunter2 :r",
        "hunter2:read:../x",
        "hünter2",
        "hunter2,",
        "hunter2,hunter2",
        ",",
        "hunter2\x00",
    ],
)
def test_a_malformed_entry_is_refused_without_telling_the_key(entry: str):
    with pytest.raises(Invalid) as caught:
        parse_keys(entries_of_text(entry))
    assert "entry" in str(caught.value)
    assert "nter2" not in str(caught.value)


def test_a_keys_file_has_comments_and_names_the_line_of_a_fault(tmp_path: Path):
    path = tmp_path / "keys"
    path.write_text("# ours\n\n  one:r\r\ntwo\n")
    assert len(parse_keys(entries_of_file(path))) == 2
    path.write_text("# ours\none:bogus\n")
    with pytest.raises(Invalid, match="line 2"):
        parse_keys(entries_of_file(path))
    with pytest.raises(Invalid, match="cannot be read"):
        entries_of_file(tmp_path / "none")


def test_a_keys_file_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(Invalid, match="regular file"):
        entries_of_file(tmp_path / "keys")


def test_no_key_is_kept_in_the_clear():
    [key] = parse_keys(entries_of_text("hunter2:rw:a."))
    assert "hunter2" not in repr(key)
    assert b"hunter2" not in key.digest


def test_every_digest_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch):
    compared = []
    really = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return really(a, b)

    keys = ring("one,two,three")
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for token in ("one", "three", "none"):
        compared.clear()
        found = keys.find(token)
        assert (found is None) == (token == "none")
        assert len(compared) == 3


# Admission


def test_a_key_is_wanted_and_must_be_known():
    app, _ = guarded("good")
    assert status(app, "/v0/topics/a") == 401
    assert status(app, "/v0/topics/a", token="bad") == 401
    assert status(app, "/v0/topics/a", token="good") == 200
    assert status(app, "/v0/topics/a", authorization="bearer good") == 200
    for odd in (
        "Basic good",
        "good",
        "Bearer",
        "Bearer ",
        "Bearer good, Bearer good",
        "Bearer good good",
        "Bearer good\x85",
    ):
        assert status(app, "/v0/topics/a", authorization=odd) == 401


def test_a_refusal_tells_how_to_authenticate():
    app, _ = guarded("good")
    assert (b"www-authenticate", b"Bearer") in ask(app, "/v0/topics/a").headers


def test_an_open_route_wants_no_key():
    app, _ = guarded("good")
    assert status(app, "/open") == 200


def test_all_scopes_of_a_route_are_needed():
    app, _ = guarded("reader:r,both:rw")
    assert status(app, "/v0/topics/a/claim", method="POST", token="reader") == 403
    assert status(app, "/v0/topics/a/claim", method="POST", token="both") == 200


def test_names_in_the_path_are_held_to_the_prefix():
    app, _ = guarded("mine:r:a.")
    assert status(app, "/v0/topics/a.x", token="mine") == 200
    assert status(app, "/v0/topics/a.x/jobs/7", token="mine") == 200
    for name in ("a", "b", "A.x", "", "..", "%61.x"):
        assert status(app, f"/v0/topics/{name}", token="mine") == 403


def test_routes_hold_names_in_bodies_to_the_prefix():
    [key] = parse_keys(entries_of_text("mine:r:a."))
    call = Call(Request("GET", "/"), {})
    check_name(call, "b.x")
    assert visible(call, "b.x"), "without keys everything is visible"
    call.key = key
    check_name(call, "a.x")
    assert [name for name in ("a.x", "b.x") if visible(call, name)] == ["a.x"]
    with pytest.raises(Denied):
        check_name(call, "b.x")


def test_a_token_in_the_query_opens_streams_only():
    app, _ = guarded("good")
    assert status(app, "/v0/topics/a", query="token=good") == 401
    assert status(app, "/v0/topics/a/work", query="token=good") == 200
    assert status(app, "/v0/topics/a/work", query="token=bad") == 401
    assert status(app, "/v0/topics/a/work", query="token=good&token=good") == 401
    assert status(app, "/v0/topics/a/work", query="token=good", token="bad") == 401, "the header wins"


def test_a_call_knows_its_key_by_a_name_that_is_no_secret():
    app, _ = guarded("good,other")
    one, two = (ask(app, "/v0/topics/a", token=token).body for token in ("good", "other"))
    assert one.startswith(b"key_")
    assert one != two
    assert b"good" not in one


# Caps


async def test_requests_in_flight_are_capped_by_key():
    app, gate = guarded("good,other", requests_per_key_max=2)
    waits = [Asked(app, "/v0/topics/a/wait", "good") for _ in range(2)]
    refused = ask(app, "/v0/topics/a/wait", token="good")
    assert refused.status == 429
    assert b'"detail":{"limit":"requests_per_key_max","max":2}' in refused.body
    assert status(app, "/v0/topics/a", token="other") == 200
    for wait in waits:  # as for a peer that is gone at once
        assert wait.pending is not None
        wait.pending.lose()
    assert gate.requests.total() == 0
    assert status(app, "/v0/topics/a", token="good") == 200


async def test_a_write_counts_until_it_is_durable():
    class Gate:
        waiting: ClassVar[list[Done]] = []

        def reached(self, batch: int, level: int) -> bool:
            return False

        def abandon(self, reply: object) -> None:
            """Nothing is held for a caller here."""

        def plan(self) -> None:
            """Nothing is appended here."""

        def when_reached(self, batch: int, level: int, call: Done) -> None:
            self.waiting.append(call)

    made = Gate()
    later = Later(Answer(None, 1, Level.SYNCED, made), lambda *_: Response(200))
    route = Route("GET", "/later", lambda *_: later, scopes=frozenset({"read"}))
    keys = ring("good")
    gate = Gatekeeper(keys, hosts=HostCheck(loopback_only=False))
    app = App(None, [route], admit=gate.admit, recheck=gate.recheck, start=gate.start, hold=gate.hold, track=gate.track)
    Asked(app, "/later", "good")
    assert gate.requests.total() == 1
    made.waiting[0](None)
    assert gate.requests.total() == 0


async def test_streams_are_capped_by_key_and_together():
    app, gate = guarded("good,other,third", streams_per_key_max=1, streams_max=2)
    first = ask(app, "/v0/topics/a/work", token="good")
    refused = ask(app, "/v0/topics/a/work", token="good")
    assert refused.status == 429
    assert b'"limit":"streams_per_key_max"' in refused.body
    assert b"1 streams are open already" in refused.body
    assert b"raise the server's setting streams_per_key_max" in refused.body
    second = ask(app, "/v0/topics/a/work", token="other")
    assert b'"limit":"streams_max"' in ask(app, "/v0/topics/a/work", token="third").body
    running = asyncio.ensure_future(first.stream(None))
    await asyncio.sleep(0)
    assert gate.streams_open == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert gate.streams_open == 1
    del second  # a stream that was never started
    assert gate.streams_open == 0


async def test_streams_of_a_key_that_was_taken_away_are_ended():
    app, gate = guarded("good:r,other:r")
    running = [
        asyncio.ensure_future(ask(app, "/v0/topics/a/work", token=token).stream(None)) for token in ("good", "other")
    ]
    await asyncio.sleep(0)
    gate.replace(ring("other:r"))
    await asyncio.wait(running[:1])
    assert [task.done() for task in running] == [True, False]
    assert status(app, "/v0/topics/a", token="good") == 401
    running[1].cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize(("keys", "begins"), [("other", False), ("good:w", False), ("good:r,other", True)])
async def test_a_stream_that_waits_for_its_turn_begins_only_with_a_key_that_is_still_good(keys: str, begins: bool):
    """It was admitted, and begins after the answers of the requests before it on its connection."""
    app, gate = guarded("good:r")
    waiting = ask(app, "/v0/topics/a/work", token="good")
    gate.replace(ring(keys))
    running = asyncio.ensure_future(waiting.stream(None))
    await asyncio.sleep(0)
    assert running.done() is not begins
    assert gate.streams_open == int(begins)
    running.cancel()
    with pytest.raises(asyncio.CancelledError if begins else ConnectionAbortedError):
        await running


async def test_a_wait_of_a_key_that_was_taken_away_is_answered_401():
    app, gate = guarded("good:r,other:r,narrowed:rw")
    waits = [Asked(app, "/v0/topics/a/wait", token) for token in ("good", "other", "narrowed")]
    gate.replace(ring("other:r,narrowed:r"))
    for wait in (waits[0], waits[2]):
        assert wait.response is not None
        assert wait.response.status == 401
        assert b'"code":"unauthorized"' in wait.response.body
    assert waits[1].response is None
    assert gate.requests.total() == 1


@pytest.mark.parametrize(
    ("keys", "then"), [("other", 401), ("good:w", 403), ("good:r:b.", 403), ("good:r,other", 200), ("good:rw", 200)]
)
def test_a_call_is_held_to_the_keys_of_the_moment_it_starts(keys: str, then: int):
    app, gate = guarded("good:r")
    request = Request("GET", "/v0/topics/a", headers={"host": "localhost", "authorization": "Bearer good"})
    admitted = app.admit(request)
    assert isinstance(admitted, Call)
    assert admitted.lapsed() is None
    gate.replace(ring(keys))
    lapsed = admitted.lapsed()
    assert (200 if lapsed is None else lapsed.status) == then
    answered = admitted.answer(b"")
    assert isinstance(answered, Response)
    assert answered.status == then


async def test_calls_admitted_before_a_cap_was_reached_are_held_to_it_when_they_start():
    app, gate = guarded("good", requests_per_key_max=1)
    sent = {"host": "localhost", "authorization": "Bearer good"}
    admitted = [app.admit(Request("GET", "/v0/topics/a/wait", headers=sent)) for _ in range(2)]
    first, second = (carry_out(one, b"", lambda _: None) for one in admitted if isinstance(one, Call))
    assert isinstance(second, Response)
    assert second.status == 429
    assert not isinstance(first, Response)
    first.lose()
    assert gate.requests.total() == 0


def test_bodies_are_charged_to_the_key_and_without_one_to_the_address():
    app, _ = guarded("good,other")
    sent = {"host": "localhost", "authorization": "Bearer good"}
    keyed = app.admit(Request("GET", "/v0/topics/a", headers=sent, client="10.0.0.1"))
    plain = app.admit(Request("GET", "/open", headers=sent, client="10.0.0.1"))
    assert isinstance(keyed, Call)
    assert isinstance(plain, Call)
    assert keyed.account.startswith("key_")
    assert plain.account == "10.0.0.1"


@pytest.mark.parametrize(
    ("method", "path", "token", "status", "is_known"),
    [
        ("GET", "/nowhere", "good", 404, True),
        ("GET", "/nowhere", None, 404, False),
        ("GET", "/nowhere", "bad", 404, False),
        ("DELETE", "/v0/topics/a", "good", 405, True),
        ("POST", "/v0/topics/a/claim", "reader", 403, True),
        ("GET", "/v0/topics/b", "reader", 403, True),
        ("GET", "/v0/topics/a", None, 401, False),
        ("GET", "/v0/topics/a", "bad", 401, False),
    ],
)
def test_what_is_refused_at_its_head_is_charged_to_its_key_and_without_a_valid_one_to_nobody(
    method: str, path: str, token: str | None, status: int, is_known: bool
):
    app, gate = guarded("good,reader:read:a")
    sent = {"host": "localhost"} | ({"authorization": f"Bearer {token}"} if token else {})
    request = Request(method, path, headers=sent, client="10.0.0.1")
    refused = app.admit(request)
    assert isinstance(refused, Response)
    assert refused.status == status
    found = gate.ring.find(token or "")
    assert request.account == (found.id if found is not None else "")
    assert bool(request.account) is is_known


def test_a_stream_whose_key_is_in_its_query_is_charged_to_it_too():
    app, gate = guarded("good", streams_max=1)
    asks = [Request("GET", "/v0/topics/a/work", headers={"host": "localhost"}, query="token=good") for _ in range(2)]
    first = handle(app, asks[0])
    assert isinstance(app.admit(asks[1]), Response)
    assert asks[1].account == gate.ring.keys[0].id
    assert first.status == 200  # type: ignore[union-attr]


@pytest.mark.parametrize(("host", "status"), [("localhost", 404), ("evil.example", 403)])
def test_without_keys_what_is_refused_at_its_head_is_charged_to_its_address(host: str, status: int):
    app, _ = guarded()
    request = Request("GET", "/nowhere" if status == 404 else "/v0/topics/a", headers={"host": host}, client="10.0.0.1")
    refused = app.admit(request)
    assert isinstance(refused, Response)
    assert (refused.status, request.account) == (status, "10.0.0.1")


# Hosts and origins


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:4000", "127.1.2.3", "[::1]:4000", "x.localhost"]
)
def test_without_keys_loopback_names_are_answered(host: str):
    app, _ = guarded()
    assert status(app, "/v0/topics/a", host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "10.0.0.1",
        "[::2]",
        "localhost@evil.example",
        "evil.example#localhost",
        "localhost, evil.example",
        "localhost:x",
        "2130706433",
        "[::1]evil.example",
        "[::1]evil.example:80",
        "x[::1]",
        "localhost\x85",
    ],
)
def test_without_keys_other_names_are_refused_on_every_route(host: str):
    """DNS rebinding (fault 50)."""
    app, _ = guarded()
    assert status(app, "/v0/topics/a", host=host) == 403
    assert status(app, "/open", host=host) == 403


def test_with_keys_any_host_will_do():
    app, _ = guarded("good")
    assert status(app, "/v0/topics/a", host="queue.example", token="good") == 200


@pytest.mark.parametrize("keys", ["", "good"])
def test_what_a_page_of_another_origin_sends_is_refused(keys: str):
    app, _ = guarded(keys)
    own = {"host": "localhost:4000", "token": "good"}
    assert status(app, "/v0/topics/a", origin="http://localhost:4000", **own) == 200
    for origin in ("http://evil.example", "null", "http://localhost:3000", "http://localhost", "file://", "http://[x"):
        assert status(app, "/v0/topics/a", origin=origin, **own) == 403
        assert status(app, "/v0/topics/a/work", origin=origin, **own) == 403


def test_a_page_elsewhere_may_link_to_open_pages_only():
    app, _ = guarded()
    foreign = {"sec_fetch_site": "cross-site"}
    assert status(app, "/open", sec_fetch_mode="navigate", **foreign) == 200
    assert status(app, "/open", sec_fetch_mode="no-cors", **foreign) == 403
    assert status(app, "/v0/topics/a/work", sec_fetch_mode="navigate", **foreign) == 403
    assert status(app, "/v0/topics/a", sec_fetch_site="same-origin") == 200


def test_allowed_names_and_addresses():
    proxied = HostCheck(["queue.example"], loopback_only=True)
    proxied.check({"host": "queue.example:443", "origin": "https://queue.example"}, navigable=False)
    beyond = HostCheck(loopback_only=True, addresses=True)
    beyond.check({"host": "10.0.0.1:4000"}, navigable=False)
    with pytest.raises(Denied):
        beyond.check({"host": "evil.example"}, navigable=False)


def test_hosts_are_read_out_of_authorities():
    assert host_of("[::1]:4000") == "::1"
    assert host_of("a:b:c") is None
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("0.0.0.0")

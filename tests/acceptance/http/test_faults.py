"""What a hostile or unlucky peer does, seen from outside (faults 29, 31, 33, 34, 35, 45, 48, 50)."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from tenure.http.wire.limits import WireLimits
from tests.acceptance.http.bare import Bare, send
from tests.kit.restartable_server import Serve, Serving, until


@pytest.fixture(scope="module")
def server(serve_all: Serve) -> Serving:
    """Nothing in this module may harm it, so all share it."""
    server = serve_all()
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    server.ok("POST", "/v0/topics/log", {"records": [{"data": 1}]})
    return server


def test_fault_29_a_body_cut_half_way_appends_nothing(server: Serving) -> None:
    """With a length, in chunks, and by a reset instead of an end."""
    body = b'{"records":[{"data":1},{"data":2}]}'
    head = b"POST /v0/topics/cut HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    with_length = head + b"content-length: %d\r\n\r\n" % len(body)
    chunk = b"%x\r\n%b\r\n" % (len(body), body)
    for sent in [
        with_length,
        with_length + body[:-1],
        head + b"transfer-encoding: chunked\r\n\r\n" + chunk,  # everything but the last chunk, which says: that is all
        head + b"transfer-encoding: chunked\r\n\r\n" + chunk[:-5],
    ]:
        for reset in (False, True):
            with Bare(server) as peer:
                peer.send(sent)
                if reset:
                    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                else:
                    peer.socket.shutdown(socket.SHUT_WR)
                    peer.ended()
    assert server.call("GET", "/v0/topics/cut").status_code == 404


def test_fault_31_a_silent_worker_holds_no_more_than_its_depth_and_gives_back_when_closed(serve: Serve) -> None:
    server = serve(test_clock=True)
    server.ok("PUT", "/v0/topics/q", {"type": "queue", "lease_ms": 10_000})
    server.ok("POST", "/v0/topics/q", {"records": [{"data": n} for n in range(10)]})

    def held_by_silent() -> int:
        jobs = server.ok("GET", "/v0/topics/q/jobs?state=in_flight")["jobs"]
        return sum(job["node"] == "silent" for job in jobs)

    with Bare(server) as peer:
        peer.send(
            b"GET /v0/topics/q/work?node=silent&max=3 HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"
        )
        until(lambda: server.queue("q")["in_flight"] == 3, "it is given its depth")
        busy = server.ok("POST", "/v0/topics/q/claim", {"node": "busy", "max": 10, "lease_ms": 3_600_000})
        assert [job["$seq"] for job in busy["claimed"]] == [4, 5, 6, 7, 8, 9, 10], "the others get the rest"
        for _ in range(3):
            server.advance(10_001)
            assert held_by_silent() <= 3, "expiry gives it no more than it may hold"
    until(lambda: server.queue("q")["ready"] == 3, "its jobs are back")
    assert held_by_silent() == 0


def test_fault_31_a_long_poll_whose_peer_is_gone_takes_no_job(server: Serving) -> None:
    server.ok("PUT", "/v0/topics/poll", {"type": "queue"})
    with Bare(server) as peer:
        body = b'{"node":"gone","wait_ms":30000}'
        peer.send(b"POST /v0/topics/poll/claim HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n")
        peer.send(b"content-length: %d\r\n\r\n%b" % (len(body), body))
    until(lambda: number(server, "connections") == 1, "nobody is left but who asks")
    server.ok("POST", "/v0/topics/poll", {"records": [{"data": 1}]})
    assert len(server.ok("POST", "/v0/topics/poll/claim", {"node": "there"})["claimed"]) == 1


def number(server: Serving, name: str) -> int:
    """One of the server's numbers."""
    with server.client() as client:
        found = client.get("/v0/metrics", headers={"accept": "application/json"}).json()
        return int(found["metrics"][f"tenure_{name}"])


def test_fault_33_a_slow_reader_is_closed_and_costs_no_memory(serve: Serve) -> None:
    """Sixty-four MiB wait for it; it takes nothing, and the server's memory does not follow."""
    settings = {"limits.write_stall_ms": 300, "limits.tick_ms": 50, "limits.body_bytes_per_s_min": 1 << 26}
    server = serve(settings=settings)
    for _ in range(16):
        server.ok("POST", "/v0/topics/t?return_seqs=false", {"records": [{"data": "x" * 65_536}] * 64})
    before = server.resident_bytes()
    peers = [Bare(server, small=True) for _ in range(4)]
    try:
        for peer in peers:
            wid = server.ok("POST", "/v0/watch", {"topics": {"t": {"from_seq": 0}}})["wid"]
            peer.send(f"GET /v0/watch/{wid} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n".encode())
        for peer in peers:
            assert peer.head()[0] == 200
        until(lambda: number(server, "streams") == 0, "all of them are closed")
        assert number(server, "connections_slow_readers_total") == len(peers)
        assert server.resident_bytes() - before < 32 << 20
    finally:
        for peer in peers:
            peer.close()


def test_faults_34_35_slow_and_lying_peers_are_cut_and_others_do_not_notice(serve: Serve) -> None:
    settings = {"limits.header_ms": 200, "limits.body_grace_ms": 200, "limits.idle_ms": 200, "limits.tick_ms": 20}
    server = serve(settings=settings | {"limits.body_bytes_max": 10_000})
    common = b"POST /v0/topics/t HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    slow = [b"GET /v0/health HTTP/1.1\r\nhost: 127", common + b"content-length: 99\r\n\r\n{", b""]
    peers = [Bare(server) for _ in slow]
    for peer, sent in zip(peers, slow, strict=True):
        peer.send(sent)
    for peer in peers:
        assert peer.ended(), "by the server, without a word from us"
        peer.close()
    for rest, status in [
        (b"content-length: 10001\r\n\r\n", 413),
        (b"transfer-encoding: chunked\r\n\r\nfffff\r\n" + b" " * 10_001, 413),
        (b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"content-length: -1\r\n\r\n", 400),
    ]:
        with Bare(server) as peer:
            peer.send(common + rest)
            assert peer.answer()[0] == status, rest
    assert server.ok("GET", "/v0/health")["status"] == "ok"
    assert server.call("GET", "/v0/topics/t").status_code == 404


NAMES = [
    b"..",
    b"%2e%2e",
    b"%2e",
    b"a%00b",
    b"%00",
    b"a%0d%0ab",
    b"a%2fb",
    b"..%2f..%2fetc%2fpasswd",
    b"a%5cb",
    b"x" * 5_000,
    b"%ff%fe",
    b"%c0%ae%c0%ae",
    b"a%20b",
    b"%3cscript%3e",
    b"%",
    b"%zz",
    b".hidden",
    b"-dash",
]
PLACES = [
    ("GET", b"/v0/topics/%b", None),
    ("PUT", b"/v0/topics/%b", b"{}"),
    ("DELETE", b"/v0/topics/%b", None),
    ("POST", b"/v0/topics/%b", b'{"records":[{"data":1}]}'),
    ("POST", b"/v0/topics/%b/diff", b"{}"),
    ("POST", b"/v0/topics/%b/delete", b'{"before_seq":1}'),
    ("POST", b"/v0/topics/%b/claim", b'{"node":"w"}'),
    ("POST", b"/v0/topics/%b/ack", b'{"node":"w","seqs":[1]}'),
    ("GET", b"/v0/topics/%b/jobs", None),
    ("GET", b"/v0/topics/%b/work?node=w", None),
    ("GET", b"/v0/topics/%b/events", None),
    ("POST", b"/v0/topics/%b/redrive", b"{}"),
    ("PUT", b"/v0/routers/%b", b'{"source":"a","dest":"b"}'),
    ("GET", b"/v0/routers/%b", None),
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20].decode()))
def test_fault_45_a_name_that_is_none_is_refused_at_every_route(server: Serving, name: bytes) -> None:
    before = sorted(path.name for path in server.home.rglob("*"))
    for method, pattern, body in PLACES:
        status, answer = send(server, method, pattern % name, body)
        assert (status, answer["error"]["code"]) == (400, "invalid_request"), (method, pattern, answer)
        assert str(server.home) not in answer["error"]["message"]
    assert sorted(path.name for path in server.home.rglob("*")) == before, "no name becomes a file"


def test_fault_45_names_in_bodies_are_held_to_the_same(server: Serving) -> None:
    for name in ["..", "a/b", "a\x00b", "a\r\nb", "", "x" * 256, "ü"]:
        for method, path, body in [
            ("PUT", "/v0/topics/ok", {"dead_letter": name}),
            ("PUT", "/v0/routers/ok", {"source": name, "dest": "b"}),
            ("PUT", "/v0/routers/ok", {"source": "a", "dest": name}),
            ("POST", "/v0/watch", {"topics": {name: {}}}),
            ("POST", "/v0/topics/q/redrive", {"to": name}),
        ]:
            assert server.call(method, path, body).status_code == 400, (method, path, name)


# Bodies that are none


def numbered(number: bytes) -> bytes:
    """A body with a number wherever some route takes one."""
    fields = [b'"%b":%b' % (name, number) for name in (b"max", b"from_seq", b"ttl_ms", b"before_seq", b"limit")]
    return b'{"node":"w","seqs":[%b],%b,"records":[{"data":1,"delay_ms":%b}]}' % (number, b",".join(fields), number)


DEEP = b'{"x":' * 10_000 + b"1" + b"}" * 10_000
BODIES: dict[str, bytes] = {
    "deep object": DEEP,
    "deep array": b"[" * 60_000,
    "deep in a field that is not ours": b'{"node":"w","other":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "invalid UTF-8": b'{"node":"\xff\xfe","records":[{"data":"\xff"}]}',
    "overlong UTF-8": b'{"node":"\xc0\xaf","records":[{"data":1}]}',
    "NaN": b'{"node":"w","max":NaN,"seqs":[NaN],"records":[{"data":NaN}],"from_seq":NaN,"ttl_ms":NaN}',
    "Infinity": b'{"node":"w","max":Infinity,"seqs":[-Infinity],"records":[{"data":Infinity}],"from_seq":Infinity}',
    "a number without end": numbered(b"9" * 4_000),
    "1e400": numbered(b"1e400"),
    "a negative number": numbered(b"-1"),
    "a field twice": b'{"node":"a","node":"b","records":[{"data":1,"data":2}],"seqs":[1],"seqs":[2],"limit":1,'
    b'"limit":2,"source":"a","source":"b","dest":"c","topics":{"log":{},"log":{}},"ttl_ms":1,"ttl_ms":2}',
    "half a pair": b'{"node":"\\ud800","records":[{"data":1,"tag":"\\ud800"}],"seqs":[1],"dead_letter":"\\ud800",'
    b'"source":"\\ud800","dest":"x","to":"\\ud800","match":"\\udfff","topics":{"\\ud800":{}}}',
    "a byte order mark": b'\xef\xbb\xbf{"node":"w"}',
    "UTF-16": '{"node":"w"}'.encode("utf-16"),
    "not an object": b"[]",
    "a string": b'"x"',
    "cut short": b'{"node":"w"',
    "more behind it": b'{"node":"w","records":[{"data":1}],"seqs":[1],"before_seq":1,"source":"a","dest":"b"} {}',
    "a NUL": b'{"node":"w"}\x00',
}
ROUTES = [
    ("PUT", b"/v0/topics/evil"),
    ("POST", b"/v0/topics/evil"),
    ("POST", b"/v0/topics/log/diff"),
    ("POST", b"/v0/topics/log/delete"),
    ("PUT", b"/v0/routers/evil"),
    ("POST", b"/v0/watch"),
    ("POST", b"/v0/topics/q/claim"),
    ("POST", b"/v0/topics/q/ack"),
    ("POST", b"/v0/topics/q/nack"),
    ("POST", b"/v0/topics/q/extend"),
    ("POST", b"/v0/topics/q/redrive"),
]


@pytest.mark.parametrize("kind", BODIES)
def test_fault_48_a_body_that_is_none_is_refused_at_every_route(server: Serving, kind: str) -> None:
    for method, path in ROUTES:
        status, answer = send(server, method, path, BODIES[kind])
        is_append = (method, path) == ("POST", b"/v0/topics/evil")
        too_large = not is_append and len(BODIES[kind]) > WireLimits().command_bytes_max
        assert status == (413 if too_large else 400), (method, path, status, answer)
        assert answer["error"]["message"]
    assert server.call("GET", "/v0/topics/evil").status_code == 404
    assert server.ok("GET", "/v0/topics/log")["count"] == 1


def test_fault_48_inside_data_whatever_is_json_is_kept_and_what_is_too_deep_is_not(server: Serving) -> None:
    odd = b'{"n":1e400,"i":%b,"a":1,"a":2,"s":"\\ud800"}' % (b"9" * 5_000)
    assert send(server, "POST", b"/v0/topics/odd", b'{"records":[{"data":%b}]}' % odd)[0] == 201
    with server.client() as client:
        content = client.post("/v0/topics/odd/diff", json={}).content
    assert odd in content
    deep = b'{"records":[{"data":%b}]}' % (b"[" * 200_000 + b"]" * 200_000)
    assert send(server, "POST", b"/v0/topics/odd", deep)[0] == 400


def test_fault_48_a_compressed_body_is_not_unpacked(server: Serving) -> None:
    bomb = gzip.compress(b'{"records":[{"data":"%b"}]}' % (b"0" * (64 << 20)))
    before = server.resident_bytes()
    for encoding in (b"gzip", b"deflate", b"br", b"zstd"):
        status, answer = send(server, "POST", b"/v0/topics/bomb", bomb, b"content-encoding: " + encoding)
        assert (status, answer["error"]["code"]) == (415, "unsupported_media_type")
    assert server.resident_bytes() - before < 16 << 20


def test_fault_48_other_media_types_are_not_taken(server: Serving) -> None:
    for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"junk", b""):
        status, answer = send(server, "POST", b"/v0/topics/t", b'{"records":[{"data":1}]}', b"content-type: " + kind)
        assert (status, answer["error"]["code"]) == (415, "unsupported_media_type"), kind


def test_fault_48_queries_that_are_none_are_refused(server: Serving) -> None:
    for target in [
        b"/v0/topics?page_size=-1",
        b"/v0/topics?page_size=" + b"9" * 4_000,
        b"/v0/topics?page_size=1e3",
        b"/v0/topics?cursor=%ff",
        b"/v0/topics?cursor=AAAA",
        b"/v0/topics?prefix=a&prefix=b",
        b"/v0/topics/q/work",
        b"/v0/topics/q/work?node=",
        b"/v0/topics/q/work?node=w&max=NaN",
        b"/v0/topics/q/jobs?state=nonsense",
        b"/v0/topics/q/jobs/" + b"9" * 4_000,
        b"/v0/topics/q/jobs/-1",
        b"/v0/topics/q?touch=maybe",
    ]:
        status, answer = send(server, "GET", target)
        assert (status, answer["error"]["code"]) == (400, "invalid_request"), target


# What a page of another site can make a browser send


def test_fault_50_another_sites_page_reaches_nothing(server: Serving) -> None:
    """By name (rebinding), by origin (forgery); and what was refused says nothing of the inside."""
    body = b'{"records":[{"data":1}]}'
    head = b"POST /v0/topics/csrf HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    for lines in [
        b"host: evil.example\r\n",
        b"host: 127.0.0.1.evil.example\r\n",
        b"host: 127.0.0.1\r\norigin: http://evil.example\r\n",
        b"host: 127.0.0.1\r\norigin: null\r\n",
    ]:
        with Bare(server) as peer:
            peer.send(head + lines + b"\r\n" + body)
            status, answer = peer.answer()
        assert (status, answer["error"]["code"]) == (403, "forbidden"), lines
        text = json.dumps(answer)
        assert str(server.home) not in text
        assert "Traceback" not in text
    assert server.call("GET", "/v0/topics/csrf").status_code == 404

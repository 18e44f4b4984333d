"""HTTP/1.1 without a socket: what a request looks like, and responses in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.address import parse_address
from tenure.client.transport.http1 import RequestEncoder, ResponseReader
from tenure.client.transport.wire import Request, WireError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 7\r\n\r\nabcdefg"
INTERIM = b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
UNTIL_EOF = b"HTTP/1.1 200 OK\r\n\r\nabcdefg"


def encoder(url: str, key: str | None = None) -> RequestEncoder:
    return RequestEncoder(parse_address(url), key=key)


def reader(bytes_max: int = 1_000) -> ResponseReader:
    made = ResponseReader()
    made.begin(bytes_max=bytes_max)
    return made


def test_a_request_names_its_host_its_key_and_the_length_of_its_body():
    request = Request("POST", "/v0/topics/t?a=1", b"{}", {"x-one": "1"})
    assert encoder("http://queue.example:4000/at", "secret").encode(request) == (
        b"POST /at/v0/topics/t?a=1 HTTP/1.1\r\nhost: queue.example:4000\r\naccept-encoding: identity\r\n"
        b"user-agent: tenure\r\nauthorization: Bearer secret\r\nx-one: 1\r\n"
        b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    )


def test_a_long_body_is_not_copied_behind_its_head():
    body = b"x" * 100_000
    head, sent = encoder("http://queue.example").encode(Request("POST", "/", body))
    assert head.endswith(b"content-length: 100000\r\n\r\n")
    assert sent is body


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://queue.example", b"queue.example"),
        ("https://queue.example:443", b"queue.example"),
        ("https://queue.example:80", b"queue.example:80"),
        ("http://[::1]:4000", b"[::1]:4000"),
        ("http://b\u00fccher.example", b"xn--bcher-kva.example"),
    ],
)
def test_the_host_is_written_as_the_standard_has_it(url: str, host: bytes):
    assert b"\r\nhost: " + host + b"\r\n" in encoder(url).encode(Request("GET", "/"))[0]


def test_a_write_without_a_body_says_so_and_a_read_says_nothing():
    made = encoder("http://queue.example")
    assert b"content-length: 0\r\n" in made.encode(Request("DELETE", "/"))[0]
    assert b"content-length" not in made.encode(Request("GET", "/"))[0]


@given(st.sampled_from([CHUNKED, SIZED, INTERIM + SIZED, EMPTY]), st.lists(st.integers(1, 12), max_size=40))
def test_a_response_is_the_same_in_whatever_pieces_it_comes(text: bytes, sizes: list[int]):
    whole, pieces = reader(), reader()
    whole.feed(text)
    rest = text
    for size in sizes:
        if piece := rest[:size]:
            pieces.feed(piece)
        rest = rest[size:]
    if rest:
        pieces.feed(rest)
    assert pieces.is_complete
    assert whole.is_complete
    assert pieces.response(pieces.take()) == whole.response(whole.take())
    assert whole.status == (204 if text is EMPTY else 429 if SIZED in text else 200)
    assert whole.keep_alive


def test_header_names_are_lower_case_and_those_of_an_interim_response_are_not_kept():
    made = reader()
    made.feed(INTERIM + SIZED)
    assert made.response(b"").headers == {"retry-after": "7", "content-length": "7"}


def test_a_body_without_a_length_ends_with_the_connection_which_is_not_used_again():
    made = reader()
    made.feed(UNTIL_EOF)
    assert not made.is_complete
    made.feed_eof()
    assert (made.is_complete, made.take(), made.keep_alive) == (True, b"abcdefg", False)


@pytest.mark.parametrize("text", [CHUNKED, SIZED])
def test_a_response_that_is_cut_is_not_whole(text: bytes):
    for length in range(len(text)):
        made = reader()
        if length:
            made.feed(text[:length])
        with pytest.raises(WireError):
            made.feed_eof()


def test_a_second_response_that_nobody_asked_for_changes_nothing_and_ends_the_connection():
    made = reader()
    made.feed(SIZED + CHUNKED)
    assert (made.is_complete, made.keep_alive) == (True, False)
    assert made.response(made.take()).body == b"abcdefg"
    assert made.response(b"").headers == {"retry-after": "7", "content-length": "7"}


@pytest.mark.parametrize("text", [b"HTTP/2 200\r\n\r\n", b"220 smtp.example\r\n", b"\x16\x03\x01"])
def test_what_is_not_one_response_of_http_1_1_is_refused(text: bytes):
    made = reader()
    with pytest.raises(WireError) as caught:
        made.feed(text)
    assert caught.value.sent


def test_a_head_and_a_body_have_a_length_that_they_may_not_exceed():
    made = reader()
    with pytest.raises(WireError, match="65536 bytes"):
        made.feed(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000)
    made = reader(bytes_max=6)
    with pytest.raises(WireError, match="6 bytes"):
        made.feed(SIZED)


def test_what_was_taken_counts_no_more():
    made = reader(bytes_max=4)
    head, _, _ = CHUNKED.partition(b"3\r\n")
    made.feed(head + b"3\r\nabc\r\n")
    assert (made.unread_bytes, made.take(), made.unread_bytes) == (3, b"abc", 0)
    made.feed(b"4\r\ndefg\r\n0\r\n\r\n")
    assert (made.take(), made.is_complete) == (b"defg", True)

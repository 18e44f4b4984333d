"""Bodies that no route may take, and the check that nothing came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tests.http.conftest import Site

__all__ = ["NOT_COUNT", "NOT_FLAG", "NOT_JSON", "NOT_NAME", "NOT_TEXT", "NOT_WHOLE", "bodies", "check_refused"]

# Values as JSON text, because most of them have no other form.
NOT_WHOLE = [
    *(b"-1", b"-0.5", b"1.0", b"1e2", b"1e400", b"true", b"false", b'"1"', b"[1]", b"{}"),
    *(b"18446744073709551616", b"9" * 4_000, b"9" * 5_000, b"-" + b"9" * 4_000, b"-9223372036854775809"),
]
NOT_COUNT = [*NOT_WHOLE, b"null"]
"""For fields that have a default: those may not be null."""
NOT_FLAG = [b"null", b"0", b"1", b'"true"', b"[]", b"{}", b"1.5"]
NOT_TEXT = [b"5", b"true", b"1.5", b"{}", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"\x01"']
NOT_NAME = [
    *(*NOT_TEXT, b"null", b'""', b'" "', b'"a b"', b'"../a"', b'".a"', b'"a/b"', b'"a\\u0000"', b'"a\\n"'),
    *(b'"%b"' % ("é".encode()), b'"' + b"x" * 256 + b'"'),
]
NOT_JSON = [
    *(
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b"5",
        b'"x"',
        b"{}x",
        b"{}{}",
        b"nul",
        b"{'a':1}",
        b"{a:1}",
        b'{"a"}',
        b'{"a":1,}',
    ),
    *(b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-}', b'{"a":01}', b'{"a":"\\x"}', b'{"a":"\\u12"}', b"\xef\xbb\xbf{}"),
    *(b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\x80"}', '{"a":1}'.encode("utf-16")),
    *(b"[" * 30_000 + b"]" * 30_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    *(b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}", b"[" * 60_000, b"\x1f\x8b\x08\x00"),
]


def bodies(good: dict[str, Any], field: str, bad: Iterable[bytes]) -> Iterator[bytes]:
    """The good body with one field replaced by each of the bad values."""
    rest = b"".join(b"%b:%b," % (msgspec.json.encode(k), msgspec.json.encode(v)) for k, v in good.items() if k != field)
    for value in bad:
        yield b"{" + rest + msgspec.json.encode(field) + b":" + value + b"}"


async def check_refused(
    site: Site, method: str, target: str, bodies: Iterable[bytes], *, code: str = "invalid_request", field: str = ""
) -> None:
    """Every body gets 400 and the code, names the field where one is at fault, and changes nothing."""
    before = site.state()
    for body in bodies:
        reply = await site.call(method, target, body)
        assert (reply.status, reply.code) == (400, code), (body[:200], reply.raw)
        assert field in reply["error"]["message"] or b"UTF-8" in reply.raw or b"JSON" in reply.raw, reply.raw
        assert len(reply.raw) < 1_000, "however much was sent"
        assert site.state() == before, body[:200]


async def check_media(site: Site, method: str, target: str, good: bytes) -> None:
    """Only plain JSON is taken."""
    before = site.state()
    for headers in [
        *(
            {"content-type": kind}
            for kind in ("", "text/plain", "application/jsonp", "application/x-www-form-urlencoded")
        ),
        *({"content-type": kind} for kind in ("application/json, application/json", "text/json", "json")),
        *({"content-encoding": coding} for coding in ("gzip", "br", "deflate", "identity, gzip", "x")),
    ]:
        reply = await site.call(method, target, good, headers=headers)
        assert (reply.status, reply.code) == (415, "unsupported_media_type"), headers
        assert site.state() == before
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"):
        reply = await site.call(method, target, good, headers={"content-type": kind})
        assert reply.status < 400, (kind, reply.raw)

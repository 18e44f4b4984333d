"""What the largest hostile inputs of a command cost to read, against an honest body of the same length."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from time import thread_time

import msgspec
import pytest

from tenure.contract.bodies import DiffBody, HelloBody, WatchBody
from tenure.contract.commands import Ack, Begin, Claim, DeleteRecords, Nack, RedriveFields, Return, RouterFields
from tenure.contract.config_body import ConfigBody
from tenure.core.paging import after_number
from tenure.core.tag_match import parse_match
from tenure.errors import TenureError
from tenure.http.api.body import Reader
from tenure.http.api.query import Query
from tenure.http.streams.sse import check_accept
from tenure.http.streams.watch import decode_cursors
from tenure.http.wire.message import Request

BODY_BYTES = 64 * 1024
HEADER_BYTES = 32 * 1024
TARGET_BYTES = 8 * 1024

SCHEMAS: dict[type[msgspec.Struct], bytes] = {
    Ack: b'"node":"n","seqs":[1]',
    Begin: b'"node":"n","seq":1,"lease_id":"lease_1"',
    Claim: b'"node":"n"',
    ConfigBody: b'"ttl_ms":1',
    DeleteRecords: b'"before_seq":1',
    DiffBody: b'"limit":1',
    HelloBody: b'"node":"n","queues":["a"]',
    Nack: b'"node":"n","seqs":[1]',
    RedriveFields: b'"limit":1',
    Return: b'"node":"n","seqs":[1]',
    RouterFields: b'"source":"a","dest":"b"',
    WatchBody: b'"topics":{"a":{}}',
}


def filled(before: bytes, unit: bytes, after: bytes, *, size: int = BODY_BYTES) -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def unknown(unit: bytes, before: bytes = b"[", after: bytes = b"0]") -> Callable[[bytes], bytes]:
    return lambda fields: filled(b"{" + fields + b',"x":' + before, unit, after + b"}")


BODIES: dict[str, Callable[[bytes], bytes]] = {
    "honest": lambda fields: filled(b"{" + fields + b',"x":[', b'"some text",', b"0]}"),
    "lists": unknown(rb'"\n",[],'),
    "lists of lists": unknown(b"[[[[]]]],"),
    "objects": unknown(b'{"":0},'),
    "escapes": unknown(rb"\u0061", b'"', b'"'),
    "long numbers": unknown(b"9", b"[", b"]"),
    "exponents": unknown(b"1e99999,"),
    "names": lambda fields: filled(b"{" + fields, rb',"\n":0', b"}"),
    "the same names": lambda fields: filled(b"{" + fields, b',"x":{"node":1}', b"}"),
    "deep": lambda fields: b"{" + fields + b',"x":' + b"[" * 900 + b"]" * 900 + b"}",
    "a deep list of objects": lambda fields: filled(b"{" + fields + b',"x":', b'[{"":', b""),
    "quotes": unknown(rb"\"", b'"', b'"'),
    "spaces": unknown(b" ", b"[", b"0]"),
}


def cost(step: Callable[[], object]) -> float:
    """Return the processor time of a step that may raise, without that of other threads, in times of what an honest
    body of a command's size costs. Both are taken in turns, so that both meet the same weather.
    """
    text = BODIES["honest"](b'"a":1')
    best = honest = float("inf")
    for _ in range(5):
        honest = min(honest, _time(lambda: json.loads(text)))
        best = min(best, _time(step))
    return best / honest


def _time(step: Callable[[], object]) -> float:
    start = thread_time()
    with suppress(TenureError):
        step()
    return thread_time() - start


def read(schema: type[msgspec.Struct], body: bytes) -> Callable[[], object]:
    reader = Reader(schema)
    return lambda: reader.read(Request("POST", "/", headers={"content-type": "application/json"}, body=body))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
@pytest.mark.parametrize("kind", sorted(BODIES))
def test_no_body_of_a_command_costs_much(schema: type[msgspec.Struct], kind: str) -> None:
    body = BODIES[kind](SCHEMAS[schema])
    assert len(body) <= BODY_BYTES
    assert cost(read(schema, body)) < 30


OURS: dict[str, tuple[type[msgspec.Struct], bytes]] = {
    "many seqs": (Ack, filled(b'{"node":"n","seqs":[', b"1,", b"1]}")),
    "many leases": (Nack, filled(b'{"node":"n","seqs":[1],"lease_ids":[', b'"\\n",', b'"a"]}')),
    "many nodes": (DiffBody, filled(b'{"node":[', b'"n",', b'"n"]}')),
    "many queues of a worker": (HelloBody, filled(b'{"node":"n","queues":[', b'"n",', b'"m"]}')),
    "many jobs begun": (
        HelloBody,
        filled(b'{"node":"n","queues":[],"gone":[{"node":"n","begun":{"a":[', b"1,", b"1]}}]}"),
    ),
    "many topics": (WatchBody, filled(b'{"topics":{', b'"n":{},', b'"m":{}}}')),
    "long topics": (
        WatchBody,
        b'{"topics":{' + b",".join([b'"%d%b":{"tail":true}' % (n, b"t" * 200) for n in range(256)]) + b"}}",
    ),
    "one long topic": (WatchBody, filled(b'{"topics":{"' + b"n" * 30_000 + b'":{', b'"":0,', b'"tail":true}}}')),
    "a long match": (DeleteRecords, b'{"match":["tag","Glob","' + b"*" * 60_000 + b'"]}'),
    "a long reason": (RedriveFields, b'{"reason_like":"' + rb"\u0061" * 10_000 + b'"}'),
}


@pytest.mark.parametrize("kind", sorted(OURS))
def test_no_field_of_ours_costs_much_however_long(kind: str) -> None:
    schema, body = OURS[kind]
    assert len(body) <= BODY_BYTES
    assert cost(read(schema, body)) < 30


def asked(query: str) -> Callable[[], object]:
    return lambda: Query(Request("GET", "/", query=query)).text("limit")


def accepting(accept: str) -> Callable[[], object]:
    return lambda: check_accept(Request("GET", "/", headers={"accept": accept}))


HEADERS: dict[str, Callable[[], object]] = {
    "many parameters": asked("&" * TARGET_BYTES),
    "64 long parameters": asked("&".join(["%6cimi" + "%74" * 40] * 64)),
    "an escaped parameter": asked("limit=" + "%41" * (TARGET_BYTES // 3)),
    "many media types": accepting("," * HEADER_BYTES),
    "many parameters of a media type": accepting("text/plain" + ";q=0" * (HEADER_BYTES // 4)),
    "many spaces": accepting(" " * HEADER_BYTES),
    "many cursors": lambda: decode_cursors(_map(4_000)),
    "a long name in a cursor": lambda: decode_cursors(urlsafe_b64encode(b'{"%b":1}' % (b"n" * 20_000)).decode()),
    "a cursor of nothing": lambda: decode_cursors("A" * HEADER_BYTES),
    "a deep cursor": lambda: decode_cursors(urlsafe_b64encode(b"[" * 20_000).decode()),
    "a long page": lambda: after_number("A" * TARGET_BYTES),
    "a page of digits": lambda: after_number(urlsafe_b64encode(b"s" + b"9" * 5_000).decode()),
    "a match of stars": lambda: parse_match(["tag", "Glob", "*" * BODY_BYTES], bytes_max=256),
}


def _map(count: int) -> str:
    return urlsafe_b64encode(b"{" + b",".join([b'"":%d' % n for n in range(count)]) + b"}").decode()[:HEADER_BYTES]


@pytest.mark.parametrize("kind", sorted(HEADERS))
def test_no_header_and_no_parameter_costs_much(kind: str) -> None:
    assert cost(HEADERS[kind]) < 30

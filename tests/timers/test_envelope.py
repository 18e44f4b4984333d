"""The envelope of FastStream messages: what goes in comes out, and it is short."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.errors import Invalid
from tenure.faststream.envelope import pack, unpack
from tenure.faststream.message import TimerMessage, parse_timer


@pytest.mark.parametrize(
    "headers",
    [
        {"correlation_id": "one"},
        {"correlation_id": "two", "content-type": "application/json", "reply_to": "r", "x-tenant": "acme"},
        {"correlation_id": "two", "content-type": "application/x-own"},
        {"correlation_id": "two", "content-type": "text/plain", "attempts": 3, "0": "zero", "list": [1, "a"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("body", [b"", b"hello", bytes(range(256))], ids=len)
def test_headers_and_body_come_out_as_they_went_in(headers: dict[str, Any], body: bytes):
    assert unpack(pack(body, headers, timer_id="one"), timer_id="one") == (body, headers)


def test_what_every_message_has_costs_a_few_bytes():
    headers = {"correlation_id": "a" * 36, "content-type": "application/json"}
    assert len(pack(b"x" * 20, headers, timer_id="a" * 36)) <= 20 + 8


@pytest.mark.parametrize("data", [b"", b'{"to":1}', b"plain", b"\xc1", b"\xc1\x92", b"\xff"], ids=repr)
def test_bytes_without_an_envelope_are_a_body(data: bytes):
    assert unpack(data, timer_id="one") == (data, {})


def test_headers_that_cannot_be_kept_are_refused():
    with pytest.raises(Invalid, match="headers must be"):
        pack(b"", {"x": object()}, timer_id="one")


async def test_a_message_made_by_hand_needs_no_lease():
    made = TimerMessage(type="timer", channel="orders", timer_id="one", data=pack(b"7", {}, timer_id="one"))
    for verdict in ("ack", "nack", "reject"):
        message = await parse_timer(made)
        assert (message.body, message.correlation_id, message.deliveries) == (b"7", "one", 1)
        await getattr(message, verdict)()
        assert message.committed is not None

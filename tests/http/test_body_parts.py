"""Bodies put together from their parts, small and large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.http.wire import body_parts
from tenure.http.wire.body_parts import BodyParts


@given(st.lists(st.binary(min_size=1, max_size=400_000), max_size=8), st.integers(1, 5))
def test_a_body_is_its_parts_in_order(parts: list[bytes], times: int) -> None:
    body = BodyParts()
    for part in parts * times:
        body.add(part)
    whole = body.take()
    assert whole == b"".join(parts * times)
    assert isinstance(whole, bytearray) == (len(whole) > body_parts._JOINED_BYTES_MAX)


def test_a_large_body_is_not_joined_at_its_end() -> None:
    body = BodyParts()
    for _ in range(40):
        body.add(b"x" * 65_536)
    grown = body._large
    assert grown is not None
    assert body.take() is grown
    assert body.take() == b"", "the next body begins"

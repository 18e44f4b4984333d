"""Headers of HTTP/2: refused as by the library's own check, at a cost that references do not raise."""

from __future__ import annotations

from time import process_time

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.utilities import HeaderValidationFlags, validate_headers
from hyperframe.frame import ContinuationFrame, HeadersFrame
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.http.wire.http2.frame_meter import BadHead, check_head, check_trailers
from tenure.http.wire.http2.protocol import Http2Protocol
from tests.http.test_h2 import Peer2, _head
from tests.http.wire_support import eventually, serving

Pairs = list[tuple[bytes, bytes]]
HEAD: Pairs = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"t")]

odd = st.sampled_from(
    [
        *(
            (b"Upper", b"1"),
            (b"a b", b"1"),
            (b"a:b", b"1"),
            (b"", b"1"),
            (b"\xff", b"1"),
            (b"a\x7f", b"1"),
            (b"a~", b"1"),
        ),
        *((b"a", b" 1"), (b"a", b"1\t"), (b"a", b"1\n2"), (b"a", b"\0"), (b"a", b"\r"), (b"a", b"\xe9"), (b"a", b"")),
        *((b"te", b"trailers"), (b"te", b"gzip"), (b"te", b"Trailers"), (b"connection", b"close"), (b"upgrade", b"h2")),
        *((b"keep-alive", b"1"), (b"proxy-connection", b"1"), (b"transfer-encoding", b"chunked"), (b"cookie", b"a=b")),
        *((b"host", b"t"), (b"host", b"u"), (b":path", b"/x"), (b":path", b""), (b":status", b"200"), (b":odd", b"1")),
        *((b":authority", b"u"), (b":method", b"POST"), (b":scheme", b"https"), (b":", b"1")),
    ]
)


@st.composite
def heads(draw: st.DrawFn) -> Pairs:
    pairs = [pair for pair in HEAD if draw(st.integers(0, 9))]
    for pair in draw(st.lists(odd, max_size=3)):
        pairs.insert(draw(st.integers(0, len(pairs))), pair)
    return pairs


@given(heads())
@example([pair for pair in HEAD if pair[0] != b":authority"] + [(b"host", b"t")])
def test_the_same_requests_are_refused_as_by_the_library(head: Pairs) -> None:
    flags = HeaderValidationFlags(is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False)
    assert _is_sound(check_head, head) == _is_sound(lambda pairs: list(validate_headers(pairs, flags)), head)


@given(st.lists(odd, max_size=3))
def test_the_same_trailers_are_refused_as_by_the_library(pairs: Pairs) -> None:
    flags = HeaderValidationFlags(is_client=False, is_trailer=True, is_response_header=False, is_push_promise=False)
    assert _is_sound(check_trailers, pairs) == _is_sound(lambda pairs: list(validate_headers(pairs, flags)), pairs)


def _is_sound(check: object, pairs: Pairs) -> bool:
    try:
        check(pairs)  # type: ignore[operator]
    except (ProtocolError, BadHead):
        return False
    return True


async def test_48_references_to_a_large_header_cost_little() -> None:
    async with serving(turn_ms=60_000, share_ms=60_000) as (server, bench), await Peer2.connect(server) as peer:
        encoder = H2Connection(H2Configuration(client_side=True)).encoder
        large = [*_head(), ("x", "v" * 3_900)]
        peer.writer.write(HeadersFrame(1, encoder.encode(large), flags=["END_HEADERS", "END_STREAM"]).serialize())
        plain, references = encoder.encode(_head()), encoder.encode(large)
        costs: dict[bytes, list[float]] = {plain: [], references + references[-1:] * 8: []}
        number = 3
        await eventually(lambda: len(bench.seen) == 1)
        (connection,) = server.connections._open
        assert isinstance(connection, Http2Protocol)
        for _ in range(50):
            for block, taken in costs.items():
                frame = HeadersFrame(number, block, flags=["END_HEADERS", "END_STREAM"]).serialize()
                start = process_time()
                connection.data_received(frame)
                taken.append(process_time() - start)
                number += 2
        assert len(bench.seen) == 101
        cheap, dear = (sorted(taken)[25] for taken in costs.values())
        assert dear < 4 * cheap


@pytest.mark.parametrize("frames", [3, 30])
async def test_48_a_header_block_longer_than_the_headers_may_be_ends_the_connection(frames: int) -> None:
    async with serving() as (server, bench), await Peer2.connect(server) as peer:
        block = peer.h2.encoder.encode(_head()) + b"\x00\x01a\x01b" * 1_000 + b"\x00\x01a\x7f" + b"x" * 100_000
        parts = [block[at : at + 16_000] for at in range(0, frames * 16_000, 16_000)]
        peer.writer.write(HeadersFrame(1, parts[0]).serialize())
        peer.writer.write(b"".join(ContinuationFrame(1, part).serialize() for part in parts[1:]))
        assert await peer.ended() == ErrorCodes.ENHANCE_YOUR_CALM
        assert server.connections.counts.floods == 1
        assert bench.seen == []

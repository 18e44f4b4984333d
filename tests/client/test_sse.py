"""Frames out of chunks, wherever the chunks are cut."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.client import WireError
from tenure.client.streams.sse import Frame, FrameReader
from tenure.http.streams.sse import frame

TEXT = (
    b"retry: 2000\n\n: hb\n\n"
    b'id: 1\nevent: job\ndata: {"a":1}\n\n'
    b'event: job\ndata: {"b":\ndata: 2}\n\n'
    b'id: 3\nevent: error\ndata: {"code":404}\n\n'
    b"data:bare\n\n"
)
FRAMES = [
    Frame(b"job", b'{"a":1}', "1"),
    Frame(b"job", b'{"b":\n2}'),
    Frame(b"error", b'{"code":404}', "3"),
    Frame(b"message", b"bare"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 20, len(TEXT)])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_frames_are_the_same_however_they_arrive(size: int, ending: bytes) -> None:
    text = TEXT.replace(b"\n", ending) + b" "  # something after the last line end, which may be half of one
    reader = FrameReader(1_000)
    found = [frame for at in range(0, len(text), size) for frame in reader.feed(text[at : at + size])]
    assert found == FRAMES


@pytest.mark.parametrize("size", [1, 4, 11, len(TEXT)])
def test_the_data_of_one_kind_comes_apart_from_the_rest(size: int) -> None:
    reader = FrameReader(1_000)
    datas: list[bytes] = []
    others: list[Frame] = []
    for at in range(0, len(TEXT), size):
        more, rest = reader.feed_data(TEXT[at : at + size], b"job")
        datas += more
        others += rest
    assert (datas, others) == ([b'{"a":1}', b'{"b":\n2}'], FRAMES[2:])


def test_an_event_that_never_ends_is_cut_off() -> None:
    reader = FrameReader(100)
    assert reader.feed(b"data: " + b"a" * 90) == []
    with pytest.raises(WireError):
        reader.feed(b"aaaaa")


LAID_OUT = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"{", b" x: ", b"data: "])).map(b"".join)


@given(LAID_OUT.map(lambda text: b"[%b]" % text), st.integers(1, 30))
def test_what_the_server_frames_comes_back_to_the_byte(data: bytes, size: int) -> None:
    text = frame(b"job", data, event_id=b"7") + b": hb\n\n"
    whole, jobs = FrameReader(10_000), FrameReader(10_000)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert [found for piece in pieces for found in whole.feed(piece)] == [Frame(b"job", data, "7")]
    assert [found for piece in pieces for found in jobs.feed_data(piece, b"job")[0]] == [data]


@given(LAID_OUT.map(lambda text: b"[%b]" % text))
def test_a_reader_of_the_standard_finds_one_line_feed_for_every_line_end(data: bytes) -> None:
    lines = [line.partition(b": ") for line in frame(b"job", data).splitlines() if line]
    assert {name for name, _, _ in lines} <= {b"event", b"data", b"line-ends"}
    told = b"\n".join(value for name, _, value in lines if name == b"data")
    assert told == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_line_ends_that_do_not_fit_the_lines_are_ignored() -> None:
    for ends in (b"", b"r", b"rrr", b"xx"):
        (found,) = FrameReader(1_000).feed(b"data: a\ndata: b\ndata: c\nline-ends: %b\n\n" % ends)
        assert found.data == b"a\nb\nc"


def test_an_event_costs_what_it_weighs_however_many_chunks_it_comes_in() -> None:
    def cost_s(kib: int) -> float:
        reader, chunk = FrameReader(1 << 30), b"x" * 1_024
        begun_s = thread_time()
        assert reader.feed(b"data: ") == []
        for _ in range(kib):
            assert reader.feed(chunk) == []
        assert len(reader.feed(b"\n\n")) == 1
        return thread_time() - begun_s

    few, many = (min(cost_s(kib) for _ in range(3)) for kib in (1_000, 4_000))
    assert many < 8 * few, "four times as long: four times as much, and not sixteen times"

"""The depth of JSON values against a walk in Python, however the text is cut; and what it costs."""

from __future__ import annotations

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.http.append.depth import DepthMeter

SIZE_BYTES = 1 << 18

values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a[]{}"\\é'), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('[]{}"\\'), max_size=3), inner),
    max_leaves=40,
)


def depth(text: bytes, *cuts: int) -> int:
    meter = DepthMeter()
    for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        meter.feed(text[start:end])
    return meter.peak


def walked(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(walked, value.values()), default=0)
    return 1 + max(map(walked, value), default=0) if isinstance(value, list) else 0


@given(values, st.booleans(), st.lists(st.integers(0, 300), max_size=6))
def test_depth_is_measured_whatever_is_in_strings_and_wherever_the_text_is_cut(
    value: object, ascii_only: bool, cuts: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert depth(text, *sorted(min(cut, len(text)) for cut in cuts)) == walked(value)


@pytest.mark.parametrize("levels", [1, 7, 8, 9, 511, 512, 513, 10_000])
def test_depth_of_a_tower_is_its_height(levels: int) -> None:
    assert depth(b"[" * levels + b"]" * levels) == depth(b'{"":' * levels + b"1" + b"}" * levels) == levels


def repeated(unit: bytes) -> bytes:
    return b"[" + b",".join([unit] * (SIZE_BYTES // (len(unit) + 1))) + b"]"


HOSTILE = {
    "teeth": repeated(b"[" * 510 + b"]" * 510),
    "pairs": repeated(b"[]"),
    "empty strings": repeated(b'""'),
    "brackets in strings": repeated(b'"["'),
    "brackets in and beside strings": repeated(b'["["]'),
    "objects": repeated(b'{"[":{}}'),
    "escaped quotes": repeated(b'"\\""'),
    "backslashes": b'"' + b"\\\\" * (SIZE_BYTES // 2) + b'"',
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_depth_of_hostile_text_costs_little_more_than_parsing_honest_text(kind: str) -> None:
    honest = repeated(b'{"name":"some text","values":[1,2,3]}')

    def cost(step: object, text: bytes) -> float:
        best = float("inf")
        for _ in range(5):
            start = process_time()
            step(text)  # type: ignore[operator]
            best = min(best, process_time() - start)
        return best

    assert cost(depth, HOSTILE[kind]) < 3 * cost(json.loads, honest)

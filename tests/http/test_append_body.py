"""The reader of append bodies against a body that was put together piece by piece, so that the truth is known."""

from __future__ import annotations

import json
from contextlib import suppress
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import Invalid, Record
from tenure.http.append.body import read_append
from tenure.http.append.long_work import finish
from tenure.http.append.request import Append, AppendLimits, Steps
from tenure.http.wire.message import Request
from tests.http.hostile_bodies import HOSTILE, honest

Pairs = list[tuple[str, str]]


def limits(*, whole_bytes_max: int) -> AppendLimits:
    return AppendLimits(
        records_max=10_000,
        record_bytes_max=1 << 20,
        append_fields_bytes_max=1 << 16,
        record_fields_bytes_max=1 << 13,
        record_fields_max=32,
        append_whole_bytes_max=whole_bytes_max,
    )


def read(request: Request, *, whole_bytes_max: int = 1 << 20) -> Append:
    """Read a body, at once or step by step."""
    found = read_append(request, limits(whole_bytes_max=whole_bytes_max))
    return found if isinstance(found, Append) else finish(found)


spaces = st.sampled_from(["", "", "", " ", "\n\t "])
odd = st.sampled_from(
    [
        *("1e400", "-0", "9" * 50, '"\\ud800"', '"\\\\ud800"', '"\\\\\\udc00\\ud83d\\ude00"', '{"data":1,"data":2}'),
        *('"data"', '"},{\\"data\\":1"', '[{"data":1}]', '{"records":[],"tag":"x"}', '"é"', "[ 1 ,2]", '"a b"', "null"),
    ]
)
values = odd | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode())
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
quoted = texts.map(json.dumps) | texts.map(lambda text: json.dumps(text, ensure_ascii=False))
keys = st.sampled_from(['"data"', '"data"', '"d\\u0061ta"', '"tag"', '"node"', '"unknown"', '"meta"'])


@st.composite
def records(draw: st.DrawFn) -> Pairs:
    pairs: Pairs = [('"data"', draw(values))]
    for key in draw(st.lists(keys, max_size=3)):
        value = {'"tag"': quoted, '"node"': quoted, '"meta"': st.just('{"m":"é"}')}.get(key, values)
        pairs.insert(draw(st.integers(0, len(pairs))), (key, draw(value)))
    return pairs


@st.composite
def objects(draw: st.DrawFn, pairs: Pairs) -> str:
    space = draw(spaces)
    return "{" + space + ",".join(f"{space}{key}{space}:{space}{value}{space}" for key, value in pairs) + "}"


def names(pairs: Pairs) -> list[str]:
    return [json.loads(key) for key, _ in pairs]


def twice(pairs: Pairs, ours: set[str]) -> bool:
    found = [name for name in names(pairs) if name in ours]
    return len(found) != len(set(found))


def lone_outside(pairs: Pairs) -> bool:
    return any(_lone(value) for key, value in pairs if json.loads(key) != "data")


def _lone(text: str) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


@given(st.data())
def test_a_body_is_understood_or_refused_for_what_it_says(data: st.DataObject) -> None:
    batch = data.draw(st.lists(records(), min_size=1, max_size=4))
    top: Pairs = [('"records"', "[" + ",".join(data.draw(objects(one)) for one in batch) + "]")]
    for key, value in data.draw(
        st.lists(st.tuples(st.sampled_from(['"node"', '"x"', '"create"']), quoted), max_size=2)
    ):
        top.insert(data.draw(st.integers(0, len(top))), (key, "true" if key == '"create"' else value))
    body = data.draw(objects(top)).encode()
    refused = (
        twice(top, {"records", "node", "create"})
        or any(twice(one, {"data", "tag", "node", "meta"}) for one in batch)
        or any(lone_outside(one) for one in batch)
    )
    request = Request("POST", "/", headers={"content-type": "application/json"}, body=body)
    try:
        append = read(request, whole_bytes_max=data.draw(st.sampled_from([0, 1 << 20])))
    except Invalid:
        assert refused
        return
    assert not refused
    assert [_shown(record) for record in append.records] == [_expected(one) for one in batch]


def _shown(record: bytes | Record) -> tuple[bytes, Any, Any]:
    return (record, None, None) if isinstance(record, bytes) else (record.data, record.tag, record.meta)


def _expected(pairs: Pairs) -> tuple[bytes, Any, Any]:
    fields = dict(zip(names(pairs), (value for _, value in pairs), strict=True))
    tag = msgspec.json.decode(fields["tag"]) if "tag" in fields else None
    meta = fields["meta"].encode() if "meta" in fields else None
    return fields["data"].encode(), tag, meta


def cost(body: bytes) -> tuple[float, float]:
    """Read a body step by step; return the processor time of its longest step, and of all of them."""
    request = Request("POST", "/", headers={"content-type": "application/json"}, body=body)
    taken: list[float] = []
    steps: Steps | None = None
    with suppress(Invalid, StopIteration):
        while True:
            start = process_time()
            try:
                if steps is None:
                    found = read_append(request, limits(whole_bytes_max=1 << 19))
                    if isinstance(found, Append):
                        break
                    steps = found
                next(steps)
            finally:
                taken.append(process_time() - start)
    return max(taken), sum(taken)


@pytest.mark.parametrize("size", [1 << 19, 1 << 21], ids=["decoded whole", "in steps"])
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_no_body_costs_much_at_once_or_in_all(kind: str, size: int) -> None:
    plain = honest(1 << 20)
    start = process_time()
    for _ in range(3):
        json.loads(plain)
    base = (process_time() - start) / 3
    body = HOSTILE[kind](size - 1_000)
    longest, total = map(min, zip(*(cost(body) for _ in range(2)), strict=True))
    assert longest < 10 * base
    assert total < 300 * base * (size >> 19)  # linear; a machine under load differs by half


@pytest.mark.parametrize("whole_bytes_max", [0, 1 << 20])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"records":[{"data":1,"x":"' + b"x" * 10_000 + b'"}]}', "more than 8192 bytes beside data and meta"),
        (b'{"records":[{"data":1' + b',"x":0' * 1_000 + b"}]}", "more than 32 fields"),
        (b'{"records":[{"data":1}],"x":"' + b"x" * 70_000 + b'"}', "more than 65536 bytes outside of its records"),
        (b'{"records":[{"data":1}]' + b',"x":1' * 12_000 + b"}", "more than 65536 bytes outside of its records"),
        (b'{"records":[{"data":1},{"data":"' + b"x" * (1 << 21) + b'"}]}', "record 1 is too large"),
        (b'{"records":[{"data":1},{"data":tru}]}', "in records"),
        (b'{"records":[{"data":1},{"data":1,"tag":5}]}', "records[1].tag"),
        (b'{"records":[{"data":1},]}', "not valid JSON"),
        (b'{"records":[{"data":1}]} {}', "not valid JSON"),
        (b'{"records":[{"data":1}]}' + b" " * 200_000 + b"}", "not valid JSON"),
        (b'{"records":[{"data":1}]', "not valid JSON"),
        (b'{"records":[{"data":1}],}', "not valid JSON"),
        (b'{"records" [{"data":1}]}', "not valid JSON"),
        (b'{"records":[{"data":"\\ud800"},{"data":"\\ud800}]}', "not valid JSON"),
        (b'{"records":[{"data":"\xc3"}]}', "UTF-8"),
        (b'{"records":[{"data":"' + b"x" * 65_515 + b'\xc3"}]}', "UTF-8"),
    ],
)
def test_a_body_that_is_refused_says_why_however_it_is_read(body: bytes, said: str, whole_bytes_max: int) -> None:
    request = Request("POST", "/", headers={"content-type": "application/json"}, body=body)
    with pytest.raises(Invalid) as refused:
        read(request, whole_bytes_max=whole_bytes_max)
    assert said in refused.value.message


def test_a_large_body_is_the_same_append_as_a_small_one() -> None:
    texts = [b'{"data":%d}', b'{"data":"\xc3\xa9%d","tag":"t"}', b' {"tag":"\\ud83d\\ude00","data": "\\ud800%d" } ']
    records = [texts[n % 3] % n for n in range(3_000)]
    body = b'{"node":"n","records":[' + b",".join(records) + b'],"x":1}'
    whole, parts = (
        read(Request("POST", "/", headers={"content-type": "application/json"}, body=body), whole_bytes_max=size)
        for size in (1 << 20, 0)
    )
    assert len(whole.records) == 3_000
    assert whole.records == parts.records
    assert parts.records[2] == Record(data=b'"\\ud8002"', tag="😀")
    assert parts.body.node == "n"

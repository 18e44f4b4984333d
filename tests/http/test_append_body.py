"""The reader of append bodies against a body that was put together piece by piece, so that the truth is known."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenure import Invalid, Record
from tenure.http.append_body import read_append
from tenure.http.message import Request

Pairs = list[tuple[str, str]]

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
        append = read_append(request, records_max=10_000)
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

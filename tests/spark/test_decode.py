"""Typed decode: what fits becomes columns, what does not is kept as text, and nothing raises."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure.errors import Invalid
from tenure.spark.decode import MALFORMED_CHARS_MAX, decoded, read_schema
from tenure.spark.reader.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """\
[fields]
id = "long"
count = "int"
name = "string"
at = "timestamp"
day = "date"
amount = "decimal(10,2)"
ratio = "double"
yes = "boolean"
raw = "binary"
tags = ["string"]
items = [{ sku = "string", n = "long" }]
counts = "map<string,long>"
ratios = ["double"]
moments = [{ at = "timestamp" }]
when = "map<string,timestamp>"
[fields.address]
city = "string"
zip = "int"
"""
WHOLE = (
    b'{"id":1,"count":2,"name":"a","at":"2026-01-02T03:04:05+01:00","day":"2026-01-02","amount":1.25,"ratio":0.5,'
    b'"yes":true,"raw":"aGk=","tags":["x","y"],"items":[{"sku":"s","n":3}],"counts":{"k":4},'
    b'"address":{"city":"Ulm","zip":89073}}'
)
FITS = {
    WHOLE: {
        **{"id": 1, "count": 2, "name": "a", "at": datetime(2026, 1, 2, 2, 4, 5), "day": date(2026, 1, 2)},
        **{"amount": Decimal("1.25"), "ratio": 0.5, "yes": True, "raw": b"hi", "tags": ["x", "y"]},
        **{"items": [{"sku": "s", "n": 3}], "counts": {"k": 4}, "address": {"city": "Ulm", "zip": 89073}},
    },
    b"{}": {},
    b" {\t}\r\n": {},
    b'{"id":5}\r\n': {"id": 5},
    b'{"name":"}"}': {"name": "}"},
    b' {"id": 5} ': {"id": 5},
    b'{"id":null,"other":[1,{"a":2}]}': {},
    b'{"id":1,"id":2}': {"id": 2},
    b'{"name":5}': {"name": "5"},
    b'{"amount":"1.25"}': {"amount": Decimal("1.25")},
    b'{"at":"2026-01-02T03:04:05"}': {"at": datetime(2026, 1, 2, 3, 4, 5)},
    '{"name":"é"}'.encode(): {"name": "é"},
    '{"name":"\ufffd"}'.encode(): {"name": "\ufffd"},
    b'{"at":1790000000}': {"at": datetime(2026, 9, 21, 14, 13, 20)},
    b'{"at":1790000000.5}': {"at": datetime(2026, 9, 21, 14, 13, 20, 500_000)},
    b'{"at":1790000000.123456}': {"at": datetime(2026, 9, 21, 14, 13, 20, 123_456)},
    b'{"at":-0.25}': {"at": datetime(1969, 12, 31, 23, 59, 59, 750_000)},
    b'{"at":1.79e9}': {"at": datetime(2026, 9, 21, 14, 13, 20)},
    b'{"at":"1790000000.5"}': {"at": datetime(2026, 9, 21, 14, 13, 20, 500_000)},
    b'{"at":0}': {"at": datetime(1970, 1, 1)},
    b'{"at":"2026-01-02"}': {"at": datetime(2026, 1, 2)},
    b'{"moments":[{"at":0.5},{"at":null},null],"when":{"a":"2026-01-02T00:00:00Z","b":1.5}}': {
        "moments": [{"at": datetime(1970, 1, 1, 0, 0, 0, 500_000)}, {"at": None}, None],
        "when": {"a": datetime(2026, 1, 2), "b": datetime(1970, 1, 1, 0, 0, 1, 500_000)},
    },
    b'{"ratio":1e308}': {"ratio": 1e308},
    b'{"ratio":1e-400}': {"ratio": 0.0},
    rb'{"name":"\ud834\udd1e \\ud800 \u00e9"}': {"name": "\U0001d11e \\ud800 é"},
    b'{"ID":7}': {},
    b'{"_malformed":"x"}': {},
}
DOES_NOT_FIT = [
    *(b"", b"  ", b"not json", b"5", b'"text"', b"null", b"[]", b'[{"id":1}]', b"{", b'{"id":1', b"{'id':1}"),
    *(b'{"id":1} behind', b'{"id":1}{"id":2}', b'{"id":1},{"id":2}', b'{"id":1}\n{"id":2}'),
    *(b'{"id":1}]}', b'{"id":1}]} behind', b'{"id":1}}', b'{"id":1}} }', b'{"id":12', b'{"id":1,}', b"{,}", b"}"),
    *(b'{"name":"}', b'{"name":"\\}', b'{"id":1}\x0b', b'{"id":1}\xc2\xa0', b'{"address":{}', b'[{"id":1}', b"[{}]}"),
    *(b'{"id":"1"}', b'{"id":1.5}', b'{"id":12345678901234567890}', b'{"id":true}', b'{"count":99999999999}'),
    *(b'{"at":"yesterday"}', b'{"day":"2026-13-01"}', b'{"amount":123456789.5}', b'{"ratio":"0.5"}', b'{"yes":"true"}'),
    *(b'{"yes":1}', b'{"raw":"***"}', b'{"tags":"x"}', b'{"items":[{"n":1},{"n":"x"}]}', b'{"counts":{"k":"v"}}'),
    *(b'{"address":5}', b'{"address":{"zip":"x"}}', b'{"id":1,"address":{"zip":1.5}}'),
    *(b'{"ratio":1e400}', b'{"ratio":-1e400}', b'{"ratio":NaN}', b'{"ratio":Infinity}', b'{"ratio":-Infinity}'),
    *(
        b'{"ratio":"NaN"}',
        b'{"name":NaN}',
        b'{"other":NaN}',
        b'{"ratios":[1,1e400]}',
        b'{"amount":1e400}',
        b'{"id":1.0}',
    ),
    *(b'{"at":1e400}', b'{"at":1e13}', b'{"at":2026}', b'{"at":"2026"}', b'{"at":true}', b'{"at":[1]}', b'{"at":""}'),
    *(b'{"moments":[{"at":"yesterday"}]}', b'{"when":{"a":"x"}}', rb'{"name":"\ud800"}', rb'{"name":"\udc00"}'),
    *(rb'{"name":"\ud800x\udc00"}', rb'{"name":"\ud800\\\udc00"}', rb'{"other":["\uD800\uD800\uDC00"]}'),
    *(b'\xff\xfe{"id":1}', b'{"name":"\xff"}', b'\xef\xbb\xbf{"id":1}', b'\x00{"id":1}', '{"id":1}'.encode("utf-16")),
]


def raw(spark: SparkSession, entries: list[bytes]) -> DataFrame:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(7, index, now, b"meta", entry) for index, entry in enumerate(entries)]
    return spark.createDataFrame(rows, spark_schema())


@pytest.fixture
def schema(tmp_path: Path) -> Any:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return read_schema(tmp_path / "schema.toml")


@pytest.mark.parametrize("partial", ["true", "false"])
def test_what_fits_is_typed_and_what_does_not_is_text(spark: SparkSession, schema: Any, partial: str) -> None:
    spark.conf.set("spark.sql.json.enablePartialResults", partial)
    entries = [*FITS, *DOES_NOT_FIT]
    found = sorted(decoded(raw(spark, entries), schema).collect(), key=lambda row: int(row["_index"]))
    for entry, row in zip(entries, found, strict=True):
        values = row.asDict(recursive=True)
        assert (values.pop("_seq"), values.pop("_metadata")) == (7, b"meta")
        malformed = values.pop("_malformed")
        fields = {name: value for name, value in values.items() if not name.startswith("_") and value is not None}
        assert (entry, malformed, fields) == (entry, *((None, FITS[entry]) if entry in FITS else (malformed, {})))
        if entry not in FITS:
            assert malformed == entry.decode("utf-8", "replace")


def test_text_that_is_kept_is_bounded(spark: SparkSession, schema: Any) -> None:
    [row] = decoded(raw(spark, [b"x" * (MALFORMED_CHARS_MAX + 1)]), schema).collect()
    assert row["_malformed"] == "x" * MALFORMED_CHARS_MAX


def test_entries_are_parsed_once_and_text_is_made_of_those_that_do_not_fit_only(
    spark: SparkSession, schema: Any
) -> None:
    plan = decoded(raw(spark, [b"{}"]), schema)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1
    of_entries = re.findall(r"substring\((?!_one#|_whole#|lambda )", plan)  # those of times look at their form
    assert len(of_entries) == plan.count("THEN substring(") == 1


def test_compiled_code_prepares_what_is_parsed(spark: SparkSession, schema: Any) -> None:
    """Spark interprets everything inside ``from_json``, and would merge the step before into it."""
    plan = decoded(raw(spark, [b"{}"]), schema)._jdf.queryExecution().optimizedPlan().toString()
    assert re.search(r"from_json\([^\n]*, _text#\d+, ", plan)


def test_text_and_bytes_are_columns_too(spark: SparkSession) -> None:
    frame = raw(spark, [b"plain", b"\xff"])
    text = decoded(frame, format="text").orderBy("_index").select("text", "_malformed").collect()
    assert [tuple(row) for row in text] == [("plain", None), (None, "�")]
    assert [row["entry"] for row in decoded(frame, format="binary").orderBy("_index").collect()] == [b"plain", b"\xff"]


def test_a_schema_in_sparks_own_form_is_the_same(tmp_path: Path, schema: Any) -> None:
    (tmp_path / "schema.json").write_text(schema.json())
    assert read_schema(tmp_path / "schema.json") == schema


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.toml", '[fields]\nid = "lnog"\nn = 5\n', r"a.toml:2: id: 'lnog' is no type.*\n.*a.toml:3: n is not a type"),
        ("a.toml", '[fields]\nx = "decimal(50,2)"\n', r"a\.toml:2: x: decimal\(50,2\): a decimal has 1 to 38 digits"),
        ("a.toml", '[fields]\nx = ["string", "long"]\n', r"a\.toml:2: x: an array names the one type"),
        ("a.toml", '[field]\nx = "long"\n', r"a\.toml:1: field is unknown here"),
        ("a.toml", "[fields]\n", r"a\.toml:1: names no field"),
        ("a.toml", '[fields]\n_seq = "long"\n', r"_seq is a column of Tenure's own"),
        ("a.toml", '[fields]\nid = "long"\nID = "long"\n', r"id and ID differ in case only"),
        ("a.json", '{\n"type": }', r"a\.json:2: is not JSON"),
        ("a.json", '{"type": "array"}', r"a\.json: is not a schema"),
    ],
    ids=["types", "decimal", "array", "section", "empty", "own", "case", "syntax", "shape"],
)
def test_a_bad_schema_file_is_refused_with_its_line(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Invalid, match=told) as caught:
        read_schema(tmp_path / name)
    assert caught.value.code == "bad_schema"

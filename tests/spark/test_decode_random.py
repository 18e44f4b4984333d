"""Typed decode of random entries, against another decoder."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from tenure.spark.decode import decoded, read_schema
from tenure.spark.reader.columns import spark_schema
from tests.spark.test_decode import SCHEMA
from tests.spark.wrapped_decode import wrapped_decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAMES = ["id", "count", "name", "at", "day", "amount", "ratio", "yes", "raw", "tags", "items", "counts", "address"]
PLAIN: list[Any] = [
    *(None, True, False, 0, 1, -7, 2**31, 2**63, 10**25, 0.5, 1e300, -0.0, float("nan"), float("inf")),
    *("", "a", "1", "true", "é𝄞", "}", "]}", '"', "\\", "\n", "aGk=", "2026-01-02", "2026-13-01", "0001-01-01"),
    *("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456+14:00", "99999999-01-01", "12:00", "x" * 300),
]
PIECES = [
    *(bytes([byte]) for byte in b"{}[],:\"\\ \t\n\r\x00\x0b\x7f1eE+-.ntf/'#\xff\xc3\xa9\x80"),
    b"]}",
    b"}}",
    b"{}",
]
PIECES += [b"null", b"//", b"/*", b"NaN", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"id":2', b',"id":2}', b"\\u00"]


def value(dice: random.Random, depth: int = 0) -> Any:
    """Some JSON, of any type."""
    shape = dice.random()
    if depth < 3 and shape < 0.15:
        return [value(dice, depth + 1) for _ in range(dice.randrange(3))]
    if depth < 3 and shape < 0.35:
        names = dice.choices([*NAMES, "city", "zip", "sku", "n", "k", ""], k=dice.randrange(4))
        return {name: value(dice, depth + 1) for name in names}
    return dice.choice(PLAIN)


FITTING: dict[str, list[Any]] = {
    "id": [0, 2**63 - 1],
    "count": [-(2**31)],
    "name": ["", "}", {"a": [1]}, 5],
    "at": ["2026-01-02T03:04:05Z", "2026-01-02"],
    "day": ["2026-01-02"],
    "amount": [1.25, "7"],
    "ratio": [1, 1e-9],
    "yes": [True],
    "raw": ["aGk="],
    "tags": [[], ["x", None]],
    "items": [[{"sku": "}]", "n": 3}, {}]],
    "counts": [{"k": 4}, {}],
    "address": [{"city": "Ulm", "zip": 1}, {}],
}


def entry(dice: random.Random) -> bytes:
    """An object that fits more often than not, or what is left of it after a few accidents."""
    names = dice.sample(NAMES, dice.randrange(8))
    fields = {name: dice.choice(FITTING[name]) if dice.random() < 0.9 else value(dice) for name in names}
    text = json.dumps(fields, ensure_ascii=dice.random() < 0.5, indent=dice.choice([None, None, 1])).encode()
    for _ in range(dice.choice([0, 0, 1, 1, 2, 5])):
        text = accident(text, dice)
    return text


def accident(text: bytes, dice: random.Random) -> bytes:
    at, until = sorted(dice.randrange(len(text) + 1) for _ in range(2))
    match dice.randrange(7):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + dice.choice(PIECES) + text[at:]
        case 2:
            return text + dice.choice(PIECES)
        case 3:
            return dice.choice(PIECES) + text
        case 4:
            return text[:until] + text[at:]
        case 5:
            return text[:at]
        case _:
            return text + dice.choice([b"", b" ", b",", b"\n", b"]}"]) + entry(dice)


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("partial", ["true", "false"])
def test_random_entries_are_decoded_as_by_another_way(
    spark: SparkSession, tmp_path: Path, partial: str, count: int
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema = read_schema(tmp_path / "schema.toml")
    dice = random.Random(count)
    entries = [entry(dice) for _ in range(count)]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame([(7, at, now, b"", text) for at, text in enumerate(entries)], spark_schema())
    spark.conf.set("spark.sql.json.enablePartialResults", partial)
    found, other = answers(decoded(frame, schema), schema), answers(wrapped_decode(frame, schema), schema)
    both = {row[-1] is None for row in found.values()}
    assert both == {True, False}, "some fit, and some do not"
    for at, text in enumerate(entries):
        if other[at][-1] is None and not is_json(text):
            assert found[at][-1] is not None, text
        else:
            assert found[at] == other[at], text


def answers(frame: DataFrame, schema: StructType) -> dict[int, tuple[str, str | None]]:
    """The fields of each entry as Spark writes them, as Python has not every date, and ``_malformed``."""
    fields = f.to_json(f.struct(*schema.names), {"ignoreNullFields": "false"})
    return {row[0]: (row[1], row[2]) for row in frame.select("_index", fields, "_malformed").collect()}


def is_json(text: bytes) -> bool:
    """Whether it is JSON in which every text is Unicode, as RFC 7493 asks for."""
    try:
        json.dumps(json.loads(text.decode()), ensure_ascii=False).encode()
    except ValueError:
        return False
    return True

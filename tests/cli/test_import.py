"""`tenure buffer produce` of what people have: CSV, JSON documents and Parquet, plain or compressed."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tenure.buffer import Consumer
from tenure.cli.buffer.buffer import buffer
from tenure.cli.buffer.importing.csv_rows import csv_rows
from tenure.cli.buffer.importing.json_document import json_values
from tenure.cli.buffer.importing.stream import Stream
from tenure.errors import Invalid
from tests.cli.conftest import COMMAND, Tenure, surroundings

ROWS: list[dict[str, Any]] = [
    {"id": number, "name": f'n{number}, "é"', "price": 0.25 * number, "note": None if number % 3 else "two\nlines"}
    for number in range(400)
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "buffer"


def produce(home: Path, *arguments: object) -> Result:
    """The command in this process, which is much quicker to start."""
    return CliRunner().invoke(buffer, ["produce", *map(str, (home, *arguments))])


def entries_of(home: Path) -> list[bytes]:
    async def read() -> list[bytes]:
        found: list[bytes] = []
        async with Consumer(home.as_uri(), create=True) as consumer:
            while (batch := await consumer.next_batch()) is not None:
                found += batch.entries
        return found

    return asyncio.run(read())


def as_csv(rows: list[dict[str, Any]] = ROWS, **options: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), **options)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=150)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


INDENTED = json.dumps(ROWS, indent=1).encode()
LINES = "\n".join(map(json.dumps, ROWS)).encode()
FORMS: dict[str, Callable[[], bytes]] = {
    "cars.json": lambda: INDENTED,
    "array-of-no-name": lambda: INDENTED,
    "bom.json": lambda: b"\xef\xbb\xbf" + INDENTED,
    "one-line.json": lambda: json.dumps(ROWS).encode(),
    "lines.json": lambda: LINES,
    "lines.ndjson": lambda: b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n") + b"\r\n\r\n",
    "of-jq.txt": lambda: "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(),
    "rows.csv": as_csv,
    "of-a-spreadsheet.csv": lambda: b"\xef\xbb\xbf" + as_csv(delimiter=";"),
    "rows.tsv": lambda: as_csv(delimiter="\t"),
    "rows.csv.gz": lambda: gzip.compress(as_csv()),
    "two-members.csv.gz": lambda: gzip.compress(as_csv()[:1_000]) + gzip.compress(as_csv()[1_000:]),
    "named-like-a-plain-one.csv": lambda: zstd(as_csv()),
    "cars.json.zst": lambda: zstd(INDENTED),
    "rows.parquet": as_parquet,
    "parquet-of-no-name": as_parquet,
}


def test_the_same_rows_come_from_every_form(home: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in FORMS]
    for file in files:
        file.write_bytes(FORMS[file.name]())
    done = produce(home, *files)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{400 * len(FORMS):,} entries (")
    found = entries_of(home)
    for place, name in enumerate(FORMS):
        assert [json.loads(entry) for entry in found[400 * place :][:400]] == ROWS, name


def test_an_array_on_standard_input_is_taken_apart_and_lines_of_arrays_are_not(tenure: Tenure, home: Path) -> None:
    for text in (INDENTED.decode(), json.dumps(ROWS) + "\n"):
        assert "standard input: JSON, 400 entries" in tenure("buffer", "produce", home, stdin=text).stdout
    lines = "[2026-11-15 08:00:00] started\n[2026-11-15] [ERROR]\n"
    tenure("buffer", "produce", home, stdin=lines)
    assert entries_of(home)[800:] == lines.encode().splitlines()


@pytest.mark.parametrize(
    ("name", "content", "entries"),
    [
        ("arrays", b'[{"a":1}]\n[{"a":2}]\n', [b'[{"a":1}]', b'[{"a":2}]']),
        ("one.jsonl", b'[{"a":1}]\n', [b'[{"a":1}]']),
        ("numbers", b"[1,2]\n", [b"[1,2]"]),
        ("numbers.json", b"[1,2]\n", [b"1", b"2"]),
        ("empty.json", b"[ ]", []),
        ("nothing.csv", b"", []),
        (
            "pretty",
            b'{\n "a": 1.10,\n "big": 12345678901234567890123,\n "t": "x  \\u00e9"\n}\n',
            [b'{"a":1.10,"big":12345678901234567890123,"t":"x  \\u00e9"}'],
        ),
        ("half", b'[\n{ "a": "\\ud800" }\n]', [b'{ "a": "\\ud800" }']),
        ("long", b'{"a":"' + b"x" * 70_000 + b'"}\n5\n', [b'{"a":"' + b"x" * 70_000 + b'"}', b"5"]),
        ("long-array", b'["' + b"x" * 70_000 + b'",5]', [b'"' + b"x" * 70_000 + b'"', b"5"]),
    ],
)
def test_what_begins_like_json_is_a_document_or_lines(
    home: Path, tmp_path: Path, name: str, content: bytes, entries: list[bytes]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert produce(home, tmp_path / name).exit_code == 0
    assert entries_of(home) == entries


@pytest.mark.parametrize(
    ("name", "content", "options", "told"),
    [
        ("cars.json", INDENTED, ["--format", "lines"], "a JSON document over several lines: pass --format json"),
        ("rows.parquet", as_parquet(), ["--format", "lines"], "a Parquet file: pass --format parquet"),
        ("rows.parquet.gz", gzip.compress(as_parquet()), [], "Name a plain file"),
        ("rows.parquet", as_csv(), [], "no Parquet file: pass the --format that it has"),
        ("excel.csv", as_csv().decode().encode("utf-16"), [], "iconv -f UTF-16"),
        ("excel.xlsx", b"PK\x03\x04rest", [], "unpack it first"),
        ("photo.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF\n", [], "--whole for one entry per file, or --format lines"),
        ("rows.csv", as_csv(), ["--delimiter", "||"], "--delimiter is one character"),
        ("rows.csv", as_csv(), ["--whole", "--format", "csv"], "leave --format out"),
    ],
)
def test_what_is_no_lines_is_refused_with_the_option_to_pass(
    home: Path, tmp_path: Path, name: str, content: bytes, options: list[str], told: str
) -> None:
    (tmp_path / "good").write_text("a line\n")
    (tmp_path / name).write_bytes(content)
    done = produce(home, tmp_path / "good", tmp_path / name, *options)
    assert (done.exit_code, done.stdout, told in done.stderr) == (2, "", True), done.stderr
    assert not home.exists(), "nothing is produced of the file before it either"


def test_lines_are_taken_as_they_are_where_that_is_asked_for(home: Path, tmp_path: Path) -> None:
    (tmp_path / "frames").write_bytes(b"\x00\x01\n\xff\x00\r\n")
    assert produce(home, tmp_path / "frames", "--format", "lines").exit_code == 0
    assert entries_of(home) == [b"\x00\x01", b"\xff\x00"]


def test_a_nul_byte_far_behind_the_beginning_ends_an_import_with_its_line(home: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"x\n" * 400_000 + b"y\0\n")
    done = produce(home, tmp_path / "lines", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["code"], "line 400001 " in error["message"].replace(":", " ")) == (
        2,
        "bad_input",
        True,
    )
    assert error["detail"]["durable"] == len(entries_of(home)) > 0


CELLS = {
    "": "null",
    "1": "1",
    "-7": "-7",
    "1.50": "1.50",
    "9223372036854775807": "9223372036854775807",
    "-9223372036854775808": "-9223372036854775808",
    "true": "true",
    **{
        text: json.dumps(text)
        for text in (
            *("007", "+1", "-0", "1e5", "1.", ".5", "1,5", "0x10", "NaN", "inf", "True", "null", " 1", "1 ", "١"),
            *("9223372036854775808", "1" * 40, "0." + "1" * 40, "a, b", "two\nlines", 'a "quoted" one', "é"),
        )
    },
}


def test_csv_fields_become_numbers_only_where_they_read_the_same_digit_by_digit() -> None:
    rows = [{"v": text, "w": "x"} for text in CELLS]
    found = [json_object_text(entry) for entry in rows_of(as_csv(rows))]
    assert found == [f'{{"v":{value},"w":"x"}}' for value in CELLS.values()]
    as_text = [json.loads(entry)["v"] for entry in rows_of(as_csv(rows), text_only=True)]
    assert as_text == [text or None for text in CELLS]


def json_object_text(entry: bytes) -> str:
    """The entry with its texts spelled as Python spells them, and its numbers digit by digit."""
    value: list[tuple[str, Any]] = json.loads(
        entry, object_pairs_hook=lambda pairs: pairs, parse_int=_Digits, parse_float=_Digits
    )
    spelled = (f'"{name}":{each if isinstance(each, _Digits) else json.dumps(each)}' for name, each in value)
    return "{" + ",".join(spelled) + "}"


class _Digits(str):
    pass


def rows_of(content: bytes, *, text_only: bool = False) -> list[bytes]:
    found = csv_rows(chunked(content, 7), "rows.csv", delimiter=",", text_only=text_only)
    return [entry for entry in found if entry is not None]


def chunked(content: bytes, size: int) -> Stream:
    """The content in reads of at most so many bytes."""
    source = io.BytesIO(content)
    return Stream(lambda wanted: source.read(min(size, wanted)))


def test_a_column_without_a_name_is_called_after_its_place() -> None:
    assert rows_of(b",b\n0,x\n") == [b'{"column1":0,"b":"x"}']


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a,b\n1,2\n\n1\n", "line 4: has 1 fields, and the header 2"),
        (b'a,b\n"x\ny",2\n"1,2\n', "line 4: is not CSV: unexpected end of data"),
        (b'a,b\n"x"y,2\n', "line 2: is not CSV: ',' expected after '\"'"),
        (b"a,b\n1,\xe9\n", "line 2: is not UTF-8: convert the file first"),
        (b"a,b,a\n", "line 1: the header has two columns named a"),
    ],
)
def test_a_bad_csv_row_is_named_by_its_line(content: bytes, told: str) -> None:
    with pytest.raises(Invalid) as caught:
        rows_of(content)
    assert caught.value.message.startswith(f"rows.csv: {told}")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (INDENTED[:-30], "ends within a value, as if it were cut short"),
        (b'[\n{"a":1}\n', "line 3: the array ends without its ]"),
        (b"[\n1,\n", "line 3: the array ends without its ]"),
        (b'[\n{"a":1}\n{"a":2}]', "line 3: a comma is missing"),
        (b"[\n1,\n2,\n]", "line 4: is not JSON"),
        (b'[\n{"a":NaN}]', "line 2: NaN is not JSON: write null"),
        (b'[1,\n2]\n["x"]', "line 3: more follows the array; for an entry per line pass --format lines"),
        (b'[\n"\xff"]', "line 2: is not UTF-8"),
        (b"[\n" + b"[" * 100_000, "line 2: is nested too deep"),
        (b'[\n{"a": x, ' + b'"b":1,' * 100_000, "line 2: is not JSON: Expecting value"),
    ],
)
def test_a_bad_json_document_is_named_by_its_line(content: bytes, told: str) -> None:
    with pytest.raises(Invalid) as caught:
        list(json_values(chunked(content, 5_000), "a.json"))
    assert told in caught.value.message


def test_an_import_that_ends_early_is_continued_after_what_is_durable(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rows = [f"{number},{'x' * 100}" for number in range(10_000)]
    file.write_text("\n".join(["id,text", *rows, "10000,torn,", "10001,z"]))
    done = produce(home, file, "--json")
    error = json.loads(done.stdout)["error"]
    durable = error["detail"]["durable"]
    assert (done.exit_code, 0 < durable <= 10_000) == (2, True)
    assert "line 10002: has 3 fields, and the header 2" in error["message"]
    assert f"The first {durable:,} entries are durable: repeat the command with --skip {durable}" in error["message"]
    file.write_text(file.read_text().replace("torn,", "torn"))
    found = json.loads(produce(home, file, "--skip", durable, "--json").stdout)
    assert (found["entries"], found["skipped"]) == (10_002 - durable, durable)
    assert [json.loads(entry)["id"] for entry in entries_of(home)] == list(range(10_002))


@pytest.mark.parametrize("compress", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_compressed_data_that_is_cut_short_or_damaged_is_reported(
    home: Path, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    whole, file = compress(LINES), tmp_path / "lines"
    for content in (whole[:-9], whole + b"what is no frame"):
        file.write_bytes(content)
        done = produce(home, file)
        assert (done.exit_code, "data is cut short or damaged after" in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_blank_lines_are_skipped_and_counted(tenure: Tenure, home: Path) -> None:
    done = tenure("buffer", "produce", home, stdin="\none\n  \n\r\ntwo\n\n")
    assert done.stdout.startswith("2 entries (6 B) durable in 1 batch, 4 blank lines skipped")
    assert entries_of(home) == [b"one", b"two"]


def test_a_dry_run_shows_what_a_file_was_taken_for_and_its_first_entries_and_writes_nothing(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"id;name\n1;a\n2;b\n\n3;c\n4;d\n"))
    done = produce(home, tmp_path / "rows.csv.gz", "--dry-run")
    first, second, *shown = done.stdout.splitlines()
    assert first == "4 entries (76 B) would be produced, 1 blank line skipped"
    assert second.endswith("rows.csv.gz: CSV with semicolons, gzip, 4 entries")
    assert shown == ['  {"id":1,"name":"a"}', '  {"id":2,"name":"b"}', '  {"id":3,"name":"c"}']
    found = json.loads(produce(home, tmp_path / "rows.csv.gz", "--dry-run", "--json").stdout)
    assert (found["entries"], found["blank"], found["first"][0]) == (4, 1, '{"id":1,"name":"a"}')
    assert not home.exists()


def test_parquet_values_are_spelled_as_typed_decode_reads_them(home: Path, tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    columns = {
        "long": pa.array([2**63 - 1]),
        "amount": pa.array([Decimal("1.10")]),
        "at": pa.array([moment], pa.timestamp("us", "UTC")),
        "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("ms"), safe=False),
        "fine": pa.array([1_500_000_000_000_000_001], pa.timestamp("ns")),
        "day": pa.array([date(2026, 1, 2)]),
        "raw": pa.array([b"hi"]),
        "ratio": pa.array([float("nan")]),
        "gap": pa.array([None], pa.int64()),
        "tags": pa.array([["a", None]]),
        "counts": pa.array([[("k", 4)]], pa.map_(pa.string(), pa.int64())),
        "address": pa.array([{"city": "Ulm", "zips": [float("-inf")]}]),
        "word": pa.array(["x"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    assert produce(home, tmp_path / "p.parquet").exit_code == 0
    [entry] = entries_of(home)
    assert b'"amount":1.10,' in entry
    assert json.loads(entry) == {
        **{"long": 2**63 - 1, "amount": 1.1, "at": "2026-01-02T03:04:05.000678Z", "local": "2026-01-02T03:04:05"},
        **{"fine": "2017-07-14T02:40:00.000000001", "day": "2026-01-02", "raw": "aGk=", "ratio": "NaN", "gap": None},
        **{"tags": ["a", None], "counts": {"k": 4}, "address": {"city": "Ulm", "zips": ["-Infinity"]}, "word": "x"},
    }


def _streamed(pieces: Iterator[bytes]) -> Stream:
    """A stream of pieces that are made when they are read."""
    left = bytearray()

    def read(size: int) -> bytes:
        while len(left) < size and (piece := next(pieces, b"")):
            left.extend(piece)
        found = bytes(left[:size])
        del left[:size]
        return found

    return Stream(read)


@pytest.mark.parametrize("form", ["json", "csv", "gzip"])
def test_a_long_file_takes_little_memory(form: str) -> None:
    row = {"id": 1, "text": "x" * 1_000}
    pieces = {
        "json": (b"[", json.dumps(row, indent=1).encode() + b",\n", b"1]"),
        "csv": (b"id,text\n", b"1," + b"x" * 1_000 + b"\n", b""),
    }
    first, again, last = pieces.get(form, pieces["json"])
    count = 20_000

    def content() -> Iterator[bytes]:
        yield first
        for _ in range(count // 100):
            yield again * 100
        yield last

    stream = _streamed(content())
    if form == "gzip":
        from tenure.cli.buffer.importing.compression import decompressed

        packed = io.BytesIO(gzip.compress(b"".join(content()), 1))
        stream, _ = decompressed(Stream(packed.read), "a.json.gz")
    tracemalloc.start()
    try:
        if form == "csv":
            found = sum(1 for _ in csv_rows(stream, "a.csv", delimiter=",", text_only=False))
        else:
            found = sum(1 for _ in json_values(stream, "a.json"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found - (form != "csv") == count
    assert peak < 4 << 20, f"{peak:,} bytes for {count * len(again):,}"


def test_lines_of_a_pipe_that_stays_open_are_produced_as_they_come(home: Path) -> None:
    child = subprocess.Popen(
        [COMMAND, "buffer", "produce", str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings()
    )
    assert child.stdin is not None
    child.stdin.write(b"[1,2]\nfirst\n")
    child.stdin.flush()

    async def first() -> list[bytes]:
        async with Consumer(home.as_uri(), create=True) as consumer:
            while True:
                if (batch := await consumer.next_batch(wait_ms=30_000)) is not None:
                    return batch.entries

    assert asyncio.run(first()) == [b"[1,2]", b"first"]
    assert b"2 entries" in child.communicate(b"")[0]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(_JSON), st.integers(1, 60), st.sampled_from([None, 0, 1, "\t"]), st.booleans())
def test_every_json_array_is_read_element_by_element_in_any_chunks(
    values: list[Any], chunk: int, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    found = list(json_values(chunked(text, chunk), "a.json"))
    assert [json.loads(each) for each in found] == values
    assert found == [json.dumps(each, ensure_ascii=ascii_only, separators=(",", ":")).encode() for each in values]


_FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(
    st.lists(st.tuples(_FIELD, _FIELD)), st.integers(1, 60), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"])
)
def test_every_field_that_csv_holds_is_read_back_as_text(
    rows: list[tuple[str, str]], chunk: int, delimiter: str, end: str
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    content = text.getvalue().encode()
    found = csv_rows(chunked(content, chunk), "a.csv", delimiter=delimiter, text_only=True)
    assert [json.loads(each) for each in found if each] == [{"a": a or None, "b": b or None} for a, b in rows]

"""Pipeline files with mistakes: each is refused before Spark starts, all of them at once, with their lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tenure.errors import Invalid
from tenure.spark.pipeline import read_pipeline, validate_pipeline
from tenure.spark.pipeline.describe import describe

SOUND = """\
[pipeline]
name = "orders"

[source]
buffer = "buffer"
group = "orders"

[decode]
schema = "orders.toml"
malformed = "quarantine"

[[step]]
sql = "SELECT *, date(at) AS day FROM input"

[[step]]
python = "orders_steps:with_total"

[deduplicate]
keys = ["id"]

[[expect]]
name = "has-id"
that = "id IS NOT NULL"
otherwise = "quarantine"

[expectations]
path = "tables/expectations"

[quarantine]
path = "tables/quarantine"

[sink]
kind = "parquet"
path = "tables/orders"
partition_by = ["day"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with all that the sound file names."""
    (tmp_path / "orders.toml").write_text('[fields]\nid = "long"\nat = "timestamp"\n')
    (tmp_path / "orders_steps.py").write_text("def with_total(frame):\n    return frame\n\nnumber = 5\n")
    (tmp_path / "step.sql").write_text("SELECT 1 -- of nothing\n")
    return tmp_path


def mistakes(home: Path, text: str) -> list[str]:
    """What is wrong with a pipeline file, as ``line: message``."""
    file = home / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(Invalid) as caught:
        read_pipeline(file)
    assert caught.value.code == "bad_pipeline"
    assert all(str(home) in line for line in caught.value.message.splitlines())
    return [f"{one['line']}: {one['message']}" for one in caught.value.detail["problems"]]


def test_a_sound_file_is_read_whole(home: Path) -> None:
    file = home / "pipeline.toml"
    file.write_text(SOUND)
    pipeline = read_pipeline(file)
    assert pipeline.buffer_url == (home / "buffer").as_uri()
    assert [one.name for one in pipeline.expect] == ["has-id"]
    assert pipeline.schedule.run == "once"
    assert describe(pipeline)[2] == "step 1: SELECT *, date(at) AS day FROM input"


def test_all_mistakes_are_told_at_once_each_with_its_line(home: Path) -> None:
    text = (
        SOUND.replace('group = "orders"', "group = 5")
        .replace('malformed = "quarantine"', 'malfromed = "drop"')
        .replace('keys = ["id"]', 'keys = "id"')
        .replace('otherwise = "quarantine"', 'otherwise = "explode"')
        .replace("with_total", "no_such_function")
        .replace('kind = "parquet"', 'kind = "csv"')
    )
    assert mistakes(home, text) == [
        "6: group must be a string, not a whole number",
        "10: malfromed is unknown here: malformed is meant?",
        "16: python: orders_steps has no no_such_function",
        "19: keys must be a list, not a string",
        "24: otherwise must be one of drop, fail, quarantine, not 'explode'",
        "33: kind must be one of delta, iceberg, parquet, postgres, small_delta, small_iceberg, topic, not 'csv'",
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[pipeline]\n", "[pipelin]\n", "1: [pipelin] is unknown: pipeline is meant?"),
        ('name = "orders"', "", "1: [pipeline] needs name"),
        ('name = "orders"', 'name = "or/ders"', "2: name: 1 to 100 letters, digits, '.', '_' or '-'"),
        ('buffer = "buffer"', "", "4: [source] needs a buffer or a topic, one of them"),
        ('buffer = "buffer"', 'buffer = "buffer"\ntopic = "t"', "4: [source] needs a buffer or a topic, one of them"),
        ('buffer = "buffer"', 'buffer = "buffer"\nurl = "http://x"', "6: url is of no use with a buffer"),
        ('buffer = "buffer"', 'topic = "t"\nurl = "http://x"', "7: group is of no use with a topic"),
        ('buffer = "buffer"', 'topic = "t"\nurl = "http://x"', "5: a topic needs a checkpoint in [schedule]"),
        ('buffer = "buffer"', 'topic = "t"', "4: a topic needs url: where its server is"),
        ('buffer = "buffer"', 'topic = "t t"\nurl = "x"', "5: topic: topic name must be"),
        ('buffer = "buffer"', 'topic = "t"\nurl = "ftp://x"', "6: url: "),
        ('buffer = "buffer"', 'buffer = "ftp://x"', "5: buffer: no store for 'ftp://x'"),
        ('buffer = "buffer"', 'buffer = "memory://x"', "5: buffer: a buffer in memory cannot be reached"),
        ('group = "orders"', 'retain_for = "soon"', '6: retain_for must be a duration like "30s"'),
        ('group = "orders"', 'retain_for = "-1d"', '6: retain_for must be a duration like "30s"'),
        ('group = "orders"', 'retain_for = "40000d"', "6: retain_for must be from 0 to 3153600000000 ms"),
        ('group = "orders"', "retain_for = 7", "6: retain_for must be a string"),
        ('buffer = "buffer"', 'topic = "t"\nurl = "http://x"\nretain_for = "7d"', "7: retain_for is of no use with"),
        ('group = "orders"', "entries_max = 0", "6: entries_max must be at least 1, not 0"),
        ('schema = "orders.toml"', "", "8: JSON is decoded by a schema"),
        ('schema = "orders.toml"', 'schema = "no.toml"', "9: schema: {home}/no.toml cannot be read: No such file"),
        ('schema = "orders.toml"', 'schema = "orders.toml"\nformat = "text"', "9: a schema is for JSON, and format is"),
        ("SELECT *, date(at) AS day FROM input", "SELECT (1 FROM input", "13: sql: ( is never closed"),
        ("SELECT *, date(at) AS day FROM input", "SELECT 'a FROM input", "13: sql: a quote or a comment (') has no"),
        ("SELECT *, date(at) AS day FROM input", "SELECT 1 FROM other", "13: sql: it does not read from input"),
        ("SELECT *, date(at) AS day FROM input", "DROP TABLE input", "13: sql: it is a query: it begins with"),
        ("SELECT *, date(at) AS day FROM input", "FROM input; FROM input", "13: sql: it is one statement, not several"),
        ("SELECT *, date(at) AS day FROM input", " -- nothing", "13: sql: there is no SQL in it"),
        ('sql = "SELECT *', 'file = "step.sql"\nsql = "SELECT *', "12: a step has one of sql, file and python, not"),
        ('sql = "SELECT *, date(at) AS day FROM input"', 'file = "step.sql"', "13: file: it does not read from input"),
        ('sql = "SELECT *, date(at) AS day FROM input"', 'file = "no.sql"', "13: file: {home}/no.sql: cannot be read"),
        ("orders_steps:with_total", "orders_steps", "16: python: 'orders_steps' is not of the form module:function"),
        ("orders_steps:with_total", "no_such_module:f", "16: python: no_such_module cannot be imported"),
        ("orders_steps:with_total", "orders_steps:other", "16: python: orders_steps has no other"),
        ("orders_steps:with_total", "orders_steps:number", "16: python: orders_steps:number is not a function"),
        ('keys = ["id"]', "keys = []", "19: keys: name at least one column"),
        ('that = "id IS NOT NULL"', 'that = "id IS (NOT"', "23: that: ( is never closed"),
        ("[quarantine]\npath", "[schedule]\ncheckpoint", "24: otherwise = \"quarantine\" needs a [quarantine]"),
        ('path = "tables/quarantine"', 'path = "step.sql"', "30: path: step.sql is a file, and a table is a directory"),
        ('path = "tables/orders"', 'path = "step.sql"', "34: path: step.sql is a file, and a table is a directory"),
        ('path = "tables/quarantine"', 'path = "tables/orders/"', "30: path: tables/orders/ is the place of [sink]"),
        ('path = "tables/orders"', "", '32: kind = "parquet" needs path'),
        ('kind = "parquet"', 'kind = "parquet"\nmode = "merge"', '34: mode does not apply to kind = "parquet"'),
        ('kind = "parquet"', 'kind = "delta"\nmode = "merge"', '34: mode = "merge" needs keys'),
        ('kind = "parquet"', 'kind = "delta"\nkeys = ["id"]', '34: keys needs mode = "merge"'),
        ('kind = "parquet"', 'kind = "parquet"\noptions = {a = 1}', "32: options.a is no option of this sink"),
        ("[sink]", '[schedule]\nrun = "streaming"\n[sink]', '32: run = "streaming" needs a checkpoint'),
        ("[sink]", '[schedule]\ncheckpoint = "x"\n[sink]', "33: a checkpoint is for streaming, and run is once"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(home: Path, before: str, after: str, told: str) -> None:
    assert before in SOUND
    found = mistakes(home, SOUND.replace(before, after, 1))
    assert any(one.startswith(told.replace("{home}", str(home))) for one in found), found


def test_a_mistake_in_the_schema_file_is_told_with_that_file_and_line(home: Path) -> None:
    (home / "orders.toml").write_text('[fields]\nid = "long"\nat = "timestmap"\ntags = []\n')
    (home / "pipeline.toml").write_text(SOUND)
    with pytest.raises(Invalid, match=r"toml:3: at: 'timestmap' is no type.*\n.*orders\.toml:4: tags: an array"):
        read_pipeline(home / "pipeline.toml")


def test_what_is_not_toml_is_told_with_its_line(home: Path) -> None:
    assert mistakes(home, SOUND + '\nbroken = "\n')[0].startswith("37: is not TOML: ")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"no\.toml: cannot be read: No such file"):
        read_pipeline(tmp_path / "no.toml")


def test_a_secret_is_named_and_not_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = 'kind = "postgres"\ntable = "orders"\n'
    text = SOUND[: SOUND.index("[sink]")]
    assert mistakes(home, f'{text}[sink]\n{sink}url = "postgresql://me:word@host/db"\n') == [
        "35: url: do not put a secret in this file: name its variable with url_env"
    ]
    assert mistakes(home, f'{text}[sink]\n{sink}url_env = "ORDERS_DB"\n') == [
        "35: url_env: the environment has no ORDERS_DB"
    ]
    monkeypatch.setenv("ORDERS_DB", "postgresql://me:word@host/db")
    (home / "pipeline.toml").write_text(f'{text}[sink]\n{sink}url_env = "ORDERS_DB"\n')
    assert "word" not in " ".join(describe(read_pipeline(home / "pipeline.toml")))


@pytest.mark.parametrize(
    ("sink", "spark", "advice"),
    [
        ('kind = "delta"\npath = "tables/orders"', (4, 3), "pip install 'pyspark==4.2.*'. Small tables"),
        ('kind = "delta"\npath = "tables/orders"', (4, 3), 'kind = "small_delta"'),
        ('kind = "iceberg"\ntable = "lake.shop.orders"', (4, 2), "pip install 'pyspark==4.1.*'. Small tables"),
    ],
)
def test_validate_says_what_to_install_where_the_sink_has_no_connector_for_this_spark(
    home: Path, monkeypatch: pytest.MonkeyPatch, sink: str, spark: tuple[int, int], advice: str
):
    monkeypatch.setattr("tenure.spark.pipeline.file.sink.spark_version", lambda: spark)
    file = home / "pipeline.toml"
    file.write_text(SOUND.partition("[sink]")[0] + f"[sink]\n{sink}\n")
    assert read_pipeline(file).name == "orders"  # status and a run elsewhere go on
    with pytest.raises(Invalid) as refused:
        validate_pipeline(file)
    assert refused.value.detail["problems"][0]["line"] == 33
    assert advice in refused.value.message


def test_validate_asks_for_no_connector_where_there_is_no_spark(home: Path, monkeypatch: pytest.MonkeyPatch):
    def none_there() -> tuple[int, int]:
        raise Invalid("pyspark is not installed", code="no_spark")

    monkeypatch.setattr("tenure.spark.pipeline.file.sink.spark_version", none_there)
    file = home / "pipeline.toml"
    file.write_text(SOUND.partition("[sink]")[0] + '[sink]\nkind = "delta"\npath = "tables/orders"\n')
    assert validate_pipeline(file).name == "orders"


def test_validate_names_the_extra_of_postgres_where_its_driver_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    file = home / "pipeline.toml"
    sink = '[sink]\nkind = "postgres"\nurl = "postgresql://host/shop?user=ada"\ntable = "orders"\n'
    file.write_text(SOUND.partition("[sink]")[0] + sink)
    with pytest.raises(Invalid, match=r"psycopg is not installed: pip install 'tenure\[postgres\]'"):
        validate_pipeline(file)


def test_validate_names_the_extra_of_a_package_that_a_sink_imports_and_does_not_find(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "tenure.objects.cloud_store", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    file = home / "pipeline.toml"
    file.write_text(SOUND.partition("[sink]")[0] + '[sink]\nkind = "parquet"\npath = "s3://lake/orders"\n')
    with pytest.raises(Invalid, match=r"needs obstore, which is not installed: pip install 'tenure\[buffer\]'"):
        validate_pipeline(file)

"""`tenure report` and `tenure compact` where something stands in the way: one line, the right exit code, no Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from pyspark.errors import AnalysisException
from typer.testing import CliRunner, Result

from tenure.buffer import Producer
from tenure.cli.guard import sentence_of
from tenure.cli.main import EMPTY, PROBLEM, USAGE
from tenure.cli.spark import compact as compact_command
from tenure.cli.spark import report as report_command
from tenure.cli.spark import spark as spark_command
from tenure.cli.spark.options import moment_ms
from tenure.errors import Invalid
from tests.kit.buffers import QUICK

APP = typer.Typer()
APP.command()(report_command.report)
APP.command()(compact_command.compact)
APP.add_typer(spark_command.spark, name="spark")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A buffer that holds something."""

    async def fill() -> None:
        async with Producer((tmp_path / "events").as_uri(), settings=QUICK) as producer:
            await (await producer.produce([b"{}"])).durable()

    asyncio.run(fill())
    return tmp_path / "events"


def no_spark(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise this for every request of a session."""

    @contextmanager
    def session(*_arguments: object, **_options: object) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(report_command, "session", session)
    monkeypatch.setattr(compact_command, "session", session)
    monkeypatch.setattr(spark_command, "session", session)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may get as far as starting it."""
    no_spark(AssertionError("a session was asked for"), monkeypatch)


def test_what_is_not_there_and_what_is_no_buffer_are_problems_in_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for told, *arguments in (
        (f"{nowhere} is not there: name a buffer or a table", "report", nowhere),
        (f"{tmp_path} ", "report", tmp_path),
        (f"there is no buffer at {nowhere.as_uri()}: check where it is", "compact", nowhere, tmp_path / "table"),
    ):
        result = run(*arguments)
        assert result.exit_code == PROBLEM, arguments
        assert len(result.output.splitlines()) == 1, arguments
        assert result.output.startswith(f"tenure: {told}"), result.output


def test_a_buffer_without_events_is_nothing(tmp_path: Path) -> None:
    async def create() -> None:
        async with Producer((tmp_path / "events").as_uri(), settings=QUICK):
            pass

    asyncio.run(create())
    result = run("report", tmp_path / "events", "--json")
    assert result.exit_code == EMPTY
    assert json.loads(result.output)["error"]["code"] == "nothing_to_report"


def test_wrong_usage_is_refused_before_spark_is_started(events: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    for wrong in (
        ("report", events, "--from", "yesterday"),
        ("report", events, "--conf", "no-value"),
        ("report", events, "--master", "local", "--remote", "sc://x"),
        ("report", events, "--out", tmp_path / "file"),
        ("report", events, "--out", tmp_path / "full"),
        ("compact", events, tmp_path / "table", "--by", "year"),
        ("compact", events, "ftp://host/table"),
        ("compact", events, tmp_path / "table", "--file-mib", "0"),
    ):
        assert run(*wrong).exit_code == USAGE, wrong


def test_a_machine_without_java_hears_what_to_install(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_spark(Invalid("Spark needs Java 17 or 21: install it", code="no_java"), monkeypatch)
    result = run("report", events, "--out", tmp_path / "out", "--json")
    assert result.exit_code == USAGE
    assert json.loads(result.output)["error"]["code"] == "no_java"
    assert not (tmp_path / "out").exists()


def test_a_job_that_fails_says_why_in_one_line(events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_spark(AnalysisException("[PATH] first line\nat scala.x\nat java.y"), monkeypatch)
    result = run("report", events, "--out", tmp_path / "out")
    assert result.exit_code == PROBLEM
    assert result.output == "tenure: the Spark job failed: [PATH] first line\n"


def test_the_innermost_cause_of_a_java_trace_is_the_sentence() -> None:
    trace = "An error occurred\nCaused by: a.b.C: outer\n\tat x\nCaused by: java.io.IOException: no space left\n\tat y"
    assert sentence_of(RuntimeError(trace)) == "no space left"


def test_moments_are_utc_or_how_long_ago() -> None:
    assert moment_ms("2023-11-14") == 1_699_920_000_000
    assert moment_ms("2023-11-14T01:00+01:00") == 1_699_920_000_000
    assert 0 < moment_ms("1h") - moment_ms("2h") - 3_599_000 < 2_000


def test_a_table_that_is_not_there_is_not_compacted(tmp_path: Path) -> None:
    done = run("spark", "compact", tmp_path / "nothing")
    assert done.exit_code == PROBLEM
    assert "there is no file table at" in done.output
    assert not (tmp_path / "nothing").exists()

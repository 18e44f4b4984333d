"""What the documentation shows of Spark runs too, from the wheel: one driver takes all pages, one after the other."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.docs.reader import Reader
from tests.docs.spark_steps import SPARK_PAGES, steps_of
from tests.kit.installed_wheel import clean_environment

HOUR = timedelta(hours=1)
# The JVM of a short test need not have its better compiler, on the same cores.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _reader(installation: Path, directory: Path) -> Reader:
    now = datetime.now(UTC)
    day = (now - HOUR).strftime("%Y-%m-%dT%H:%M"), (now + HOUR).strftime("%Y-%m-%dT%H:%M")
    places = {
        "s3a://": f"file://{directory}/store/",
        '"/data/': f'"{directory}/data/',
        "stop = threading.Event()": "stop = ended(threading.Event())",
        "2026-01-31T08:00": day[0],
        "2026-01-31T09:00": day[1],
        "2026-11-14T00:00:00Z": f"{day[0]}:00Z",
        "2026-11-15T00:00:00Z": f"{day[1]}:00Z",
        "--from 120 --to 480": "--from 0 --to 0",
        "--from 24h --queue mail": "--from 24h --queue orders",
        "--from 2026-11-09 --to 2026-11-16": f"--from {day[0]} --to {day[1]}",
        "/var/lib/tenure-events": f"{directory}/var/lib/tenure-events",
    }
    return Reader(installation, directory, places=places)


Results = dict[str, list[tuple[str, str]]]

FIRST_PAGES = ["docs/tour.md"]
"""What newcomers read; the other pages belong to the full suite."""


@pytest.fixture(scope="module")
def results(installation: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What went wrong, by page and step."""
    return _driven(FIRST_PAGES, installation, tmp_path_factory.mktemp("spark"), long=False)


@pytest.fixture(scope="module")
def more_results(installation: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The same of all other pages."""
    others = sorted(SPARK_PAGES.difference(FIRST_PAGES))
    return _driven(others, installation, tmp_path_factory.mktemp("spark"), long=False)


def _driven(names: list[str], installation: Path, base: Path, *, long: bool) -> Results:
    steps: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for number, name in enumerate(names):
            directory = base / f"page-{number}"
            directory.mkdir()
            reader = _reader(installation, directory)
            stack.callback(reader.close)
            _prepare(name, reader)
            steps += steps_of(name, reader, long=long)
        steps.sort(key=lambda step: "command" in step)  # a command stops its session, blocks share theirs
        (base / "steps.json").write_text(json.dumps(steps))
        command = [installation / "bin" / "python", Path(__file__).with_name("spark_driver.py")]
        done = subprocess.run(
            [*command, base / "steps.json", base / "results.json"],
            env=clean_environment(installation, JDK_JAVA_OPTIONS=JAVA),
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr
        print(done.stderr)  # how long each step took
    found: Results = {name: [] for name in names}
    for step, wrong in zip(steps, json.loads((base / "results.json").read_text()), strict=True):
        found[step["page"]].append((step["code"] if "code" in step else " ".join(step["command"]), wrong))
    return found


def _prepare(name: str, reader: Reader) -> None:
    """A server with a topic, or the events of one."""
    if name == "docs/reference/spark-topics.md":
        reader.run("tenure serve --data served")
        reader.run("""tenure put orders --type log '{"id": 1}'""")
    elif name in ("docs/tour.md", "docs/how-to/report-on-a-queue.md"):
        events = "file:///var/lib/tenure/events" if name == "docs/tour.md" else "s3://my-bucket/tenure-events"
        reader.run("tenure serve --data served")
        reader.run("tenure put orders 1 2")
        reader.run("tenure claim orders --max 2")
        reader.run("tenure ack orders 1 2")
        reader.close()
        for place in {events, "file:///var/lib/tenure-events"}:
            reader.run(f"tenure export --data served --events {place} --once")


@pytest.mark.timeout(1600)
@pytest.mark.full
@pytest.mark.parametrize("name", FIRST_PAGES)
def test_the_spark_of_a_page_runs(name: str, results: Results):
    assert len(results[name]) > 1
    assert [(step, wrong) for step, wrong in results[name] if wrong] == []


@pytest.mark.full
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", sorted(SPARK_PAGES.difference(FIRST_PAGES)))
def test_the_spark_of_every_other_page_runs_too(name: str, more_results: Results):
    assert len(more_results[name]) > 1
    assert [(step, wrong) for step, wrong in more_results[name] if wrong] == []


@pytest.mark.full
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", ["docs/tour.md", "docs/how-to/report-on-a-queue.md"])
def test_the_long_steps_of_a_page_run_too(name: str, installation: Path, tmp_path: Path):
    found = _driven([name], installation, tmp_path, long=True)
    assert [(step, wrong) for step, wrong in found[name] if wrong] == []

"""`tenure serve --events`: the exporter runs beside the server, comes back when it dies, and loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.errors import NotFound, TenureError
from tenure.export.rows import Exported
from tenure.log.disk import PosixDisk
from tests.export.reading import rows_in
from tests.kit.broker_life import polled, rows_of
from tests.kit.processes import children_of
from tests.kit.server import Running, serving

SOON = ("--set", "export.flush_ms=20", "--set", "export.restart_ms_min=10")
PATIENCE_S = 60.0


def children(running: Running) -> list[int]:
    """The processes that a server has started and that still run."""
    return [child for child in children_of(running.process.pid) if is_running(child)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def call(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def work(running: Running, *, rounds: int) -> None:
    """Produce, claim and ack, one job in three left to run out."""
    with running.client() as client:
        call(client, "PUT", "/v0/topics/q", {"type": "queue", "lease_ms": 150})
        for _ in range(rounds):
            call(client, "POST", "/v0/topics/q", {"records": [{"data": 1}, {"data": 2}, {"data": 3}]})
            claimed = call(client, "POST", "/v0/topics/q/claim", {"node": "w", "max": 3})["claimed"]
            call(client, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": [job["$seq"] for job in claimed[:2]]})


def exported(url: str) -> list[Exported]:
    try:
        return asyncio.run(rows_in(url))
    except (NotFound, TenureError):
        return []


def wait_for(url: str, count: int) -> list[Exported]:
    """The rows, once there are so many."""
    end = time.monotonic() + PATIENCE_S
    while len(rows := exported(url)) < count:
        assert time.monotonic() < end, f"{len(rows)} of {count} rows"
        time.sleep(0.02)
    return rows


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/events"


def test_a_server_exports_what_happens_and_a_stop_leaves_nothing_behind(tmp_path: Path, url: str) -> None:
    with serving(tmp_path / "data", "--events", url, *SOON) as running:
        work(running, rounds=10)
        rows = wait_for(url, 30)
        assert {row.event for row in rows} >= {"produced", "claimed", "acked"}
        running.wait_for_line("exporting lifecycle events")
        metrics = httpx.get(f"{running.url}/v0/metrics").text
        assert "tenure_export_up 1" in metrics
        work(running, rounds=5)
        assert running.stop() == 0
    assert rows_of(exported(url)) == rows_of(polled(PosixDisk(tmp_path / "data")))


def test_a_lease_that_runs_out_unseen_is_exported_without_anybody_asking(tmp_path: Path, url: str) -> None:
    with serving(tmp_path / "data", "--events", url, *SOON) as running:
        work(running, rounds=1)
        rows = wait_for(url, 4)
    assert [row.event for row in rows] == ["produced", "claimed", "acked", "expired"]
    assert rows[3].ts == rows[1].deadline
    assert (rows[3].lease_id, rows[3].runs) == (rows[1].lease_id, [3, 1])


@pytest.mark.full
def test_an_exporter_that_is_killed_comes_back_and_goes_on(tmp_path: Path, url: str) -> None:
    """Fault 1, for the export: kill -9 at any moment."""
    with serving(tmp_path / "data", "--events", url, *SOON) as running:
        for turn in range(4):
            work(running, rounds=10)
            wait_for(url, 30 * turn + 10)
            for child in children(running):
                os.kill(child, signal.SIGKILL)
        running.wait_for_line("it is started again")
        work(running, rounds=3)
        wait_for(url, 43 * 3)
        running.stop()
    assert rows_of(exported(url)) == rows_of(polled(PosixDisk(tmp_path / "data")))


def test_a_server_that_is_killed_takes_its_exporter_along_and_the_next_goes_on(tmp_path: Path, url: str) -> None:
    for _ in range(3):
        with serving(tmp_path / "data", "--events", url, *SOON) as running:
            work(running, rounds=10)
            left = children(running)
            assert left
            running.signal(signal.SIGKILL)
            running.wait()
        end = time.monotonic() + PATIENCE_S
        while any(map(is_running, left)):
            assert time.monotonic() < end, "the exporter outlives its server"
            time.sleep(0.02)
    with serving(tmp_path / "data", "--events", url, *SOON) as running:
        running.stop()
    assert rows_of(exported(url)) == rows_of(polled(PosixDisk(tmp_path / "data")))


def churn(running: Running, home: Path, *, oldest: int) -> None:
    """Jobs come and go until the log was trimmed that far."""
    with running.client() as client:
        call(client, "PUT", "/v0/topics/q", {"type": "queue"})
        end = time.monotonic() + PATIENCE_S
        while min(int(path.stem) for path in (home / "segments").glob("*.log")) < oldest:
            assert time.monotonic() < end, "it is never trimmed"
            call(client, "POST", "/v0/topics/q", {"records": [{"data": "x" * 1_000}] * 10})
            call(client, "POST", "/v0/topics/q/claim", {"node": "w", "max": 10, "auto_ack": True})


SMALL_LOG = (
    "--set=engine.segment_bytes=65536",
    "--set=engine.spare_segments=1",
    "--set=export.checkpoint_bytes=10000",
)


def test_a_small_log_is_kept_for_the_exporter_and_trimmed_behind_it(tmp_path: Path, url: str) -> None:
    with serving(tmp_path / "data", "--events", url, *SOON, *SMALL_LOG) as running:
        churn(running, tmp_path / "data", oldest=4)
        running.stop()
    rows = exported(url)
    assert "gap" not in {row.event for row in rows}
    produced = [row.runs for row in rows if row.event == "produced"]
    assert [run[0] for run in produced] == [1 + 10 * number for number in range(len(produced))]


def test_an_exporter_that_is_stopped_too_long_reports_what_it_missed(tmp_path: Path, url: str) -> None:
    """Fault 23, for the export: the log that the server keeps for it is used up, and the gap is reported."""
    short = "--set=export.pinned_bytes_max=100000"
    with serving(tmp_path / "data", "--events", url, *SOON, *SMALL_LOG, short) as running:
        work(running, rounds=3)
        wait_for(url, 9)
        [child] = children(running)
        os.kill(child, signal.SIGSTOP)
        churn(running, tmp_path / "data", oldest=6)
        os.kill(child, signal.SIGCONT)
        work(running, rounds=3)
        running.stop()
    rows = exported(url)
    gaps = [row for row in rows if row.event == "gap"]
    assert [gap.reason for gap in gaps][:1] == ["trimmed"]
    missed = range(gaps[0].first_batch or 0, (gaps[0].last_batch or 0) + 1)
    assert missed
    assert not {row.batch for row in rows if row.event != "gap"} & set(missed)
    assert rows[-1].event in ("acked", "expired", "claimed")
    assert rows_of(rows) == sorted(set(rows_of(rows)))


def test_a_store_that_is_away_stops_the_export_and_not_the_queue(tmp_path: Path) -> None:
    """Fault 52, for the export: it is tried again and again, and nothing is lost once the store is back."""
    (tmp_path / "away").write_text("in the way")
    url = f"file://{tmp_path}/away/events"
    with serving(tmp_path / "data", "--events", url, *SOON) as running:
        work(running, rounds=5)
        running.wait_for_line("it is started again")
        (tmp_path / "away").unlink()
        work(running, rounds=5)
        wait_for(url, 30)
        running.stop()
    assert rows_of(exported(url)) == rows_of(polled(PosixDisk(tmp_path / "data")))


def test_a_buffer_that_cannot_be_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no store for"), serving(tmp_path / "data", "--events", "ftp://x/y"):
        pass


def test_an_exporter_by_itself_takes_what_a_stopped_broker_left(tmp_path: Path, url: str) -> None:
    with serving(tmp_path / "data") as running:
        work(running, rounds=5)
    command = [str(Path(sys.executable).with_name("tenure")), "export", "--data", str(tmp_path / "data")]
    for _ in range(2):
        done = subprocess.run([*command, "--events", url, "--once"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert rows_of(exported(url)) == rows_of(polled(PosixDisk(tmp_path / "data")))

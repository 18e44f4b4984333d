"""Fault 36: five hundred clients come back to a restarted server, and not all at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.client.counting_proxy import CountingProxy
from tests.kit.server import serving

ROOT = Path(__file__).parents[2]
CROWD = 500
PROCESSES = 4
ATTEMPTS_EACH = 5
PATIENCE_S = 100.0


@contextmanager
def crowd(kind: str, url: str, topic: str) -> Iterator[None]:
    """The clients, in a few processes; they must all be alive at the end."""
    command = [sys.executable, "-m", "tests.client.many_clients", kind, url, str(CROWD // PROCESSES), topic]
    made = [subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) for _ in range(PROCESSES)]
    try:
        yield
        for process in made:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(PATIENCE_S) for process in made] == [0] * PROCESSES
    finally:
        for process in made:
            assert process.stdin is not None
            process.stdin.close()
            if process.poll() is None:
                process.kill()
                process.wait(60)


def until(condition: Callable[[], bool], what: str) -> None:
    """Look again and again until something holds; on a busy machine so many take their time."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)


def late_to_early(times: list[float]) -> float:
    """The attempts since a while ago, to those of an equally long while at first, in which everybody came twice."""
    times = sorted(times)
    while_s = times[2 * CROWD - 1] - times[0]
    return sum(at > time.monotonic() - while_s for at in times) / (2 * CROWD)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def busiest_share(times: list[float], parts: int) -> float:
    """The largest share of moments within any stretch as long as that part of the time in which nine of ten came: a few
    stragglers must not make it longer.
    """
    times = sorted(times)
    length = (times[len(times) * 9 // 10] - times[0]) / parts
    most = max(sum(start <= other <= start + length for other in times) for start in times)
    return most / len(times)


@pytest.mark.timeout(500)
@pytest.mark.full
@pytest.mark.parametrize("kind", ["clients", "workers"])
def test_fault_36_five_hundred_reconnect_after_a_restart_without_a_storm(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Ratios of one run. While the server is away, they come ever more rarely: in the time that the first two attempts
    of everybody took, there come to be at most a third as many (at a fixed pace never less than half), however long a
    busy machine takes for the first ones. When it is back, they are spread out: in the busiest tenth of their return
    come less than half of them (in lockstep all), and hardly one comes twice.
    """
    with ExitStack() as stack, ExitStack() as people:
        server = stack.enter_context(serving(tmp_path / "data"))
        with server.client() as caller:
            assert caller.put("/v0/topics/storm", json={"type": "queue"}).status_code == 201
        door = stack.enter_context(CountingProxy(port_of(server.url)))
        people.enter_context(crowd(kind, door.url, "storm"))
        until(lambda: door.live_count == CROWD, "all are connected")
        door.shut()
        server.signal(signal.SIGKILL)
        server.wait()
        until(lambda: door.live_count == 0, "all have lost their line")
        until(lambda: len(door.attempts) >= CROWD * ATTEMPTS_EACH, "they knock")
        until(lambda: late_to_early(list(door.attempts)) <= 1 / 3, "they knock ever more rarely")
        away, rarer = list(door.attempts), late_to_early(list(door.attempts))
        again = stack.enter_context(serving(tmp_path / "data"))
        door.target_port = port_of(again.url)
        door.attempts.clear()
        door.open = True
        until(lambda: door.live_count == CROWD, "all are back")
        back, attempts = list(door.streams), len(door.attempts)
    share = busiest_share(back, 10)
    told = {
        "away: attempts": len(away),
        "away: seconds": round(max(away) - min(away), 2),
        "away: attempts at last to those at first": round(rarer, 2),
        "back: seconds": round(max(back) - min(back), 2),
        "back: share of the busiest tenth": round(share, 2),
        "back: attempts": attempts,
    }
    for name, value in told.items():
        record_property(name, value)
    print(f"{CROWD} {kind}: {told}")
    assert share < 0.5, told
    assert attempts <= 1.2 * CROWD, told

"""`make bench-console`: the console's page under load against its bars; browser, broker and load on the same cores.

Two brokers get the same load. One never has a page open; the other has the page of the queue in a real browser. An
event is a row of `/events` (see `bench.console_load`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from bench.console_load import BACKLOG, JOBS, TOPIC
from bench.http import Client, process, tenure
from bench.measure import Row, calibrate, report
from tests.console.browser import NoBrowser, chromium
from tests.console.shown import agree

RATE = 5_000
STRETCHES = 3
"""The load rests after each, so that page and API can be held against each other in between."""
SETTLED_S = 2.0
"""How soon after the load the page has to show what the API says."""
CONFIG = {"type": "queue", "durability": "disk", "lease_ms": 600_000, "dead_letter": f"{TOPIC}.dead"}


class Broker:
    """A server with a queue that has a backlog, its process, and a load that waits to be told."""

    def __init__(self, port: int, pid: int, load: subprocess.Popen[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._pid = pid
        self._load = load
        self._port = port
        self.ask("PUT", f"/v0/topics/{TOPIC}", CONFIG)
        client = Client(port)
        for _ in range(BACKLOG // 10):
            client.call("POST", f"/v0/topics/{TOPIC}?return_seqs=false", JOBS)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON that the API answers."""
        client = Client(self._port)  # one that rests between stretches of load would be closed by the server
        return json.loads(client.call(method, path, b"" if body is None else json.dumps(body).encode()))

    def begin(self, rate: float, seconds: float) -> None:
        """Start a stretch of load; `ended` tells how it went."""
        assert self._load.stdin is not None
        print(rate, seconds, file=self._load.stdin, flush=True)

    def ended(self) -> tuple[int, float]:
        """Events and seconds of the stretch."""
        assert self._load.stdout is not None
        line = self._load.stdout.readline()
        if not line:
            raise SystemExit("the load broke off")
        said = json.loads(line)
        return said["events"], said["seconds"]

    def cpu_s(self) -> float:
        """Processor seconds of the broker so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def broker() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home, process(*tenure(home)) as (port, pid):
        command = [sys.executable, "-m", "bench.console_load", str(port)]
        load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert load.stdin is not None
        try:
            yield Broker(port, pid, load)
        finally:
            load.stdin.close()
            load.wait(20)


class Tab:
    """A page, and how busy its main thread is."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._devtools: CDPSession = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable")

    def open(self, url: str, view: str = "") -> None:
        self.page.goto(f"{url}/#/{view}")
        self.page.locator(".status[data-status=live]" if view else ".card.queue").wait_for()

    def leave(self) -> None:
        self.page.goto("about:blank")

    def busy_s(self) -> tuple[float, float]:
        """Seconds in which the main thread did anything, and the browser's clock."""
        found = self._devtools.send("Performance.getMetrics")["metrics"]
        metrics = {metric["name"]: metric["value"] for metric in found}
        return metrics["TaskDuration"], metrics["Timestamp"]


class Seen:
    """What was seen of a broker in some stretches of load."""

    def __init__(self) -> None:
        self.events = 0
        self.seconds = 0.0
        self.cpu_s = 0.0
        self.busy: list[float] = []
        self.settled_s: list[float] = []
        self.differences: list[str] = []

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds

    @property
    def load_ms(self) -> float:
        """Processor time of the broker, in ms per second."""
        return self.cpu_s / self.seconds * 1_000

    def stretch(self, target: Broker, rate: float, seconds: float, tab: Tab | None) -> None:
        """One stretch of load, with the main thread of the page where there is one."""
        cpu_s, busy = target.cpu_s(), tab.busy_s() if tab else (0.0, 0.0)
        target.begin(rate, seconds)
        if tab is not None:
            tab.page.wait_for_timeout(seconds * 1_000)
            now = tab.busy_s()
            self.busy.append((now[0] - busy[0]) / (now[1] - busy[1]))
        events, took_s = target.ended()
        self.events += events
        self.seconds += took_s
        self.cpu_s += target.cpu_s() - cpu_s

    def compare(self, target: Broker, tab: Tab) -> None:
        """Hold the page of the queue against the API."""
        settled_s, differences = agree(tab.page, target.ask, TOPIC, within_s=10)
        self.settled_s.append(settled_s)
        self.differences += differences


def paced(target: Broker, seconds: float, tab: Tab | None = None, *, compare: bool = False) -> Seen:
    """Load at the pace, in stretches with a rest after each."""
    seen = Seen()
    for _ in range(STRETCHES):
        seen.stretch(target, RATE, seconds / STRETCHES, tab)
        if tab is not None and compare:
            seen.compare(target, tab)
        else:
            time.sleep(1)
    return seen


def unpaced(bare: Broker, watched: Broker, tab: Tab, *, turns: int, seconds: float) -> tuple[Seen, Seen]:
    """As fast as answers come, without and with the page, in turns, so that both meet the same weather."""
    without, with_page = Seen(), Seen()
    for _ in range(turns):
        without.stretch(bare, 0, seconds, None)
        tab.open(watched.url, f"queue/{TOPIC}")
        with_page.stretch(watched, 0, seconds, tab)
        with_page.compare(watched, tab)
        tab.leave()
    return without, with_page


def measure(tab: Tab, *, quick: bool) -> list[Row]:
    seconds, turns = (6.0, 3) if quick else (30.0, 5)
    with ExitStack() as stack:
        bare, watched = stack.enter_context(broker()), stack.enter_context(broker())
        alone = paced(bare, seconds)
        tab.open(watched.url, f"queue/{TOPIC}")
        first = _event_number(watched)
        seen = paced(watched, seconds, tab, compare=True)
        rows = _event_number(watched) - first
        tab.open(watched.url)
        overview = paced(watched, seconds / 2, tab)
        tab.leave()
        fast, fast_seen = unpaced(bare, watched, tab, turns=turns, seconds=3 if quick else 4)
    looks, differences = seen.settled_s + fast_seen.settled_s, seen.differences + fast_seen.differences
    print(f"rows of /events while the page was open: {rows:,} in {seconds:.0f} s of load")
    print(f"broker: {alone.load_ms:.0f} ms of processor time a second without the page, {seen.load_ms:.0f} ms with it")
    print(
        f"unpaced, browser, load and broker rivals for the same cores: {fast.rate:,.0f} events/s without the page, "
        f"{fast_seen.rate:,.0f} with it ({fast_seen.rate / fast.rate:.2f}); main thread busy {max(fast_seen.busy):.0%}"
    )
    for difference in differences:
        print(f"differs: {difference}")
    return [
        _share("events/s, with the page against without", seen.rate, alone.rate),
        _busy("main thread busy, page of the queue", seen.busy),
        _busy("main thread busy, page of all queues", overview.busy),
        (
            "page equals API, in every rest of the load",
            f"{len(looks)} looks, {max(looks):.2f} s at most",
            f"≤ {SETTLED_S:.0f} s",
            not differences and max(looks) <= SETTLED_S,
        ),
    ]


def _event_number(target: Broker) -> int:
    event_id: str = target.ask("GET", f"/v0/topics/{TOPIC}/strip?head=1")["event_id"]
    return int(event_id.rpartition("-")[2])


def _share(what: str, part: float, whole: float) -> Row:
    share = part / whole
    return what, f"{share:.2f} ({part:,.0f} / {whole:,.0f})", "≥ 0.90", share >= 0.9


def _busy(what: str, busy: list[float]) -> Row:
    mean, most = sum(busy) / len(busy), max(busy)
    return what, f"{mean:.0%} (at most {most:.0%})", "< 50 %", most < 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter stretches of load")
    quick = parser.parse_args().quick
    print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
    try:
        path = chromium()
    except NoBrowser as error:
        raise SystemExit(str(error)) from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        rows = measure(Tab(browser.new_page(viewport={"width": 1440, "height": 900})), quick=quick)
        browser.close()
    report(f"the console at {RATE:,} events/s", rows)
    raise SystemExit(0 if all(met for *_, met in rows) else 1)


if __name__ == "__main__":
    main()

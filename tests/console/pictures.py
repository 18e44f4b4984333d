"""Take the pictures of the console in ``docs/images``: a broker at work for a minute, seen in light and dark.

python -m tests.console.pictures
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.browser import chromium
from tests.console.conftest import ARGUMENTS, Queue
from tests.kit.server import Running, serving

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MINUTE_S = 65
TICK_S = 0.25


def _make(client: httpx.Client, name: str, **config: Any) -> Queue:
    client.put(f"/v0/topics/{name}", json={"type": "queue", **config}).raise_for_status()
    return Queue(client, name)


def _set_up(client: httpx.Client) -> None:
    """Queues that show something of everything."""
    letters = {"max_deliveries": 3, "dead_letter": "orders.dead", "dlq_strategy": "block_and_dlq"}
    orders = _make(client, "orders", lease_ms=45_000, **letters)
    orders.produce(*({"order": number} for number in range(360)))
    orders.claim("worker-7", 7)
    orders.send("nack", {"node": "worker-7", "seqs": [1, 2, 3, 4], "dead": True, "reason": "no such card"})
    orders.send("nack", {"node": "worker-7", "seqs": [5, 6], "delay_ms": 90_000, "reason": "the bank does not answer"})
    invoices = _make(client, "invoices", dlq_strategy="block")
    invoices.produce(*range(7))
    invoices.claim("w", 1)
    invoices.send("nack", {"node": "w", "seqs": [1], "dead": True, "reason": "no address"})
    _make(client, "emails").produce(*range(40))
    _make(client, "thumbnails").produce(*range(60))
    client.post("/v0/topics/audit", json={"records": [{"data": number} for number in range(12)]}).raise_for_status()


def _work(server: Running, stop: threading.Event) -> None:
    """Feed the queues and work on them, a few jobs at a time, until it is stopped."""
    with server.client() as client:
        orders, emails, thumbnails = (Queue(client, name) for name in ("orders", "emails", "thumbnails"))
        for turn in itertools.count():
            if stop.wait(TICK_S):
                return
            for queue, count in ((orders, 4), (emails, 5)):
                queue.produce(*range(count))
                claim = queue.claim("worker-1", count)
                queue.send("ack", {"node": "worker-1", "lease_id": claim["lease_id"]})
            if turn % 2:
                thumbnails.produce(turn)
            if turn % 30 == 20:
                orders.claim(f"worker-{turn // 30 % 4 + 2}", 6)


def _tab(browser: Browser, url: str, *, height: int = 860, width: int = 1280, scheme: Any = "light") -> Page:
    page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
    page.goto(url)
    return page


def _take_all(browser: Browser, server: Running) -> None:
    tabs = {
        "console-queues": _tab(browser, f"{server.url}/#/queues"),
        "console-queue": _tab(browser, f"{server.url}/#/queue/orders"),
        "console-queue-dark": _tab(browser, f"{server.url}/#/queue/orders", scheme="dark"),
    }
    time.sleep(MINUTE_S)  # so that the lines are as long as they get
    for name, page in tabs.items():
        page.screenshot(path=IMAGES / f"{name}.png", full_page=name != "console-queues")
    page = _tab(browser, f"{server.url}/#/course/ack", width=1180, height=960)
    for at in range(5):
        expect(page.locator(".scene")).to_have_attribute("data-at", str(at), timeout=30_000)
        expect(page.locator(".scene")).to_have_attribute("data-state", "waiting", timeout=30_000)
        page.locator(".teller button.primary").click()
    expect(page.locator(".scene")).to_have_attribute("data-at", "5", timeout=30_000)
    expect(page.locator(".flying")).to_have_count(0)
    page.screenshot(path=IMAGES / "console-course.png", full_page=True)


def main() -> None:
    """Start a server, keep it busy, and take every picture."""
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory) / "data") as server:
        with server.client() as client:
            _set_up(client)
        stop = threading.Event()
        worker = threading.Thread(target=_work, args=(server, stop))
        worker.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
                _take_all(browser, server)
                browser.close()
        finally:
            stop.set()
            worker.join()


if __name__ == "__main__":
    main()

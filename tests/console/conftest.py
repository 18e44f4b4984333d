"""One server for every test process and one browser for every module; each test has queues and a tab of its own.

Playwright keeps its own event loop running in the thread for as long as it is open, and tests that run a loop could not
start theirs: so it is closed with the module.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.console.browser import NoBrowser, chromium
from tests.kit.server import Running, serving

__all__ = ["Console", "Queue"]

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-features=PreloadTopChromeWebUI"]
"""Without what no test looks at: an emulated graphics card, and the browser's own panels."""

expect.set_options(timeout=30_000)


class Queue:
    """One queue, reached by the API."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self.client = client
        self.name = name

    def send(self, verb: str, body: Any) -> Any:
        path = f"/v0/topics/{self.name}" + (f"/{verb}" if verb else "")
        answer = self.client.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def produce(self, *payloads: Any, **fields: Any) -> None:
        self.send("", {"records": [{"data": data, **fields} for data in payloads]})

    def claim(self, node: str, count: int = 1, **fields: Any) -> Any:
        return self.send("claim", {"node": node, "max": count, **fields})

    def let_pass(self, ms: int) -> None:
        """Let time pass for the server, at once."""
        self.client.post("/v0/_test/advance", json={"ms": ms}).raise_for_status()

    def about(self) -> dict[str, int]:
        found: dict[str, int] = self.client.get(f"/v0/topics/{self.name}").raise_for_status().json()["queue"]
        return found


class Console:
    """One tab, and what a person finds in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Refused to" in message.text:
            self.problems.append(message.text)

    def open(self, queue: Queue) -> None:
        self.page.goto(f"{self.url}/#/queue/{queue.name}")
        expect(self.page.locator(".status")).to_have_text("live")

    def cells(self, state: str | None = None) -> Locator:
        return self.page.locator(".strip .cell[data-seq]" + (f'[data-state="{state}"]' if state else ""))

    def cell(self, seq: int) -> Locator:
        return self.page.locator(f'.strip .cell[data-seq="{seq}"]')

    def worker(self, node: str) -> Locator:
        return self.page.locator(f'.worker[data-worker="{node}"]')

    def act(self, node: str, deed: str) -> None:
        """Press a button of a worker."""
        self.worker(node).get_by_role("button", name=f"{deed} for {node}", exact=True).click()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def expect_counts(self, **counts: int) -> None:
        """The figures on the page, waited for."""
        for name, count in counts.items():
            expect(self.page.locator(f'[data-count="{name}"]')).to_have_text(f"{count:,}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have a browser before any test begins: to install one takes longer than a test may."""
    if any(item.path.is_relative_to(Path(__file__).parent) for item in session.items):
        with suppress(NoBrowser):  # the tests that need it say so
            chromium()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    try:
        return chromium()
    except NoBrowser as error:
        pytest.fail(str(error))


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("console") / "data", "--test-clock") as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def make_queue(client: httpx.Client) -> Callable[..., Queue]:
    def make(**config: Any) -> Queue:
        name = f"q{uuid.uuid4().hex[:8]}"
        client.put(f"/v0/topics/{name}", json={"type": "queue", "lease_ms": 600_000, **config}).raise_for_status()
        return Queue(client, name)

    return make


@pytest.fixture
def queue(make_queue: Callable[..., Queue]) -> Queue:
    return make_queue()


@pytest.fixture
def make_console(browser: Browser) -> Iterator[Callable[..., Console]]:
    """Tabs; whatever a test does, none may meet an error of its scripts or break its own policy."""
    opened: list[Console] = []

    def make(url: str, **options: Any) -> Console:
        context = browser.new_context(**options)
        opened.append(Console(context.new_page(), url))
        return opened[-1]

    yield make
    for console in opened:
        console.page.context.close()
    assert [problem for console in opened for problem in console.problems] == []


@pytest.fixture
def console(make_console: Callable[..., Console], server: Running) -> Console:
    return make_console(server.url)

"""Fault 50: payloads and names are text, the page is locked in, a key can do what its scopes say and no more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tenure.console.assets import load
from tests.console.conftest import Console, Queue
from tests.kit.server import Running, serving

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
KEYS = "full,reader:read,producer:read+write:mine."


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("keys") / "data", TENURE_API_KEYS=KEYS) as running:
        yield running


@pytest.fixture
def orders(guarded: Running) -> Iterator[Queue]:
    with guarded.client(headers={"authorization": "Bearer full"}) as client:
        client.put("/v0/topics/orders", json={"type": "queue", "lease_ms": 600_000}).raise_for_status()
        yield Queue(client, "orders")


def enter(console: Console, key: str) -> None:
    console.page.goto(console.url)
    console.page.get_by_label("API key").fill(key)
    console.button("Open the console").click()


def test_fault_50_a_payload_of_script_is_shown_as_text(console: Console, queue: Queue):
    queue.produce(SCRIPT, tag=SCRIPT, meta={"html": SCRIPT})
    queue.claim(SCRIPT[:60])
    queue.send("nack", {"node": SCRIPT[:60], "seqs": [1], "reason": SCRIPT})
    queue.claim(SCRIPT[:60])
    console.open(queue)
    console.cell(1).click()
    job = console.page.locator(".job")
    expect(job.locator(".payload").first).to_have_text(SCRIPT)
    expect(job).to_contain_text("onerror")
    assert console.page.locator("main script, main img").count() == 0
    assert console.page.title() != "owned"


def test_numbers_are_shown_as_they_were_stored(console: Console, queue: Queue):
    raw = '{"records":[{"data":{"big":12345678901234567890123,"far":1e400,"twice":1,"twice":2}}]}'
    headers = {"content-type": "application/json"}
    queue.client.post(f"/v0/topics/{queue.name}", content=raw, headers=headers).raise_for_status()
    console.open(queue)
    console.cell(1).click()
    payload = console.page.locator(".payload")
    expect(payload).to_contain_text('"big": 12345678901234567890123')
    expect(payload).to_contain_text('"far": 1e400')
    expect(payload).to_contain_text('"twice": 2')


def test_bytes_that_are_no_text_are_shown_in_hex_and_long_payloads_are_cut(console: Console, queue: Queue):
    queue.produce("\x00\x01binary", "long" * 50_000)
    console.open(queue)
    console.cell(1).click()
    expect(console.page.locator(".payload")).to_contain_text("00 01 62 69 6e 61 72 79")
    console.cell(2).click()
    expect(console.page.locator(".job")).to_contain_text("the rest is not shown")
    assert len(console.page.locator(".payload").inner_text()) <= 20_000


def test_the_page_and_its_files_are_locked_in(client: httpx.Client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert page.headers["content-type"].startswith("text/html")
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    for path, kind in (("app.js", "text/javascript"), ("base.css", "text/css"), ("views/queue.js", "text/javascript")):
        found = client.get(f"/console/{path}")
        assert found.headers["content-type"].startswith(kind)
        assert found.headers["x-content-type-options"] == "nosniff"
        assert client.get(f"/console/{path}", headers={"if-none-match": found.headers["etag"]}).status_code == 304
        assert client.get(f"/console/{path}", headers={"if-none-match": '"other"'}).status_code == 200
    assert "style=" not in page.text
    assert page.text.count("<script") == 1


@pytest.mark.parametrize("path", ["nothing.js", "..%2fassets.py", "views/..%2f..%2fassets.py", "%2e%2e/assets.py", ""])
def test_only_files_of_the_page_can_be_had(client: httpx.Client, path: str):
    assert client.get(f"/console/{path}").status_code == 404


def test_fault_50_a_foreign_page_gets_nothing(client: httpx.Client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/console/app.js", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_key_is_asked_for_and_a_wrong_one_is_said_to_be_wrong(
    make_console: Callable[..., Console], guarded: Running, orders: Queue
):
    console = make_console(guarded.url)
    enter(console, "wrong")
    expect(console.page.get_by_role("alert")).to_contain_text("not known")
    enter(console, "full")
    expect(console.page.locator('[data-queue="orders"]')).to_be_visible()
    assert "full" not in console.page.url


def test_a_key_that_no_header_can_carry_is_named_and_the_form_stays(
    make_console: Callable[..., Console], guarded: Running, orders: Queue
):
    console = make_console(guarded.url)
    enter(console, "fu→ll")
    expect(console.page.get_by_role("alert")).to_contain_text("“→” (U+2192)")
    console.page.evaluate("sessionStorage.setItem('tenure.key', 'schlüssel')")  # whatever put it there
    console.page.reload()
    expect(console.page.get_by_role("alert")).to_contain_text("“ü” (U+00FC)")
    console.page.get_by_label("API key").fill("full")
    console.button("Open the console").click()
    expect(console.page.locator('[data-queue="orders"]')).to_be_visible()


def test_a_key_that_may_only_read_sees_everything_and_can_do_nothing(
    make_console: Callable[..., Console], guarded: Running, orders: Queue
):
    orders.produce("a", "b")
    orders.claim("w1")
    console = make_console(guarded.url)
    enter(console, "reader")
    expect(console.button("New queue")).to_be_disabled()
    console.open(orders)
    expect(console.cells("in_flight")).to_have_count(1)
    for deed in ("produce", "claim", "ack", "nack", "extend"):
        control = console.page.locator(f'button[data-action="{deed}"]').first
        expect(control).to_be_disabled()
        expect(control).to_have_attribute("title", "This key lacks the scope write.")
    console.cell(2).click()
    expect(console.button("Delete")).to_be_disabled()
    expect(console.button("Delete")).to_have_attribute("title", "This key lacks the scope delete.")


def test_a_key_of_another_prefix_is_told_so(make_console: Callable[..., Console], guarded: Running, orders: Queue):
    console = make_console(guarded.url)
    enter(console, "producer")
    expect(console.page.get_by_role("heading", name="Queues")).to_be_visible()
    console.page.goto(f"{guarded.url}/#/queue/orders")
    expect(console.page.locator(".status")).to_contain_text("does not reach")


def test_fault_50_no_script_makes_markup_from_text():
    for name, asset in load().items():
        found = re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b", asset.body)
        assert found is None, name


def test_every_file_of_the_page_is_served():
    page = Path(__file__).parents[2] / "src" / "tenure" / "console" / "page"
    assert set(load()) == {str(path.relative_to(page)) for path in page.rglob("*") if path.is_file()}

"""What a person can do from the page, and that it happened in the broker; and the page after the broker restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import APIResponse, Page, Route, expect

from tests.console.conftest import Console, Queue
from tests.kit.server import serving


def work_as(page: Page, node: str, *, at_once: int = 1, auto_ack: bool = False) -> None:
    form = page.get_by_role("form", name="Work")
    form.get_by_label("As worker").fill(node)
    form.get_by_label("Jobs at once").fill(str(at_once))
    form.get_by_label("Auto-ack").set_checked(auto_ack)


def test_produce_claim_extend_and_ack_by_hand(console: Console, queue: Queue):
    console.open(queue)
    form = console.page.get_by_role("form", name="Produce")
    form.get_by_label("Payload").fill('{"order": 7}')
    form.get_by_label("Tag").fill("eu")
    console.button("Produce").click()
    expect(console.cell(1)).to_have_attribute("data-state", "ready")
    assert queue.client.get(f"/v0/topics/{queue.name}/jobs/1").json()["data"] == {"order": 7}
    work_as(console.page, "me")
    console.button("Claim").click()
    expect(console.cell(1)).to_have_attribute("data-node", "me")
    deadline = queue.client.get(f"/v0/topics/{queue.name}/leases").json()["leases"][0]["deadline"]
    console.act("me", "Extend")
    expect(console.page.locator("#toasts")).to_contain_text("1 extended")
    assert queue.client.get(f"/v0/topics/{queue.name}/leases").json()["leases"][0]["deadline"] > deadline
    console.act("me", "Ack")
    expect(console.cells()).to_have_count(0)
    assert queue.about()["ready"] == queue.about()["in_flight"] == 0


def test_a_worker_is_the_pages_own_before_the_answer_of_its_claim_is_here(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    held: list[tuple[Route, APIResponse]] = []
    console.page.route("**/claim", lambda route: held.append((route, route.fetch())))
    work_as(console.page, "me")
    console.button("Claim").click()
    console.act("me", "Ack")
    expect(console.cells()).to_have_count(0)
    [(route, answer)] = held
    route.fulfill(response=answer)
    expect(console.page.locator("#toasts")).to_contain_text("me holds #1")


def test_a_nack_carries_its_delay_and_its_reason(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    work_as(console.page, "me")
    console.button("Claim").click()
    console.act("me", "Nack")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Delay, ms").fill("60000")
    dialog.get_by_label("Reason").fill("not yet")
    dialog.get_by_role("button", name="Nack").click()
    expect(console.cell(1)).to_have_attribute("data-state", "delayed")
    job = queue.client.get(f"/v0/topics/{queue.name}/jobs/1").json()
    assert (job["state"], job["history"][0]["reason"]) == ("delayed", "not yet")


def test_a_crashed_worker_gives_its_jobs_back_to_the_head(console: Console, queue: Queue):
    queue.produce("a", "b", "c")
    console.open(queue)
    work_as(console.page, "doomed", at_once=2)
    console.button("Start a stream").click()
    expect(console.cells("in_flight")).to_have_count(2)
    console.act("doomed", "Crash")
    expect(console.cells("ready")).to_have_count(3)
    expect(console.cells().first).to_have_attribute("data-seq", "1")
    ends = [one["end"] for one in queue.client.get(f"/v0/topics/{queue.name}/jobs/1").json()["history"]]
    assert ends == ["disconnect"]


def test_auto_ack_loses_the_job_of_a_crashed_worker(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    work_as(console.page, "hasty", auto_ack=True)
    console.button("Claim").click()
    expect(console.cells()).to_have_count(0)
    expect(console.worker("hasty")).to_contain_text("deleted it already")
    console.act("hasty", "Crash")
    expect(console.page.locator("#toasts")).to_contain_text("#1 is lost")


def test_what_destroys_is_asked_about_first(console: Console, queue: Queue):
    queue.produce("a", "b")
    queue.claim("stranger")
    console.open(queue)
    console.act("stranger", "Ack")
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("not a worker of this page")
    dialog.get_by_role("button", name="Cancel").click()
    assert queue.about()["in_flight"] == 1
    console.cell(2).click()
    console.button("Delete").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(console.cell(2)).to_have_count(0)
    assert queue.about()["ready"] == 0


def test_the_strip_is_walked_by_keys(console: Console, queue: Queue):
    queue.produce("a", "b", "c")
    console.open(queue)
    console.cell(1).focus()
    console.page.keyboard.press("ArrowRight")
    expect(console.cell(2)).to_be_focused()
    console.page.keyboard.press("Enter")
    expect(console.page.locator(".job")).to_contain_text("Job #2")
    console.page.keyboard.press("Escape")
    expect(console.page.locator(".job")).to_be_hidden()
    expect(console.cell(2)).to_be_focused()
    console.page.keyboard.press("c")
    expect(console.page.get_by_label("As worker")).to_be_focused()


def test_queues_are_listed_with_their_warnings(console: Console, make_queue: Callable[..., Queue]):
    queue = make_queue(lease_ms=100)
    queue.produce("poison")
    for _ in range(3):
        queue.claim("w1", lease_ms=60_000)
        queue.send("nack", {"node": "w1", "seqs": [1]})
    console.page.goto(console.url)
    console.page.get_by_role("searchbox").fill(queue.name[2:])
    card = console.page.locator(f'[data-queue="{queue.name}"]')
    expect(card.locator(".alarm.poison")).to_contain_text("Job #1 has been tried 3 times")
    card.get_by_role("link").click()
    expect(console.page.get_by_role("heading", name=queue.name)).to_be_visible()
    expect(console.page.locator(".queue-view .alarm.poison")).to_be_visible()


def test_light_and_dark_can_be_chosen_and_last(console: Console):
    console.page.goto(console.url)
    console.button("Light or dark").click()
    chosen = console.page.locator("html").get_attribute("data-theme")
    console.page.reload()
    expect(console.page.locator("html")).to_have_attribute("data-theme", chosen or "")


def test_after_the_broker_restarts_the_page_is_right_again(make_console: Callable[..., Console], tmp_path: Path):
    with serving(tmp_path / "data") as first, first.client() as client:
        port = first.url.rpartition(":")[2]
        client.put("/v0/topics/q", json={"type": "queue"}).raise_for_status()
        queue = Queue(client, "q")
        queue.produce("a", "b", "c")
        console = make_console(first.url)
        console.open(queue)
        queue.claim("w1", 2, lease_ms=600_000)
        expect(console.cells("in_flight")).to_have_count(2)
    expect(console.page.locator(".status")).to_contain_text("connection lost")
    with serving(tmp_path / "data", "--port", port) as second, second.client() as client:
        queue = Queue(client, "q")
        queue.send("ack", {"node": "w1", "seqs": [1]})
        expect(console.page.locator(".status")).to_have_text("live")
        expect(console.cells()).to_have_count(2)
        expect(console.cell(2)).to_have_attribute("data-node", "w1")
        queue.produce("d")
        expect(console.cell(4)).to_have_attribute("data-state", "ready")
        console.expect_counts(ready=2, in_flight=1)

"""The strip shows what the broker holds, as it happens: produce, claim, ack, nack, expiry, a worker that is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.conftest import Console, Queue
from tests.console.shown import agree
from tests.console.test_storm import asker
from tests.kit.server import Running, environment

WORKER = """
import sys, urllib.request

request = urllib.request.Request(sys.argv[1], headers={"accept": "text/event-stream"})
for line in urllib.request.urlopen(request):
    print(line, flush=True)
"""
CUT = """() => [...document.querySelectorAll(".strip .cell[data-seq]")].filter((cell) => {
    const seq = cell.querySelector(".seq");
    return seq.textContent.replace("#", "") !== cell.dataset.seq || seq.offsetWidth > cell.clientWidth
        || seq.scrollWidth > seq.clientWidth;
}).map((cell) => cell.dataset.seq)"""
# How many looks had found nothing when the page said that the queue is deleted.
MISSED = """() => {
    const status = document.querySelector(".status");
    new MutationObserver((_, observer) => {
        if (status.textContent !== "deleted") return;
        observer.disconnect();
        const looks = performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/strip"));
        window.missed = looks.filter((entry) => entry.responseStatus === 404).length;
    }).observe(status, { childList: true, characterData: true, subtree: true });
}"""
SHOWS = """(jobs) => {
    const cells = [...document.querySelectorAll(".strip .cell[data-seq]")].slice(0, jobs.length);
    const shown = cells.map((cell) => [Number(cell.dataset.seq), cell.dataset.state]);
    return JSON.stringify(shown) === JSON.stringify(jobs);
}"""


def test_a_job_goes_from_bright_to_dashed_to_gone(console: Console, queue: Queue):
    console.open(queue)
    queue.produce("a", "b", "c")
    expect(console.cells("ready")).to_have_count(3)
    claim = queue.claim("w1", 2)
    expect(console.cells("in_flight")).to_have_count(2)
    expect(console.cell(1)).to_have_attribute("data-node", "w1")
    expect(console.cell(1).locator(".ring-badge")).to_have_text("w1")
    expect(console.worker("w1")).to_have_attribute("data-held", "2")
    queue.send("ack", {"node": "w1", "lease_id": claim["lease_id"]})
    expect(console.cells()).to_have_count(1)
    expect(console.cell(3)).to_have_attribute("data-state", "ready")
    console.expect_counts(ready=1, in_flight=0)


def test_a_nack_with_a_delay_is_shown_and_ends(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    queue.claim("w1")
    queue.send("nack", {"node": "w1", "seqs": [1], "delay_ms": 60_000, "reason": "busy"})
    expect(console.cell(1)).to_have_attribute("data-state", "delayed")
    console.expect_counts(delayed=1, ready=0)
    queue.let_pass(60_000)
    expect(console.cell(1)).to_have_attribute("data-state", "ready")
    console.expect_counts(delayed=0, ready=1)


def test_an_expired_lease_gives_its_job_back_though_nobody_asks(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    queue.claim("w1", lease_ms=60_000)
    expect(console.cell(1)).to_have_attribute("data-state", "in_flight")
    queue.let_pass(60_001)
    expect(console.cell(1)).to_have_attribute("data-state", "ready")
    console.expect_counts(ready=1, in_flight=0)
    console.cell(1).click()
    expect(console.page.locator(".story")).to_contain_text("lease ran out")
    expect(console.page.locator(".story time")).to_have_attribute(
        "title", re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-])")
    )


def test_a_killed_worker_loses_its_jobs_at_once(console: Console, queue: Queue, server: Running):
    queue.produce("a", "b", "c")
    console.open(queue)
    work = f"{server.url}/v0/topics/{queue.name}/work?node=doomed&max=2"
    with subprocess.Popen([sys.executable, "-c", WORKER, work], stdout=subprocess.DEVNULL, env=environment()) as worker:
        expect(console.cells("in_flight")).to_have_count(2)
        expect(console.worker("doomed")).to_have_attribute("data-held", "2")
        worker.send_signal(signal.SIGKILL)
    expect(console.cells("ready")).to_have_count(3)
    expect(console.worker("doomed")).to_have_count(0)
    expect(console.cell(1)).to_have_accessible_name("Job 1, available, next in line")
    console.cell(1).click()
    expect(console.page.locator(".story")).to_contain_text("connection lost")


def test_dead_letters_have_a_strip_of_their_own_and_a_way_back(console: Console, make_queue: Callable[..., Queue]):
    queue = make_queue(max_deliveries=1, dead_letter="letters")
    queue.produce({"n": 1})
    console.open(queue)
    queue.claim("w1")
    queue.send("nack", {"node": "w1", "seqs": [1], "reason": "no such card", "dead": True})
    console.expect_counts(dead=1, ready=0)
    console.page.locator(".letters .cell").first.click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("no such card")
    dialog.get_by_role("button", name="Redrive").click()
    expect(console.cell(2)).to_have_attribute("data-state", "ready")
    expect(console.page.locator(".letters .cell")).to_have_count(0)


def give_up(queue: Queue, count: int) -> None:
    """Let the first ``count`` jobs be given up on, under the queue's strategy."""
    queue.claim("w0", count)
    queue.send("nack", {"node": "w0", "seqs": list(range(1, count + 1)), "reason": "broken", "dead": True})


def test_parked_jobs_go_back_to_work_together_once_that_is_confirmed(
    console: Console, make_queue: Callable[..., Queue]
):
    queue = make_queue(dlq_strategy="block")
    queue.produce(*range(40))
    give_up(queue, 30)
    console.open(queue)
    shelf = console.page.locator(".parked-shelf")
    expect(shelf.get_by_role("heading")).to_have_text("30 parked")
    expect(shelf.locator(".cell")).to_have_count(24)
    expect(shelf.locator(".gap")).to_have_text("6 more")
    console.button("Redrive parked").click()
    dialog = console.page.get_by_role("dialog", name="Redrive 30 parked jobs?")
    dialog.get_by_role("button", name="Cancel").click()
    assert queue.about()["parked"] == 30
    console.button("Redrive parked").click()
    dialog.get_by_role("button", name="Redrive").click()
    expect(shelf).to_be_hidden()
    console.expect_counts(parked=0, ready=40)
    assert queue.about()["ready"] == 40


def test_redriving_all_letters_brings_parked_jobs_back_once(console: Console, make_queue: Callable[..., Queue]):
    queue = make_queue(dlq_strategy="block_and_dlq", dead_letter=f"dead.{uuid.uuid4().hex[:8]}")
    queue.produce(*"abc")
    give_up(queue, 2)
    console.open(queue)
    console.expect_counts(parked=2, ready=1)
    console.button("Redrive all").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"They go to {queue.name} (2).")
    dialog.get_by_role("button", name="Redrive").click()
    console.expect_counts(parked=0, ready=3)
    expect(console.page.locator(".letters .cell")).to_have_count(0)
    assert queue.about()["ready"] == 3


def test_the_next_job_is_on_the_strip_however_many_are_parked_or_held_before_it(
    console: Console, make_queue: Callable[..., Queue]
):
    queue = make_queue(dlq_strategy="block")
    queue.produce(*range(1_000))
    give_up(queue, 100)
    console.open(queue)
    upcoming = console.page.locator(".strip .cell[data-next][data-seq]")
    expect(upcoming).to_have_attribute("data-seq", "101")
    queue.claim("w1", 300)
    expect(upcoming).to_have_attribute("data-seq", "401")
    expect(upcoming).to_be_visible()
    expect(console.cell(101)).to_have_attribute("data-state", "in_flight")
    expect(console.cell(1_000)).to_be_visible()
    claim = queue.claim("w2")
    expect(upcoming).to_have_attribute("data-seq", "402")
    queue.send("nack", {"node": "w2", "lease_id": claim["lease_id"]})
    expect(upcoming).to_have_attribute("data-seq", "401")
    _, found = agree(console.page, asker(queue), queue.name, within_s=30)
    assert found == []


def test_long_seqs_are_shown_whole(console: Console, queue: Queue):
    for _ in range(11):
        queue.produce(*[0] * 10_000)
    queue.send("delete", {"before_seq": 99_999})
    queue.claim("w1", 3)
    console.open(queue)
    expect(console.cell(100_003)).to_be_visible()
    assert console.page.evaluate(CUT) == []
    expect(console.cell(100_003).locator(".seq")).to_have_text("100003")


def test_a_deleted_queue_is_said_to_be_deleted_at_the_next_look(console: Console, queue: Queue):
    queue.produce("a")
    console.open(queue)
    console.page.evaluate(MISSED)
    queue.client.delete(f"/v0/topics/{queue.name}").raise_for_status()
    expect(console.page.locator(".status")).to_have_text("deleted")
    assert console.page.evaluate("window.missed") <= 2, "the look that found nothing, and one on its heels"
    expect(console.page.locator(".act")).to_have_attribute("inert", "")
    queue.client.put(f"/v0/topics/{queue.name}", json={"type": "queue"}).raise_for_status()
    expect(console.page.locator(".status")).to_have_text("live")
    console.expect_counts(ready=0)


def test_a_name_that_cannot_be_is_said_to_be_wrong(console: Console):
    for name, words in (("bad%20name", "a space"), ("..", "begins with a letter"), ("a%2Fb", "“/”"), ("", "at least")):
        console.page.goto(f"{console.url}/#/queue/{name}")
        expect(console.page.get_by_role("alert")).to_contain_text(words)
    expect(console.page.locator(".status")).to_have_count(0)


def test_parked_jobs_stay_until_they_are_redriven(console: Console, make_queue: Callable[..., Queue]):
    queue = make_queue(dlq_strategy="block")
    queue.produce("a")
    console.open(queue)
    queue.claim("w1")
    queue.send("nack", {"node": "w1", "seqs": [1], "reason": "broken", "dead": True})
    expect(console.cell(1)).to_have_attribute("data-state", "parked")
    console.expect_counts(parked=1)
    console.cell(1).click()
    console.button("Redrive").click()
    expect(console.cell(1)).to_have_attribute("data-state", "ready")
    console.expect_counts(parked=0, ready=1)


def test_ten_thousand_jobs_are_a_window_and_a_number(console: Console, queue: Queue):
    console.open(queue)
    for _ in range(2):
        queue.produce(*["x"] * 5_000)
    console.expect_counts(ready=10_000)
    expect(console.page.locator(".gap:visible")).to_contain_text("more")
    drawn = console.cells().count()
    assert drawn < 120
    expect(console.page.locator(".gap:visible")).to_have_text(f"{10_000 - drawn:,} more")
    expect(console.cell(10_000)).to_be_visible()
    queue.claim("w1", 1_000)
    console.expect_counts(ready=9_000, in_flight=1_000)
    expect(console.worker("w1")).to_contain_text("holds 1,000")
    queue.send("delete", {"before_seq": 9_999})  # no row tells of this: the next look does
    expect(console.cells()).to_have_count(2)
    console.expect_counts(ready=2, in_flight=0)


def test_what_the_page_shows_is_what_the_api_says_after_a_storm(console: Console, queue: Queue):
    console.open(queue)
    for round_ in range(40):
        queue.produce(*range(20))
        claim = queue.claim(f"w{round_ % 3}", 15)
        verb = ("ack", "ack", "nack", "extend")[round_ % 4]
        queue.send(verb, {"node": f"w{round_ % 3}", "lease_id": claim["lease_id"]})
    console.expect_counts(**{name: queue.about()[name] for name in ("ready", "in_flight", "delayed", "parked")})
    strip = queue.client.get(f"/v0/topics/{queue.name}/strip?head=30").json()["head"]
    console.page.wait_for_function(SHOWS, arg=[[job["$seq"], job["state"]] for job in strip])

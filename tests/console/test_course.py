"""The course on the running broker: its first seven scenes, what they leave behind, and when none can be played."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Console
from tests.kit.server import Running, serving

SCENES = ["async", "queue-or-log", "head-and-tail", "competing", "ack", "nack", "poison"]
SCOPES = "reader:read,producer:read+write"
PATIENCE_S = 30
# What a viewer sees come and go: the lines that are marked, and the chips that fly.
WITNESS = """() => {
    window.witnessed = { lines: [], chips: [] };
    const scene = document.querySelector(".scene");
    new MutationObserver((changes) => {
        for (const { target, addedNodes } of changes) {
            if (target.ariaCurrent) {
                const at = [...target.parentElement.children].indexOf(target) + 1;
                window.witnessed.lines.push(`${target.closest("[data-listing]").dataset.listing} ${at}`);
            }
            for (const node of addedNodes)
                if (node.classList?.contains("flying"))
                    window.witnessed.chips.push(`${node.className.replace("flying ", "")} ${node.textContent}`);
        }
    }).observe(scene, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-current"] });
}"""


def enter(console: Console, scene: str) -> None:
    console.page.goto(f"{console.url}/#/course/{scene}")
    expect(console.page.locator(f'.scene[data-scene="{scene}"]')).to_have_attribute("data-state", "waiting")


def step(console: Console, label: str) -> None:
    """Take the step that is next, and wait until it came out as promised."""
    scene = console.page.locator(".scene")
    at = int(scene.get_attribute("data-at") or 0)
    console.button(label).click()
    expect(scene).to_have_attribute("data-at", str(at + 1))
    expect(console.page.locator(".told")).not_to_have_class("told bad")


def play_to_the_end(console: Console) -> None:
    scene = console.page.locator(".scene")
    steps = console.page.locator(".dots li").count()
    for at in range(steps):
        expect(scene).to_have_attribute("data-at", str(at))
        console.page.locator(".teller button.primary").click()
        expect(scene).not_to_have_attribute("data-at", str(at))
        assert scene.get_attribute("data-state") != "failed", console.page.locator(".told").inner_text()
    expect(scene).to_have_attribute("data-state", "done")


def all_scratch(client: httpx.Client) -> list[str]:
    found = client.get("/v0/topics", params={"prefix": "scratch."}).raise_for_status().json()["topics"]
    return [topic["topic"] for topic in found]


@pytest.fixture
def scratch(client: httpx.Client) -> Callable[[], list[str]]:
    """The scratch queues of this test: tabs of others share the server, and a tab that is killed leaves its own."""
    before = set(all_scratch(client))
    return lambda: [name for name in all_scratch(client) if name not in before]


def expect_no_scratch(scratch: Callable[[], list[str]]) -> None:
    """The page deletes behind our back: waited for."""
    end = time.monotonic() + PATIENCE_S
    while left := scratch():
        assert time.monotonic() < end, left


def job(client: httpx.Client, topic: str, seq: int) -> Any:
    return client.get(f"/v0/topics/{topic}/jobs/{seq}")


@pytest.mark.full
@pytest.mark.parametrize("scenes", [SCENES[4:6], pytest.param(SCENES, marks=pytest.mark.full)], ids=["two", "seven"])
def test_scenes_play_to_their_end_and_leave_nothing(
    make_console: Callable[..., Console], server: Running, scratch: Callable[[], list[str]], scenes: list[str]
):
    console = make_console(server.url, reduced_motion="reduce")
    for scene in scenes:
        enter(console, scene)
        assert scratch(), scene
        play_to_the_end(console)
        expect(console.page.locator(".takeaway")).to_be_visible()
    console.page.goto(f"{console.url}/#/course")
    expect(console.page.locator(".scene-card")).to_have_count(14)
    expect(console.page.locator(".scene-card .played")).to_have_count(len(scenes))
    expect_no_scratch(scratch)


@pytest.mark.full
def test_the_ack_scene_shows_a_crash_that_loses_nothing_and_one_that_does(
    console: Console, client: httpx.Client, scratch: Callable[[], list[str]]
):
    enter(console, "ack")
    (topic,) = scratch()
    step(console, "Produce three jobs")
    step(console, "Claim as w1")
    expect(console.cell(1)).to_have_attribute("data-node", "w1")
    step(console, "Ack as w1")
    expect(console.cells()).to_have_count(2)
    step(console, "Start w2")
    expect(console.cell(2)).to_have_attribute("data-node", "w2")
    step(console, "Ack #2 as w1")
    expect(console.page.locator(".refusal")).to_have_text("✕ w1: ack #2 → 412 precondition_failed")
    expect(console.cell(2)).to_have_attribute("data-node", "w2")
    step(console, "Crash w2")
    expect(console.page.locator(".refusal")).to_be_hidden()
    expect(console.cells("ready")).to_have_count(2)
    expect(console.cells().first).to_have_attribute("data-seq", "2")
    expect(console.worker("w2")).to_have_count(0)
    assert [lease["end"] for lease in job(client, topic, 2).json()["history"]] == ["disconnect"]
    step(console, "Claim with auto-ack")
    expect(console.cell(2)).to_have_count(0)
    step(console, "Crash w3")
    assert job(client, topic, 2).status_code == 404
    expect(console.page.locator(".told")).to_contain_text("#2 is lost")
    expect(console.page.get_by_role("listitem", name="Job 2, lost")).to_be_visible()
    expect(console.page.locator(".scene-queue .counts")).to_have_text("1 available · 1 lost")


@pytest.mark.full
def test_the_code_of_the_ack_scene_follows_the_steps_and_jobs_and_acks_travel(console: Console):
    enter(console, "ack")
    expect(console.page.locator(".previously")).to_contain_text("exactly one of the workers")
    console.page.evaluate(WITNESS)
    for label in ("Produce three jobs", "Claim as w1", "Ack as w1", "Start w2", "Ack #2 as w1", "Crash w2"):
        step(console, label)
    step(console, "Claim with auto-ack")
    step(console, "Crash w3")
    lines: list[str] = console.page.evaluate("window.witnessed.lines")
    leased = ["Broker.lease 2", "Broker.lease 3", "Broker.lease 4"]
    acked = ["Worker.process 3", "Worker.process 4", "Broker.ack 2", "Broker.ack 5", "Broker.ack 7"]
    refused, crashed = ["Broker.ack 2", "Broker.ack 5", "Broker.ack 6"], ["Worker.process 5", "Worker.process 6"]
    lost = ["Broker.lease 2", "Broker.lease 5", "Broker.lease 6", "Worker.process 3"]
    assert lines == [*leased, *acked, *leased, "Worker.process 3", *refused, *crashed, *lost]
    expect(console.page.locator(".code [aria-current]")).to_have_text("        do_the_work(job.data)")
    chips: list[str] = console.page.evaluate("window.witnessed.chips")
    made, first, ack = ["job #1", "job #2", "job #3"], "job #1", "good ack #1"
    assert chips == [*made, first, ack, "job #2", "bad ack #2", "bad #2", "job #2", "bad #2"]


def test_the_strip_of_a_scene_is_in_the_middle_with_the_producer_above_the_workers_at_its_right(
    make_console: Callable[..., Console], server: Running
):
    console = make_console(server.url, reduced_motion="reduce", viewport={"width": 1280, "height": 900})
    enter(console, "ack")
    console.page.evaluate(WITNESS)
    for label in ("Produce three jobs", "Claim as w1", "Ack as w1", "Start w2"):
        step(console, label)
    middle, *right = (
        console.page.locator(f".scene-queue {part}").bounding_box()
        for part in (".middle", ".actor", '[data-worker="w1"]', '[data-worker="w2"]')
    )
    assert middle is not None
    tops = [box["y"] for box in right if box is not None and box["x"] >= middle["x"] + middle["width"]]
    assert len(tops) == 3, "all are at its right"
    assert tops == sorted(tops), "the producer above the workers"
    assert console.page.evaluate("window.witnessed.chips") == [], "whoever wants no motion gets none"


def test_a_scene_says_so_where_the_broker_did_something_else(
    console: Console, client: httpx.Client, scratch: Callable[[], list[str]]
):
    enter(console, "ack")
    (topic,) = scratch()
    step(console, "Produce three jobs")
    client.post(f"/v0/topics/{topic}/claim", json={"node": "a-stranger"}).raise_for_status()
    console.button("Claim as w1").click()
    expect(console.page.locator(".scene")).to_have_attribute("data-state", "failed")
    expect(console.page.locator(".told")).to_contain_text("did not do as promised: w1 got #2, not #1")
    expect(console.page.locator(".takeaway")).to_be_hidden()
    console.button("Start over").click()
    expect(console.page.locator(".scene")).to_have_attribute("data-state", "waiting")
    step(console, "Produce three jobs")
    assert topic not in scratch()


def test_a_tab_that_goes_away_takes_its_queues_along_and_a_dead_ones_are_swept(
    console: Console, make_console: Callable[..., Console], client: httpx.Client, scratch: Callable[[], list[str]]
):
    abandoned = "scratch.ack.jobs.kf000000-abcdef"
    for name in (abandoned, "scratch.mine"):
        client.put(f"/v0/topics/{name}", json={"type": "queue"}).raise_for_status()
    enter(console, "nack")
    (fresh,) = (name for name in scratch() if name.startswith("scratch.nack."))
    other = make_console(console.url)
    other.page.goto(f"{other.url}/#/course")
    expect(other.page.locator(".scene-card")).to_have_count(14)
    end = time.monotonic() + PATIENCE_S
    while abandoned in scratch():
        assert time.monotonic() < end
    assert sorted(scratch()) == ["scratch.mine", fresh]
    console.page.goto("about:blank")
    client.delete("/v0/topics/scratch.mine").raise_for_status()
    expect_no_scratch(scratch)


def test_queues_of_a_scene_are_not_among_the_queues(
    console: Console, make_console: Callable[..., Console], client: httpx.Client
):
    client.put("/v0/topics/scribe", json={"type": "queue"}).raise_for_status()
    enter(console, "poison")
    other = make_console(console.url, viewport={"width": 360, "height": 740})
    other.page.goto(other.url)
    other.page.get_by_label("Search queues").fill("scr")
    expect(other.page.locator('[data-queue="scribe"]')).to_be_visible()
    expect(other.page.locator('[data-queue^="scratch."]')).to_have_count(0)
    other.page.get_by_label("Search queues").fill("scratch.")
    expect(other.page.locator('[data-queue^="scratch.poison."]')).to_have_count(1)
    enter(other, "queue-or-log")
    step(other, "Append to both")
    assert other.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_key_without_the_scopes_is_told_which_and_gets_the_words(
    make_console: Callable[..., Console], tmp_path: Path
):
    with serving(tmp_path / "data", TENURE_API_KEYS=SCOPES) as guarded:
        console = make_console(guarded.url)
        console.page.goto(f"{console.url}/#/course/ack")
        console.page.get_by_label("API key").fill("reader")
        console.button("Open the console").click()
        told = console.page.locator(".told")
        expect(told).to_contain_text("This key lacks the scope write and admin and delete.")
        expect(console.page.locator(".script li")).to_have_count(8)
        expect(console.page.get_by_role("img", name="A claim goes from the queue to a worker")).to_be_visible()
        expect(console.page.locator(".teller button:visible")).to_have_count(0)
        console.page.evaluate("sessionStorage.setItem('tenure.key', 'producer')")
        console.page.reload()
        expect(told).to_contain_text("lacks the scope admin and delete.")
        with guarded.client(headers={"authorization": "Bearer reader"}) as client:
            assert all_scratch(client) == []

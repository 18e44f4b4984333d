"""The console for everybody: by keyboard alone, with a screen reader, in light and dark, without motion, on a phone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, Queue
from tests.kit.server import Running

VIEWS = ("", "queue/{queue}", "course", "course/ack", "course/canvas", "members")
PHONE = {"width": 360, "height": 780}
TABS_MAX = 40
NAMED = {"button", "link", "image", "textbox", "searchbox", "spinbutton", "checkbox", "combobox", "region"}
# The ratio of a text's colour to what lies behind it, by the definition of WCAG 2, for every text that can be seen.
CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour === "none" ? "transparent" : colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, under) => top.slice(0, 3).map((value, i) => value * top[3] + under[i] * (1 - top[3]));
    const light = (colour) => {
        const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.map((value) => linear(value / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, other) => {
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    // Everything that may lie behind an element: a gradient is taken at each of its stops.
    const behind = (element) => {
        if (element === null) return [rgba("Canvas").slice(0, 3)];
        const style = getComputedStyle(element);
        const under = behind(element.parentElement).map((colour) => over(rgba(style.backgroundColor), colour));
        const stops = style.backgroundImage.startsWith("linear-gradient") && element.matches(".cell")
            ? style.backgroundImage.match(/(rgba?|color)\\([^)]*\\)/g) : [];
        return stops.length ? stops.map((stop) => over(rgba(stop), under[0])) : under;
    };
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true })) continue;
        if (element.closest(":disabled, .leave, noscript")) continue;
        const style = getComputedStyle(element);
        const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
        ink[3] *= Number(style.opacity);
        const large = parseFloat(style.fontSize) >= (style.fontWeight >= 700 ? 18.66 : 24);
        const box = element instanceof SVGElement ? element.closest("g")?.querySelector(":scope > rect") : null;
        const fill = box ? rgba(getComputedStyle(box).fill) : [0, 0, 0, 0];
        const grounds = behind(element).map((colour) => over(fill, colour));
        const worst = Math.min(...grounds.map((colour) => ratio(over(ink, colour), colour)));
        if (worst < (large ? 3 : 4.5)) {
            const words = texts.currentNode.data.trim().slice(0, 20);
            found.push(`${element.parentElement.getAttribute("class")} "${words}" ${worst.toFixed(2)}`);
        }
    }
    return [...new Set(found)];
}"""
MOVES = """() => [...document.querySelectorAll("*")].filter((element) => {
    const style = getComputedStyle(element);
    return style.transitionDuration.split(", ").some((time) => parseFloat(time) > 0) || style.animationName !== "none";
}).length"""


@pytest.fixture
def busy(make_queue: Callable[..., Queue]) -> Queue:
    """A queue with something of everything: every state, a dead letter, a warning."""
    queue = make_queue(dead_letter=f"dead.{uuid.uuid4().hex[:8]}")
    queue.produce(*range(8))
    queue.claim("w1", 5)
    queue.send("nack", {"node": "w1", "seqs": [1], "dead": True, "reason": "broken"})
    queue.send("nack", {"node": "w1", "seqs": [2], "delay_ms": 600_000})
    for _ in range(3):
        queue.send("nack", {"node": "w1", "seqs": [3]})
        queue.claim("w1", 1)
    parked = make_queue(dlq_strategy="block")
    parked.produce("a")
    parked.claim("w1")
    parked.send("nack", {"node": "w1", "seqs": [1], "dead": True})
    return queue


def show(console: Console, view: str, queue: Queue) -> Page:
    """Open a view and wait until it shows what it is about."""
    console.page.goto(f"{console.url}/#/{view.format(queue=queue.name)}")
    if view.startswith("queue"):
        expect(console.page.locator(".status")).to_have_text("live")
        expect(console.page.locator(".letters .cell")).to_have_count(1)
        expect(console.cells("delayed")).to_have_count(1)
    elif view.startswith("course/"):
        expect(console.page.locator(".scene")).to_have_attribute("data-state", "waiting")
    else:
        expect(console.page.locator(".card").first).to_be_visible()
    return console.page


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached by {TABS_MAX} times Tab")


# By keyboard


def test_a_job_is_found_opened_and_left_by_keys_alone(console: Console, queue: Queue):
    queue.produce(*"abcd")
    console.open(queue)
    expect(console.cells()).to_have_count(4)
    tab_to(console.page, ".strip .cell")
    expect(console.cell(1)).to_be_focused()
    for key, seq in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 4), ("Home", 1), ("ArrowLeft", 1)):
        console.page.keyboard.press(key)
        expect(console.cell(seq)).to_be_focused()
    console.page.keyboard.press("Enter")
    panel = console.page.locator(".job")
    expect(panel).to_be_focused()
    expect(panel).to_contain_text("Job #1")
    console.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(console.cell(1)).to_be_focused()
    console.page.keyboard.press("Tab")
    assert not console.page.evaluate("document.activeElement.matches('.strip .cell')"), "the strip is one stop"


def test_the_focus_goes_to_the_next_job_when_its_own_is_done(console: Console, queue: Queue):
    queue.produce(*"abc")
    console.open(queue)
    console.cell(1).focus()
    console.page.keyboard.press("ArrowRight")
    queue.claim("w1", 2)
    queue.send("ack", {"node": "w1", "seqs": [2]})
    expect(console.cell(3)).to_be_focused()
    queue.claim("w1", 1)
    queue.send("ack", {"node": "w1", "seqs": [3]})
    expect(console.cell(1)).to_be_focused()


def test_closing_the_panel_of_a_job_that_is_done_leads_back_to_the_strip(console: Console, queue: Queue):
    queue.produce(*"ab")
    console.open(queue)
    console.cell(1).click()
    expect(console.page.locator(".job")).to_contain_text("Job #1")
    queue.claim("w1", 1)
    queue.send("ack", {"node": "w1", "seqs": [1]})
    expect(console.page.locator(".job")).to_contain_text("It is done")
    console.page.keyboard.press("Escape")
    expect(console.cell(2)).to_be_focused()


def test_a_dialog_keeps_the_focus_and_gives_it_back(console: Console, queue: Queue):
    console.page.goto(console.url)
    button = console.button("New queue")
    button.focus()
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_label("Name")).to_be_focused()
    for _ in range(12):
        console.page.keyboard.press("Tab")
        outside = "document.activeElement !== document.body && !document.activeElement.closest('dialog')"
        assert not console.page.evaluate(outside)
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()


# For a screen reader


@pytest.mark.parametrize("view", VIEWS)
def test_whatever_can_be_used_or_seen_has_a_name(console: Console, busy: Queue, view: str):
    page = show(console, view, busy)
    devtools = page.context.new_cdp_session(page)
    nodes: list[dict[str, Any]] = devtools.send("Accessibility.getFullAXTree")["nodes"]
    seen = [node for node in nodes if not node["ignored"] and node["role"]["value"] in NAMED]
    assert len(seen) > 5
    assert [node for node in seen if not node.get("name", {}).get("value")] == []


def test_cells_plots_and_workers_say_what_they_show(console: Console, busy: Queue):
    page = show(console, "queue/{queue}", busy)
    names = {seq: console.cell(seq).get_attribute("aria-label") for seq in (2, 3, 4, 8)}
    assert names == {
        2: "Job 2, delayed",
        3: "Job 3, in flight, held by w1, delivered 4 times",
        4: "Job 4, in flight, held by w1",
        8: "Job 8, available",
    }
    expect(page.locator(".strip .lane").first).to_have_accessible_name("Jobs, the next one first")
    expect(page.locator(".letters .cell")).to_have_accessible_name("Dead letter 1, was job 1, broken")
    expect(page.get_by_role("img", name="Time in queue, append to first claim: p50")).to_be_visible()
    expect(page.get_by_role("img", name="Throughput of the last minute: in ")).to_be_visible()
    expect(page.get_by_role("listitem", name="w1")).to_contain_text("holds 3")
    expect(console.button("Ack for w1")).to_be_visible()


# To the eye


@pytest.mark.parametrize("view", VIEWS)
def test_every_text_stands_out_from_what_is_behind_it_in_light_and_dark(
    make_console: Callable[..., Console], server: Running, busy: Queue, view: str
):
    console = make_console(server.url, color_scheme="light", reduced_motion="reduce")
    page = show(console, view, busy)
    assert page.evaluate(CONTRAST) == []
    if view.startswith("queue"):
        console.cell(3).click()
        expect(page.locator(".story")).to_be_visible()
        assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.full
@pytest.mark.parametrize("view", VIEWS)
def test_whoever_wants_no_motion_gets_none(
    make_console: Callable[..., Console], server: Running, busy: Queue, view: str
):
    console = make_console(server.url, reduced_motion="reduce")
    assert show(console, view, busy).evaluate(MOVES) == 0
    if view.startswith("queue"):
        console.page.emulate_media(reduced_motion="no-preference")
        assert console.page.evaluate(MOVES) > 0


@pytest.mark.full
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(make_console: Callable[..., Console], server: Running, busy: Queue, view: str):
    busy.produce(*range(60))
    busy.claim("a-worker-with-a-rather-long-name-that-does-not-fit", 3)
    console = make_console(server.url, viewport=PHONE, has_touch=True, is_mobile=True)
    page = show(console, view, busy)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    if view.startswith("queue"):
        console.cell(4).click()
        expect(page.locator(".story")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

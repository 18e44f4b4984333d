"""The second half of the course, dead letters to the design canvas, on the running broker; the canvas reckons right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console.conftest import Console
from tests.console.test_modules import run
from tests.kit.server import Running, serving

SCENES = ["dead-letter", "visibility", "prefetch", "ordering", "fan-out", "meters", "canvas"]
GONE = """async (prefix) => {
    const left = async (kind) => (await (await fetch(`/v0/${kind}?prefix=${prefix}`)).json())[kind].length;
    return (await left("topics")) + (await left("routers")) === 0;
}"""
KNOBS = {
    **{"arrivalPerS": 10, "processingMs": 100, "p99Ms": 400, "workers": 2, "prefetch": 1, "leaseMs": 30_000},
    **{"maxDeliveries": 5, "failedShare": 0, "deadLetter": True, "durability": "disk", "syncMs": 5},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of its own: a tab of another module that is killed leaves its queues on the one they share."""
    with serving(tmp_path_factory.mktemp("course") / "data", "--test-clock") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def tab(browser: Browser, server: Running) -> Iterator[Console]:
    """One tab for the module: a scene leaves nothing behind that the next could meet, which is what is tested."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    console = Console(context.new_page(), server.url)
    console.page.goto(console.url)
    yield console
    context.close()
    assert console.problems == []


@pytest.fixture
def page(tab: Console) -> Page:
    return tab.page


def enter(tab: Console, scene: str) -> Locator:
    """Go to a scene and wait until its queues are there."""
    tab.page.goto(f"{tab.url}/#/course/{scene}")
    found = tab.page.locator(f'.scene[data-scene="{scene}"]')
    expect(found).to_have_attribute("data-state", "waiting")
    return found


def step(scene: Locator, label: str) -> None:
    """Do the next step, which must be this one, and wait until it has come out as promised."""
    at = int(scene.get_attribute("data-at") or 0)
    scene.get_by_role("button", name=label, exact=True).click()
    expect(scene).to_have_attribute("data-at", str(at + 1))


def leave(tab: Console, client: httpx.Client, scene: str) -> None:
    """Go away, and wait until the broker has nothing left of the scene."""
    prefix = f"scratch.{scene}."
    assert client.get("/v0/topics", params={"prefix": prefix}).json()["topics"] != []
    tab.page.goto(f"{tab.url}/#/queues")
    expect(tab.page.get_by_role("heading", name="Queues")).to_be_visible()
    tab.page.wait_for_function(GONE, arg=prefix)


@pytest.mark.full
def test_a_silent_crash_gives_the_job_back_when_the_lease_runs_out_and_a_late_ack_is_skipped(
    tab: Console, client: httpx.Client
):
    scene = enter(tab, "visibility")
    step(scene, "Produce two jobs")
    expect(tab.cells("ready")).to_have_count(2)
    step(scene, "Claim as w1")
    expect(tab.cell(1)).to_have_attribute("data-node", "w1")
    step(scene, "Claim as w2")
    expect(tab.cell(2)).to_have_count(0)
    expect(tab.cell(1)).to_have_attribute("data-state", "in_flight")
    step(scene, "Let w1 fall silent")
    expect(tab.cell(1)).to_have_attribute("data-state", "ready")
    expect(tab.worker("w1")).to_have_count(0)
    expect(scene.locator(".told")).to_contain_text("ran out by itself")
    step(scene, "Work slowly as w2")
    expect(tab.cell(1)).to_have_attribute("data-node", "w2")
    topic = client.get("/v0/topics", params={"prefix": "scratch.visibility."}).json()["topics"][0]["topic"]
    job = client.get(f"/v0/topics/{topic}/jobs/1").json()
    assert (job["state"], job["node"]) == ("in_flight", "w2")
    assert job["history"][0]["end"] == "expired"
    step(scene, "Ack late as w1")
    expect(scene.locator(".told")).to_contain_text("Skipped")
    expect(tab.cell(1)).to_have_attribute("data-node", "w2")
    step(scene, "Ack as w2")
    expect(tab.cells()).to_have_count(0)
    expect(scene).to_have_attribute("data-state", "done")
    expect(scene.locator(".takeaway")).to_be_visible()
    leave(tab, client, "visibility")


_EACH_RUN = {"ordering", "dead-letter"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _EACH_RUN else pytest.mark.full)
        for name in SCENES
        if name != "visibility"
    ],
)
def test_a_scene_comes_out_as_it_promises_and_takes_its_topics_away(tab: Console, client: httpx.Client, name: str):
    scene = enter(tab, name)
    steps = scene.locator(".dots li").count()
    for at in range(steps):
        scene.locator("button.primary").click()
        expect(scene).to_have_attribute("data-at", str(at + 1))
        expect(scene.locator(".told")).not_to_have_class("told bad")
    expect(scene).to_have_attribute("data-state", "done")
    leave(tab, client, name)


def figures(page: Page, **knobs: Any) -> dict[str, Any]:
    found: dict[str, Any] = run(page, "scenes/design.js", "m.figures(x)", KNOBS | knobs)
    return found


def advice(page: Page, **knobs: Any) -> dict[str, Any]:
    found = run(page, "scenes/advice.js", "m.advice(x)", KNOBS | knobs)
    return {one["id"]: one for one in found}


def test_the_canvas_reckons_how_busy_workers_are_and_what_waits(page: Page):
    found = figures(page)
    assert found["busy"] == pytest.approx(10 * 0.102 / 2)
    rho = found["busy"]  # for two workers, Erlang's C is 2ρ² / (1 + ρ)
    assert found["backlog"] == pytest.approx(2 * rho**2 / (1 + rho) * rho / (1 - rho))
    assert figures(page, arrivalPerS=40)["growth"] == pytest.approx(40 - 2 / 0.102)
    assert figures(page, arrivalPerS=0)["backlog"] == 0
    assert run(page, "scenes/design.js", "[m.waitShare(1, 0.5), m.waitShare(3, 3), m.waitShare(2000, 1900) < 0.1]") == [
        pytest.approx(0.5),
        1,
        True,
    ]


def test_repeats_count_as_work_and_fill_the_dead_letter(page: Page):
    found = figures(page, failedShare=0.5, maxDeliveries=3)
    assert found["tries"] == pytest.approx(1.75)
    assert found["offered"] == pytest.approx(17.5)
    assert found["deadPerDay"] == pytest.approx(10 * 0.125 * 86_400)
    assert figures(page, failedShare=0.5, maxDeliveries=0)["tries"] == pytest.approx(2)
    assert figures(page, leaseMs=300)["failed"] == 0.01  # the slowest 1 in 100 lose a lease shorter than the p99


def test_the_canvas_says_what_to_set_and_is_content_once_it_is_set(page: Page):
    wrong = {"workers": 1, "arrivalPerS": 12, "leaseMs": 500, "prefetch": 20, "maxDeliveries": 0, "deadLetter": False}
    said = advice(page, **wrong)
    assert said["workers"]["set"]["workers"] == 2
    assert said["lease"]["set"]["leaseMs"] == 6_900  # 3 × (400 + 19 × 100)
    assert said["prefetch"]["set"]["prefetch"] == 2
    assert said["retries"]["set"] == {"maxDeliveries": 5, "deadLetter": True}
    fixed = wrong | {name: value for one in said.values() for name, value in one["set"].items()}
    assert [one["id"] for one in advice(page, **fixed).values() if not one["good"]] == []


def test_the_lease_must_be_three_times_the_p99(page: Page):
    assert advice(page, leaseMs=1_200)["lease"]["good"]
    short = advice(page, leaseMs=1_199)["lease"]
    assert (short["good"], short["set"]) == (False, {"leaseMs": 1_200})


def test_fsync_costs_a_wait_and_many_callers_share_it(page: Page):
    assert advice(page, durability="fsync")["sync"]["good"]
    busy = advice(page, durability="fsync", syncMs=20, arrivalPerS=400)["sync"]
    assert not busy["good"]
    assert "let 8 produce at once" in busy["why"]
    assert figures(page, durability="fsync")["perWorker"] == pytest.approx(1_000 / 107)


def test_turning_a_knob_changes_the_advice_and_the_button_takes_it(tab: Console, client: httpx.Client):
    enter(tab, "canvas")
    board = tab.page.get_by_role("region", name="Design canvas")
    board.get_by_label("Workers").fill("1")
    expect(board.locator('[data-advice="workers"]')).to_contain_text("the backlog grows")
    board.get_by_role("button", name="Set workers to 6").click()
    expect(board.get_by_label("Workers")).to_have_value("6")
    expect(board.locator('[data-advice="workers"]')).to_have_class("good")
    board.get_by_label("Lease ms").fill("")
    expect(board.get_by_role("list", name="Advice")).to_contain_text("out of its bounds")
    leave(tab, client, "canvas")


def test_the_canvas_takes_what_was_measured_of_a_queue(tab: Console, client: httpx.Client):
    client.put("/v0/topics/measured", json={"type": "queue", "lease_ms": 45_000, "max_deliveries": 7})
    enter(tab, "canvas")
    board = tab.page.get_by_role("region", name="Design canvas")
    board.get_by_label("Measured values of").select_option("measured")
    expect(board.get_by_label("Lease ms")).to_have_value("45000")
    expect(board.get_by_label("Max deliveries")).to_have_value("7")
    expect(board.locator('[data-advice="retries"]')).to_contain_text("a job is dropped")
    leave(tab, client, "canvas")
    client.delete("/v0/topics/measured")

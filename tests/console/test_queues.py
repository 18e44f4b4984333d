"""The list of queues: all of them, a page at a time, found by any part of their name and sorted by their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.console.conftest import Console
from tests.kit.server import Running, serving

COUNT = 1_001


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with 1,001 queues and 120 logs."""
    with serving(tmp_path_factory.mktemp("crowd") / "data") as running, running.client() as client:
        for number in range(COUNT):
            name = f"/v0/topics/team{number % 7}.job{number:04}.run"
            client.put(name, json={"type": "queue", "durability": "memory"}).raise_for_status()
        for number in range(120):
            client.put(f"/v0/topics/log{number:03}", json={"durability": "memory"}).raise_for_status()
        for number, jobs in ((500, 3), (900, 7)):
            name = f"/v0/topics/team{number % 7}.job{number:04}.run"
            client.post(name, json={"records": [{"data": 0}] * jobs}).raise_for_status()
        yield running


@pytest.fixture
def console(make_console: Callable[..., Console], crowded: Running) -> Console:
    console = make_console(crowded.url)
    console.page.goto(console.url)
    return console


def cards(console: Console) -> Locator:
    return console.page.locator(".card.queue")


@pytest.mark.full
def test_every_queue_is_reached_page_by_page(console: Console):
    place = console.page.locator(".pager .hint")
    expect(place).to_have_text("1–48 of 1,001 queues")
    seen: set[str] = set()
    for page in range(21):
        expect(place).to_have_text(f"{page * 48 + 1:,}–{min(page * 48 + 48, COUNT):,} of 1,001 queues")
        seen |= set(cards(console).evaluate_all("cards => cards.map((card) => card.dataset.queue)"))
        if page < 20:
            console.button("Next page").click()
    assert len(seen) == COUNT
    expect(console.button("Next page")).to_be_disabled()
    console.button("Previous page").click()
    expect(place).to_have_text("913–960 of 1,001 queues")


def test_a_queue_is_found_by_any_part_of_its_name(console: Console):
    search = console.page.get_by_role("searchbox", name="Search queues")
    search.fill("job0997")
    expect(cards(console)).to_have_count(1)
    expect(cards(console)).to_have_attribute("data-queue", "team3.job0997.run")
    search.fill("no such part")
    expect(console.page.locator("main")).to_contain_text("No queue has that in its name.")
    search.fill("log11")
    expect(console.page.locator(".logs tbody tr")).to_have_count(10)


def test_queues_are_sorted_by_a_figure_over_all_of_them(console: Console):
    console.page.get_by_label("Sort by").select_option("available")
    expect(cards(console).first).to_have_attribute("data-queue", "team4.job0900.run")
    expect(cards(console).nth(1)).to_have_attribute("data-queue", "team3.job0500.run")
    expect(cards(console)).to_have_count(48)


def test_a_long_list_of_logs_is_cut_with_its_number(console: Console):
    expect(console.page.locator(".logs tbody tr")).to_have_count(100)
    expect(console.page.locator(".logs")).to_contain_text("20 more logs: search for them.")

"""The servers that share a home: the view of members, and the banner of one that follows, live and without a reload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Console
from tests.console.test_access import CONTRAST, PHONE, tab_to
from tests.kit.clusters import FakeCluster, leading, member, standing

LEADER = "http://leader.example:4000"
# The sum of the browser's layout shifts, those within half a second of a key press or a click left out.
SHIFTS = """() => new Promise((done) => {
    let sum = 0;
    const seen = new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; });
    seen.observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(sum), 100);
})"""


# Whether the page has loaded a file.
HAS_LOADED = "file => performance.getEntriesByType('resource').some(({ name }) => name.endsWith(file))"

# Pairs of controls in the frame that lie on each other.
OVERLAPS = """() => {
    const controls = [...document.querySelectorAll(".top a, .top button")];
    const meet = (a, b) => a.left < b.right && b.left < a.right;
    const lies = (one) => (other) => meet(one.getBoundingClientRect(), other.getBoundingClientRect());
    return controls.filter((one, i) => controls.slice(i + 1).some(lies(one))).map((one) => one.textContent);
}"""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(
        leader=LEADER, members=[member(LEADER, role="leader", number=9), member("http://c.example:4000")]
    )


@pytest.fixture
def standby(cluster: FakeCluster) -> Iterator[str]:
    with standing(cluster) as url:
        yield url


@pytest.fixture
def console(make_console: Callable[..., Console], standby: str) -> Console:
    return make_console(standby)


def change(cluster: FakeCluster, **fields: Any) -> None:
    cluster.found = msgspec.structs.replace(cluster.found, **fields)


def members(console: Console) -> Page:
    console.page.goto(f"{console.url}/#/members")
    expect(console.page.locator("tbody tr").first).to_be_visible()
    return console.page


def banner(console: Console) -> Locator:
    return console.page.locator(".banner")


def test_a_standby_names_the_leader_on_every_view(console: Console) -> None:
    for view in ("queues", "queue/mail", "course", "members"):
        console.page.goto(f"{console.url}/#/{view}")
        expect(banner(console)).to_contain_text("This server is a standby. The leader is")
        link = banner(console).get_by_role("link", name=LEADER)
        link.dispatch_event("pointerdown")
        expect(link).to_have_attribute("href", f"{LEADER}/#/{view}")
        # The banner may be there before the module of the view, which a server that goes would leave half loaded.
        console.page.wait_for_function(HAS_LOADED, arg=f"/views/{view.partition('/')[0]}.js")
    console.page.goto(f"{console.url}/#/queues")
    expect(console.page.locator("main")).to_contain_text("A standby shows no queues")


def test_a_leader_has_no_banner_and_a_standby_that_leads_loses_its_own(console: Console, cluster: FakeCluster) -> None:
    console.page.goto(console.url)
    expect(banner(console)).to_be_visible()
    change(cluster, role="leader", leader=cluster.found.url)
    expect(banner(console)).to_be_hidden()
    change(cluster, role="standby", leader="")
    expect(banner(console)).to_contain_text("no server is known to lead")


def test_each_member_is_shown_with_its_role_and_place(console: Console, cluster: FakeCluster) -> None:
    page = members(console)
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text("http://a:4000 (here)")
    row = page.locator(f'tr[data-server="{LEADER}"]')
    for cell, words in {"role": "leader", "epoch": "7", "number": "9", "seen": "9 ms ago"}.items():
        expect(row.locator(f'[data-cell="{cell}"]')).to_have_text(words)
    change(cluster, follow_lag_links=12, follow_lag_ms=2_400, diverged_bytes=2_048, epoch=8, is_caught_up=False)
    for figure, words in {
        "role": "standby, catching up",
        "lag_links": "12",
        "lag": "2.4 s",
        "diverged": "2.0 KiB",
        "epoch": "8",
    }.items():
        expect(page.locator(f'[data-figure="{figure}"]')).to_have_text(words)
    change(cluster, members=[])
    expect(page.locator("tbody tr")).to_have_count(1)


def test_nothing_moves_when_the_lead_changes(console: Console, cluster: FakeCluster) -> None:
    page = members(console)
    place = page.locator("table").bounding_box()
    change(cluster, role="leader", leader=cluster.found.url, number=123_456)
    expect(banner(console)).to_be_hidden()
    change(cluster, role="standby", leader=LEADER)
    expect(banner(console)).to_be_visible()
    assert page.locator("table").bounding_box() == place
    assert page.evaluate(SHIFTS) < 0.1


def test_a_server_that_stops_answering_leaves_the_way_to_the_others(
    make_console: Callable[..., Console], cluster: FakeCluster
) -> None:
    with standing(cluster) as url:
        console = make_console(url)
        members(console)
    expect(banner(console)).to_contain_text("This server does not answer")
    expect(banner(console).get_by_role("link")).to_have_count(2)
    expect(console.page.locator("main")).to_contain_text("What is shown may be old")


def test_fault_50_an_address_that_is_none_is_no_link(console: Console, cluster: FakeCluster) -> None:
    """What is in a home was written by whoever can write there."""
    script = "javascript:document.title='owned'"
    change(cluster, leader=script, members=[member(script), member("<b>x</b>")])
    page = members(console)
    expect(banner(console)).to_contain_text(script)
    assert banner(console).get_by_role("link").count() == 0
    assert page.locator("tbody a").count() == 0
    assert page.locator("tbody b").count() == 0


def test_a_server_alone_says_how_to_add_another(make_console: Callable[..., Console]) -> None:
    with standing(None) as url:
        console = make_console(url)
        page = members(console)
        expect(page.locator("main")).to_contain_text("No other server shares this one's log")
        expect(banner(console)).to_be_hidden()


def test_the_leader_is_reached_by_keys_alone(console: Console) -> None:
    page = members(console)
    tab_to(page, f'.banner a[href^="{LEADER}"]')


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_and_nothing_is_wider_than_a_phone(
    make_console: Callable[..., Console], standby: str, theme: str
) -> None:
    console = make_console(standby, color_scheme=theme, viewport=PHONE)
    page = members(console)
    expect(banner(console)).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(OVERLAPS) == []


def test_a_queue_that_is_open_waits_for_its_server_to_lead_again(
    make_console: Callable[..., Console], cluster: FakeCluster
) -> None:
    with standing(leading()) as url:
        console = make_console(url)
        console.page.route(
            "**/v0/topics/**",
            lambda route: route.fulfill(status=421, json={"error": {"code": "not_leader", "message": "elsewhere"}}),
        )
        console.page.goto(f"{url}/#/queue/mail")
        expect(console.page.locator(".status")).to_have_text("this server is a standby")
        console.page.unroute("**/v0/topics/**")
        expect(console.page.locator(".status")).to_have_text("this queue is not there")

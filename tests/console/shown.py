"""What the page of a queue shows, and what the API says of the same queue, in the same words.

A page and a broker never stand still together: `differences` is asked again until it names none, or it is taken as
what the page has lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypedDict

from playwright.sync_api import Page

__all__ = ["Shown", "Stated", "agree", "differences", "shown", "stated"]

Ask = Callable[[str, str, Any], Any]
"""(method, path, body) to the answer's JSON."""

_COUNTS = ("ready", "suspects", "in_flight", "delayed", "parked", "dead")
_LETTERS_MAX = 24
_READ = """() => {
    const all = (query) => [...document.querySelectorAll(query)];
    const number = (text) => Number((text ?? "0").replace(/[^0-9]/g, "") || 0);
    const gap = document.querySelector(".strip .gap");
    return {
        counts: Object.fromEntries(all("[data-count]").map((one) => [one.dataset.count, number(one.textContent)])),
        cells: all(".strip .lane:not(.flow) .cell[data-seq]").map((cell) => [
            Number(cell.dataset.seq),
            cell.dataset.state,
            cell.dataset.node ?? null,
            cell.querySelector(".tries").hidden ? 0 : number(cell.querySelector(".tries").textContent),
        ]),
        hidden: gap.hidden ? 0 : number(gap.textContent),
        workers: Object.fromEntries(all(".worker").map((one) => [one.dataset.worker, Number(one.dataset.held)])),
        letters: all(".letters .cell").map((cell) => Number(cell.dataset.letter)),
        more_letters: number(document.querySelector(".letters .gap")?.textContent),
    };
}"""


class Shown(TypedDict):
    """As the page has it. A cell is (seq, state, node, deliveries where there were several)."""

    counts: dict[str, int]
    cells: list[list[Any]]
    hidden: int
    workers: dict[str, int]
    letters: list[int]
    more_letters: int


class Stated(TypedDict):
    """As the API has it: both ends of the queue, and everything that the page could show of them."""

    counts: dict[str, int]
    head: list[list[Any]]
    next: list[Any] | None
    tail: list[list[Any]]
    total: int
    workers: dict[str, int]
    letters: list[int]
    letters_count: int


def shown(page: Page) -> Shown:
    """Read the page."""
    found: Shown = page.evaluate(_READ)
    found["counts"] = {name: found["counts"][name] for name in _COUNTS}
    return found


def stated(ask: Ask, topic: str) -> Stated:
    """Ask the API."""
    about = ask("GET", f"/v0/topics/{topic}?touch=false", None)["queue"]
    strip = ask("GET", f"/v0/topics/{topic}/strip?head=200&tail=40&leases=200", None)
    workers: dict[str, int] = {}
    for lease in strip["leases"]:
        workers[lease["node"]] = workers.get(lease["node"], 0) + lease["held"]
    letters, count = _letters(ask, strip["config"].get("dead_letter"))
    return {
        "counts": {name: about[name] for name in _COUNTS},
        "head": [_cell(job) for job in strip["head"]],
        "next": strip["next"] and _cell(strip["next"]),
        "tail": [_cell(job) for job in strip["tail"]],
        "total": strip["count"] - about["parked"],
        "workers": workers,
        "letters": letters,
        "letters_count": count,
    }


def _cell(job: dict[str, Any]) -> list[Any]:
    return [job["$seq"], job["state"], job.get("node"), job["deliveries"] if job["deliveries"] > 1 else 0]


def _letters(ask: Ask, topic: str | None) -> tuple[list[int], int]:
    """The newest dead letters, newest first, and how many there are."""
    if topic is None:
        return [], 0
    about = ask("GET", f"/v0/topics/{topic}?touch=false", None)
    body = {"from_seq": max(0, about["head_seq"] - _LETTERS_MAX), "limit": _LETTERS_MAX}
    records = ask("POST", f"/v0/topics/{topic}/diff", body)["records"] if about["count"] else []
    return [record["$seq"] for record in reversed(records)], about["count"]


def differences(page: Shown, api: Stated) -> list[str]:
    """What the page shows otherwise than the API says; both ends of the strip are held against both ends."""
    found = [
        f"{name}: the page {page[name]}, the API {api[name]}"
        for name in ("counts", "workers", "letters")
        if page[name] != api[name]
    ]
    jobs, cells = api["head"] + api["tail"], page["cells"]
    head = next((at for at, (one, other) in enumerate(zip(cells, jobs, strict=False)) if one != other), len(cells))
    behind = cells[head:]
    if behind and behind[0] == api["next"]:
        behind = behind[1:]
    if behind and behind != jobs[-len(behind) :]:
        found.append(f"cells: from {behind[0]} on the page has others than {jobs[head : head + 1]}")
    if api["total"] - len(cells) != page["hidden"]:
        found.append(f"hidden: {page['hidden']} where {api['total']} - {len(cells)} are")
    if api["letters_count"] - len(page["letters"]) != page["more_letters"]:
        found.append(f"letters: {page['more_letters']} more where {api['letters_count']} are")
    return found


def agree(page: Page, ask: Ask, topic: str, *, within_s: float) -> tuple[float, list[str]]:
    """How long until the page and the API said the same, and what still differed where they never did.

    The API is asked before and after the page, so that nothing that moves meanwhile is taken for a difference.
    """
    started = time.monotonic()
    while True:
        before, seen, after = stated(ask, topic), shown(page), stated(ask, topic)
        found = differences(seen, after) if before == after else ["the queue did not rest"]
        took_s = time.monotonic() - started
        if not found or took_s > within_s:
            return took_s, found
        page.wait_for_timeout(20)

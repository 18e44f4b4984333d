"""What the page shows of workers that were lost: suspects in the strip and the counts, and the history of a job."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, Queue
from tests.console.shown import agree
from tests.console.test_modules import page, run
from tests.console.test_storm import asker

__all__ = ["page"]


def lose(queue: Queue, node: str, seqs: list[int], *, exit_code: int | None = 137) -> None:
    """Let a worker die that had begun these jobs; the others that it holds are returned."""
    gone = {"node": node, "exit_code": exit_code, "begun": {queue.name: seqs}}
    body = {"node": "next", "queues": [queue.name], "gone": [gone]}
    queue.client.post("/v0/workers/hello", json=body).raise_for_status()


def test_a_suspect_is_told_apart_from_the_jobs_that_wait(console: Console, queue: Queue):
    console.open(queue)
    queue.produce(*"abcde")
    queue.claim("w1", 4, isolate=True)
    expect(console.cells("in_flight")).to_have_count(4)
    expect(console.page.locator('[data-count="suspects"]')).to_be_hidden()
    lose(queue, "w1", [1, 2])
    console.expect_counts(ready=5, suspects=2, in_flight=0)
    suspects = console.page.locator(".strip .cell[data-suspect]")
    expect(suspects).to_have_count(2)
    expect(console.cell(1)).to_have_attribute("aria-label", "Job 1, a suspect, its worker was lost once")
    expect(console.cell(3)).to_have_attribute("data-next", "yes")
    expect(console.page.locator(".alarms")).to_contain_text("2 jobs wait apart")
    agree(console.page, asker(queue), queue.name, within_s=30)
    queue.claim("w2", 1, isolate=True, suspects=True)
    console.expect_counts(ready=4, suspects=1, in_flight=1)
    expect(suspects).to_have_count(1)


def test_the_history_says_how_each_delivery_ended_and_which_counted(console: Console, queue: Queue):
    queue.produce("a")
    queue.claim("w1", 1, isolate=True)
    queue.send("return", {"node": "w1", "seqs": [1], "reason": "a drain"})
    queue.claim("w2", 1, isolate=True)
    lose(queue, "w2", [1])
    console.open(queue)
    console.cell(1).click()
    drawer = console.page.locator(".job.card")
    rows = drawer.locator(".story tbody tr")
    expect(rows.nth(0)).to_contain_text("returned untried: a drain")
    expect(rows.nth(1)).to_contain_text("its worker was lost: exit code 137")
    facts = drawer.locator(".facts")
    expect(facts).to_contain_text("a suspect: it waits apart")
    assert facts.inner_text().split("\n")[2:6] == ["deliveries", "2", "tries", "0"]
    expect(facts).to_contain_text("once since the last verdict")


def test_losses_and_returns_are_plotted(console: Console, queue: Queue):
    console.open(queue)
    queue.produce(*"abc")
    queue.claim("w1", 3, isolate=True)
    lose(queue, "w1", [1])
    legend = console.page.locator(".plots .quantiles").first
    expect(legend).to_contain_text("lost 0.2/s")
    expect(legend).to_contain_text("returned 0.4/s")


def test_the_list_of_queues_shows_suspects(console: Console, queue: Queue):
    queue.produce("a")
    queue.claim("w1", 1, isolate=True)
    lose(queue, "w1", [1], exit_code=None)
    console.page.goto(f"{console.url}/#/queues")
    console.page.get_by_role("searchbox").fill(queue.name)
    card = console.page.locator(f'[data-queue="{queue.name}"]')
    expect(card).to_contain_text("suspects")
    expect(card.locator(".alarms")).to_contain_text("1 job waits apart")


SNAPSHOT: dict[str, Any] = {
    **{"topic": "q", "count": 3, "head_seq": 3, "tail": [], "leases": [], "leases_count": 0, "next_at": None},
    "config": {"retry_backoff": None, "dlq_strategy": "skip"},
    "queue": {"ready": 3, "suspects": 1, "in_flight": 0, "delayed": 0, "parked": 0, "dead_lettered": 0},
    "head": [
        {"$seq": 1, "state": "ready", "deliveries": 1, "tries": 0, "lost": 1},
        *({"$seq": seq, "state": "ready", "deliveries": 0} for seq in (2, 3)),
    ],
    "next": {"$seq": 2, "state": "ready", "deliveries": 0},
    "parked": [],
}
CLAIMED: dict[str, Any] = {"event": "claimed", "ts": 1, "node": "w", "lease_id": "l", "deadline": 9}
ENDED: dict[str, Any] = {"ts": 2, "node": "w", "lease_id": "l"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], [3, 1, 0, 2, False]),
        ([CLAIMED | {"runs": [1, 1]}], [2, 0, 1, 2, False]),
        ([CLAIMED | {"runs": [2, 2]}], [1, 1, 2, 1, False]),
        ([CLAIMED | {"runs": [2, 1]}, ENDED | {"event": "begun", "runs": [2, 1]}], [2, 1, 1, 3, False]),
        ([CLAIMED | {"runs": [2, 1]}, ENDED | {"event": "returned", "runs": [2, 1]}], [3, 1, 0, 2, False]),
        ([CLAIMED | {"runs": [2, 1]}, ENDED | {"event": "lost", "runs": [2, 1]}], [3, 2, 0, 3, True]),
        ([CLAIMED | {"runs": [1, 1]}, ENDED | {"event": "returned", "runs": [1, 1]}], [3, 0, 0, 2, True]),
    ],
    ids=["as it is", "a suspect", "others", "begun", "returned", "lost", "a suspect returned"],
)
def test_the_fold_counts_suspects_or_asks_for_a_look(page: Page, rows: list[Any], expected: list[Any]):
    after = """(() => {
        const state = m.fromSnapshot(x[0], { headMax: 10, tailMax: 2 });
        for (const row of x[1]) m.fold(state, row);
        const { ready, suspects, in_flight } = state.counts;
        return [ready, suspects, in_flight, m.nextJob(state)?.seq ?? null, state.unsure];
    })()"""
    assert run(page, "fold.js", after, [SNAPSHOT, rows]) == expected
